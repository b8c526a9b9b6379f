"""Launch medians, log ratios and their spread, from nights whose numbers can be read off."""

import math
from dataclasses import replace

import numpy as np
import pytest

from fixtures.analysis.arms import Summary, summarise
from fixtures.analysis.estimates import Estimate, Word, estimate
from fixtures.analysis.measurements import BASELINE, Night
from fixtures.analysis.order import order_problem
from fixtures.analysis.spread import spread
from tests.unit.handmade import RULES, SPEEDUP, changed, night, rewound, window

LEVELS = tuple(SPEEDUP)


def of(it: Night, **more: object) -> Estimate:
    """The log speed-ups of *it* from its own launches."""
    arms = summarise(it).arms
    return estimate(arms[BASELINE, "chat"], arms["eagle3", "chat"], LEVELS, RULES, **more)  # type: ignore[arg-type]


def test_speedup_is_the_ratio_of_launch_means() -> None:
    """Launch factors that cancel leave the speed-ups that were put in."""
    assert np.exp(of(night()).log_ratio) == pytest.approx(list(SPEEDUP.values()))


def test_standard_error_is_that_of_two_launches_an_arm() -> None:
    """Launches ±0.4 % around their mean: sd 0.566 %, so a difference of two means of two has 0.566 %; and the 0.3 %."""
    assert of(night()).se == pytest.approx([math.hypot(0.00566, 0.003)] * 4, rel=0.01)


def test_more_windows_buy_no_certainty_about_launches() -> None:
    """The launch is the unit of replication: twelve windows instead of three leave the standard error as it was."""
    few, many = of(night()), of(night(windows=[0.998, 1.0, 1.002] * 4))

    assert many.se == pytest.approx(few.se)


def test_one_outlier_window_changes_nothing() -> None:
    """A window at −20 % among three is not the launch's median."""
    sound, hit = of(night(windows=(1.0, 1.0, 1.0))), of(night(windows=(1.0, 0.8, 1.0)))

    assert hit.log_ratio == pytest.approx(sound.log_ratio)
    assert hit.se == pytest.approx(sound.se)


def test_order_of_windows_and_of_launches_in_the_file_changes_nothing() -> None:
    """Cells and rounds are sets to the estimate."""
    it = night(windows=(1.0, 1.01, 0.97))
    shuffled = replace(it, cells=tuple(replace(c, rounds=c.rounds[::-1]) for c in it.cells[::-1]))

    assert of(shuffled).log_ratio == pytest.approx(of(it).log_ratio, abs=1e-12)
    assert of(shuffled).se == pytest.approx(of(it).se)


def test_scale_of_throughput_changes_nothing() -> None:
    """A machine ten times as fast has the same speed-ups, with the same certainty."""
    assert of(night(base=10)).log_ratio == pytest.approx(of(night()).log_ratio)
    assert of(night(base=10)).se == pytest.approx(of(night()).se)


def test_swapped_arms_swap_the_words() -> None:
    """What is faster one way is slower the other way."""
    there = of(night({1: 1.5, 4: 1.2, 16: 1.1, 64: 0.8})).words(RULES)
    back = of(night({1: 1 / 1.5, 4: 1 / 1.2, 16: 1 / 1.1, 64: 1 / 0.8})).words(RULES)

    assert there == [Word.FASTER, Word.FASTER, Word.FASTER, Word.SLOWER]
    assert back == [Word.SLOWER, Word.SLOWER, Word.SLOWER, Word.FASTER]


def test_equal_arms_are_tied_when_the_node_is_quiet_enough_to_say_so() -> None:
    """Within 1 % by both one-sided tests."""
    calm = night(dict.fromkeys(SPEEDUP, 1.0), factors=(1.0005, 0.9995, 0.9995, 1.0005))

    known = spread(list(summarise(calm).arms.values()), "log_tok_s", LEVELS, RULES.launch_floor)

    assert set(of(calm, known=known).words(RULES)) == {Word.TIED}


def test_equal_arms_on_a_loud_node_are_undecided() -> None:
    """Launches 4 % apart say nothing about 1 %."""
    loud = night(dict.fromkeys(SPEEDUP, 1.0), factors=(1.02, 0.98, 1.02, 0.98))

    assert set(of(loud).words(RULES)) == {Word.UNDECIDED}


@pytest.mark.parametrize(
    "bad",
    [{"output_tokens": 0.0}, {"output_tokens": math.nan}, {"seconds": 0.0}, {"requests_failed": 1}],
    ids=["no token", "NaN", "no time", "a failed request"],
)
def test_window_that_is_no_number_is_not_averaged_in(bad: dict[str, float]) -> None:
    """Two sound windows of three still make a launch; one does not."""
    it = night(windows=(1.0, 1.0, 1.0))
    one = [replace(c, rounds=(replace(c.rounds[0], **bad), *c.rounds[1:])) for c in it.cells]  # type: ignore[arg-type]
    two = [replace(c, rounds=(replace(c.rounds[0], **bad), *c.rounds[:1], replace(c.rounds[1], **bad))) for c in one]  # type: ignore[arg-type]

    assert of(replace(it, cells=tuple(one))).log_ratio == pytest.approx(of(it).log_ratio)
    assert np.isnan(of(replace(it, cells=tuple(two))).log_ratio).all()


