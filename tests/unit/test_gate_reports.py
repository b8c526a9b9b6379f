"""What the field reported, put to the gate: noise that cried wolf, drift that nobody saw, a real H200."""

import math
from dataclasses import replace

import numpy as np
import pytest

from fixtures.analysis.arms import summarise
from fixtures.analysis.estimates import Word, estimate
from fixtures.analysis.gate import Judgement, judge, suspicions
from fixtures.analysis.measurements import BASELINE, Cell, Night
from fixtures.analysis.record import Refused, make_record
from fixtures.analysis.verdicts import Gate, Outcome
from tests.unit.handmade import RULES, SPEEDUP, night, recording, window

H200_BASELINE = {
    1: (207.6, 207.8, 207.8, 207.8, 207.6),
    10: (1904, 1906, 1903, 1904, 1904),
    100: (12173, 11843, 12214, 11732, 11792),
    250: (17490, 17397, 17434, 17440, 17405),
}
"""Launch medians of five launches of one baseline server on one H200, tok/s."""
H200_EAGLE3 = {
    1: ((444, 440, 455), (440, 450, 456)),
    10: ((3911, 3964, 4018), (3935, 3969, 4022)),
    100: ((14448, 14398, 13689), (14689, 14534, 14505)),
    250: ((16962, 17474, 17413), (17264, 17255, 16949)),
}
"""Two launches of EAGLE-3 (3 steps, acceptance 2.8), three passes each."""


def h200(*, same: bool = False, factor: float = 1.0, at: int = 10, day: int = 2) -> Night:
    """A B B A of those launches; *same*: baseline stands in for EAGLE-3; *factor*: what EAGLE-3 lost at level *at*."""
    cells = []
    for launch, letter, number in ((1, "A", 0), (2, "B", 0), (3, "B", 1), (4, "A", 1)):
        for level, medians in H200_BASELINE.items():
            if letter == "A" or same:
                passes: tuple[float, ...] = (medians[number if letter == "A" else number + 2],) * 3
            else:
                passes = H200_EAGLE3[level][number]
            put = factor if letter == "B" and level == at else 1.0
            cells.append(_cell(launch, letter, level, [p * put for p in passes]))
    return replace(night(day=day), cells=tuple(cells))


def _cell(launch: int, letter: str, level: int, passes: list[float]) -> Cell:
    template = night({level: 1.0}, order=letter).cells[0]
    accepted = None if letter == "A" else 2.8
    return replace(template, launch=launch, rounds=tuple(window(p, level, accepted) for p in passes))


def words(it: Night) -> list[Word]:
    """What the night says of each level."""
    arms = summarise(it).arms
    return estimate(arms[BASELINE, "chat"], arms["eagle3", "chat"], tuple(H200_BASELINE), RULES).words(RULES)


def test_h200_against_itself_claims_nothing() -> None:
    """A/A: no level is called faster or slower, and there is nothing to record."""
    assert set(words(h200(same=True))) <= {Word.TIED, Word.UNDECIDED}
    with pytest.raises(Refused, match="not resolved"):
        make_record(h200(same=True), "A/A")


def test_h200_speculation_pays_up_to_100_and_ties_at_250() -> None:
    """2.1 ×, 2.1 ×, 1.2 ×, and 0.99 × that nobody may call slower."""
    assert words(h200()) == [Word.FASTER, Word.FASTER, Word.FASTER, Word.UNDECIDED]

    crossing = make_record(h200(), "first look").workloads["digest of chat"].variants["eagle3"].crossover
    assert crossing.low is not None
    assert crossing.low > 100
    assert crossing.bounds[1] == ">250"


def test_h200_levels_keep_their_own_spread() -> None:
    """Modes at C = 100 do not make C = 10 loud, nor does C = 10 make C = 100 quiet."""
    record = make_record(h200(), "first look").workloads["digest of chat"].variants["eagle3"]

    assert record.levels[10]["standard_error"] < 0.008
    assert record.levels[100]["standard_error"] > 0.010


def test_h200_quiet_level_gets_the_finer_gate() -> None:
    """At C = 10, −3 % asks for a second block; at C = 100, whose launches have two modes, it may be one of them."""
    record = make_record(h200(), "first look")

    assert suspicions(h200(factor=0.97, at=10, day=3), record, [], RULES) == ["speed-up of eagle3 on chat at C=10"]
    assert suspicions(h200(factor=0.97, at=100, day=3), record, [], RULES) == []
    assert judge(h200(day=3), record, [], RULES).outcome is Outcome.HELD


def test_h200_single_pass_at_minus_seven_per_cent_changes_nothing() -> None:
    """One pass at C = 10 was 1769 instead of 1904."""
    record, it = make_record(h200(), "first look"), h200(day=3)
    hit = [
        replace(c, rounds=(replace(c.rounds[0], output_tokens=17690.0), *c.rounds[1:]))
        if (c.launch, c.concurrency) == (1, 10)
        else c
        for c in it.cells
    ]

    assert judge(replace(it, cells=tuple(hit)), record, [], RULES).outcome is Outcome.HELD


