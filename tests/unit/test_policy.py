"""Which variant is best at a level, how sure that is and what it gains: sweeps whose answers are stated by hand."""

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fixtures.analysis.measurements import BASELINE, Cell, Night
from fixtures.analysis.policy import Policy, policy_of
from fixtures.analysis.policy_contenders import PolicyError
from fixtures.analysis.policy_page import page, sentence
from fixtures.analysis.policy_serving import slots_of
from fixtures.analysis.rules import Rules
from tests.unit.sweeps import WORKLOAD, sweep, with_cells

RULES = Rules(pairs=())
Speeds = Mapping[str, Mapping[int, float]]

THREE = {
    BASELINE: {1: 100, 10: 900, 30: 2000, 100: 4000},
    "eagle3": {1: 200, 10: 1300, 30: 2100, 100: 3000},
    "eagle3-light": {1: 150, 10: 1200, 30: 2400, 100: 3600},
}
"""Three steps are best at C = 1 and 10, one step at 30, none at 100."""


def policy(of: Speeds | Night, load: Mapping[int, float] | None = None, **more: Any) -> Policy:
    """The policy of a sweep, or of the speeds that one is made of."""
    return policy_of(of if isinstance(of, Night) else sweep(of, **more), WORKLOAD, RULES, load)


def chosen(of: Policy) -> list[str]:
    """What is served at each level, lowest first."""
    return [choice.chosen for choice in of.shown]


def at_70(baseline: float, light: float, full: float) -> Speeds:
    """Speeds of three variants at C = 70 beside a level at which none of them is in doubt."""
    return {
        BASELINE: {1: 100, 70: baseline},
        "eagle3-light": {1: 150, 70: light},
        "eagle3": {1: 200, 70: full},
    }


def test_each_level_has_its_own_best_variant() -> None:
    """The highest median wins where it leads by more than noise, with its lead over the next."""
    of = policy(THREE)

    assert chosen(of) == ["eagle3", "eagle3", "eagle3-light", BASELINE]
    assert [choice.runner_up for choice in of.choices] == ["eagle3-light", "eagle3-light", "eagle3", "eagle3-light"]
    assert [choice.lead.value for choice in of.choices] == pytest.approx([200 / 150, 1300 / 1200, 24 / 21, 40 / 36])
    assert not any(choice.tied or choice.unresolved for choice in of.choices)


@pytest.mark.parametrize(
    ("speeds", "expected"),
    [
        pytest.param(at_70(1000, 1100, 1105), "eagle3-light", id="0.5 % ahead: a tie goes to one step"),
        pytest.param(at_70(1100, 1101, 1108), BASELINE, id="0.7 % ahead: a tie goes to none"),
        pytest.param(at_70(1000, 1100, 1140), "eagle3", id="3.6 % ahead: no tie"),
        pytest.param(at_70(1000, 1105, 1100), "eagle3-light", id="the lighter one ahead"),
        pytest.param(at_70(1105, 1100, 1100), BASELINE, id="baseline ahead"),
    ],
)
def test_ties_within_one_per_cent_go_to_less_speculation(speeds: Speeds, expected: str) -> None:
    """A lead of less than 1 % is not worth a draft step, however sure it is; a lead of more is."""
    assert chosen(policy(speeds))[1] == expected


def test_a_winner_that_noise_hides_is_said_to_be_unresolved() -> None:
    """Launches 5 % apart do not tell 3 % from 0: both are named, the median decides, and what that risks is said."""
    of = policy(at_70(800, 1000, 1030), noise=0.025)
    there = of.choices[1]

    assert str(there).startswith("C=70: eagle3 or eagle3-light, not resolved: 1.03 (0.89 … 1.20)")
    assert there.chosen == "eagle3"
    assert 0.03 < there.at_stake < 0.2
    assert "- C=70: eagle3 or eagle3-light, not resolved: 1.03" in page(of, slots_of(of))
    assert "Not resolved: another variant may lead when it is measured again" in page(of, slots_of(of))


def test_a_night_that_shook_does_not_give_a_third_away() -> None:
    """Seen on an H200 whose launches lay far apart: nothing resolved, one step a third behind, and served for it."""
    of = policy(at_70(800, 1000, 1570), noise=0.15)

    assert of.choices[1].unresolved
    assert chosen(of)[1] == "eagle3"


def test_the_same_winner_is_resolved_on_a_quiet_node() -> None:
    """What one node cannot tell another can: launches 0.2 % apart tell 3 %."""
    there = policy(at_70(800, 1000, 1030)).choices[1]

    assert str(there).startswith("C=70: eagle3, 1.03 (1.0")
    assert (there.chosen, there.at_stake) == ("eagle3", 0.0)


