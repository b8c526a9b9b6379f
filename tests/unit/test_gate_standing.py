"""What cannot be judged has an outcome of its own; what a night is held against is fixed."""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import pytest

from fixtures.analysis.gate import Judgement, Rules, judge
from fixtures.analysis.measurements import Night
from fixtures.analysis.record import Record, make_record
from fixtures.analysis.verdicts import Gate, Outcome
from tests.unit.handmade import RULES, SPEEDUP, changed, night, recording, without

RECORD = make_record(recording(), "first")
BOTH = "ABBABAAB"


def tonight(speedup: Mapping[int, float] = SPEEDUP, **more: Any) -> Night:
    """A night with both blocks."""
    return night(speedup, **{"order": BOTH, "day": 20, **more})


def verdict(of: Judgement, gate: Gate, level: int | None = None) -> tuple[Outcome, str]:
    """The outcome and the reason of one verdict."""
    return next((v.outcome, v.reason) for v in of.verdicts if v.gate is gate and v.concurrency == level)


def outcomes(of: Judgement, gate: Gate) -> list[Outcome]:
    """The outcomes of one gate, level by level."""
    return [v.outcome for v in of.verdicts if v.gate is gate]


def judged(it: Night, record: Record | None = RECORD, rules: Rules = RULES) -> Judgement:
    """The judgement of *it* without a history."""
    return judge(it, record, [], rules)


def test_without_a_record_every_verdict_is_unrecorded_and_says_the_command() -> None:
    """Not held, not failed; the numbers are shown all the same."""
    it = judged(night(), None)

    assert it.outcome is Outcome.UNRECORDED
    assert {v.outcome for v in it.verdicts} == {Outcome.UNRECORDED}
    assert all("--profile h200 --record" in v.next_step for v in it.verdicts)
    assert it.rows[0].speedup == pytest.approx(1.5)
    assert it.sentences


def test_another_gpu_is_unrecorded_with_both_values() -> None:
    """A record of another machine says nothing about this one."""
    here = night()
    it = judged(replace(here, identity=replace(here.identity, gpu="B200")))

    assert it.outcome is Outcome.UNRECORDED
    assert "recorded 'H200', tonight 'B200'" in it.verdicts[0].reason


def test_changed_flags_of_the_gated_variant_are_unrecorded_and_of_another_are_not() -> None:
    """Only what the pair is made of must match."""
    here = night()
    flags = {**here.identity.variants, "eagle3": "other"}
    mine = judged(replace(here, identity=replace(here.identity, variants=flags)))
    other_record = replace(RECORD, identity=replace(RECORD.identity, variants={**here.identity.variants, "ngram": "x"}))
    others = {**here.identity.variants, "ngram": "y"}
    theirs = judged(replace(here, identity=replace(here.identity, variants=others)), other_record)

    assert mine.outcome is Outcome.UNRECORDED
    assert theirs.outcome is Outcome.HELD


def test_changed_workload_is_unrecorded() -> None:
    """Other prompts are another question."""
    it = judged(changed(night(), workload_digest="another"))

    assert it.outcome is Outcome.UNRECORDED
    assert "another" in it.verdicts[0].reason


def test_level_that_was_not_recorded_is_unrecorded_alone() -> None:
    """The others are judged; the curve is not."""
    it = judged(night({**SPEEDUP, 128: 0.7}))

    assert verdict(it, Gate.RATIO, 128)[0] is Outcome.UNRECORDED
    assert verdict(it, Gate.RATIO, 64)[0] is Outcome.HELD
    assert verdict(it, Gate.CROSSOVER)[0] is Outcome.UNRECORDED


def test_missing_cell_is_inconclusive_at_its_level_and_for_the_curve() -> None:
    """Absence never passes, and never makes a number."""
    it = judged(without(night(), variant="eagle3", level=16, launch=3))

    assert verdict(it, Gate.SIGN, 16)[0] is Outcome.INCONCLUSIVE
    assert "has 1 of 2 launches" in verdict(it, Gate.SIGN, 16)[1]
    assert verdict(it, Gate.SIGN, 4)[0] is Outcome.HELD
    assert verdict(it, Gate.CROSSOVER)[0] is Outcome.INCONCLUSIVE
    assert it.outcome is Outcome.INCONCLUSIVE


def test_second_block_that_was_not_needed_is_not_missing() -> None:
    """Its cells were expected to be possible, not to be there."""
    whole = tonight()
    first = replace(
        whole, cells=tuple(c for c in whole.cells if c.block == 1), expected=tuple(c.key for c in whole.cells)
    )

    assert judged(first).outcome is Outcome.HELD


def test_invalid_cell_has_one_reason_for_all_verdicts_that_it_takes_away() -> None:
    """So that the cause can be named once."""
    it = judged(changed(night(), variant="eagle3", level=16, valid=False, invalid_reasons=("3 requests failed",)))
    reasons = {v.reason for v in it.verdicts if v.outcome is Outcome.INVALID}

    assert it.outcome is Outcome.INVALID
    assert reasons == {"launch 2 (eagle3) at C=16: 3 requests failed"}
    assert verdict(it, Gate.CROSSOVER)[0] is Outcome.INVALID
    assert verdict(it, Gate.RATIO, 4)[0] is Outcome.HELD


