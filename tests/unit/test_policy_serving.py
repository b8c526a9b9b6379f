"""A policy as SGLang obeys it: where its thresholds lie, what it cannot express, and a page that can be acted on."""

import json
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import msgspec
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from fixtures.analysis.measurements import BASELINE, Night
from fixtures.analysis.policy import Policy, policy_of
from fixtures.analysis.policy_contenders import PolicyError
from fixtures.analysis.policy_page import page, sentence
from fixtures.analysis.policy_serving import Slots, slots_of
from fixtures.analysis.rules import Rules
from fixtures.profiles import VariantTable
from fixtures.simulator import adaptive
from tests.unit.sweeps import WORKLOAD, sweep, with_cells
from tests.unit.test_policy import THREE, Speeds

RULES = Rules(pairs=())


def policy(of: Speeds | Night, **more: Any) -> Policy:
    """The policy of a sweep, or of the speeds that one is made of."""
    return policy_of(of if isinstance(of, Night) else sweep(of, **more), WORKLOAD, RULES)


def slots(of: Speeds, **more: Any) -> Slots:
    """The slots of a policy that has some."""
    found = slots_of(policy(of, **more))
    assert found
    return found


def best(steps_at: Mapping[int, int]) -> Speeds:
    """Speeds of three variants of which the one with the given steps is best at each level."""
    names = {0: BASELINE, 1: "eagle3-light", 3: "eagle3"}
    return {
        name: {level: 100 * level * (1.5 if steps == drafted else 1.0) for level, steps in steps_at.items()}
        for drafted, name in names.items()
    }


def test_three_steps_then_one_then_none() -> None:
    """√(10·30) = 17.3 is padded to 24, √(30·100) = 54.8 to 64; it starts with the most steps."""
    of = slots(THREE)

    assert of.by_batch() == {
        "1": {"candidate_steps": [3]},
        "24": {"candidate_steps": [1]},
        "64": {"candidate_steps": [0]},
    }
    assert [(each.below, each.above, each.holds_from) for each in of.switches] == [(10, 30, 17), (30, 100, 49)]
    assert of.start == 3
    assert of.flat() == {"candidate_steps": [1, 3]}


@pytest.mark.parametrize(
    ("below", "above", "sizes", "key", "holds_from"),
    [
        pytest.param(10, 30, [1, 2, 4, 8, 10, 16, 20, 24, 30, 32], 20, 17, id="many sizes: the middle, padded"),
        pytest.param(10, 30, [10, 30], 30, 11, id="only the levels: all above the lower one"),
        pytest.param(10, 30, [32, 1, 16, 8], 32, 17, id="the lower level pads to 16, so the next size it is"),
        pytest.param(4, 100, [1, 2, 4, 8, 16], 20, 20, id="beyond the graphs nothing is padded"),
        pytest.param(4, 16, [], 8, 8, id="no graphs: the middle itself"),
        pytest.param(4, 16, None, 8, 8, id="a server that does not say"),
        pytest.param(1, 2, [1, 2, 4], 2, 2, id="neighbours"),
    ],
)
def test_a_threshold_is_a_captured_size_between_its_levels(
    below: int, above: int, sizes: list[int] | None, key: int, holds_from: int
) -> None:
    """The geometric middle is padded as a batch is; the upper level gets the new steps, the lower keeps its own."""
    of = slots(best({below: 3, above: 0}), sizes=sizes)

    assert of.steps == {1: 3, key: 0}
    assert of.switches[0].holds_from == holds_from


def test_levels_that_share_a_graph_are_refused() -> None:
    """A server that pads both levels to one size cannot tell them apart; the message says which size to capture."""
    with pytest.raises(
        PolicyError, match="C=18 and C=22 want different steps, and both decode in the graph of 24: capt"
    ):
        slots_of(policy(best({18: 3, 22: 0}), sizes=[16, 24]))


