"""An adaptive variant is held against the best static one: the gate fires where it is worse, and only there."""

import re
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import msgspec
import pytest

from fixtures import profiles
from fixtures.analysis.envelope import beside_thresholds
from fixtures.analysis.gate import Judgement, judge, suspicions
from fixtures.analysis.measurements import Night
from fixtures.analysis.policy import policy_of
from fixtures.analysis.policy_page import page
from fixtures.analysis.policy_serving import slots_of
from fixtures.analysis.record import make_record
from fixtures.analysis.rules import Envelope, Rules
from fixtures.analysis.verdicts import Gate, Outcome, Verdict
from fixtures.claims import promised
from fixtures.histories import dumps
from tests.unit.handmade import SPEEDUP, beside, changed, night, recording, without
from tests.unit.sweeps import SIZES, WORKLOAD, sweep
from tests.unit.test_policy import THREE

BEST = {1: 1.5, 4: 1.3, 16: 1.1, 64: 1.0}
"""Of baseline and eagle3 at each level of `SPEEDUP`."""
OF = Envelope(variant="adaptive", static=("eagle3",), workload="chat", thresholds=())
RULES = Rules(pairs=(), envelopes=(OF,))
BOTH = "ABBABAAB"


def tonight(adaptive: Mapping[int, float] = BEST, order: str = BOTH, **more: Any) -> Night:
    """A night in which the adaptive variant is measured beside baseline and eagle3."""
    return beside(night(order=order), "adaptive", adaptive, **more)


def judged(it: Night, rules: Rules = RULES) -> Judgement:
    """The judgement of *it* without any record."""
    return judge(it, None, [], rules)


def verdict(of: Judgement, level: int | None) -> Verdict:
    """The envelope's verdict at *level*."""
    return next(v for v in of.verdicts if v.gate is Gate.ENVELOPE and v.concurrency == level)


def outcomes(of: Judgement) -> list[Outcome]:
    """The envelope's outcomes, level by level, and of the thresholds."""
    return [v.outcome for v in of.verdicts if v.gate is Gate.ENVELOPE]


def test_what_follows_the_best_arm_holds_without_a_record() -> None:
    """It is eagle3 below the crossover and baseline above, at every level; nothing asks for a second block."""
    it = tonight(order="ABBA")

    assert judged(it).outcome is Outcome.HELD
    assert outcomes(judged(it)) == [Outcome.HELD] * 5
    assert suspicions(it, None, [], RULES) == []


@pytest.mark.parametrize(
    ("level", "worse", "best"), [(1, 1.40, "eagle3"), (64, 0.9, "baseline")], ids=["below eagle3", "below baseline"]
)
def test_worse_than_the_best_arm_regressed(level: int, worse: float, best: str) -> None:
    """A level at which another arm is a tenth faster fails, naming the arm; the others hold."""
    it = judged(tonight({**BEST, level: worse}))
    said = verdict(it, level)

    assert said.outcome is Outcome.REGRESSED
    assert f"adaptive is at {worse / BEST[level]:.3f}x of {best} (" in said.reason
    assert "allowed −1.2 %" in said.reason
    assert outcomes(it).count(Outcome.HELD) == 4
    assert it.outcome is Outcome.REGRESSED


@pytest.mark.parametrize("factor", [0.995, 1.2], ids=["0.5 % worse", "better than all"])
def test_what_does_not_matter_holds(factor: float) -> None:
    """Half a per cent is within the finest margin, and better is not a fault: there is no record to be stale."""
    it = judged(tonight({level: ratio * factor for level, ratio in BEST.items()}))

    assert outcomes(it) == [Outcome.HELD] * 5


def test_first_block_asks_for_a_second_before_anything_fails() -> None:
    """A tenth missing in block 1 is a suspicion; without fresh servers it is inconclusive."""
    it = tonight({**BEST, 16: 0.99}, order="ABBA")

    assert suspicions(it, None, [], RULES) == ["envelope of adaptive on chat at C=16"]
    assert judged(it).suspicions == ("envelope of adaptive on chat at C=16",)
    assert verdict(judged(it), 16).outcome is Outcome.INCONCLUSIVE
    assert "no second block" in verdict(judged(it), 16).reason


