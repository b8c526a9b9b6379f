"""Synthetic nights with known truth: a noise model of its own, never the formulas under test.

log throughput[arm, launch, level, window] = curve(arm, level) + fault + common night ± night ratio / 2
    + drift × launch slot + launch offset + launch × level part + modes + AR(1) between windows + white + outliers

All sizes are sds of logs (0.01 is 1 %). `middle` is an assumption; `h200` follows what was measured on one.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from datetime import date, timedelta

import numpy as np

from fixtures.analysis.measurements import BASELINE, Cell, Identity, Night, Quantiles, ServerFacts, Window
from tests.perf.operating_characteristics.faults import LEVELS, Fault, Floats, X

BASE = np.log(100 * np.exp(X) / (1 + np.exp(X) / 40))
"""Log tok/s of baseline: linear at first, then saturating."""
VARIANT, WORKLOAD, DIGEST = "eagle3", "chat", "d1"
ACCEPTANCE = 2.8
FIRST = date(2026, 1, 1)
ORDER = "ABBABAAB"
"""A baseline, B speculation; a mirrored second block."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Noise:
    """How a node shakes."""

    launch: float = 0.010
    launch_level: float = 0.005
    correlated: float = 0.007
    """AR(1) between windows, correlation 0.6."""
    white: float = 0.007
    outliers: float = 0.02
    """Share of windows that are 5 … 20 % low."""
    common: float = 0.010
    """Night to night, both arms."""
    ratio: float = 0.003
    """Night to night, between the arms."""
    drift: float = 0.002
    """sd of the linear drift per launch slot."""
    scale: tuple[float, ...] = (1.0,) * len(LEVELS)
    """Per level, of everything within a night."""
    modes: Mapping[int, float] = field(default_factory=dict)
    """Level → distance between two modes; each launch is in one of them."""
    dips: float = 0.0
    """Share of windows at exactly −7 %."""
    acceptance: float = 0.004
    ttft: float = 0.04
    """Launch sd of the median TTFT."""


MIDDLE = Noise()
QUIET = Noise(
    launch=0.005, launch_level=0.003, correlated=0.0035, white=0.0035, outliers=0.01, common=0.005, ratio=0.002
)
LOUD = Noise(launch=0.020, launch_level=0.010, correlated=0.014, white=0.014, outliers=0.04, common=0.015, ratio=0.004)
H200 = Noise(
    launch=0.0004,
    launch_level=0.0003,
    correlated=0.0007,
    white=0.0007,
    outliers=0.0,
    common=0.002,
    ratio=0.001,
    drift=0.0003,
    scale=(1, 1, 1, 1, 2, 3, 3, 5),
    modes={100: 0.04},
    dips=0.01,
    acceptance=0.0005,
    ttft=0.02,
)
"""Launch medians scatter by 0.1 % at C = 1 and 10 (measured: 0.05 %) and 0.5 % at 250 (0.2 %), in two modes 4 % apart
at 100; single windows at −7 %: a real H200, a little louder than it was."""
UNEQUAL = replace(MIDDLE, scale=(0.1, 0.1, 0.2, 0.3, 0.5, 1, 1, 1.5), modes={70: 0.04}, dips=0.01)
NOISES = {"quiet": QUIET, "middle": MIDDLE, "loud": LOUD, "h200": H200, "unequal": UNEQUAL}


