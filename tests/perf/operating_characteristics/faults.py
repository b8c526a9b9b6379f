"""Known truths: curves of speed-up, and what a change does to them."""

from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]

LEVELS = (1, 2, 5, 10, 30, 70, 100, 250)
X = np.log(np.array(LEVELS, dtype=np.float64))


def logistic(crossover: float, high: float = np.log(1.6), low: float = np.log(0.75), width: float = 0.9) -> Floats:
    """Return a falling log speed-up at `LEVELS` that is 0 at *crossover*."""
    share = high / (high - low)
    middle = np.log(crossover) - width * np.log(share / (1 - share))
    out: Floats = high + (low - high) / (1 + np.exp(-(X - middle) / width))
    return out


CURVES: dict[str, Floats] = {
    "S45": logistic(45),
    "S31": logistic(31),
    "flat7": logistic(7, high=float(np.log(1.04)), low=float(np.log(0.90))),
}
"""Between levels; on a level (1.007 at 30); flat, as an issue once reported it (1.04 at 1)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Fault:
    """What a change does: log changes per level of each arm's throughput, and of what explains it."""

    baseline: Floats = field(default_factory=lambda: np.zeros(len(LEVELS)))
    variant: Floats = field(default_factory=lambda: np.zeros(len(LEVELS)))
    acceptance: Floats = field(default_factory=lambda: np.zeros(len(LEVELS)))
    """Of the acceptance length; its effect on throughput is in *variant*."""


def everywhere(change: float) -> Floats:
    """Return the log of 1 + *change* at each level."""
    return np.full(len(LEVELS), np.log1p(change))


def only(level: int, change: float) -> Floats:
    """Return the log of 1 + *change* at one level."""
    return np.where(np.array(LEVELS) == level, np.log1p(change), 0.0)


_UPPER = np.where(np.array(LEVELS) >= 70, logistic(105) - logistic(45), 0.0)
_SHARE = np.linspace(1, 0.7, len(LEVELS))

FAULTS: dict[str, Fault] = {
    "nothing": Fault(),
    "speculation −2 %": Fault(variant=everywhere(-0.02)),
    "speculation −5 %": Fault(variant=everywhere(-0.05)),
    "speculation −10 %": Fault(variant=everywhere(-0.10)),
    "acceptance length −10 %": Fault(variant=np.log(1 - 0.10 * _SHARE), acceptance=everywhere(-0.10)),
    "crossover 45 → 105": Fault(variant=_UPPER),
    "C=10 −15 %": Fault(variant=only(10, -0.15)),
    "C=100 −15 %": Fault(variant=only(100, -0.15)),
    "baseline −5 %": Fault(baseline=everywhere(-0.05)),
    "baseline −10 %": Fault(baseline=everywhere(-0.10)),
    "both arms −5 %": Fault(baseline=everywhere(-0.05), variant=everywhere(-0.05)),
    "both arms −10 %": Fault(baseline=everywhere(-0.10), variant=everywhere(-0.10)),
}
