"""Each gate fires on a worse number and stays quiet on a better one; what cannot be judged says why."""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import msgspec
import pytest

from fixtures.analysis.gate import Judgement, Rules, judge, suspicions
from fixtures.analysis.measurements import Night, Quantiles
from fixtures.analysis.record import Record, make_record
from fixtures.analysis.verdicts import Gate, Outcome
from tests.unit.handmade import RULES, SPEEDUP, night, recording, rewound

RECORD = make_record(recording(), "first")
BOTH = "ABBABAAB"


def tonight(speedup: Mapping[int, float] = SPEEDUP, **more: Any) -> Night:
    """A night with both blocks."""
    return night(speedup, **{"order": BOTH, "day": 20, **more})


def verdict(of: Judgement, gate: Gate, level: int | None = None) -> tuple[Outcome, str]:
    """The outcome and the reason of one verdict."""
    return next((v.outcome, v.reason) for v in of.verdicts if v.gate is gate and v.concurrency == level)


def outcomes(of: Judgement, gate: Gate) -> list[Outcome]:
    """The outcomes of one gate, level by level."""
    return [v.outcome for v in of.verdicts if v.gate is gate]


def judged(it: Night, record: Record | None = RECORD, rules: Rules = RULES) -> Judgement:
    """The judgement of *it* without a history."""
    return judge(it, record, [], rules)


def test_unchanged_night_holds() -> None:
    """Every gate of every level holds, and nothing asks for a second block."""
    it = night(day=20)

    assert judged(it).outcome is Outcome.HELD
    assert {v.outcome for v in judged(it).verdicts} == {Outcome.HELD}
    assert suspicions(it, RECORD, [], RULES) == []


def test_speculation_that_no_longer_beats_baseline_regressed() -> None:
    """At a level recorded 1.1 × it is 0.95 × tonight, in both blocks."""
    it = judged(tonight({**SPEEDUP, 16: 0.95}))

    assert verdict(it, Gate.SIGN, 16)[0] is Outcome.REGRESSED
    assert "no longer beats baseline" in verdict(it, Gate.SIGN, 16)[1]
    assert it.outcome is Outcome.REGRESSED


def test_speculation_that_wins_above_the_crossover_makes_the_record_stale() -> None:
    """At a level recorded 0.8 × it is 1.05 × tonight: good news, and it says how to record again."""
    it = judged(tonight({**SPEEDUP, 64: 1.05}))
    said = next(v for v in it.verdicts if v.gate is Gate.SIGN and v.concurrency == 64)

    assert said.outcome is Outcome.STALE
    assert "--record" in said.next_step
    assert it.outcome is Outcome.STALE


def test_lower_speedup_regressed_although_its_sign_holds() -> None:
    """1.5 × became 1.35 ×: still faster than baseline, and a tenth of it is gone."""
    it = judged(tonight({**SPEEDUP, 1: 1.35}))

    assert verdict(it, Gate.RATIO, 1)[0] is Outcome.REGRESSED
    assert "eagle3 slower" in verdict(it, Gate.RATIO, 1)[1]
    assert outcomes(it, Gate.SIGN) == [Outcome.HELD] * 4


def test_higher_speedup_makes_the_record_stale() -> None:
    """1.5 × became 1.65 ×, because speculation became faster."""
    it = judged(tonight({**SPEEDUP, 1: 1.65}))

    assert verdict(it, Gate.RATIO, 1)[0] is Outcome.STALE


@pytest.mark.parametrize("factor", [0.995, 1.005], ids=["−0.5 %", "+0.5 %"])
def test_change_that_does_not_matter_holds(factor: float) -> None:
    """Real and irrelevant is held: half a per cent is within the finest margin."""
    assert judged(tonight({c: r * factor for c, r in SPEEDUP.items()})).outcome is Outcome.HELD


def test_slower_baseline_is_not_called_an_improvement() -> None:
    """The ratio rises by a tenth because baseline fell: regressed, and it says which arm."""
    slower = tonight()
    slower = replace(slower, cells=tuple(_scaled(c, 0.9) if c.variant == "baseline" else c for c in slower.cells))
    it = judged(slower)

    assert verdict(it, Gate.RATIO, 1)[0] is Outcome.REGRESSED
    assert "baseline slower" in verdict(it, Gate.RATIO, 1)[1]
    assert "baseline slower" in verdict(it, Gate.THROUGHPUT)[1]
    assert Outcome.STALE not in {v.outcome for v in it.verdicts}