class World:
    """A node over many nights: seeded, with a slow common walk and a slow walk of the ratio."""

    def __init__(self, seed: int, curve: Floats, noise: Noise) -> None:
        self.rng = np.random.default_rng(seed)
        self.curve, self.noise = curve, noise
        self._common = self.rng.standard_normal() * noise.common
        self._ratio = self.rng.standard_normal() * noise.ratio
        self._night = 0

    def night(
        self, fault: Fault | None = None, *, blocks: int = 2, windows: int = 3, noise: Noise | None = None
    ) -> Night:
        """Return the next night, with *blocks* blocks measured."""
        fault, noise = fault or Fault(), noise or self.noise
        self._walk()
        slots = ORDER[: 4 * blocks]
        logs = self._logs(slots, fault, noise, windows)
        cells = [
            self._cell(slot + 1, letter, level, logs[slot, i], fault, noise)
            for slot, letter in enumerate(slots)
            for i, level in enumerate(LEVELS)
        ]
        self._night += 1
        return Night(
            profile="synthetic",
            started_at=f"{FIRST + timedelta(days=self._night)}T01:00:00+00:00",
            identity=IDENTITY,
            environment={"host": "synthetic"},
            cells=tuple(cells),
        )

    def reseed(self, seed: int) -> None:
        """Go on with other luck."""
        self.rng = np.random.default_rng(seed)

    def _walk(self) -> None:
        kept, new = 0.8, float(np.sqrt(1 - 0.8**2))
        self._common = kept * self._common + new * self.rng.standard_normal() * self.noise.common
        self._ratio = kept * self._ratio + new * self.rng.standard_normal() * self.noise.ratio

    def _logs(self, slots: str, fault: Fault, noise: Noise, windows: int) -> Floats:
        """Return launches × levels × windows of log throughput."""
        rng, shape = self.rng, (len(slots), len(LEVELS))
        spec = np.array([letter == "B" for letter in slots])[:, None]
        mean = BASE + self._common + fault.baseline * ~spec + (self.curve + self._ratio + fault.variant) * spec
        slot = rng.standard_normal() * noise.drift * np.arange(len(slots))[:, None]
        scale = np.array(noise.scale)
        launch = rng.standard_normal((shape[0], 1)) * noise.launch + rng.standard_normal(shape) * noise.launch_level
        modes = np.zeros(shape)
        for level, distance in noise.modes.items():
            modes[:, LEVELS.index(level)] = (rng.random(shape[0]) < 0.5) * distance
        out: Floats = (mean + slot + launch * scale + modes)[..., None] + self._windows(shape, noise, windows) * scale[
            :, None
        ]
        return out

    def _windows(self, shape: tuple[int, int], noise: Noise, windows: int) -> Floats:
        rng = self.rng
        walk = rng.standard_normal((*shape, windows)) * noise.correlated
        for i in range(1, windows):
            walk[..., i] = 0.6 * walk[..., i - 1] + 0.8 * walk[..., i]
        out = walk + rng.standard_normal(walk.shape) * noise.white
        out -= (rng.random(walk.shape) < noise.outliers) * rng.uniform(0.05, 0.20, walk.shape)
        dips: Floats = (rng.random(walk.shape) < noise.dips) * 0.07 / np.array(noise.scale)[:, None]
        return out - dips

    def _cell(self, launch: int, letter: str, level: int, logs: Floats, fault: Fault, noise: Noise) -> Cell:
        variant = BASELINE if letter == "A" else VARIANT
        rng, i = self.rng, LEVELS.index(level)
        accepted = None
        if letter == "B":
            accepted = float(ACCEPTANCE * np.exp(fault.acceptance[i] + rng.normal() * noise.acceptance))
        ttft = float(0.05 * (1 + level / 40) * np.exp(rng.normal() * noise.ttft))
        return Cell(
            profile="synthetic",
            variant=variant,
            block=(launch + 3) // 4,
            launch=launch,
            concurrency=level,
            workload=WORKLOAD,
            workload_digest=DIGEST,
            rounds=tuple(_window(float(np.exp(log)), level, accepted, ttft, rng) for log in logs),
            server=SERVER,
            valid=True,
        )


class Together:
    """Several workloads measured in one night; their noise is independent, so no pair can lean on another."""

    def __init__(self, worlds: Mapping[str, World]) -> None:
        self.worlds = worlds

    def reseed(self, seed: int) -> None:
        """Go on with other luck."""
        for i, world in enumerate(self.worlds.values()):
            world.reseed(len(self.worlds) * seed + i)

    def night(
        self, fault: Fault | None = None, *, blocks: int = 2, windows: int = 3, noise: Noise | None = None
    ) -> Night:
        """Return the next night of all workloads."""
        nights = {
            name: world.night(fault, blocks=blocks, windows=windows, noise=noise) for name, world in self.worlds.items()
        }
        cells = [
            replace(cell, workload=name, workload_digest=name) for name, night in nights.items() for cell in night.cells
        ]
        return replace(next(iter(nights.values())), cells=tuple(cells))


def _window(tok_s: float, level: int, accepted: float | None, ttft: float, rng: np.random.Generator) -> Window:
    """Return a window whose step time and TPOT follow from its throughput, as in a full closed loop."""
    tpot = level / tok_s
    return Window(
        seconds=20.0,
        output_tokens=20.0 * tok_s,
        requests_completed=10,
        requests_failed=0,
        ttft_s=_quantiles(ttft * float(np.exp(rng.normal() * 0.03))),
        tpot_s=_quantiles(tpot),
        e2e_s=_quantiles(ttft + 200 * tpot),
        acceptance_length=accepted,
        verify_steps=None if accepted is None else 400,
        step_s=tpot * (accepted or 1.0),
        running_mean=float(level),
    )


def _quantiles(value: float) -> Quantiles:
    return Quantiles(p50=value, p95=1.2 * value, p99=1.4 * value)


def first_block(night: Night) -> Night:
    """Return *night* as it stands after block 1."""
    return replace(night, cells=tuple(cell for cell in night.cells if cell.block == 1))


IDENTITY = Identity(
    gpu="synthetic",
    gpu_count=1,
    target_model="target",
    draft_model="draft",
    tensor_parallel=1,
    variants={BASELINE: "b0", VARIANT: "e3"},
)
SERVER = ServerFacts(engine="synthetic", version="1", effective={})
