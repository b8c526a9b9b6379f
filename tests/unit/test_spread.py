"""The spread of launches: what few launches say of it, and when others may contradict them."""

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import pytest

from fixtures.analysis.arms import Arm, summarise
from fixtures.analysis.measurements import BASELINE
from fixtures.analysis.spread import Spread, spread
from tests.unit.sweeps import WORKLOAD, sweep

LEVELS = (1, 10, 100)
QUANTILE = 0.99


def arm(*launches: Sequence[float]) -> Arm:
    """An arm whose launches run at these tok/s, one number a level."""
    night = sweep({BASELINE: dict.fromkeys(LEVELS, 1.0), "eagle3": dict.fromkeys(LEVELS, 1.0)})
    number = {launch: i for i, launch in enumerate(sorted({c.launch for c in night.cells if c.variant == BASELINE}))}
    assert len(number) == len(launches)
    cells = tuple(
        replace(
            cell,
            rounds=tuple(
                replace(w, output_tokens=w.seconds * launches[number[cell.launch]][LEVELS.index(cell.concurrency)])
                for w in cell.rounds
            ),
        )
        for cell in night.cells
        if cell.variant == BASELINE
    )
    return summarise(replace(night, cells=cells)).arms[BASELINE, WORKLOAD]


@pytest.fixture
def usual() -> Spread:
    """The spread of two launches 2 % apart at each level."""
    return spread([arm((100, 1000, 5000), (102, 1020, 4900))], "log_tok_s", LEVELS, 0.001)


def test_launches_as_far_apart_as_ever_change_nothing(usual: Spread) -> None:
    """3 % where 2 % is usual: chance."""
    tonight = arm((100, 1000, 5000), (103, 1000, 5000))

    assert usual.beside([tonight], "log_tok_s", LEVELS, QUANTILE) is usual


def test_a_level_whose_launches_are_much_further_apart_is_known_to_be_so(usual: Spread) -> None:
    """46 % at C = 100: that level's variance counts them, pooled by degrees of freedom; the others' stay."""
    tonight = arm((100, 1000, 8600), (100, 1000, 12600))
    found = usual.beside([tonight], "log_tok_s", LEVELS, QUANTILE)
    own = np.log(12600 / 8600) ** 2 / 2

    assert found.variance[:2].tolist() == usual.variance[:2].tolist()
    assert found.df[2] == usual.df[2] + 1
    assert found.variance[2] == pytest.approx((usual.df[2] * usual.variance[2] + own) / (usual.df[2] + 1))
    assert found.mean_variance > usual.mean_variance
