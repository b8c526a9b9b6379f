"""A trend names the nights on which something happened, and stays quiet when nothing did."""

from dataclasses import replace

import numpy as np
import pytest

from fixtures.analysis.arms import Summary, summarise
from fixtures.histories.events import MEAN, Event, Kind
from fixtures.histories.segments import noise_sd, spikes, stretches
from fixtures.histories.trends import Trend, trend
from tests.perf.operating_characteristics.faults import CURVES, LEVELS, Fault
from tests.perf.operating_characteristics.nights import NOISES, VARIANT, WORKLOAD, World

STEP_NIGHT, CREEP_FIRST, CREEP_LAST = 120, 250, 289
"""Nights, from 0, of the year below: −3 % from STEP_NIGHT on, −0.2 % a night from CREEP_FIRST to CREEP_LAST."""


def year(noise: str = "h200", nights: int = 365, *, faulty: bool = True) -> list[Summary]:
    """Return a year of nights, made by multiplying throughputs: nothing here knows of stretches or CUSUMs."""
    world, out, factor = World(9, CURVES["S45"], NOISES[noise]), [], 1.0
    for i in range(nights):
        factor *= 0.97 if faulty and i == STEP_NIGHT else 1.0
        factor *= 0.998 if faulty and CREEP_FIRST <= i <= CREEP_LAST else 1.0
        night = world.night(Fault(variant=np.full(len(LEVELS), np.log(factor))), blocks=1)
        driver = "580.159" if i < STEP_NIGHT or not faulty else "590.44"
        out.append(summarise(replace(night, environment={"driver": driver}, status="held")))
    return out


@pytest.fixture(scope="module")
def faulty() -> list[Summary]:
    """A year with a step and a creep, without two of its nights."""
    nights = year()
    del nights[60:62]
    return nights


def of_mean(found: Trend, kind: Kind) -> list[Event]:
    """Return the events of the mean over levels of one kind."""
    return [event for event in found.events if event.kind is kind and event.series == MEAN]


def trend_of(nights: list[Summary]) -> Trend:
    """Return the trend of the synthetic pair."""
    found = trend(nights, (VARIANT, WORKLOAD))
    assert found is not None
    return found


def test_step_is_shown_on_its_night_with_its_suspect(faulty: list[Summary]) -> None:
    """A step of −3 % is found on the very night, with the driver that changed then and the arm that moved."""
    [step] = of_mean(trend_of(faulty), Kind.STEP)

    assert step.night == faulty[STEP_NIGHT - 2].started_at
    assert step.change == pytest.approx(np.log(0.97), abs=0.003)
    assert step.suspects == ("driver 580.159 → 590.44",)
    assert step.arms is not None
    assert step.arms["baseline"] == pytest.approx(0, abs=0.003)
    assert step.arms[VARIANT] == pytest.approx(np.log(0.97), abs=0.003)
    assert len(step.also) == len(LEVELS)


def test_creep_is_shown_with_its_pace(faulty: list[Summary]) -> None:
    """A creep of −0.2 % a night, which no single night can see, is found with its pace and within days."""
    [creep] = of_mean(trend_of(faulty), Kind.CREEP)

    nights = [night.started_at for night in faulty]
    assert abs(nights.index(creep.night) - (CREEP_FIRST - 2)) <= 4
    assert abs(nights.index(str(creep.until)) - (CREEP_LAST - 2)) <= 4
    assert creep.change == pytest.approx(-0.002, abs=0.0002)


def test_missing_nights_are_shown(faulty: list[Summary]) -> None:
    """A gap in the calendar is said, with the first night after it."""
    [gap] = [event for event in trend_of(faulty).events if event.kind is Kind.MISSING]

    assert (gap.night, gap.count) == (faulty[60].started_at, 2)


def test_lone_night_is_a_spike(faulty: list[Summary]) -> None:
    """One bad night is shown as that and changes neither the step's night nor its size."""
    bad = faulty[200]
    arm = bad.arms[VARIANT, WORKLOAD]
    worse = replace(arm, values={**arm.values, "log_tok_s": arm.values["log_tok_s"] - 0.2})
    nights = [*faulty[:200], replace(bad, arms={**bad.arms, (VARIANT, WORKLOAD): worse}), *faulty[201:]]

    found = trend_of(nights)

    [spike] = of_mean(found, Kind.SPIKE)
    assert spike.night == bad.started_at
    assert spike.change == pytest.approx(-0.2, abs=0.01)
    [step] = of_mean(found, Kind.STEP)
    assert step.night == faulty[STEP_NIGHT - 2].started_at
    assert step.change == pytest.approx(np.log(0.97), abs=0.003)


@pytest.mark.parametrize("noise", ["quiet", "middle", "h200"])
def test_quiet_year_has_no_steps(noise: str) -> None:
    """A year without a change shows none in the mean over levels, although nights are not independent."""
    found = trend_of(year(noise, 200, faulty=False))

    assert of_mean(found, Kind.STEP) == []
    assert of_mean(found, Kind.CREEP) == []


def test_other_hardware_is_left_out(faulty: list[Summary]) -> None:
    """Nights on another GPU are not mixed in, and are named with both."""
    other = replace(faulty[0], identity=replace(faulty[0].identity, gpu="B200"))

    found = trend_of([other, *faulty[1:20]])

    assert len(found.nights) == 19
    assert found.left_out == (f"{other.started_at[:10]}: gpu was B200, is synthetic",)


@pytest.mark.parametrize("count", [0, 1], ids=["none", "one"])
def test_fewer_than_two_nights_are_no_trend(faulty: list[Summary], count: int) -> None:
    """Nothing is said of the history that a first night has."""
    assert trend(faulty[:count], (VARIANT, WORKLOAD)) is None


def test_last_nights_only(faulty: list[Summary]) -> None:
    """A trend over the last 30 nights has 30."""
    found = trend(faulty, (VARIANT, WORKLOAD), last=30)

    assert found is not None
    assert found.nights == tuple(night.started_at for night in faulty[-30:])


def test_short_and_constant_series_have_no_stretches() -> None:
    """Where there is no noise to compare with, nothing is claimed."""
    assert stretches(np.array([1.0, 2.0, 1.0])) == []
    assert stretches(np.ones(50)) == []
    assert noise_sd(np.array([np.nan, 1.0])) == 0.0
    assert spikes(np.array([np.nan]), 1.0) == []
