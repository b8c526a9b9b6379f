"""Curves whose crossing is known by hand, and the words for those that have none."""

import numpy as np
import pytest
from scipy.interpolate import PchipInterpolator
from scipy.optimize import brentq

from fixtures.analysis.crossover import Crossover, Shape, crossover, is_multiple, refining_level
from fixtures.analysis.curves import decreasing, first_fall, last_fall

LEVELS = (1, 2, 5, 10, 30, 70, 100, 250)


def found(ratios: list[float], se: float = 0.005, levels: tuple[int, ...] = LEVELS) -> Crossover:
    """The crossover of *ratios*, every level with the same standard error."""
    n = len(ratios)
    return crossover(levels, np.log(ratios), np.full(n, se), np.full(n, 30.0))


def test_point_between_two_levels_is_halfway_in_log_concurrency() -> None:
    """As far above at 4 as below at 16: the crossing is at 8."""
    assert found([1.1, 1 / 1.1], levels=(4, 16)).point == pytest.approx(8.0)


def test_interval_holds_the_point_and_stays_between_the_levels() -> None:
    """A clear fall between 30 and 70 has a finite interval there."""
    it = found([1.6, 1.5, 1.4, 1.3, 1.1, 0.9, 0.85, 0.8])

    assert it.shape is Shape.CROSSES
    assert it.point is not None
    assert it.low is not None
    assert it.high is not None
    assert 30 < it.low < it.point < it.high < 70


@pytest.mark.parametrize(
    ("ratios", "shape", "bounds"),
    [
        ([1.5, 1.4, 1.3, 1.2, 1.2, 1.15, 1.1, 1.1], Shape.ALWAYS_FASTER, (">250", ">250")),
        ([0.93, 0.79, 0.7, 0.7, 0.7, 0.7, 0.7, 0.7], Shape.ALWAYS_SLOWER, ("<1", "<1")),
        ([1.001, 0.999, 1.001, 1.0, 0.999, 1.001, 1.0, 0.999], Shape.NOT_RESOLVED, ("<1", ">250")),
    ],
    ids=["always faster", "always slower (EAGLE-3 on 2×H100, a public report)", "tied everywhere"],
)
def test_no_crossing_is_said_in_words_and_never_as_a_number(
    ratios: list[float], shape: Shape, bounds: tuple[str, str]
) -> None:
    """Beyond the levels nothing is extrapolated: not 0, not NaN, not the last level."""
    it = found(ratios)

    assert (it.shape, it.bounds) == (shape, bounds)


def test_open_end_is_censored() -> None:
    """Barely faster at the top: the crossing may lie beyond the levels, and the interval says so."""
    it = found([1.5, 1.4, 1.3, 1.2, 1.1, 1.05, 1.03, 1.002], se=0.01)

    assert it.shape is Shape.CROSSES
    assert it.low is not None
    assert 70 < it.low < 250
    assert it.bounds[1] == ">250"


def test_every_crossing_is_listed() -> None:
    """A dip where speculation switches itself off: two falls, each in its bracket, called multiple."""
    it = found([1.30, 1.25, 1.10, 0.70, 1.05, 0.95, 0.90, 0.85])

    assert it.shape is Shape.MULTIPLE
    assert len(it.crossings) == 2
    assert 5 < it.crossings[0] < 10
    assert 30 < it.crossings[1] < 70


def test_dip_within_the_noise_is_not_multiple() -> None:
    """A level that is not surely slower makes no second crossing."""
    assert not is_multiple(np.log([1.2, 0.995, 1.005, 0.8]), np.full(4, 0.01))


def test_decreasing_fit_pools_what_rises() -> None:
    """3, 1, 2 is nearest to 3, 1.5, 1.5."""
    assert decreasing(np.array([3.0, 1.0, 2.0])).tolist() == [3.0, 1.5, 1.5]


