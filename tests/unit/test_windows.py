"""Windows are cut from hand-made traces whose numbers can be counted on fingers."""

import pytest

from fixtures.analysis.measurements import RequestTrace
from fixtures.analysis.windows import (
    Loop,
    Sample,
    acceptance_length,
    cut,
    edges,
    in_flight_deficit,
    prefills_a_step,
    step_s,
    tpot_s,
    turnaround_s,
)


def trace(index: int, sent: float, ended: float, tokens: int = 10, **more: object) -> RequestTrace:
    """A request that brings one token each (ended − sent) / tokens seconds, the last one at its end."""
    gap = (ended - sent) / tokens
    events = tuple((sent + gap * n, n) for n in range(1, tokens + 1))
    return RequestTrace(index=index, expected_tokens=tokens, sent_s=sent, events=events, ended_s=ended, **more)  # type: ignore[arg-type]


def one_stream(requests: int, seconds_each: float = 1.0) -> Loop:
    """One stream that finishes a request of ten tokens every second."""
    traces = tuple(trace(i, i * seconds_each, (i + 1) * seconds_each) for i in range(requests))
    return Loop(concurrency=1, traces=traces)


def test_window_opens_after_first_requests_and_a_warm_up_window() -> None:
    """With k = 2 at C = 1: one first request, two of warm-up, then windows of two."""
    loop = one_stream(9)

    assert edges(loop.traces, concurrency=1, k=2, rounds=3, discard=0) == [3.0, 5.0, 7.0, 9.0]


def test_discarded_window_comes_after_the_warm_up() -> None:
    """The first cell after a start leaves one window more out."""
    loop = one_stream(9)

    assert edges(loop.traces, concurrency=1, k=2, rounds=3, discard=1) == [5.0, 7.0, 9.0]


def test_no_edges_before_every_stream_has_finished_once() -> None:
    """A stream that is still on its first request keeps the warm-up open."""
    traces = (
        *(trace(i, i, i + 1) for i in (0, 2, 3, 4)),
        RequestTrace(index=1, expected_tokens=10, sent_s=0.0, events=((1.0, 1),)),
    )

    assert edges(traces, concurrency=2, k=1, rounds=1, discard=0) == []


def test_throughput_of_a_steady_stream() -> None:
    """Ten tokens a second are ten tokens a second, in each window."""
    windows = cut(one_stream(9), k=2, rounds=3, discard=0)

    assert [window.throughput_tok_s for window in windows] == pytest.approx([10.0, 10.0, 10.0])
    assert [window.requests_completed for window in windows] == [2, 2, 2]


def test_edge_tokens_are_interpolated_between_events() -> None:
    """An event of sixteen tokens that straddles an edge is shared out, not given to the window it arrived in."""
    steady = [trace(i, i, i + 1.0) for i in range(4)]
    straddling = RequestTrace(
        index=1, expected_tokens=48, sent_s=0.0, events=((0.0, 0), (1.0, 16), (5.0, 48)), ended_s=5.0
    )
    loop = Loop(concurrency=1, traces=(*steady, straddling))

    window = cut(loop, k=1, rounds=1, discard=0)[0]

    assert window.seconds == 1.0
    assert window.output_tokens == pytest.approx(10 + 8)


def test_request_in_flight_at_the_end_counts_up_to_the_edge() -> None:
    """Tokens of a request that the end of the cell cut off are tokens that were served."""
    loop = one_stream(3)
    unfinished = RequestTrace(index=9, expected_tokens=100, sent_s=0.0, events=((0.0, 0), (4.0, 40)))

    window = cut(Loop(concurrency=1, traces=(*loop.traces, unfinished)), k=1, rounds=1, discard=0)[0]

    assert window.output_tokens == pytest.approx(20.0)


def test_first_event_may_hold_several_tokens() -> None:
    """Four tokens at 0.5 s, then 127 events of four 40 ms apart: 10 ms a token, not 9.94 and not 40."""
    events = tuple((0.5 + 0.04 * n, 4 + 4 * n) for n in range(128))

    found = tpot_s(RequestTrace(index=0, expected_tokens=512, sent_s=0.0, events=events, ended_s=events[-1][0]))

    assert found == pytest.approx(0.010)


