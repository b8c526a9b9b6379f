"""The server's counters against the client's traces: what agrees is quiet, what does not is named with both numbers."""

import pytest

from fixtures.analysis.crosschecks import disagreements, growth
from fixtures.analysis.measurements import RequestTrace


def trace(tokens: int, *, expected: int = 101, steps: int | None = None) -> RequestTrace:
    """Return a request with *tokens* of *expected* received; it ended if it has them all."""
    return RequestTrace(
        index=0,
        expected_tokens=expected,
        sent_s=0.0,
        events=((1.0, tokens),),
        ended_s=2.0 if tokens == expected else None,
        verify_steps=steps,
    )


DONE, IN_FLIGHT = [trace(101)] * 10, [trace(50)] * 2
"""1010 tokens in requests that ended; 100 received and 202 to come at most in those that did not."""


@pytest.mark.parametrize("generated", [1010, 1110, 1212], ids=["when ended", "as it goes", "to the end"])
def test_a_request_in_flight_may_be_counted_or_not(generated: float) -> None:
    """Servers count a request when it has ended or as it goes: both agree with the client."""
    assert disagreements([*DONE, *IN_FLIGHT], {"generated_tokens": generated}) == []


@pytest.mark.parametrize(
    ("generated", "quiet"),
    [(991, True), (988, False), (1235, True), (1238, False)],
    ids=["low", "lost", "high", "more"],
)
def test_tokens_agree_within_two_per_cent(generated: float, quiet: bool) -> None:
    """Up to 2 % below what ended and above what could have been received is agreement."""
    assert (disagreements([*DONE, *IN_FLIGHT], {"generated_tokens": generated}) == []) == quiet


def test_foreign_tokens_are_named_with_both_numbers() -> None:
    """A server that generated twice as much works for somebody else too."""
    (reason,) = disagreements([*DONE, *IN_FLIGHT], {"generated_tokens": 2020})

    assert "the server generated 2020 tokens, but the client received 1010" in reason


SPECULATED = [trace(101, steps=40)] * 10
"""1000 tokens after the first ones in 400 verify steps: 2.5 a step."""


@pytest.mark.parametrize(
    ("calls", "quiet"), [(400, True), (384, True), (379, False), (419, True), (423, False)],
    ids=["equal", "4 % more", "5.5 % more", "4.5 % less", "5.5 % less"],
)  # fmt: skip
def test_acceptance_agrees_within_five_per_cent(calls: float, quiet: bool) -> None:
    """Beyond 5 % the server and its replies speak of different steps."""
    assert (disagreements(SPECULATED, {"generated_tokens": 1010, "verify_calls": calls}) == []) == quiet


def test_other_steps_are_named_with_both_numbers() -> None:
    """Half as many verify calls as the replies say is a double acceptance length."""
    (reason,) = disagreements(SPECULATED, {"generated_tokens": 1010, "verify_calls": 200})

    assert "acceptance length 5.00 by the server's counters, but 2.50 by the requests (allowed 5%)" in reason


@pytest.mark.parametrize(
    ("traces", "counters"),
    [
        (SPECULATED, {}),
        (SPECULATED, {"verify_calls": 1}),
        (SPECULATED, {"generated_tokens": 1010}),
        (DONE, {"generated_tokens": 1010, "verify_calls": 1}),
    ],
    ids=["no counters", "no tokens", "no verify calls", "requests that do not say"],
)
def test_absent_counters_check_nothing(traces: list[RequestTrace], counters: dict[str, float]) -> None:
    """What one side does not say cannot disagree."""
    assert disagreements(traces, counters) == []


def test_counters_are_differences() -> None:
    """What the server did before the cell is not the cell's; a counter that was absent began at 0."""
    assert growth({"generated_tokens": 70.0}, {"generated_tokens": 100.0, "retractions": 2.0}) == {
        "generated_tokens": 30.0,
        "retractions": 2.0,
    }


def test_a_page_that_was_missing_once_says_nothing() -> None:
    """Totals since the start are never taken for those of the cell."""
    assert growth({}, {"generated_tokens": 100.0}) == {}
    assert growth({"generated_tokens": 70.0}, {}) == {}
