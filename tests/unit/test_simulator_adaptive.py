"""SGLang's adaptive speculation, as its configuration file rules it."""

import json
from pathlib import Path
from typing import Any

import pytest

from fixtures.simulator import adaptive

SIZES = (1, 2, 4, 5, 8, 10, 30, 32, 48, 64, 70, 100, 250)


def policy(tmp_path: Path, table: dict[str, Any], start: int | None = None) -> adaptive.Adaptive:
    """Return the policy of *table* written to a file."""
    path = tmp_path / "adaptive.json"
    path.write_text(json.dumps(table))
    return adaptive.load(str(path), start, SIZES)


@pytest.mark.parametrize(
    ("batch", "candidates"),
    [(1, [1, 3, 5, 7]), (5, [1, 3, 5, 7]), (8, [0, 1, 3]), (30, [0, 1, 3]), (48, [0, 1]), (61, [0]), (250, [0])],
)
def test_the_built_in_slots_are_routed_by_the_padded_batch(batch: int, candidates: list[int]) -> None:
    """Without a file SGLang's own slots hold, and 61 requests pad to 64, where speculation is off."""
    assert adaptive.load(None, 3, SIZES).slot(batch).candidate_steps == candidates


@pytest.mark.parametrize(
    ("table", "start", "message"),
    [
        pytest.param({"candidate_steps": [1, 3]}, 3, "no batch-size slot", id="the older flat form"),
        pytest.param({"1": {"candidate_steps": [1, 5]}}, 3, "not among the adaptive candidates", id="a foreign start"),
    ],
)
def test_a_file_that_sglang_refuses_is_refused(
    tmp_path: Path, table: dict[str, Any], start: int | None, message: str
) -> None:
    """What stops the real server stops this one."""
    with pytest.raises(ValueError, match=message):
        policy(tmp_path, table, start)


@pytest.mark.parametrize(
    ("correct", "steps"),
    [
        pytest.param(0.0, 1, id="nothing is right: down to the least"),
        pytest.param(2.0, 3, id="two of three: stays"),
        pytest.param(6.0, 7, id="everything is right: up to the most"),
    ],
)
def test_the_moving_average_leads_to_the_steps_that_acceptance_carries(
    tmp_path: Path, correct: float, steps: int
) -> None:
    """From three steps a steady acceptance leads to the candidate that fits it."""
    slot = policy(tmp_path, {"1": {"candidate_steps": [1, 3, 7]}}, 3).slot(1)

    for _ in range(200):
        slot.observe(min(correct, slot.steps))

    assert slot.steps == steps


def test_zero_steps_are_left_again_for_a_probe(tmp_path: Path) -> None:
    """At 0 steps there is nothing to judge by, so the least positive step is probed again and again."""
    slot = policy(tmp_path, {"1": {"candidate_steps": [0, 1]}}, 1).slot(1)
    seen: set[int] = set()

    for _ in range(200):
        slot.observe(0.1 * slot.steps)
        seen.add(slot.steps)

    assert seen == {0, 1}