def _scaled(cell: Any, factor: float) -> Any:
    rounds = [
        replace(w, output_tokens=w.output_tokens * factor, step_s=w.step_s / factor if w.step_s else None)
        for w in cell.rounds
    ]
    return replace(cell, rounds=tuple(rounds))


def test_both_arms_slower_is_seen_by_throughput_alone() -> None:
    """Both at 88 %: no ratio moved, and the machine did."""
    it = judged(tonight(base=0.88))

    assert "both arms slower" in verdict(it, Gate.THROUGHPUT)[1]
    assert verdict(it, Gate.THROUGHPUT)[0] is Outcome.REGRESSED
    assert outcomes(it, Gate.RATIO) == [Outcome.HELD] * 4


def test_both_arms_faster_makes_the_record_stale() -> None:
    """A faster machine is no regression; its record is another one's."""
    assert verdict(judged(tonight(base=1.15)), Gate.THROUGHPUT)[0] is Outcome.STALE


def test_ratio_verdicts_do_not_see_the_scale() -> None:
    """Ten times the throughput on both arms leaves each sign and ratio verdict as it was, word for word."""
    speedup = {**SPEEDUP, 1: 1.35, 16: 0.95}
    here, there = judged(tonight(speedup)), judged(tonight(speedup, base=10.0))

    for gate in (Gate.SIGN, Gate.RATIO):
        assert outcomes(here, gate) == outcomes(there, gate)


@pytest.mark.parametrize(
    ("acceptance", "outcome"),
    [(2.6, Outcome.REGRESSED), (1.0, Outcome.REGRESSED), (3.3, Outcome.HELD), (2.98, Outcome.HELD)],
    ids=["shorter", "inactive", "longer", "a little shorter"],
)
def test_acceptance_length(acceptance: float, outcome: Outcome) -> None:
    """Recorded 3.0: a collapsed draft leaves the outputs right and nobody warned."""
    it = judged(tonight(acceptance=acceptance))

    assert outcomes(it, Gate.ACCEPTANCE) == [outcome] * 4


def test_inactive_speculation_is_named() -> None:
    """An acceptance length of 1 is a server that speculates for nothing."""
    assert "inactive" in verdict(judged(tonight(acceptance=1.0)), Gate.ACCEPTANCE, 1)[1]


def test_acceptance_that_falls_with_concurrency_is_a_trend() -> None:
    """1 % less at the upper half is within the margin of each level, and drafts do not know their neighbours."""
    it = tonight()
    for level, length in ((1, 3.02), (4, 3.02), (16, 2.95), (64, 2.95)):
        it = rewound(it, variant="eagle3", level=level, acceptance_length=length)

    outcome, reason = verdict(judged(it), Gate.ACCEPTANCE, 64)
    assert outcome is Outcome.REGRESSED
    assert "falls with concurrency" in reason


def test_metric_that_is_absent_never_passes() -> None:
    """A server that stopped to report acceptance has not held it."""
    it = judged(rewound(tonight(), variant="eagle3", acceptance_length=None))

    assert outcomes(it, Gate.ACCEPTANCE) == [Outcome.INCONCLUSIVE] * 4


@pytest.mark.parametrize("factor", [1.5, 1 / 1.5], ids=["slower", "faster"])
@pytest.mark.parametrize(("gate", "name"), [(Gate.TTFT, "ttft_s"), (Gate.TPOT, "tpot_s")])
def test_latency_is_worse_upwards(gate: Gate, name: str, factor: float) -> None:
    """Half as long again fails, a third less holds: the direction belongs to the metric."""
    it, cells = tonight(), []
    for cell in it.cells:
        rounds = [replace(w, **{name: _times(getattr(w, name), factor)}) for w in cell.rounds]  # type: ignore[arg-type]
        cells.append(replace(cell, rounds=tuple(rounds)))

    expected = Outcome.REGRESSED if factor > 1 else Outcome.HELD
    assert outcomes(judged(replace(it, cells=tuple(cells))), gate) == [expected] * 4


def _times(of: Quantiles, factor: float) -> Quantiles:
    return Quantiles(p50=of.p50 * factor, p95=of.p95 * factor, p99=of.p99 * factor)