def test_profile_with_one_block_fails_by_it() -> None:
    """Nothing fresh can come, so that the one block's last launches have to agree."""
    it = judged(tonight({**BEST, 16: 0.90}, order="ABBA"), replace(RULES, blocks=1))

    assert verdict(it, 16).outcome is Outcome.REGRESSED


def test_fresh_servers_that_keep_up_dispel_the_suspicion() -> None:
    """The adaptive launches of block 1 were a fifth slower; those of block 2 are as they should be."""
    factors = (1.004, 0.8, 0.8, 0.996, 1.004, 1.004, 0.996, 0.996)

    assert verdict(judged(tonight(factors=factors)), 16).outcome is Outcome.HELD


def test_what_collapses_in_half_of_its_launches_is_not_held() -> None:
    """Two modes are no noise to hide behind: neither told from noise nor passed."""
    factors = (1.0, 0.5, 1.0, 1.0, 0.5, 1.0, 1.0, 1.0)
    it = judged(tonight(factors=factors))

    assert verdict(it, 16).outcome is Outcome.INCONCLUSIVE
    assert "not told from noise" in verdict(it, 16).reason


def test_lucky_arm_among_many_fails_nothing() -> None:
    """Of five equal arms the best one looks 1.2 % better than the adaptive one: that is its luck."""
    it = tonight()
    static = [f"e{i}" for i in range(4)]
    for i, name in enumerate(static):
        factors = [1 + 0.006 * ((n + i) % 3) for n in range(8)]
        it = _also(it, name, BEST, factors)
    rules = replace(RULES, envelopes=(replace(OF, static=("eagle3", *static)),))

    assert outcomes(judged(it, rules)) == [Outcome.HELD] * 5


def _also(it: Night, name: str, speedup: Mapping[int, float], factors: Sequence[float]) -> Night:
    other = tonight(speedup, factors=factors)
    added = [replace(c, variant=name, launch=c.launch + 1) for c in other.cells if c.variant == "adaptive"]
    return replace(it, cells=(*it.cells, *added))


@pytest.mark.parametrize("variant", ["baseline", "eagle3", "adaptive"])
def test_invalid_cell_of_any_arm_is_invalid_at_its_level_alone(variant: str) -> None:
    """No number is made of it, whichever arm it is."""
    it = judged(changed(tonight(), variant=variant, level=16, valid=False, invalid_reasons=("3 requests failed",)))

    assert verdict(it, 16).outcome is Outcome.INVALID
    assert "3 requests failed" in verdict(it, 16).reason
    assert verdict(it, 4).outcome is Outcome.HELD


def test_missing_arm_is_inconclusive() -> None:
    """A static arm that was not measured may have been the best."""
    it = judged(without(tonight(), variant="eagle3", level=16))

    assert verdict(it, 16).outcome is Outcome.INCONCLUSIVE
    assert "eagle3 at C=16 has 0 of" in verdict(it, 16).reason


def test_noisy_night_judges_no_envelope() -> None:
    """Where the gated pair says that the node shakes, the envelope says nothing either."""
    rough = tonight({**BEST, 16: 0.9}, windows=(1.0, 1.3, 0.7))
    rough = replace(rough, cells=tuple(replace(c, rounds=_shaken(c.rounds)) for c in rough.cells))
    it = judge(rough, make_record(recording(), "first"), [], replace(RULES, pairs=(("eagle3", "chat"),)))

    assert verdict(it, 16).outcome is Outcome.INCONCLUSIVE
    assert "windows scatter" in verdict(it, 16).reason


def _shaken(rounds: Sequence[Any]) -> tuple[Any, ...]:
    return tuple(replace(w, output_tokens=w.output_tokens * f) for w, f in zip(rounds, (1, 1.3, 0.7), strict=True))