def test_partial_run_judges_its_levels_and_not_the_curve() -> None:
    """`-k` or `--levels` leave a part: the part is judged."""
    some = {1: 1.5, 4: 1.3}
    it = judged(night(some), rules=replace(RULES, partial=True))

    assert outcomes(it, Gate.RATIO) == [Outcome.HELD] * 2
    assert verdict(it, Gate.CROSSOVER)[0] is Outcome.INCONCLUSIVE
    assert "partial run" in verdict(it, Gate.THROUGHPUT)[1]


def test_one_launch_an_arm_is_at_best_inconclusive() -> None:
    """However far speculation fell: one launch shows no noise between launches."""
    it = judged(night({**SPEEDUP, 1: 0.5}, order="AB"))

    assert it.outcome is Outcome.INCONCLUSIVE
    assert not it.failures()
    assert "one launch" in it.verdicts[0].reason


def test_nothing_measured_is_inconclusive() -> None:
    """An empty night holds nothing."""
    it = judged(replace(night(), cells=()))

    assert it.outcome is Outcome.INCONCLUSIVE


def test_drifting_order_is_invalid() -> None:
    """A A B B takes the node's warming for speculation's merit."""
    it = judged(night(order="AABB"))

    assert it.outcome is Outcome.INVALID
    assert "AABB" in it.verdicts[0].reason


SHAKING = (1.0, 0.96, 1.03)


def test_rough_night_is_inconclusive_and_never_fails() -> None:
    """Windows scatter thirty times as much as usual: neither yes nor no, also when speculation looks slow."""
    it = judged(night({**SPEEDUP, 1: 1.2}, windows=SHAKING))

    assert it.outcome is Outcome.INCONCLUSIVE
    assert "windows scatter" in it.noise[0]


def test_disagreeing_launches_are_inconclusive() -> None:
    """Launches 12 % apart on a node where they agree within 1 %."""
    it = judged(night(factors=(1.06, 0.94, 1.06, 0.94)))

    assert it.outcome is Outcome.INCONCLUSIVE
    assert "launches disagree" in it.noise[0]


def test_two_noisy_nights_in_a_row_fail_as_environment() -> None:
    """A node that shakes every night gates nothing, and says so in red."""
    before = replace(night(windows=SHAKING, day=19), status=str(Outcome.INCONCLUSIVE))
    it = judge(night(windows=SHAKING, day=20), RECORD, [before], RULES)

    assert it.outcome is Outcome.INVALID
    assert {v.reason for v in it.failures()} == {it.noise[0]}
    assert "environment" in it.noise[0]


def test_noisy_night_after_a_quiet_one_is_only_inconclusive() -> None:
    """One is an accident."""
    before = replace(night(day=19), status=str(Outcome.HELD))

    assert judge(night(windows=SHAKING, day=20), RECORD, [before], RULES).outcome is Outcome.INCONCLUSIVE


def accepted(speedup: Mapping[int, float], days: range, status: Outcome = Outcome.HELD) -> list[Night]:
    """A night a day with *speedup*, each with the outcome *status*."""
    return [replace(night(speedup, day=day), status=str(status)) for day in days]


def test_reference_is_the_record_and_ten_accepted_nights_weighed_by_launches() -> None:
    """Four launches at 1.5 and twenty at 1.53: the reference is 1.525; the eleventh night joins no more."""
    ten, eleven = accepted({**SPEEDUP, 1: 1.53}, range(2, 12)), accepted({**SPEEDUP, 1: 1.53}, range(2, 13))

    for history in (ten, eleven):
        it = judge(night(day=20), RECORD, history, RULES)
        assert it.rows[0].reference == pytest.approx(1.525, abs=1e-3)
        assert it.references[0].frozen


@pytest.mark.parametrize("status", [Outcome.REGRESSED, Outcome.STALE, Outcome.INVALID, Outcome.INCONCLUSIVE])
def test_night_that_did_not_hold_never_becomes_reference(status: Outcome) -> None:
    """Else the regression is tomorrow's normal: 100, 50, 50 must fail twice."""
    history = accepted({**SPEEDUP, 1: 1.2}, range(2, 12), status)
    it = judge(tonight({**SPEEDUP, 1: 1.2}), RECORD, history, RULES)

    assert it.references[0].nights == 0
    assert verdict(it, Gate.RATIO, 1)[0] is Outcome.REGRESSED


def test_night_judged_again_does_not_see_itself_nor_what_came_after() -> None:
    """A replay from a folder that has gone on gives the verdict of that evening."""
    then = night({**SPEEDUP, 1: 1.35}, order=BOTH, day=12)
    since = accepted({**SPEEDUP, 1: 1.35}, range(12, 20))
    it = judge(then, RECORD, [*accepted(SPEEDUP, range(2, 12)), *since], RULES)

    assert it.references[0].nights == 10
    assert it.references[0].trailing == 10
    assert verdict(it, Gate.RATIO, 1)[0] is Outcome.REGRESSED


def test_nights_before_the_record_are_not_its_reference() -> None:
    """A new record starts its own history."""
    record = replace(RECORD, recorded_at="2026-01-15T01:00:00+00:00")
    it = judge(night(day=20), record, accepted({**SPEEDUP, 1: 1.2}, range(2, 12)), RULES)

    assert it.references[0].nights == 0