@settings(max_examples=40, deadline=None, derandomize=True)
@given(
    st.dictionaries(st.integers(1, 200), st.sampled_from([0, 1, 3]), min_size=2, max_size=6),
    st.sets(st.integers(1, 256), max_size=20),
)
def test_each_measured_level_gets_its_steps(steps_at: dict[int, int], sizes: set[int]) -> None:
    """Routed as SGLang routes, every measured level gets the steps that were best there, whatever is captured."""
    assume(any(steps_at.values()))
    of = policy(best(steps_at), sizes=sorted(sizes))
    try:
        found = slots_of(of)
    except PolicyError:
        assume(False)
    assert found
    table = {key: adaptive.Slot(candidate_steps=[steps]) for key, steps in found.steps.items()}
    obeyed = adaptive.Adaptive(table, sorted(sizes))

    assert {level: obeyed.slot(level).candidate_steps[0] for level in steps_at} == steps_at
    for switch in found.switches:
        just_below = obeyed.slot(switch.holds_from - 1) if switch.holds_from > 1 else None
        assert obeyed.slot(switch.holds_from) is not just_below


def test_an_optimum_that_comes_and_goes_is_served_as_it_is() -> None:
    """Nothing is smoothed: 3 steps, none, then one again."""
    of = slots(best({1: 3, 8: 0, 32: 1}))

    assert of.steps == {1: 3, 4: 0, 16: 1}


@pytest.mark.parametrize(
    ("speeds", "remark"),
    [
        pytest.param(
            {BASELINE: {1: 100, 8: 900}, "eagle3-tree": {1: 200, 8: 700}},
            "- eagle3-tree drafts a tree (topk 4); adaptive speculation needs topk 1.",
            id="a tree",
        ),
        pytest.param(
            {BASELINE: {1: 100, 8: 900}, "ngram": {1: 200, 8: 700}},
            "- ngram speculates by NGRAM, not by EAGLE.",
            id="another algorithm",
        ),
    ],
)
def test_a_winner_that_cannot_adapt_is_named_and_not_written(speeds: Speeds, remark: str) -> None:
    """The table still says that it is best; no file pretends that a server could switch to it."""
    of = policy(speeds)

    assert [choice.chosen for choice in of.shown][1] == BASELINE
    assert slots_of(of) is None
    assert remark in page(of, None)


def test_what_cannot_adapt_leaves_the_level_to_the_best_that_can() -> None:
    """A tree is best at C = 1: the adaptive server drafts the chain instead, and the page says so."""
    of = policy({BASELINE: {1: 100, 8: 900}, "eagle3": {1: 150, 8: 800}, "eagle3-tree": {1: 200, 8: 700}})
    found = slots_of(of)

    assert found
    assert found.steps == {1: 3, 4: 0}
    assert [choice.best for choice in of.choices] == ["eagle3-tree", BASELINE]
    assert "- C=1: eagle3-tree cannot be served adaptively; eagle3 is instead." in page(of, found)


def test_one_server_loads_one_draft() -> None:
    """Of two draft models the one that serves the load best is served; the other is named."""
    of = policy({BASELINE: {1: 100, 8: 900}, "eagle3": {1: 200, 8: 1000}, "other-head": {1: 210, 8: 700}})

    assert of.fits == (BASELINE, "eagle3")
    assert "- other-head drafts with another model than eagle3, and a server loads one." in page(of, slots_of(of))


def test_the_tax_of_an_idle_draft_is_part_of_the_choice() -> None:
    """Off is 3 % better than one step, but an idle draft costs 5 %: the adaptive server drafts one step there."""
    speeds = {BASELINE: {1: 100, 32: 1000}, "eagle3-light": {1: 150, 32: 970}, "eagle3-idle": {1: 95, 32: 950}}
    of = policy(speeds)

    assert [choice.best for choice in of.choices] == ["eagle3-light", BASELINE]
    assert [choice.chosen for choice in of.served] == ["eagle3-light", "eagle3-light"]