def test_of_variants_whose_steps_nobody_says_the_best_is_served() -> None:
    """Nobody knows which of two such drafts more: the higher median decides; a tie with baseline goes to that."""
    speeds = {BASELINE: {1: 100, 8: 1025}, "first": {1: 150, 8: 1010}, "second": {1: 155, 8: 1030}}
    of = policy(speeds, noise=0.02, engine="llama_cpp")

    assert chosen(of) == ["second", BASELINE]
    assert str(of.choices[0]).startswith("C=1: second or first, not resolved: 1.03 (0.9")
    assert "Served: second; another may make up to " in page(of, None)


def test_a_tie_that_costs_is_said() -> None:
    """Tied at C = 70, one step is served there, and three everywhere would serve 0.6 % more: the page says so."""
    of = policy(at_70(800, 1000, 1008))
    said = "- By the medians the policy serves 0.7% less under this load than `eagle3` everywhere: the price of ties,"

    assert of.never_switching == "eagle3"
    assert said in page(of, slots_of(of))
    assert "less under this load" not in page(policy(THREE), slots_of(policy(THREE)))


def test_an_optimum_that_comes_and_goes_is_kept() -> None:
    """Nothing smooths the choices: where speculation pays again above a level, it is served again."""
    speeds = {BASELINE: {1: 100, 8: 1000, 32: 2000}, "eagle3": {1: 150, 8: 900, 32: 2200}}

    assert chosen(policy(speeds)) == ["eagle3", BASELINE, "eagle3"]


def test_gains_are_over_always_on_and_always_off() -> None:
    """Per level and for a load: half of the time at C = 1, half at C = 100."""
    of = policy(THREE, {1: 1, 100: 1})

    assert of.always_on == "eagle3-light"  # 150 + 3600 is more than 200 + 3000
    assert of.gain(BASELINE) == pytest.approx((200 + 4000) / (100 + 4000) - 1, abs=1e-6)
    assert of.gain("eagle3-light") == pytest.approx((200 + 4000) / (150 + 3600) - 1, abs=1e-6)
    over_off = [choice.over_off.value if choice.over_off else None for choice in of.choices]
    assert over_off == [pytest.approx(2.0), pytest.approx(13 / 9), pytest.approx(1.2), None]
    over_on = [choice.over_on.value if choice.over_on else None for choice in of.choices]
    assert over_on == [pytest.approx(200 / 150), pytest.approx(13 / 12), None, pytest.approx(40 / 36)]


def test_levels_weigh_the_same_without_a_load() -> None:
    """Each level for as much time as any other."""
    of = policy(THREE)

    assert of.load == pytest.approx({1: 0.25, 10: 0.25, 30: 0.25, 100: 0.25})
    assert of.gain(BASELINE) == pytest.approx((200 + 1300 + 2400 + 4000) / (100 + 900 + 2000 + 4000) - 1, abs=1e-6)


def test_a_load_at_an_unmeasured_level_is_refused() -> None:
    """What was not measured weighs nothing, and must not be left out in silence."""
    with pytest.raises(PolicyError, match="the load names C=50, which was not measured: there are 1, 10, 30, 100"):
        policy(THREE, {1: 1, 50: 1})


@pytest.mark.parametrize(
    ("speeds", "starts"),
    [
        pytest.param(
            {BASELINE: {1: 100, 8: 900}, "eagle3": {1: 90, 8: 700}}, "Always off: ", id="speculation loses everywhere"
        ),
        pytest.param(
            {BASELINE: {1: 100, 8: 900}, "eagle3": {1: 200, 8: 1100}}, "Always on: `eagle3` ", id="it wins everywhere"
        ),
        pytest.param(THREE, "C=1 … 10: `eagle3` (3 steps); C=30: `eagle3-light` (1 step); C=100: ", id="it depends"),
    ],
)
def test_the_policy_is_one_plain_sentence(speeds: Speeds, starts: str) -> None:
    """Always off and always on are said outright; what switches is told level by level."""
    assert sentence(policy(speeds)).startswith(starts)


DEAD = {"valid": False, "invalid_reasons": ("the server died",)}


def without(night: Night, gone: Callable[[Cell], bool]) -> Night:
    """*night* as it is when it was cut short: some cells are missing, and were expected."""
    return replace(night, cells=tuple(cell for cell in night.cells if not gone(cell)))


def one_after_the_other(speeds: Speeds) -> Night:
    """A sweep whose variants were launched twice in a row each."""
    night = sweep(speeds)
    place = {name: 2 * i for i, name in enumerate(speeds)}
    cells = [replace(c, launch=place[c.variant] + (1 if c.launch <= len(speeds) else 2)) for c in night.cells]
    return replace(night, cells=tuple(cells), expected=tuple(c.key for c in cells))


