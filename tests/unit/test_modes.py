"""Two clumps are named, and noise that is cut in two is not."""

import numpy as np
import pytest

from fixtures.analysis.modes import two_modes


def test_h200_at_100_has_two_modes() -> None:
    """Five launches of one server: near 11.79k or 12.19k, nothing between."""
    found = two_modes(np.log([12173.0, 11843.0, 12214.0, 11732.0, 11792.0]))

    assert found is not None
    assert np.exp(found) == pytest.approx([11789, 12193], rel=0.001)


@pytest.mark.parametrize(
    "launches",
    [
        [207.6, 207.8, 207.8, 207.8, 207.6],
        [17490.0, 17397.0, 17434.0, 17440.0, 17405.0],
        [100.0, 100.1, 99.9, 100.0, 93.0],
        [100.0, 104.0, 100.0, 104.0],
    ],
    ids=["quiet", "a little noise", "one outlier", "too few launches"],
)
def test_one_clump_is_one(launches: list[float]) -> None:
    """Nearer than 1 %, or one alone, or too few to say."""
    assert two_modes(np.log(launches)) is None


def test_normal_noise_is_hardly_ever_taken_for_two_modes() -> None:
    """2000 seeded sets of 8 … 24 launches with an sd of 2 %."""
    rng = np.random.default_rng(8)

    called = [two_modes(0.02 * rng.standard_normal(rng.integers(8, 25))) is not None for _ in range(2000)]

    assert np.mean(called) < 0.005