def test_an_idle_draft_stands_for_no_steps() -> None:
    """Where nothing pays, the adaptive server idles, and its gain is counted with the tax."""
    speeds = {BASELINE: {1: 100, 32: 1000}, "eagle3-light": {1: 150, 32: 800}, "eagle3-idle": {1: 95, 32: 950}}
    of = policy(speeds)
    found = slots_of(of)

    assert found
    assert found.steps == {1: 1, 8: 0}
    assert of.gain(BASELINE) == pytest.approx((150 + 950) / (100 + 1000) - 1, abs=1e-6)
    assert "0 steps are not baseline" not in page(of, found)
    assert "[variants.eagle3-idle]" not in page(of, found)
    assert "0 steps are not baseline" in page(policy(THREE), slots_of(policy(THREE)))


def test_a_policy_that_serves_less_than_no_draft_is_none() -> None:
    """The tax of a draft that idles at the top eats what speculation gains below: off, unless the load is another."""
    speeds = {BASELINE: {1: 100, 32: 1000}, "eagle3-light": {1: 150, 32: 800}, "eagle3-idle": {1: 95, 32: 900}}
    of, low = policy(speeds), policy_of(sweep(speeds), WORKLOAD, RULES, {1: 9, 32: 1})

    assert sentence(of).startswith("Always off for this load: what could be served instead makes 4.5% less than")
    assert slots_of(of) is None
    assert "## Serving it" not in page(of, slots_of(of))
    assert slots_of(low) is not None
    assert not sentence(low).startswith("Always off")


def test_the_page_of_a_policy_that_is_none_does_not_say_that_it_is_served() -> None:
    """What was found wanting is shown as that, and with its true reason: all is resolved, and off cannot be idled."""
    speeds = {BASELINE: {1: 100, 32: 1000}, "eagle3": {1: 150, 32: 700}, "eagle3-idle": {1: 95, 32: 500}}
    of = policy(speeds)
    text = page(of, slots_of(of))

    assert "| instead | steps |" in text
    assert "Output tokens of what could be served instead, for this load" in text
    assert "- C=32: baseline is best, but an adaptive server keeps its draft loaded, and idle that makes less" in text
    assert "served adaptively" not in text
    assert "ties" not in text


def test_a_policy_that_serves_less_than_no_draft_is_none_beside_a_tree_either() -> None:
    """A tree everywhere is better than off, which is better than what can adapt: the tree is to be served."""
    speeds = {
        BASELINE: {1: 100, 32: 1000},
        "eagle3-tree": {1: 300, 32: 950},
        "eagle3-light": {1: 150, 32: 700},
        "eagle3-idle": {1: 95, 32: 850},
    }
    of = policy(speeds)

    assert sentence(of).startswith("Always `eagle3-tree`, without switching, for this load: what could be served inst")
    assert slots_of(of) is None
    assert "a server does there what it does at" not in page(of, None)


def test_what_a_policy_pays_for_is_named() -> None:
    """A tree cannot take part in switching; a tie costs nothing where there is none, and is not blamed."""
    light, tree = {1: 150, 32: 1100}, {1: 200, 32: 1300}
    of = policy({BASELINE: {1: 100, 32: 1000}, "eagle3-light": light, "eagle3-tree": tree})
    text = page(of, slots_of(of))

    assert "`eagle3-tree` everywhere: the price of switching, which `eagle3-tree` cannot take part in." in text
    assert "ties" not in text


def test_an_adaptive_variant_that_once_drafted_is_no_idle_one() -> None:
    """One cell in which it drafted: then its throughput is not that of 0 steps."""
    speeds = {BASELINE: {1: 100, 32: 1000}, "eagle3-light": {1: 150, 32: 800}, "eagle3-idle": {1: 95, 32: 950}}
    of = policy(with_cells(sweep(speeds), "eagle3-idle", 1, steps_in_force=3))

    assert of.left_out == ("eagle3-idle",)
    assert [choice.chosen for choice in of.served] == ["eagle3-light", BASELINE]


