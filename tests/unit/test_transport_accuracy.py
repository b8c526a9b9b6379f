"""The benchmark of the load generator: its arithmetic, and that each goal can be missed."""

import numpy as np
import pytest

from tests.perf.client_accuracy.accuracy import Run, errors
from tests.perf.client_accuracy.goals import judge

MS = 1_000_000


def run(*, late_ms: tuple[int, ...] = (0, 0, 0, 0), sent_ms: int = 0) -> Run:
    """Two requests of two events each, 20 ms apart at the server, received late by *late_ms*; rows out of order."""
    server = [(1, 10, 30), (0, 10, 30), (0, 10, 50), (1, 10, 50)]
    rows = [
        (request, sent_ms * MS, (sent + late) * MS, arrived * MS, sent * MS)
        for (request, arrived, sent), late in zip(server, late_ms, strict=True)
    ]
    return Run(cpu_s=4e-5, wall_s=1e-4, events=np.array(rows, dtype=np.int64), tokens=4)


def test_a_perfect_client_has_no_errors() -> None:
    """Stamps equal to the server's: nothing late, nothing off, and the rate is tokens over the server's own time."""
    found = errors(run(sent_ms=10))
    assert (found.late_ms_p99, found.itl_error_ms_p99, found.ttft_error_ms_p50, found.throughput_error) == (0, 0, 0, 0)
    assert [found.tok_s, found.cpu_us_per_event, found.cpu_share] == pytest.approx([100.0, 10.0, 0.4])


def test_late_stamps_and_early_sends_are_errors() -> None:
    """A request stamped 10 ms before it arrived overstates TTFT by 10 ms and understates 40 ms of work by a fifth."""
    found = errors(run(sent_ms=0))
    assert found.ttft_error_ms_p50 == 10.0
    assert found.throughput_error == pytest.approx(-0.2)


def test_an_interval_error_needs_a_change_of_lateness() -> None:
    """Events that are all late by the same time have right gaps; one late event has one wrong gap."""
    assert errors(run(sent_ms=10, late_ms=(3, 3, 3, 3))).itl_error_ms_p99 == 0.0
    assert errors(run(sent_ms=10, late_ms=(0, 0, 4, 0))).itl_error_ms_p50 == 2.0


SOUND = {
    "client": "ours",
    "scenario": "C=250, 20 ms a token, /generate",
    "interval_ms": 20.0,
    "cpu_over_limit": 1.5,
    "itl_error_ms_p99": 0.004,
    "ttft_error_ms_p50": 0.006,
    "throughput_error": -0.00001,
    "achieved": 0.999,
}
WORSE = {
    "cpu_over_limit": 2.1,
    "itl_error_ms_p99": 0.03,
    "ttft_error_ms_p50": -0.2,
    "throughput_error": -0.01,
    "achieved": 0.99,
}


def test_a_sound_client_meets_every_goal() -> None:
    """Figures on the right side of all limits miss nothing."""
    assert [goal.met for goal in judge([SOUND])] == [True] * 5


@pytest.mark.parametrize("figure", WORSE)
def test_each_goal_can_be_missed(figure: str) -> None:
    """A worse figure misses its own goal and no other, in either direction of error."""
    missed = [goal for goal in judge([SOUND | {figure: WORSE[figure]}]) if not goal.met]
    assert len(missed) == 1
    assert missed[0].line.startswith("MISSED")
