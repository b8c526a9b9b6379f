"""Nights whose every number can be read off: throughput is level × 100 × speed-up × launch factor × window factor."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from fixtures.analysis.gate import Rules
from fixtures.analysis.measurements import BASELINE, Cell, Identity, Night, Quantiles, ServerFacts, Window

SPEEDUP = {1: 1.5, 4: 1.3, 16: 1.1, 64: 0.8}
CALM = (1.0, 1.002, 0.998)
RULES = Rules(pairs=(("eagle3", "chat"),))
IDENTITY = Identity(
    gpu="H200",
    gpu_count=1,
    target_model="llama",
    draft_model="head",
    tensor_parallel=1,
    variants={BASELINE: "b0", "eagle3": "e3"},
)


def window(tok_s: float, level: int, acceptance: float | None = None, **more: Any) -> Window:
    """A window of ten seconds in which a full closed loop served *tok_s*."""
    tpot = level / tok_s
    values: dict[str, Any] = {
        "seconds": 10.0,
        "output_tokens": 10 * tok_s,
        "requests_completed": 2 * level,
        "requests_failed": 0,
        "ttft_s": Quantiles(p50=0.05, p95=0.06, p99=0.07),
        "tpot_s": Quantiles(p50=tpot, p95=tpot, p99=tpot),
        "e2e_s": None,
        "acceptance_length": acceptance,
        "verify_steps": None if acceptance is None else 100,
        "step_s": tpot * (acceptance or 1),
        "running_mean": float(level),
        "queued_mean": 0.0,
    }
    return Window(**{**values, **more})


def night(
    speedup: Mapping[int, float] = SPEEDUP,
    *,
    order: str = "ABBA",
    factors: Sequence[float] = (1.004, 0.996, 1.004, 0.996, 1.004, 1.004, 0.996, 0.996),
    windows: Sequence[float] = CALM,
    acceptance: float | None = 3.0,
    base: float = 1.0,
    day: int = 1,
    workload: str = "chat",
    **more: Any,
) -> Night:
    """A night in *order* (A baseline, B eagle3), four launches a block; each launch is off by its factor."""
    cells = [
        _cell(number, letter, level, base * factor * (ratio if letter == "B" else 1), windows, acceptance, workload)
        for number, (letter, factor) in enumerate(zip(order, factors, strict=False), 1)
        for level, ratio in speedup.items()
    ]
    whole = Night(
        profile="h200",
        started_at=f"2026-01-{day:02d}T01:00:00+00:00",
        identity=IDENTITY,
        environment={"host": "node1", "driver": "570"},
        cells=tuple(cells),
    )
    return replace(whole, **more)


def _cell(
    number: int,
    letter: str,
    level: int,
    scale: float,
    windows: Sequence[float],
    acceptance: float | None,
    workload: str,
) -> Cell:
    length = acceptance if letter == "B" else None
    return Cell(
        profile="h200",
        variant=BASELINE if letter == "A" else "eagle3",
        block=(number + 3) // 4,
        launch=number,
        concurrency=level,
        workload=workload,
        workload_digest=f"digest of {workload}",
        rounds=tuple(window(100 * level * scale * each, level, length) for each in windows),
        server=ServerFacts(engine="sglang", version="0.5.17"),
        valid=True,
    )


def beside(whole: Night, variant: str, speedup: Mapping[int, float], **more: Any) -> Night:
    """*whole* with another speculative variant, launched after each launch of eagle3."""
    order = "ABBABAAB"[: max(c.launch for c in whole.cells)]
    theirs = [c for c in night(speedup, order=order, **more).cells if c.variant == "eagle3"]
    added = [replace(c, variant=variant, launch=10 * c.launch + 5) for c in theirs]
    kept = [replace(c, launch=10 * c.launch) for c in whole.cells]
    return replace(whole, cells=tuple(sorted([*kept, *added], key=lambda c: c.launch)))


def recording(speedup: Mapping[int, float] = SPEEDUP, **more: Any) -> Night:
    """Two blocks, five windows: what a record is made from."""
    return night(speedup, order="ABBABAAB", windows=(1.0, 1.002, 0.998, 1.001, 0.999), day=1, **more)


def without(whole: Night, *, variant: str, level: int, launch: int | None = None) -> Night:
    """*whole* with a cell missing; it was expected all the same."""
    kept = [c for c in whole.cells if not _is(c, variant, level, launch)]
    return replace(whole, cells=tuple(kept), expected=tuple(c.key for c in whole.cells))


def changed(whole: Night, *, variant: str | None = None, level: int | None = None, **more: Any) -> Night:
    """*whole* with some of its cells changed."""
    cells = [replace(c, **more) if _is(c, variant, level, None) else c for c in whole.cells]
    return replace(whole, cells=tuple(cells))


def rewound(whole: Night, *, variant: str | None = None, level: int | None = None, **more: Any) -> Night:
    """*whole* with every window of some of its cells changed."""
    cells = [
        replace(c, rounds=tuple(replace(w, **more) for w in c.rounds)) if _is(c, variant, level, None) else c
        for c in whole.cells
    ]
    return replace(whole, cells=tuple(cells))


def _is(cell: Cell, variant: str | None, level: int | None, launch: int | None) -> bool:
    asked = ((variant, cell.variant), (level, cell.concurrency), (launch, cell.launch))
    return all(want in (None, have) for want, have in asked)