def test_always_off_writes_nothing_to_serve() -> None:
    """A server without a draft is better than one whose draft idles."""
    of = policy({BASELINE: {1: 100, 8: 900}, "eagle3": {1: 90, 8: 700}})

    assert slots_of(of) is None
    assert "serve `baseline`, with no draft" in page(of, None)


def test_always_on_needs_no_switch() -> None:
    """One slot for all batch sizes, and flags without anything adaptive."""
    of = policy({BASELINE: {1: 100, 8: 900}, "eagle3": {1: 200, 8: 1100}})
    found = slots_of(of)

    assert found
    assert found.by_batch() == {"1": {"candidate_steps": [3]}}
    assert "--speculative-adaptive" not in page(of, found)
    assert "--speculative-num-steps 3" in page(of, found)


def test_an_engine_without_adaptive_speculation_gets_the_table() -> None:
    """llama.cpp cannot switch: the best variant of each level, and no file."""
    of = policy(THREE, engine="llama_cpp")

    assert slots_of(of) is None
    assert [choice.chosen for choice in of.shown] == ["eagle3", "eagle3", "eagle3-light", BASELINE]
    assert "- llama_cpp has no adaptive speculation: choose one variant for the load." in page(of, None)
    assert "- Without switching, `eagle3-light` serves this load best." in page(of, None)
    assert "## Serving it" not in page(of, None)


@pytest.mark.parametrize(
    ("max_running", "said"),
    [
        (256, "Above C=100 nothing was measured and nothing is claimed: a server does there what it does at C=100"),
        (100, "The servers run at most 100 requests: no batch is larger than what was measured."),
    ],
    ids=["a server that could run more", "a server that cannot"],
)
def test_nothing_is_claimed_beyond_the_top_level(max_running: int, said: str) -> None:
    """There is no slot beyond the measured levels, and the page says what holds there."""
    of = policy(THREE, max_running=max_running)
    found = slots_of(of)

    assert found
    assert max(found.steps) <= 100
    assert said in page(of, found)


def test_a_flat_file_needs_two_positive_candidates() -> None:
    """0.5.12 refuses a single candidate and knows no 0: then there is nothing for it to adapt."""
    assert slots(best({1: 3, 8: 0})).flat() is None
    assert slots(best({1: 3, 8: 1})).flat() == {"candidate_steps": [1, 3]}


def test_the_page_can_be_acted_on(tmp_path: Path) -> None:
    """Its flags and its variant are those of the file; its levels lie on both sides of every threshold."""
    of = policy(THREE)
    found = slots_of(of)
    assert found
    text = page(of, found)

    assert "| 30 | eagle3-light | 1.14 (1." in text
    assert "--speculative-num-steps 3 --speculative-num-draft-tokens 4" in text
    (toml,) = re.findall(r"```toml\n(.*?)```", text, re.DOTALL)
    table = msgspec.toml.decode(toml)
    variant = msgspec.convert(table["variants"]["adaptive"], VariantTable, strict=False)
    assert variant.steps_by_batch == {key: [steps] for key, steps in found.steps.items()}
    assert {16, 17, 24, 48, 49, 64} <= set(table["levels"])
    assert table["gate"]["envelopes"] == [
        {"variant": "adaptive", "static": ["eagle3", "eagle3-light"], "workload": WORKLOAD}
    ]
    for how in ("`levels` replaces those of the profile", "a variant replaces", "`envelopes` goes below the `[gate]`"):
        assert how in text
    (tmp_path / "adaptive.json").write_text(json.dumps(found.by_batch()))
    assert adaptive.load(str(tmp_path / "adaptive.json"), found.start, of.graph_sizes).slot(48).candidate_steps == [1]
