"""What streaming costs each arm: counted alike with and without, refused when one arm pays for it and the other not."""

import json
from collections.abc import Mapping
from dataclasses import replace

import msgspec
import pytest

from fixtures.analysis.measurements import BASELINE, Cell, Night, Streaming
from fixtures.analysis.record import Refused, make_record
from fixtures.analysis.streaming import StreamingTax, streaming_taxes
from fixtures.analysis.windows import Loop, at_ends, cut
from fixtures.launches import night as launches
from fixtures.load.prompts import Shape
from fixtures.planning import estimate, plan
from fixtures.profiles import load
from fixtures.simulator import laws
from fixtures.simulator.law import Law
from fixtures.simulator.truth.streams import Arm, Virtual
from fixtures.whole_replies import measurements
from tests.unit.handmade import RULES, night, recording
from tests.unit.scripted import Scripted

TOP = 64
NOISE = (0.004, -0.004, -0.004, 0.004)
"""Of the tax, launch by launch of an arm."""


def taxed(of: Night, taxes: Mapping[str, float], noise: tuple[float, ...] = NOISE) -> Night:
    """*of* with each arm's top level measured without streaming too: faster by its tax, which varies by *noise*."""
    seen: dict[str, int] = {}

    def beside(cell: Cell) -> Cell:
        if cell.concurrency != TOP or cell.variant not in taxes:
            return cell
        turn = seen[cell.variant] = seen.get(cell.variant, -1) + 1
        share = 1 - taxes[cell.variant] - noise[turn % len(noise)]
        whole = tuple(replace(window, seconds=window.seconds * share) for window in cell.rounds)
        return replace(cell, streaming=Streaming(streamed=cell.rounds, whole=whole))

    return replace(of, cells=tuple(map(beside, of.cells)))


def tax_of(of: Night) -> StreamingTax:
    """The tax of the one workload of *of*."""
    (tax,) = streaming_taxes(of.cells, RULES)
    return tax


def test_tax_is_what_was_put_in() -> None:
    """1 − streamed / whole throughput, mean over launches, per arm; the difference is variant − baseline."""
    found = tax_of(taxed(recording(), {BASELINE: 0.01, "eagle3": 0.06}))

    assert found.concurrency == TOP
    assert found.taxes == pytest.approx({BASELINE: 0.01, "eagle3": 0.06})
    assert found.differences["eagle3"].value == pytest.approx(0.05)


@pytest.mark.parametrize(
    ("base", "eagle3"), [(0.0, 0.06), (0.06, 0.0)], ids=["speculation pays", "baseline pays"]
)  # fmt: skip
def test_tax_of_one_arm_refuses_the_record(base: float, eagle3: float) -> None:
    """6 % against none, four launches an arm: the interval lies wholly beyond 2 %, and both taxes are named."""
    with pytest.raises(Refused, match=rf"eagle3 {eagle3:.1%} .*baseline {base:.1%}.* stream_interval"):
        make_record(taxed(recording(), {BASELINE: base, "eagle3": eagle3}), "first")


@pytest.mark.parametrize(
    ("base", "eagle3", "noise"),
    [
        (0.05, 0.05, NOISE),
        (0.0, 0.01, NOISE),
        (0.0, 0.01, (0.0,)),
        (0.0, 0.03, (0.03, -0.03, -0.03, 0.03)),
        (-0.01, 0.0, NOISE),
    ],
    ids=["both alike", "1 % apart", "1 % without noise", "3 % within its noise", "a gain"],
)
def test_tax_that_both_arms_pay_is_no_matter(base: float, eagle3: float, noise: tuple[float, ...]) -> None:
    """A difference up to 2 %, or one that the launches' noise explains, is recorded and not refused."""
    record = make_record(taxed(recording(), {BASELINE: base, "eagle3": eagle3}, noise), "first")
    found = record.workloads["digest of chat"].streaming_tax

    assert found
    assert found.taxes == pytest.approx({BASELINE: base, "eagle3": eagle3})
    assert msgspec.json.decode(msgspec.json.encode(record), type=type(record)) == record


def test_one_launch_an_arm_has_no_interval_and_refuses_nothing() -> None:
    """It is shown, with the reason why it says little."""
    found = tax_of(taxed(night(order="AB"), {BASELINE: 0.0, "eagle3": 0.5}))

    assert found.problems() == []
    assert "of one launch an arm" in " ".join(found.lines())
    assert "NaN" not in json.dumps(msgspec.to_builtins(found))


