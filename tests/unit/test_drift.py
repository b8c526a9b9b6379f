"""A CUSUM over hand-made nights: what piles up alarms, what does not stays quiet."""

from dataclasses import replace

import pytest

from fixtures.analysis.gate import Judgement, judge
from fixtures.analysis.measurements import Night
from fixtures.analysis.record import make_record
from fixtures.analysis.verdicts import Gate, Outcome
from tests.unit.handmade import RULES, SPEEDUP, night, recording

RECORD = make_record(recording(), "first")
NAME = "eagle3 on chat"


def nights(*factors: float) -> list[Night]:
    """Accepted nights whose speed-ups are all off by these factors."""
    return [
        replace(night({c: r * f for c, r in SPEEDUP.items()}, day=day), status=str(Outcome.HELD))
        for day, f in enumerate(factors, 2)
    ]


def last(series: list[Night], **more: bool) -> Judgement:
    """The judgement of the last of *series* after the others."""
    return judge(series[-1], RECORD, series[:-1], replace(RULES, **more))  # type: ignore[arg-type]


def drift_outcome(of: Judgement) -> tuple[Outcome, str]:
    """The drift verdict."""
    return next((v.outcome, v.reason) for v in of.verdicts if v.gate is Gate.DRIFT)


CALM = [1.0] * 10


def test_quiet_before_the_reference_is_frozen() -> None:
    """Nine accepted nights are no reference yet: it says so and holds, else no night would ever be accepted."""
    outcome, reason = drift_outcome(last(nights(*[1.0] * 9)))

    assert outcome is Outcome.HELD
    assert "of 10 accepted nights" in reason


def test_steady_nights_stay_quiet() -> None:
    """Sixteen nights as recorded: no alarm, and the sums are at nothing."""
    it = last(nights(*CALM, *[1.0] * 6))

    assert it.drifts[NAME].alarms == ()
    assert max(it.drifts[NAME].down) == 0


def test_one_bad_night_is_no_drift() -> None:
    """A night at −6 % that was accepted is clipped: it does not alarm, nor the sound one after it."""
    assert last(nights(*CALM, 1.0, 0.94)).drifts[NAME].alarms == ()
    assert last(nights(*CALM, 0.94, 1.0)).drifts[NAME].alarms == ()


@pytest.mark.parametrize(("factor", "way"), [(0.98, "down"), (1.02, "up")])
def test_small_change_that_stays_alarms(factor: float, way: str) -> None:
    """2 % is too little for any one night, and ten of them are not."""
    series = nights(*CALM, *[factor] * 10)
    alarms = [last(series[:n]).drifts[NAME].alarms for n in range(12, 21)]
    first = next(names for names in alarms if names)

    assert f"mean over levels {way}" in first


def test_creep_alarms_although_each_night_is_like_the_one_before() -> None:
    """−0.2 % a night: a rolling reference would walk away with it, a frozen one does not."""
    creep = [1 - 0.002 * n for n in range(1, 18)]
    series = nights(*CALM, *creep)

    assert any(last(series[:n]).drifts[NAME].alarms for n in range(14, 28))


def test_sums_start_again_after_an_alarm() -> None:
    """One alarm a change, not one every night."""
    series = nights(*CALM, *[0.98] * 14)
    alarmed = [bool(last(series[:n]).drifts[NAME].alarms) for n in range(11, 25)]

    assert True in alarmed
    assert not alarmed[alarmed.index(True) + 1]


def test_alarm_is_a_ticket_unless_the_policy_fails_it() -> None:
    """The night holds with a ticket by default; `--drift-fails` makes it red."""
    series = nights(*CALM, *[0.98] * 10)
    n = next(n for n in range(12, 21) if last(series[:n]).drifts[NAME].alarms)

    outcome, reason = drift_outcome(last(series[:n]))
    assert outcome is Outcome.HELD
    assert reason.startswith("ticket")
    assert drift_outcome(last(series[:n], drift_fails=True))[0] is Outcome.REGRESSED


def test_rise_that_fails_is_a_stale_record() -> None:
    """Better for many nights: the record is behind."""
    series = nights(*CALM, *[1.02] * 10)
    n = next(n for n in range(12, 21) if last(series[:n]).drifts[NAME].alarms)

    assert drift_outcome(last(series[:n], drift_fails=True))[0] is Outcome.STALE