@pytest.mark.parametrize(
    ("night", "message"),
    [
        pytest.param(
            with_cells(sweep(THREE), "eagle3-light", 10, **DEAD),
            r"invalid: launch 3 \(eagle3-light\) at C=10: the server died",
            id="an invalid cell",
        ),
        pytest.param(
            with_cells(sweep(THREE), "eagle3", 30, rounds=()),
            "not measured: eagle3 at C=30 has 0 of 2 launches",
            id="a cell without windows",
        ),
        pytest.param(
            replace(sweep(THREE), cells=sweep(THREE).cells[:-1]),
            "not measured: baseline at C=100 has 1 of 2 launches",
            id="a cell that is missing",
        ),
        pytest.param(
            without(sweep(THREE), lambda cell: cell.variant == "eagle3-light"),
            "not measured: eagle3-light at C=1 has 0 of 2 launches",
            id="a variant that was never launched",
        ),
        pytest.param(
            without(sweep(THREE), lambda cell: cell.concurrency == 100),
            "not measured: baseline at C=100 has 0 of 2 launches",
            id="a level that nobody came to",
        ),
        pytest.param(
            sweep({**THREE, "eagle3": {1: 200, 10: 1300, 30: 2100}}),
            "not measured: eagle3 at C=100 has 0 of 2 launches",
            id="a variant that lacks a level",
        ),
        pytest.param(one_after_the_other(THREE), r"in the order AABB .* measure A B B A", id="an order that is drift"),
        pytest.param(sweep(THREE, launches=1), "has 1 of 2 launches", id="one launch an arm"),
        pytest.param(sweep({BASELINE: {1: 100}}), "of these chat has baseline: measure with", id="baseline alone"),
        pytest.param(sweep({"eagle3": {1: 100}}), "of these chat has eagle3: measure with", id="no baseline"),
        pytest.param(
            sweep({BASELINE: {1: 100}, "adaptive": {1: 120}}), "of these chat has baseline", id="nothing static"
        ),
    ],
)
def test_a_sweep_with_a_hole_is_refused(night: Night, message: str) -> None:
    """A cell that does not count is named; it is never left out as if its variant had lost."""
    with pytest.raises(PolicyError, match=message):
        policy(night)


def test_cells_that_are_no_choice_refuse_nothing() -> None:
    """An adaptive variant competes for nothing: its invalid cell costs no policy, and the page says it was left out."""
    night = sweep({**THREE, "adaptive": {1: 500, 10: 5000, 30: 5000, 100: 5000}})
    of = policy(with_cells(night, "adaptive", 30, **DEAD))

    assert chosen(of) == ["eagle3", "eagle3", "eagle3-light", BASELINE]
    assert "- Not compared: adaptive" in page(of, slots_of(of))


few = settings(max_examples=15, deadline=None, derandomize=True)
speeds_of_three = st.fixed_dictionaries(
    {name: st.fixed_dictionaries({level: st.floats(100, 200) for level in (1, 8, 32)}) for name in THREE}
)


@few
@given(speeds_of_three, st.randoms(use_true_random=False))
def test_order_in_the_file_changes_nothing(speeds: Speeds, random: Any) -> None:
    """Cells are a set: choices, intervals and gains do not hang on their order."""
    night = sweep(speeds, noise=0.02)
    cells = list(night.cells)
    random.shuffle(cells)

    assert policy(replace(night, cells=tuple(cells))).choices == policy(night).choices


@few
@given(speeds_of_three, st.permutations([1, 2, 3, 4]))
def test_which_launch_came_first_changes_nothing(speeds: Speeds, turns: list[int]) -> None:
    """Four launches an arm, numbered in any other order, make the same choices."""
    night = sweep(speeds, noise=0.02, launches=4)
    renumbered = [replace(c, launch=10 * turns[(c.launch - 1) // 3] + c.launch % 3) for c in night.cells]

    assert chosen(policy(replace(night, cells=tuple(renumbered), expected=()))) == chosen(policy(night))


@few
@given(speeds_of_three, st.sampled_from([0.03125, 0.5, 4.0, 1024.0]))
def test_scale_changes_nothing(speeds: Speeds, factor: float) -> None:
    """Another unit of throughput makes the same choices with the same leads."""
    scaled = {name: {level: tok_s * factor for level, tok_s in of.items()} for name, of in speeds.items()}
    here, there = policy(speeds, noise=0.02), policy(scaled, noise=0.02)

    assert chosen(there) == chosen(here)
    assert [c.lead.value for c in there.choices] == pytest.approx([c.lead.value for c in here.choices])
    assert there.gain(BASELINE) == pytest.approx(here.gain(BASELINE), abs=1e-9)


@few
@given(speeds_of_three)
def test_a_choice_never_costs_more_than_it_says(speeds: Speeds) -> None:
    """What is served is the best, or behind it by no more than the stake; and never speculates more than the best."""
    of = policy(speeds, noise=0.02)
    for choice in of.choices:
        assert of.tok_s[choice.best][choice.concurrency] <= choice.tok_s * (1 + choice.at_stake) * 1.000001
        assert of.contenders[choice.chosen].amount <= of.contenders[choice.best].amount
