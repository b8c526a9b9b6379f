from collections.abc import Callable

import pytest

from fixtures.analysis.measurements import Cell
from fixtures.analysis.verdicts import Gate


def test_throughput(measure: Callable[[], Cell]) -> None:
    """Output throughput is measured, and what was measured counts."""
    cell = measure()

    if not cell.valid:
        pytest.fail(f"invalid: {'; '.join(cell.invalid_reasons)}", pytrace=False)


def test_arms_keep_their_throughput(profile: str, variant: str, workload: str, hold: Callable[..., None]) -> None:
    """Neither arm became slower or faster as a whole: a ratio alone is blind to both getting worse."""
    hold(Gate.THROUGHPUT)