def test_night_without_whole_replies_says_so() -> None:
    """A night of every day has none; made a record later, it is recorded with that said."""
    (line,) = tax_of(recording()).lines()

    assert line.startswith("streaming tax on chat at C=64 not measured: ")


def test_launch_whose_whole_replies_failed_is_named() -> None:
    """Its arm has the other launches; nothing is skipped in silence."""
    of = taxed(recording(), {BASELINE: 0.01, "eagle3": 0.01})
    failed = Streaming(streamed=(), whole=(), reasons=("HTTP 400",))
    cells = [replace(c, streaming=failed) if c.launch == 2 and c.streaming else c for c in of.cells]
    found = tax_of(replace(of, cells=tuple(cells)))

    assert set(found.taxes) == {BASELINE, "eagle3"}
    assert found.lines()[1:] == ["streaming tax on chat at C=64 not measured: launch 2 (eagle3): HTTP 400"]


def test_whole_replies_touch_no_other_number() -> None:
    """A record's estimates are those of the streamed windows, whatever was measured beside them."""
    plain, beside = make_record(recording(), "x"), make_record(taxed(recording(), {BASELINE: 0.3, "eagle3": 0.3}), "x")
    (one,), (other,) = plain.workloads.values(), beside.workloads.values()

    assert (one.baseline, one.variants) == (other.baseline, other.variants)


SHAPE = Shape(
    prompt_tokens=128, output_tokens=256, output_spread=0.25, vocabulary=1000, temperature=0, stream_interval=16, seed=1
)


def loop(law: Law) -> Loop:
    """A closed loop of baseline under *law* that was waited for to its end."""
    level = 100
    traces = Virtual(law, Arm(), level, SHAPE).traces(9 * level)
    edge = sorted(trace.ended_s for trace in traces if trace.ended_s)[6 * level]
    return Loop(concurrency=level, traces=tuple(trace for trace in traces if trace.sent_s <= edge))


def test_whole_replies_are_counted_as_streamed_ones_are() -> None:
    """A server that streaming slows: by ends the tax is that of the tokens' own stamps, within 0.1 %."""
    fast = laws.get("h200")
    slow = replace(fast, decode=replace(fast.decode, fixed_s=fast.decode.fixed_s * 1.12))
    streamed, whole = loop(slow), loop(fast)

    true = 1 - tok_s(streamed) / tok_s(whole)
    assert true > 0.02
    assert 1 - tok_s(at_ends(streamed)) / tok_s(at_ends(whole)) == pytest.approx(true, abs=0.001)


def tok_s(of: Loop) -> float:
    """Output tokens a second over three windows of *of*."""
    windows = cut(of, k=1, rounds=3, discard=0)
    return sum(window.output_tokens for window in windows) / sum(window.seconds for window in windows)


def test_plan_counts_the_level_that_is_measured_twice() -> None:
    """With three windows of 20 s the top level without streaming takes six windows more: two minutes."""
    profile = load("h200")
    once, twice = (estimate(profile, [1, 250], 1, 3, (), whole).cells_s for whole in (None, 250))

    assert twice - once == pytest.approx(6 * profile.measurement.window_seconds)


@pytest.mark.parametrize(
    ("whole", "says", "asks"), [(250, True, False), (None, False, True)], ids=["recording", "judging"]
)
def test_plan_says_that_the_level_is_measured_twice(whole: int | None, says: bool, asks: bool) -> None:
    """A run that records does so, and has all its blocks; one that judges asks for the second one on a suspicion."""
    profile = load("h200")
    each = estimate(profile, [1, 250], 1, 3, (), whole)
    told = "\n".join(plan(profile, Scripted(), launches(profile, [BASELINE], 2), [1, 250], ["short"], each, whole))

    assert ("C = 250 once more without streaming" in told) is says
    assert ("only on a suspicion" in told) is asks


def test_time_to_go_counts_it_too() -> None:
    """Two cells, one of them measured twice, are three loops; in a run that only judges they are two."""
    keys = [("chat", BASELINE, 1, 1), ("chat", BASELINE, 1, 250)]

    assert (measurements(keys, 250), measurements(keys, None)) == (3, 2)
