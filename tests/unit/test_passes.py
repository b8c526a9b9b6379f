"""Decode steps told apart from the prefill passes between them, and what a server admits."""

from typing import Any

import pytest

from fixtures.analysis.passes import admitted_share, bare_step_s
from tests.unit.handmade import window


def bare(**values: Any) -> float | None:
    """Return the bare step of a window with *values*."""
    return bare_step_s(window(400, 4, **values))


@pytest.mark.parametrize("prefill_s", [0.002, 0.004, 0.02], ids=["short", "twice as long", "longer than a step"])
def test_a_step_is_the_same_whatever_prefill_takes(prefill_s: float) -> None:
    """Steps of 10 ms with a prefill pass before every tenth look longer; without the passes they are 10 ms."""
    found = bare(step_s=0.01 + 0.1 * prefill_s, prefills_a_step=0.1, turnaround_s=0.01 + prefill_s)

    assert found == pytest.approx(0.01)


@pytest.mark.parametrize(
    ("values", "expected"),
    [
        ({"prefills_a_step": 0.0, "turnaround_s": None}, 0.010),
        ({"prefills_a_step": 0.4, "turnaround_s": 0.05}, 0.010),
        ({"prefills_a_step": 0.1, "turnaround_s": 0.009}, 0.010),
        ({"prefills_a_step": 0.15, "turnaround_s": 0.5}, 0.005),
    ],
    ids=["no prefill between", "too many to tell apart", "shorter than a step", "longer than can be"],
)
def test_where_the_passes_cannot_be_told_apart_steps_are_as_seen(values: dict[str, Any], expected: float) -> None:
    """Nothing is taken off where there is nothing or cannot be told, and never more than half."""
    assert bare(step_s=0.010, **values) == pytest.approx(expected)


@pytest.mark.parametrize(
    "values",
    [
        {"step_s": None, "prefills_a_step": 0.1, "turnaround_s": 0.02},
        {"prefills_a_step": None, "turnaround_s": 0.02},
        {"prefills_a_step": 0.1, "turnaround_s": None},
        {"prefills_a_step": 0.1, "turnaround_s": 0.02, "queued_mean": 1.0},
    ],
    ids=["no steps", "an older night", "no turnaround", "requests wait in the server"],
)
def test_a_bare_step_is_unknown_without_its_evidence(values: dict[str, Any]) -> None:
    """A turnaround that holds a wait in the queue says nothing of prefill, and an old night nothing of either."""
    assert bare(**values) is None


@pytest.mark.parametrize(
    ("running", "queued", "expected"),
    [(4.0, 0.0, 1.0), (3.7, 0.0, 1.0), (3.0, 1.0, 0.75), (None, 0.0, None), (3.0, None, None), (0.0, 0.0, None)],
    ids=["all run", "some on their way", "a quarter waits", "says no running", "says no queue", "idle"],
)
def test_admitted_is_what_runs_of_what_is_there(
    running: float | None, queued: float | None, expected: float | None
) -> None:
    """A request between the client and the scheduler was not refused: only one that waits was."""
    assert admitted_share(window(400, 4, running_mean=running, queued_mean=queued)) == expected