@pytest.mark.parametrize(
    ("threshold", "levels", "missing", "add"),
    [
        pytest.param(30, (10, 24, 30), "", "", id="both sides"),
        pytest.param(2, (1, 2), "", "", id="one request below two"),
        pytest.param(30, (10, 30), "just below the threshold 30 (23 … 29)", "29", id="nothing below"),
        pytest.param(30, (24, 41), "just above the threshold 30 (30 … 40)", "30", id="nothing above"),
        pytest.param(30, (1, 100), "30 (23 … 29); no level just above", "29, 30", id="neither"),
    ],
)
def test_levels_on_both_sides_of_a_threshold(threshold: int, levels: Sequence[int], missing: str, add: str) -> None:
    """Switching collapses beside its thresholds: a side without a level is named, with the level to add."""
    said = beside_thresholds(replace(OF, thresholds=(threshold,)), levels, RULES)

    assert said.outcome is (Outcome.INCONCLUSIVE if missing else Outcome.HELD)
    assert missing in said.reason
    assert said.next_step.endswith(add)


def test_threshold_that_is_not_looked_at_leaves_the_night_open() -> None:
    """All levels hold, and what lies between them could collapse unseen."""
    it = judged(tonight(), replace(RULES, envelopes=(replace(OF, thresholds=(30,)),)))

    assert outcomes(it) == [Outcome.HELD] * 4 + [Outcome.INCONCLUSIVE]
    assert it.outcome is Outcome.INCONCLUSIVE


def test_advice_knows_whether_a_threshold_is_near() -> None:
    """Beside a threshold it is the switching, elsewhere the choice."""
    rules = replace(RULES, envelopes=(replace(OF, thresholds=(14,)),))
    it = judged(tonight({**BEST, 1: 1.3, 16: 0.99}), rules)

    assert "beside the threshold 14" in verdict(it, 16).next_step
    assert "--policy" in verdict(it, 1).next_step


def test_every_level_is_shown_with_its_best_arm() -> None:
    """A report can say by how much, and against whom."""
    shown = judged(tonight()).envelopes["adaptive on chat"]

    assert [(level.concurrency, level.best) for level in shown] == [
        (1, "eagle3"),
        (4, "eagle3"),
        (16, "eagle3"),
        (64, "baseline"),
    ]
    assert [level.ratio for level in shown] == pytest.approx([1.0] * 4, abs=0.005)
    assert SPEEDUP[64] < BEST[64]


def test_thresholds_travel_with_the_rules() -> None:
    """A saved night is judged again by the envelopes and thresholds that it was judged by."""
    rules = replace(RULES, envelopes=(replace(OF, thresholds=(12, 30)),))

    assert msgspec.json.decode(dumps(rules), type=Rules) == rules


PROFILE = """
name = "served"
marker = "gpu"
about = "what the page of a policy says to measure"
{levels}
[engine]
name = "sglang"
[engine.flags]
cuda-graph-bs-decode = {sizes}
[variants.baseline]
[variants.eagle3]
[variants.eagle3-light]
[workloads.chat]
prompt_tokens = 8
output_tokens = 8
{rest}pairs = []
"""


def test_what_a_policy_says_to_measure_is_enough(tmp_path: Path) -> None:
    """The levels and the envelope on the page of a policy, put into a profile, leave no side of a threshold open."""
    of = policy_of(sweep(THREE), WORKLOAD, RULES)
    slots = slots_of(of)
    assert slots
    (toml,) = re.findall(r"```toml\n(.*?)```", page(of, slots), re.DOTALL)
    levels, _, rest = toml.partition("\n")
    path = tmp_path / "served.toml"
    path.write_text(PROFILE.format(levels=levels, sizes=SIZES, rest=rest))
    profile = profiles.load(str(path))
    (envelope,) = promised(profile, set(profile.variants), {WORKLOAD}).envelopes

    assert envelope.thresholds == tuple(switch.holds_from for switch in slots.switches)
    assert beside_thresholds(envelope, profile.levels, RULES).outcome is Outcome.HELD