@pytest.mark.parametrize(
    ("speedup", "outcome"),
    [
        ({1: 1.5, 4: 0.9, 16: 0.8, 64: 0.7}, Outcome.REGRESSED),
        ({1: 1.5, 4: 1.4, 16: 1.3, 64: 1.1}, Outcome.STALE),
        (SPEEDUP, Outcome.HELD),
    ],
    ids=["fell", "rose", "stayed"],
)
def test_crossover_fails_only_when_the_intervals_are_disjoint(speedup: Mapping[int, float], outcome: Outcome) -> None:
    """Recorded between 16 and 64."""
    assert verdict(judged(tonight(speedup)), Gate.CROSSOVER)[0] is outcome


def test_suspicion_in_block_one_asks_for_a_second_block() -> None:
    """It names the gate, the pair and the level, and is no verdict yet."""
    it = night({**SPEEDUP, 1: 1.46}, day=20)

    assert "speed-up of eagle3 on chat at C=1" in suspicions(it, RECORD, [], RULES)
    assert verdict(judged(it), Gate.RATIO, 1)[0] is Outcome.INCONCLUSIVE


def test_fresh_servers_that_contradict_dispel_the_suspicion() -> None:
    """Block 1 is a tenth low, block 2 is as recorded: an unlucky pair of launches, not a regression."""
    low, sound = tonight({**SPEEDUP, 1: 1.35}), tonight()
    cells = [c for c in low.cells if c.block == 1] + [c for c in sound.cells if c.block == 2]

    assert verdict(judged(replace(sound, cells=tuple(cells))), Gate.RATIO, 1)[0] is Outcome.HELD


def test_one_block_must_be_plain_to_fail() -> None:
    """A profile with one block has nothing fresh to ask: a tenth on a quiet node fails, 3 % does not."""
    alone = replace(RULES, blocks=1)

    assert verdict(judged(night({**SPEEDUP, 1: 1.35}), rules=alone), Gate.RATIO, 1)[0] is Outcome.REGRESSED
    assert verdict(judged(night({**SPEEDUP, 1: 1.46}), rules=alone), Gate.RATIO, 1)[0] is Outcome.HELD


def test_night_planned_with_one_block_waits_for_no_other() -> None:
    """Its expected cells say so: the suspicion that is not plain enough is dropped, not left open for ever."""
    it = night({**SPEEDUP, 1: 1.46}, day=20)

    assert verdict(judged(it), Gate.RATIO, 1)[0] is Outcome.INCONCLUSIVE
    planned = replace(it, expected=tuple(cell.key for cell in it.cells))
    assert verdict(judged(planned), Gate.RATIO, 1)[0] is Outcome.HELD


def test_level_near_one_has_no_sign_to_keep() -> None:
    """Recorded at 1.01 ×: 0.995 × tonight is the same answer, and the ratio is gated all the same."""
    near = {1: 1.5, 4: 1.3, 16: 1.01, 64: 0.8}
    record = make_record(recording(near), "first")

    assert record.workloads["digest of chat"].variants["eagle3"].levels[16]["class"] == "grey"
    assert judged(tonight({**near, 16: 0.995}), record).outcome is Outcome.HELD
    assert verdict(judged(tonight({**near, 16: 0.90}), record), Gate.RATIO, 16)[0] is Outcome.REGRESSED


def test_more_pairs_share_one_error_rate() -> None:
    """What fails alone by a hair does not fail among fifty pairs: the night's rate stays."""
    many = replace(RULES, pairs=RULES.pairs * 50)
    alone, crowd = judged(night(day=20)), judged(night(day=20), rules=many)

    assert alone.rows[0].allowed is not None
    assert crowd.rows[0].allowed is not None
    assert crowd.rows[0].allowed > alone.rows[0].allowed


def doctored() -> Record:
    """The record with its classes swapped."""
    swap = {"faster": "slower", "slower": "faster", "grey": "grey"}
    workloads = {}
    for digest, workload in RECORD.workloads.items():
        of = workload.variants["eagle3"]
        levels: Any = {c: {**level, "class": swap[level["class"]]} for c, level in of.levels.items()}
        workloads[digest] = replace(workload, variants={"eagle3": replace(of, levels=levels)})
    return replace(RECORD, workloads=workloads)