@pytest.mark.parametrize("seed", range(12))
def test_smooth_crossing_is_that_of_scipys_interpolator(seed: int) -> None:
    """Our zero of the monotone cubic is the zero of scipy's, found by another method."""
    rng = np.random.default_rng(seed)
    x, y = np.log(LEVELS), np.sort(rng.normal(0, 0.3, len(LEVELS)))[::-1] - 0.01
    y[0], y[-1] = abs(y[0]) + 0.1, -abs(y[-1]) - 0.1

    smooth = PchipInterpolator(x, y)
    expected = brentq(lambda at: float(smooth(at)), x[0], x[-1])

    assert first_fall(x, y)[1] == pytest.approx(expected, abs=1e-8)
    assert last_fall(x, y)[1] == pytest.approx(expected, abs=1e-8)


def test_more_noise_never_narrows_the_interval() -> None:
    """Twice the standard error: both ends move outward."""
    ratios = [1.6, 1.5, 1.4, 1.3, 1.1, 0.9, 0.85, 0.8]
    (low, high), (wider_low, wider_high) = found(ratios, se=0.01).interval, found(ratios, se=0.02).interval

    assert wider_low < low < high < wider_high


def test_unknown_noise_resolves_nothing() -> None:
    """Without degrees of freedom every bound is infinitely far."""
    it = crossover((1, 10), np.log([1.5, 0.5]), np.array([0.01, 0.01]), np.zeros(2))

    assert it.shape is Shape.NOT_RESOLVED


def test_disjoint_and_overlapping_intervals() -> None:
    """30 … 70 and 5 … 10 cannot be one crossover; one that ends beyond the levels overlaps with always faster."""
    upper, lower = found([1.6, 1.5, 1.4, 1.3, 1.1, 0.9, 0.85, 0.8]), found([1.6, 1.4, 1.1, 0.9, 0.8, 0.7, 0.7, 0.7])
    always, late = found([1.5] * 8), found([1.5, 1.4, 1.3, 1.2, 1.1, 1.05, 1.03, 1.002], se=0.01)

    assert not upper.overlaps(lower)
    assert always.overlaps(late)
    assert late.overlaps(always)
    assert not always.overlaps(upper)


@pytest.mark.parametrize(
    ("ratios", "levels", "expected"),
    [
        ([1.6, 1.5, 1.4, 1.3, 1.1, 0.9, 0.85, 0.8], LEVELS, 46),
        ([1.5] * 8, LEVELS, None),
        ([0.7] * 8, LEVELS, None),
        ([1.1, 0.9], (2, 3), None),
    ],
    ids=["between 30 and 70", "always faster", "always slower", "no whole number between"],
)
def test_refining_level_is_the_geometric_middle_of_the_bracket(
    ratios: list[float], levels: tuple[int, ...], expected: int | None
) -> None:
    """√(30 × 70) = 45.8."""
    assert refining_level(levels, found(ratios, levels=levels)) == expected


@pytest.mark.parametrize(
    ("ratios", "se", "words"),
    [
        ([1.6, 1.5, 1.4, 1.3, 1.1, 0.9, 0.85, 0.8], 0.005, "pays up to C ="),
        ([1.03, 1.02, 1.01, 1.0, 0.99, 0.98, 0.97, 0.96], 0.005, "poorly determined"),
        ([1.5] * 8, 0.005, "faster than baseline at every concurrency up to 250"),
        ([0.7] * 8, 0.005, "slower than baseline at every concurrency from 1"),
        ([1.30, 1.25, 1.10, 0.70, 1.05, 0.95, 0.90, 0.85], 0.005, "more than once"),
        ([1.0] * 8, 0.005, "not resolved"),
    ],
    ids=["crosses", "flat", "always faster", "always slower", "multiple", "tied"],
)
def test_answer_is_one_sentence(ratios: list[float], se: float, words: str) -> None:
    """The crossover is said in one sentence, also when there is none."""
    text = found(ratios, se).sentence("eagle3")

    assert words in text
    assert text.endswith(".")