def test_reply_of_one_event_has_no_tpot() -> None:
    """Nothing was timed between two events, so there is no number."""
    assert tpot_s(RequestTrace(index=0, expected_tokens=5, sent_s=0.0, events=((1.0, 5),), ended_s=1.0)) is None


def test_acceptance_length_leaves_out_the_token_that_prefill_made() -> None:
    """16 tokens in 5 steps with 10 correct drafts: 3.0, where tokens / steps would say 3.2 (a real server's reply)."""
    real = trace(0, 0, 1, tokens=16, verify_steps=5, correct_drafts=10)

    assert acceptance_length([real]) == 3.0


@pytest.mark.parametrize(
    ("verify_steps", "expected"), [(None, 0.1), (3, 0.3)], ids=["a token a step", "three tokens a step"]
)
def test_step_time_counts_steps_and_not_tokens(verify_steps: int | None, expected: float) -> None:
    """Nine tokens after the first in 0.9 s are nine steps of 0.1 s, or three of 0.3 s under speculation."""
    assert step_s([trace(0, 0.0, 1.0, verify_steps=verify_steps)]) == pytest.approx(expected)


def request(index: int, *, sent: float, first: float, ended: float, tokens: int = 11) -> RequestTrace:
    """Return a request whose first token came at *first*."""
    events = ((first, 1), (ended, tokens))
    return RequestTrace(index=index, expected_tokens=tokens, sent_s=sent, events=events, ended_s=ended)


@pytest.mark.parametrize(
    ("firsts", "expected"),
    [
        ((1.0,), 0.0),
        ((1.0, 4.0, 7.0), 0.2),
        ((1.0, 4.0, 4.1, 7.0), 0.2),
        ((1.0, 1.1, 0.5, 12.0), 0.0),
    ],
    ids=["alone", "two passes of others", "two requests in one pass", "its own pass, and those before and after"],
)
def test_prefills_of_others_are_counted_between_steps(firsts: tuple[float, ...], expected: float) -> None:
    """Ten steps of a second, and the passes of others that came between them: several first tokens may be of one."""
    traces = [request(n, sent=0.0, first=first, ended=first + 10) for n, first in enumerate(firsts)]

    assert prefills_a_step(traces, traces[:1]) == pytest.approx(expected)


@pytest.mark.parametrize("sent", [1.0, 1.5], ids=["at once", "by a late client"])
def test_turnaround_is_the_servers_whenever_the_client_sent(sent: float) -> None:
    """From the completion to the first token of what took its place 2 s: the server was busy with a step meanwhile."""
    done = request(0, sent=0.0, first=0.1, ended=1.0)
    next_one = request(1, sent=sent, first=3.0, ended=9.0)

    assert turnaround_s([done, next_one], [next_one]) == pytest.approx(2.0)


def test_a_request_that_took_no_place_has_no_turnaround() -> None:
    """The first requests of a loop follow no completion."""
    first = request(0, sent=0.0, first=0.1, ended=1.0)

    assert turnaround_s([first], [first]) is None
    assert prefills_a_step([first], []) is None


def test_in_flight_deficit_is_the_missing_share() -> None:
    """Two streams of which one pauses for a quarter of the window: an eighth is missing."""
    loop = Loop(concurrency=2, traces=(trace(0, 0, 4), trace(1, 0, 2), trace(2, 3, 4)))

    assert in_flight_deficit(loop, 0.0, 4.0) == pytest.approx(0.125)


def test_failed_request_gives_no_latency() -> None:
    """A request that failed inside HTTP 200 is counted as failed and its times are not averaged in."""
    failed = trace(1, 2.0, 2.5, failure="in-band error")

    window = cut(Loop(concurrency=1, traces=(*one_stream(3).traces, failed)), k=1, rounds=1, discard=0)[0]

    assert (window.requests_failed, window.requests_completed, window.e2e_s) == (1, 0, None)


def test_samples_are_those_of_the_window() -> None:
    """What the server said before the window opened is not the window's."""
    samples = (Sample(stamp_s=1.5, running=9.0), Sample(stamp_s=2.5, running=1.0), Sample(stamp_s=2.8, running=0.0))
    loop = Loop(concurrency=1, traces=one_stream(3).traces, samples=samples)

    window = cut(loop, k=1, rounds=1, discard=0)[0]

    assert (window.running_mean, window.running_max) == (0.5, 1.0)