@pytest.mark.parametrize("scope", ["full", "signs"])
def test_swapped_classes_fail_at_both_ends(scope: Any) -> None:
    """A record that says the opposite is contradicted by one block, in either scope."""
    rules = replace(RULES, blocks=1, scope=scope)
    it = judged(night(), doctored(), rules)

    assert verdict(it, Gate.SIGN, 1)[0] is Outcome.STALE
    assert verdict(it, Gate.SIGN, 64)[0] is Outcome.REGRESSED


def test_signs_on_another_machine_judge_the_extremes_and_acceptance_only() -> None:
    """Half the speed-up in the middle is shown; at its ends the curve must keep its sides."""
    other = tonight({1: 1.2, 4: 0.9, 16: 0.9, 64: 0.5}, base=0.3)
    it = judged(other, rules=replace(RULES, scope="signs"))

    assert it.outcome is Outcome.HELD
    assert "another machine" in verdict(it, Gate.RATIO, 4)[1]
    assert "another machine" not in verdict(it, Gate.SIGN, 1)[1]


def test_signs_on_another_machine_fail_when_the_lowest_level_is_not_faster() -> None:
    """The promise that every machine must keep."""
    other = tonight({1: 0.9, 4: 0.9, 16: 0.9, 64: 0.5})

    assert verdict(judged(other, rules=replace(RULES, scope="signs")), Gate.SIGN, 1)[0] is Outcome.REGRESSED


@pytest.mark.parametrize(
    ("lengths", "outcome"),
    [((2.80, 2.95), Outcome.HELD), ((2.20, 2.21), Outcome.REGRESSED)],
    ids=["5 % apart between launches", "a quarter less, alike"],
)
def test_acceptance_on_another_machine_knows_how_little_two_launches_know(
    lengths: tuple[float, float], outcome: Outcome
) -> None:
    """Synthetic drafts are drawn: two launches that differ say nothing about their mean, two that agree do."""
    it = night(day=20)
    by_launch = dict(zip((2, 3), lengths, strict=True))
    cells = [
        replace(c, rounds=tuple(replace(w, acceptance_length=by_launch.get(c.launch)) for w in c.rounds))
        for c in it.cells
    ]
    it = replace(it, cells=tuple(cells))

    judgement = judged(it, rules=replace(RULES, scope="signs", blocks=1))

    assert set(outcomes(judgement, Gate.ACCEPTANCE)) == {outcome}


def test_pair_of_a_workload_that_was_not_measured_is_inconclusive() -> None:
    """A listed pair without cells is missing, not held."""
    it = judged(night(), rules=replace(RULES, pairs=(("eagle3", "chat"), ("eagle3", "code"))))

    assert it.outcome is Outcome.INCONCLUSIVE


def test_variant_that_is_not_gated_is_shown_and_never_red() -> None:
    """It lost half its speed-up: its numbers and its crossover are there, and the night holds."""
    whole = night(day=20)
    gated = [replace(c, launch={1: 1, 2: 2, 3: 5, 4: 6}[c.launch]) for c in whole.cells]
    slow = night({1: 0.7, 4: 0.6, 16: 0.5, 64: 0.4}).cells
    ngram = [replace(c, variant="ngram", launch=c.launch + 1) for c in slow if c.variant == "eagle3"]
    beside = replace(whole, cells=(*gated, *ngram))
    it = judged(beside)

    assert it.outcome is Outcome.HELD
    assert [(row.concurrency, row.outcome, row.word) for row in it.shown] == [
        (level, None, "slower") for level in (1, 4, 16, 64)
    ]
    assert it.shown_sentences[0].startswith("ngram on chat is slower than baseline at every concurrency")


def test_changed_driver_is_a_suspect_and_not_another_identity() -> None:
    """The night is judged; what changed is shown with both values."""
    it = judged(night(environment={"host": "node1", "driver": "580"}))

    assert it.outcome is Outcome.HELD
    assert it.changed == ("driver: recorded 570, tonight 580",)


def test_judgement_is_made_of_values() -> None:
    """What a report or a saved file needs goes to JSON and comes back equal, and holds finite numbers only."""
    it = judged(tonight({**SPEEDUP, 16: 0.95}))

    assert msgspec.json.decode(msgspec.json.encode(it), type=Judgement) == it


def test_judging_twice_gives_the_same() -> None:
    """Pure: what a replay repeats is the verdict itself."""
    it = tonight({**SPEEDUP, 16: 0.95})

    assert judged(it) == judged(it)
