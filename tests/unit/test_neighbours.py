"""The CPU time that other machines take: read from the system, said beside the verdict, and no verdict by itself."""

from dataclasses import replace

import pytest

from fixtures.analysis.gate import Rules, judge
from fixtures.analysis.measurements import BASELINE
from fixtures.engines import host
from fixtures.reports.findings import notes
from tests.unit.sweeps import sweep

NIGHT = sweep({BASELINE: {1: 100, 8: 700}, "eagle3": {1: 200, 8: 900}})
RULES = Rules(pairs=(("eagle3", "chat"),))


def shares(*stolen: float | None) -> tuple[str, ...]:
    """What is said of a night of eight cells of which the first have these shares, the others none."""
    filled = [*stolen, *([0.0] * (len(NIGHT.cells) - len(stolen)))]
    cells = tuple(replace(cell, stolen_share=share) for cell, share in zip(NIGHT.cells, filled, strict=True))
    return notes(judge(replace(NIGHT, cells=cells), None, (), RULES))


def test_what_was_stolen_is_said_with_its_worst_cell() -> None:
    """Two of eight cells lost more than 1 %: the worse one is named."""
    (said,) = shares(0.02, 0.071)

    assert said.startswith(
        "The hypervisor gave more than 1% of the CPU time to other machines in 2 of 8 cells, 7.1% in"
    )
    assert f"in launch {NIGHT.cells[1].launch} ({NIGHT.cells[1].variant}) at C={NIGHT.cells[1].concurrency}" in said


@pytest.mark.parametrize("stolen", [0.0, 0.009, None], ids=["nothing", "little", "unknown"])
def test_a_machine_that_has_its_cpus_says_nothing(stolen: float | None) -> None:
    """Under 1 %, or where nobody looked, there is nothing to say."""
    assert shares(*[stolen] * 8) == ()


def test_shares_are_of_all_cpu_time() -> None:
    """Two seconds of forty on all cores together."""
    assert host.stolen_share((10.0, 1000.0), (12.0, 1040.0)) == pytest.approx(0.05)
    assert host.stolen_share((10.0, 1000.0), (10.0, 1000.0)) is None


def test_the_system_is_asked() -> None:
    """What has passed on all cores since boot: it grows, and no more can be stolen."""
    before, after = host.cpu_times(), host.cpu_times()

    assert all(0 <= stolen < spent for stolen, spent in (before, after))
    assert after >= before
