"""Whole nights under laws whose answer is known: recorded, and the recorded crossover against the truth."""

import math
from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np
import pytest

from fixtures import profiles
from fixtures.analysis.crossover import Crossover
from fixtures.analysis.crossover import Shape as Curve
from fixtures.analysis.measurements import Window
from fixtures.analysis.record import VariantRecord
from fixtures.load.prompts import Shape
from fixtures.simulator import laws, truth
from tests.perf.sim_nights.nights import Ended, Plan, record_of, run

PLANS = {
    "once": Plan(levels=(4, 8, 16)),
    "blackwell-tp8": Plan(law="blackwell-tp8", levels=(1, 3, 8), ranks=8, output_tokens=64),
    "cuda12.8": Plan(law="cuda12.8", levels=(1, 8), ranks=8),
    "always-faster": Plan(law="always-faster", levels=(2, 8)),
    "several": Plan(law="several", levels=(4, 8, 16, 32)),
    "eagle-paper-sglang": Plan(law="eagle-paper-sglang", levels=(6, 12, 24), output_tokens=64),
}


def recording(plan: Plan) -> Callable[[Path], Ended]:
    """Return what measures and records *plan* in a folder."""
    return lambda folder: run(plan, folder, "--record", "--reason", "the truth is known", "--accept-multiple")


NIGHTS = {name: recording(plan) for name, plan in PLANS.items()}


def recorded(ended: Ended) -> VariantRecord:
    """Return what a night has recorded of speculation."""
    assert ended.status == 0, ended
    (workload,) = record_of(ended.folder).workloads.values()
    return workload.variants["eagle3"]


def shape_of(folder: Path) -> Shape:
    """Return the workload of the night in *folder*."""
    return profiles.load(str(folder / "night.toml")).shape("short")


def true_crossovers(plan: Plan, shape: Shape) -> list[float]:
    """Return where the law of *plan* crosses, over many requests."""
    return truth.crossovers(laws.get(plan.law), arm_of(plan), plan.levels, shape, rounds=16)


def arm_of(plan: Plan) -> truth.Arm:
    """Return the speculative arm of *plan*."""
    return truth.Arm(steps=plan.steps, ranks=plan.ranks)


def true_ratios(plan: Plan, shape: Shape) -> list[float]:
    """Return the law's log ratio at each level for the very requests of the night, in its very windows."""
    law, arms = laws.get(plan.law), (arm_of(plan), truth.Arm(ranks=plan.ranks))
    out = []
    for level in plan.levels:
        discard = 1 if level == plan.levels[0] else 0
        cells = [truth.windows(law, arm, level, shape, rounds=plan.rounds, discard=discard) for arm in arms]
        fast, slow = map(mean_log_throughput, cells)
        out.append(fast - slow)
    return out


def mean_log_throughput(windows: Sequence[Window]) -> float:
    """Return the mean log of the windows' output tokens a second."""
    return sum(math.log(window.throughput_tok_s) for window in windows) / len(windows)


@pytest.mark.sim
@pytest.mark.parametrize("night", ["once", "eagle-paper-sglang"])
def test_the_recorded_interval_covers_the_true_crossover(night: str, nights: Callable[[str], Ended]) -> None:
    """Start, measure, record: the interval that comes out holds the concurrency at which the law crosses."""
    ended = nights(night)
    crossover = recorded(ended).crossover
    (true,) = true_crossovers(PLANS[night], shape_of(ended.folder))

    assert crossover.shape is Curve.CROSSES
    assert holds(crossover, true)


@pytest.mark.sim
@pytest.mark.parametrize("night", ["blackwell-tp8"])
def test_a_flat_curve_is_covered_for_the_requests_of_the_night(night: str, nights: Callable[[str], Ended]) -> None:
    """The seed's own curve is so flat that a per cent of luck with the prompts moves its crossing by a third.

    All launches share that luck, so what the interval must hold is where the law crosses for these very requests.
    """
    ended, plan = nights(night), PLANS[night]
    ratios = true_ratios(plan, shape_of(ended.folder))
    true = math.exp(float(np.interp(0.0, ratios[::-1], np.log(plan.levels)[::-1])))

    assert holds(recorded(ended).crossover, true)


def holds(crossover: Crossover, concurrency: float) -> bool:
    """Whether the interval of *crossover* holds *concurrency*."""
    low, high = crossover.interval
    return low <= concurrency <= high


@pytest.mark.sim
@pytest.mark.parametrize("night", PLANS)
def test_every_level_is_measured_as_the_law_has_it(night: str, nights: Callable[[str], Ended]) -> None:
    """The recorded ratio of each level is the law's for the same requests, within 2.5 %."""
    ended = nights(night)
    levels = recorded(ended).levels
    measured = [levels[level]["log_ratio"] for level in PLANS[night].levels]

    assert measured == pytest.approx(true_ratios(PLANS[night], shape_of(ended.folder)), abs=0.025)


@pytest.mark.sim
@pytest.mark.parametrize(
    ("night", "shape"),
    [
        ("always-faster", Curve.ALWAYS_FASTER),
        ("cuda12.8", Curve.ALWAYS_SLOWER),
    ],
)
def test_a_law_without_a_crossing_gets_the_word_for_it(
    night: str, shape: Curve, nights: Callable[[str], Ended]
) -> None:
    """A law under which one arm wins everywhere is recorded as such, and not as a crossover at an edge."""
    ended = nights(night)

    assert recorded(ended).crossover.shape is shape
    assert true_crossovers(PLANS[night], shape_of(ended.folder)) == []


@pytest.mark.sim
@pytest.mark.parametrize("night", ["several"])
def test_every_crossing_is_found(night: str, nights: Callable[[str], Ended]) -> None:
    """A curve that falls through 1, rises and falls again is recorded as multiple, each fall near its place."""
    ended = nights(night)
    crossover = recorded(ended).crossover
    true = true_crossovers(PLANS[night], shape_of(ended.folder))

    assert crossover.shape is Curve.MULTIPLE
    assert crossover.crossings == pytest.approx(true[::2], rel=0.2)
    assert holds(crossover, min(true))
    assert holds(crossover, max(true))