def test_invalid_cell_is_no_number() -> None:
    """What does not count is missing, never a value."""
    it = of(changed(night(), variant="eagle3", level=16, valid=False, invalid_reasons=("capped",)))

    assert np.isnan(it.log_ratio).tolist() == [False, False, True, False]


def one_launch() -> Night:
    """A B: one launch an arm."""
    return night(order="AB")


def test_one_launch_an_arm_says_nothing_about_launches() -> None:
    """No variance between launches exists, so every word is *undecided*, however far the arms are apart."""
    it = of(one_launch())

    assert set(it.words(RULES)) == {Word.UNDECIDED}
    assert np.isinf(it.reach(0.975)).all()


def test_spread_without_any_difference_is_the_floor() -> None:
    """Identical windows are rounding, not knowledge: 0.1 % between launches at least."""
    it = of(night(factors=(1.0,) * 4, windows=(1.0, 1.0, 1.0)))

    assert np.sqrt(it.spread.variance) == pytest.approx([0.001] * 4)


def arms(sds: list[float], launches: int, seed: int, shared: float = 0.0) -> Summary:
    """Two arms of *launches* each, levels with the launch sds given, a part of it shared by the levels."""
    rng = np.random.default_rng(seed)
    cells = []
    template = {cell.concurrency: cell for cell in night(dict.fromkeys(range(1, len(sds) + 1), 1.0), order="A").cells}
    for launch in range(1, 2 * launches + 1):
        common = rng.standard_normal() * shared
        for level, sd in enumerate(sds, 1):
            tok_s = 100 * math.exp(sd * (common + rng.standard_normal() * math.sqrt(1 - shared**2)))
            windows = tuple(window(tok_s, level) for _ in range(3))
            variant = BASELINE if launch % 2 else "eagle3"
            cells.append(replace(template[level], variant=variant, launch=launch, rounds=windows))
    return summarise(replace(night(), cells=tuple(cells)))


def test_hardly_known_spread_is_widened_to_students_quantile() -> None:
    """Four sds of a spread with two degrees of freedom reach as far as t of 99 %, 6.96; with many they stay four."""
    few, many = (
        spread(list(arms([0.01] * 4, n, seed=6, shared=1.0).arms.values()), "log_tok_s", range(1, 5), 1e-5)
        for n in (2, 400)
    )

    assert 4 * np.sqrt(few.cautious(4.0, 0.01).variance / few.variance) == pytest.approx([6.96] * 4, rel=0.01)
    assert many.cautious(4.0, 0.01).variance == pytest.approx(many.variance)


def test_levels_that_differ_keep_their_own_spread() -> None:
    """A level with 2 % beside seven with 0.1 %: neither is called the pool's 0.7 %."""
    found = spread(list(arms([0.001] * 7 + [0.02], 12, seed=3).arms.values()), "log_tok_s", range(1, 9), 1e-5)

    assert np.sqrt(found.variance[:7]).max() < 0.002
    assert np.sqrt(found.variance[7]) > 0.012


def test_levels_that_agree_share_their_degrees_of_freedom() -> None:
    """Eight levels of one spread are worth more than the six residuals of each."""
    found = spread(list(arms([0.01] * 8, 4, seed=4).arms.values()), "log_tok_s", range(1, 9), 1e-5)

    assert found.df.min() > 15


def test_levels_that_move_together_are_not_eight_witnesses() -> None:
    """A launch offset that all levels share leaves hardly more degrees of freedom than one level has."""
    found = spread(list(arms([0.01] * 8, 4, 5, shared=0.999).arms.values()), "log_tok_s", range(1, 9), 1e-5)

    assert found.df.max() < 8
    assert found.shared > 0.95


@pytest.mark.parametrize(
    "sds",
    [[0.01] * 8, [0.0005, 0.0005, 0.0005, 0.0005, 0.002, 0.002, 0.019, 0.002]],
    ids=["equal levels", "levels as on a real H200"],
)
def test_intervals_cover_the_truth_as_often_as_they_say(sds: list[float]) -> None:
    """95 % intervals from 4 + 4 launches hold a true ratio of 1 in 95 % of 300 seeded recordings."""
    hits = []
    for seed in range(300):
        both = arms(sds, 4, seed).arms
        levels = range(1, 9)
        known = spread(list(both.values()), "log_tok_s", levels, 1e-5)
        it = estimate(both[BASELINE, "chat"], both["eagle3", "chat"], levels, RULES, known)
        hits.append(np.abs(it.log_ratio) <= it.reach(0.975))

    assert 0.93 <= np.mean(hits) <= 0.985
    assert np.mean(hits, axis=0).min() > 0.90


@pytest.mark.parametrize(
    ("order", "refused"),
    [("ABBA", False), ("ABBABAAB", False), ("ABAB", False), ("AB", False), ("AABB", True), ("BBAA", True)],
)
def test_order_that_cannot_tell_drift_from_merit_is_refused(order: str, *, refused: bool) -> None:
    """Read from the launch numbers of the cells: the arms must not follow each other as wholes."""
    problem = order_problem(summarise(night(order=order)).arms.values())

    assert (problem is not None) is refused
    assert not problem or order in problem


def test_metric_that_no_server_reports_is_missing() -> None:
    """No acceptance length is not an acceptance length of 0."""
    arm = summarise(rewound(night(), acceptance_length=None)).arms["eagle3", "chat"]

    assert np.isnan(arm.metric("log_acceptance", LEVELS)).all()
