"""Sweeps of several variants whose best choices can be read off the numbers that go in."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from fixtures.analysis.measurements import BASELINE, Cell, Identity, Night, ServerFacts
from tests.unit.handmade import window

SIZES = [1, 2, 4, 8, 16, 24, 32, 48, 64, 96, 128]
WORKLOAD = "chat"

OFF = {"speculative_algorithm": None, "speculative_num_steps": None, "speculative_adaptive": False}


def eagle3(steps: int, topk: int = 1, **more: Any) -> dict[str, Any]:
    """What a server says that drafts *steps* steps."""
    return {
        "speculative_algorithm": "EAGLE3",
        "speculative_draft_model_path": "head",
        "speculative_num_steps": steps,
        "speculative_eagle_topk": topk,
        "speculative_num_draft_tokens": steps + 1 if topk == 1 else 8,
        "speculative_adaptive": False,
        **more,
    }


FACTS: Mapping[str, dict[str, Any]] = {
    BASELINE: OFF,
    "eagle3": eagle3(3),
    "eagle3-light": eagle3(1),
    "eagle3-tree": eagle3(3, topk=4),
    "eagle3-idle": eagle3(0, speculative_adaptive=True),
    "adaptive": eagle3(3, speculative_adaptive=True),
    "other-head": eagle3(2, speculative_draft_model_path="another head"),
    "ngram": {**OFF, "speculative_algorithm": "NGRAM", "speculative_num_draft_tokens": 5},
}


def sweep(
    speeds: Mapping[str, Mapping[int, float]],
    *,
    noise: float = 0.001,
    launches: int = 2,
    sizes: Sequence[int] | None = SIZES,
    engine: str = "sglang",
    workload: str = WORKLOAD,
    max_running: int = 256,
) -> Night:
    """A sweep in which each variant's throughput is *speeds* (variant → level → tokens a second).

    An arm's launches are off by ±*noise* in turn, so that their median in logs is what was put in.
    """
    forth = list(speeds)
    order = [name for turn in range(launches) for name in (forth if turn % 2 == 0 else forth[::-1])]
    facts = {"decode_graph_batch_sizes": None if sizes is None else list(sizes), "max_running_requests": max_running}
    cells = []
    for number, name in enumerate(order, 1):
        turn = (number - 1) // len(forth)
        factor = (1 + noise) ** (1 if turn % 2 == 0 else -1)
        server = ServerFacts(engine=engine, version="0.5.17", effective={**facts, **FACTS.get(name, {})})
        cells += [
            _cell(name, number, turn // 2 + 1, level, tok_s * factor, server, workload)
            for level, tok_s in speeds[name].items()
        ]
    return _night(cells)


def _cell(variant: str, launch: int, block: int, level: int, tok_s: float, server: ServerFacts, workload: str) -> Cell:
    return Cell(
        profile="h200",
        variant=variant,
        block=block,
        launch=launch,
        concurrency=level,
        workload=workload,
        workload_digest=f"digest of {workload}",
        rounds=tuple(window(tok_s * each, level) for each in (1.0, 1.001, 0.999)),
        server=server,
        valid=True,
        steps_in_force=0 if variant == "eagle3-idle" else None,
    )


def _night(cells: Sequence[Cell]) -> Night:
    return Night(
        profile="h200",
        started_at="2026-02-01T01:00:00+00:00",
        identity=Identity(
            gpu="H200",
            gpu_count=1,
            target_model="llama",
            draft_model="head",
            tensor_parallel=1,
            variants=dict.fromkeys({cell.variant for cell in cells}, "digest"),
        ),
        environment={},
        cells=tuple(cells),
        expected=tuple(cell.key for cell in cells),
    )


def with_cells(night: Night, variant: str, level: int, **more: Any) -> Night:
    """*night* with the cells of *variant* at *level* changed."""
    cells = [replace(c, **more) if (c.variant, c.concurrency) == (variant, level) else c for c in night.cells]
    return replace(night, cells=tuple(cells))
