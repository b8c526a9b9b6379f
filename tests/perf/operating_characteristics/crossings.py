"""Recordings whose true crossover is known: how often the interval holds it."""

from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial

import numpy as np

from fixtures.analysis.arms import arms_of
from fixtures.analysis.crossover import Crossover, Shape
from fixtures.analysis.estimates import estimate
from fixtures.analysis.measurements import BASELINE, Night
from tests.perf.operating_characteristics import controls
from tests.perf.operating_characteristics.cores import each
from tests.perf.operating_characteristics.faults import CURVES, LEVELS, Floats, logistic
from tests.perf.operating_characteristics.nights import NOISES, VARIANT, WORKLOAD, World
from tests.perf.operating_characteristics.suite import RULES

CROSSINGS: Mapping[str, tuple[Floats, float]] = {
    "1.5": (logistic(1.5), 1.5),
    "7": (logistic(7), 7.0),
    "7, flat": (CURVES["flat7"], 7.0),
    "17": (logistic(17), 17.0),
    "30, on a level": (logistic(30), 30.0),
    "50": (logistic(50), 50.0),
    "150": (logistic(150), 150.0),
    "none: always faster": (np.linspace(0.5, 0.06, len(LEVELS)), np.inf),
    "none: barely faster": (np.linspace(0.5, 0.01, len(LEVELS)), np.inf),
    "none: always slower": (np.linspace(-0.05, -0.4, len(LEVELS)), 0.0),
    "none: barely slower": (np.linspace(-0.01, -0.4, len(LEVELS)), 0.0),
}
"""Name → log speed-ups, and the true crossover; infinity and 0 are beyond the levels."""
THREE = np.log([1.5, 1.3, 1.10, 0.93, 0.95, 1.07, 0.95, 0.8])


@dataclass(frozen=True, slots=True, kw_only=True)
class Coverage:
    """How often a recording's interval holds the true crossover."""

    case: str
    noise: str
    covers: float
    called_multiple: float
    bootstrap: float | None
    """The negative control: the same from resampled windows; None where it was not asked."""


def coverage(noise: str, runs: int, seed: int, control: int = 0) -> list[Coverage]:
    """Return the coverage of every case of `CROSSINGS` from *runs* recordings each; the first *control* resampled."""
    seeds = [range(seed + 10_000 * i, seed + 10_000 * i + runs) for i in range(len(CROSSINGS))]
    return [*each(partial(_coverage, noise, control), zip(CROSSINGS, seeds, strict=True))]


def _coverage(noise: str, control: int, of: tuple[str, range]) -> Coverage:
    case, seeds = of
    curve, truth = CROSSINGS[case]
    nights = [World(seed, curve, NOISES[noise]).night(windows=5) for seed in seeds]
    found = [recorded_crossover(night) for night in nights]
    rng = np.random.default_rng(seeds.start)
    finite = bool(control) and 0 < truth < np.inf
    resampled = [controls.bootstrap_covers(night, truth, rng) for night in nights[:control]] if finite else []
    return Coverage(
        case=case,
        noise=noise,
        covers=float(np.mean([_covers(it, truth) for it in found])),
        called_multiple=float(np.mean([it.shape is Shape.MULTIPLE for it in found])),
        bootstrap=float(np.mean(resampled)) if resampled else None,
    )


def recorded_crossover(night: Night) -> Crossover:
    """Return the crossover that a record of *night* would hold, also where recording would refuse it."""
    arms = arms_of(night.cells)
    return estimate(arms[BASELINE, WORKLOAD], arms[VARIANT, WORKLOAD], LEVELS, RULES).crossover(RULES)


def _covers(it: Crossover, truth: float) -> bool:
    low, high = it.interval
    return low <= truth <= high


def multiple_seen(noise: str, runs: int, seed: int) -> float:
    """Return how often three crossings are called multiple."""
    nights = (World(seed + r, THREE, NOISES[noise]).night(windows=5) for r in range(runs))
    return float(np.mean([recorded_crossover(night).shape is Shape.MULTIPLE for night in nights]))