ATLAS = {2: (23.8, 31.3), 4: (45.6, 52.2), 16: (100.0, 101.0), 64: (200.0, 200.4)}
"""The same binary twice: 27 % apart at C = 2, within 2 % from 16 on."""


def atlas(order: int, factor: float = 1.0, day: int = 2, blocks: int = 1) -> Night:
    """Two launches an arm that were that far apart; *factor* on speculation, which is 1.5 × at C = 64 and below."""
    letters, cells = "ABBABAAB"[: 4 * blocks], []
    for launch, letter in enumerate(letters, 1):
        for level, pair in ATLAS.items():
            tok_s = pair[(launch // 2 + order) % 2] * (1.5 * factor if letter == "B" else 1.0)
            cell = _cell(launch, letter, level, [tok_s * w for w in (1.0, 1.001, 0.999)])
            cells.append(replace(cell, block=(launch + 3) // 4))
    return replace(night(day=day), cells=tuple(cells))


@pytest.mark.parametrize("order", [0, 1])
def test_same_binary_twice_does_not_fail_in_either_order(order: int) -> None:
    """A level with 27 % between launches beside one with 0.2 %: no verdict on the former, no false one."""
    record = make_record(atlas(0, blocks=2), "atlas")

    assert not judge(atlas(order, blocks=2), record, [], RULES).failures()


def test_tenth_at_a_quiet_level_fails_beside_a_loud_one() -> None:
    """−10 % at C = 64, where launches agree within 0.2 %, is seen; at C = 2 it cannot be."""
    record = make_record(atlas(0, blocks=2), "atlas")
    it = judge(atlas(0, factor=0.9, blocks=2), record, [], RULES)
    failed = {v.concurrency for v in it.failures() if v.gate is Gate.RATIO}

    assert 64 in failed
    assert 2 not in failed


def test_three_launches_in_thirty_six_at_two_thirds_are_not_averaged_in() -> None:
    """33 runs at 20 200 ± 1.1 % and 3 at 12 897, nothing between, none failed: launches disagree, the night says so."""
    record = make_record(recording(factors=(1.01, 0.99, 1.0, 0.99, 1.01, 1.0, 0.99, 1.01)), "first")
    slow = night(factors=(1.0, 12897 / 20200, 1.01, 0.99), day=20)

    it = judge(slow, record, [], RULES)

    assert it.outcome is Outcome.INCONCLUSIVE
    assert any("launches disagree" in reason for reason in it.noise)


def season(factors: list[float]) -> list[Judgement]:
    """Night after night at these factors of throughput on both arms: each judged after the ones before it."""
    record = make_record(recording(), "first")
    history: list[Night] = []
    out = []
    for day, factor in enumerate(factors, 2):
        it = night(base=factor, order="ABBABAAB", day=day)
        out.append(judge(it, record, history, RULES))
        history.append(replace(it, status=str(out[-1].outcome)))
    return out


def fails(factors: list[float]) -> list[bool]:
    """Which of those nights fail."""
    return [bool(it.failures()) for it in season(factors)]


def test_half_the_throughput_fails_every_night_and_not_once() -> None:
    """100, 50, 50: the failed night is not tomorrow's normal."""
    assert fails([1.0, 0.5, 0.5]) == [False, True, True]


def test_four_per_cent_a_night_is_caught_by_the_third() -> None:
    """Each night is within 10 % of the one before; against the record the third is at −11.5 %."""
    assert fails([0.96**k for k in range(9)])[3]


def test_spike_of_one_night_leaves_no_lasting_alarm() -> None:
    """100, 100, 60, 100."""
    assert fails([1.0, 1.0, 0.6, 1.0]) == [False, False, True, False]


def test_noise_of_two_per_cent_for_thirty_nights_never_fails() -> None:
    """Seeded noise between launches and nights, nothing else: a drift test once fired on 57 % of such series."""
    rng = np.random.default_rng(5)
    loud = make_record(recording(factors=tuple(1 + 0.02 * rng.standard_normal(8))), "first")
    history: list[Night] = []
    for day in range(2, 31):
        it = night(factors=[math.exp(0.02 * z) for z in rng.standard_normal(8)], order="ABBABAAB", day=day)
        judged = judge(it, loud, history, RULES)
        assert not judged.failures()
        history.append(replace(it, status=str(judged.outcome)))


def test_same_acceptance_and_slower_steps_is_said_so() -> None:
    """129.26 → 113.59 tok/s at the same acceptance length 2.96: step time, not the draft."""
    record = make_record(recording(acceptance=2.96), "first")
    slower = {c: r * 113.59 / 129.26 for c, r in SPEEDUP.items()}
    it = judge(night(slower, acceptance=2.96, order="ABBABAAB", day=20), record, [], RULES)
    part = it.rows[0].attribution

    assert part is not None
    assert part.largest == "step time"
    assert part.acceptance == pytest.approx(0.0, abs=1e-9)
    assert it.outcome is Outcome.REGRESSED
