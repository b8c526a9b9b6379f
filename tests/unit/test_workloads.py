"""One variant's crossovers on two workloads: whether they differ, by how much, and whether that is as recorded."""

import math
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import pytest

from fixtures.analysis.crossover import Crossover, Shape
from fixtures.analysis.gate import Judgement, judge
from fixtures.analysis.measurements import Night
from fixtures.analysis.record import Record, make_record
from fixtures.analysis.rules import Rules
from fixtures.analysis.verdicts import Gate, Outcome, Verdict
from fixtures.analysis.workloads import difference
from tests.unit.handmade import changed, night

KEYS = (("eagle3", "short"), ("eagle3", "long"))
RULES = Rules(pairs=KEYS)
EARLY = {1: 1.4, 4: 1.1, 16: 0.9, 64: 0.7}
LATE = {1: 1.5, 4: 1.3, 16: 1.1, 64: 0.8}


def crossing(point: float | None, low: float | None, high: float | None, shape: Shape = Shape.CROSSES) -> Crossover:
    """A crossover within levels 1 … 64."""
    return Crossover(shape=shape, lowest=1, highest=64, point=point, low=low, high=high)


def both_workloads(short: Mapping[int, float], long: Mapping[int, float], **more: Any) -> Night:
    """One night of two workloads, served by the same launches."""
    parts = [night(of, workload=name, order="ABBABAAB", **more) for name, of in (("short", short), ("long", long))]
    return replace(parts[0], cells=tuple(cell for part in parts for cell in part.cells))


RECORD = make_record(both_workloads(EARLY, LATE), "first")
ALIKE = make_record(both_workloads(LATE, LATE), "first")


def judged(it: Night, record: Record | None = RECORD, rules: Rules = RULES) -> Judgement:
    """The judgement of *it* without a history."""
    return judge(it, record, [], rules)


def verdict(of: Judgement) -> Verdict:
    """The verdict on the two workloads."""
    (found,) = [v for v in of.verdicts if v.gate is Gate.WORKLOADS]
    return found


def test_ratio_is_put_together_from_both_intervals() -> None:
    """10 within 8 … 13 against 20 within 15 … 24: each bound is the squares of the two distances, added in logs."""
    of = difference(*KEYS, crossing(10, 8, 13), crossing(20, 15, 24))

    assert of.ratio == pytest.approx(2.0)
    assert of.low == pytest.approx(2 / math.exp(math.hypot(math.log(20 / 15), math.log(13 / 10))))
    assert of.high == pytest.approx(2 * math.exp(math.hypot(math.log(24 / 20), math.log(10 / 8))))
    assert of.larger == "long"
    assert of.sentence == "eagle3's crossover is larger on long: long / short = 2 (95 % interval 1.35 … 2.67)."


@pytest.mark.parametrize(
    ("short", "long", "larger"),
    [
        pytest.param(crossing(20, 15, 24), crossing(10, 8, 13), "short", id="the first is larger"),
        pytest.param(crossing(10, 8, 13), crossing(12, 9, 15), None, id="too near"),
        pytest.param(crossing(10, 8, 13), crossing(None, None, None, Shape.ALWAYS_FASTER), "long", id="beyond the top"),
        pytest.param(crossing(10, 8, 13), crossing(None, None, None, Shape.ALWAYS_SLOWER), "short", id="below all"),
        pytest.param(
            crossing(None, None, None, Shape.ALWAYS_FASTER),
            crossing(None, None, None, Shape.ALWAYS_FASTER),
            None,
            id="both beyond the top",
        ),
        pytest.param(crossing(10, 8, 13), crossing(20, None, None, Shape.NOT_RESOLVED), None, id="one is not resolved"),
        pytest.param(crossing(40, 30, None), crossing(10, 8, 13), "short", id="one end beyond the top"),
    ],
)
def test_only_what_is_told_apart_is_larger(short: Crossover, long: Crossover, larger: str | None) -> None:
    """Crossovers beyond the levels count as far as they are known."""
    assert difference(*KEYS, short, long).larger == larger


def test_difference_that_is_as_recorded_holds() -> None:
    """Long crosses later, tonight as in the record; the sentence stands in the verdict and is shown."""
    it = judged(both_workloads(EARLY, LATE))

    assert verdict(it).outcome is Outcome.HELD
    assert verdict(it).workload == "short and long"
    assert verdict(it).reason.startswith("eagle3's crossover is larger on long: long / short = ")
    assert [of.larger for of in it.differences] == ["long"]
    assert it.outcome is Outcome.HELD


def test_difference_that_turned_round_makes_the_record_stale() -> None:
    """Recorded larger on long, tonight larger on short, both beyond doubt."""
    it = judged(both_workloads(LATE, EARLY))

    assert verdict(it).outcome is Outcome.STALE
    assert "larger on short" in verdict(it).reason
    assert "Recorded: eagle3's crossover is larger on long" in verdict(it).reason
    assert "--record" in verdict(it).next_step


@pytest.mark.parametrize(
    ("record", "short", "long"),
    [(RECORD, LATE, LATE), (ALIKE, EARLY, LATE), (ALIKE, LATE, LATE)],
    ids=["no longer told apart", "now told apart", "alike as recorded"],
)
def test_answer_that_does_not_contradict_the_record_holds(
    record: Record, short: Mapping[int, float], long: Mapping[int, float]
) -> None:
    """Only opposite answers contradict each other; the levels have gates of their own."""
    assert verdict(judged(both_workloads(short, long), record)).outcome is Outcome.HELD


def test_crossover_that_is_not_resolved_leaves_the_question_open() -> None:
    """Launches that differ by a fifth say nothing of either crossover: inconclusive, not held."""
    factors = (1.0, 1.2, 0.8, 1.2, 0.8, 1.2, 1.0, 0.9)
    flat = dict.fromkeys(EARLY, 1.0)

    assert verdict(judged(both_workloads(flat, LATE, factors=factors))).outcome is Outcome.INCONCLUSIVE


def test_without_a_record_the_answer_is_shown() -> None:
    """Unrecorded, and the sentence stands all the same."""
    it = judged(both_workloads(EARLY, LATE), None)

    assert verdict(it).outcome is Outcome.UNRECORDED
    assert "larger on long" in verdict(it).reason


def test_invalid_cell_of_either_workload_is_invalid() -> None:
    """No crossover is made of it, so none is compared."""
    whole = both_workloads(EARLY, LATE)
    cells = [c for c in whole.cells if c.workload == "long"]
    bad = changed(replace(whole, cells=tuple(cells)), level=16, valid=False, invalid_reasons=("3 requests failed",))
    it = judged(replace(whole, cells=(*(c for c in whole.cells if c.workload == "short"), *bad.cells)))

    assert verdict(it).outcome is Outcome.INVALID
    assert "3 requests failed" in verdict(it).reason


def test_another_machine_is_shown_and_not_judged() -> None:
    """Under the signs rules crossovers are shown, and so is their difference."""
    it = judged(both_workloads(LATE, EARLY), rules=replace(RULES, scope="signs"))

    assert verdict(it).outcome is Outcome.HELD
    assert "shown, not judged" in verdict(it).reason


def test_what_is_not_gated_is_compared_and_not_judged() -> None:
    """A variant that is only shown has a sentence and no verdict."""
    it = judged(both_workloads(EARLY, LATE), rules=Rules(pairs=()))

    assert [of.sentence.partition(":")[0] for of in it.differences] == ["eagle3's crossover is larger on long"]
    assert it.verdicts == ()
