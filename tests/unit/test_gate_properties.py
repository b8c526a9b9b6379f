"""What holds for any night: generated nights, torn and turned."""

import math
import re
from dataclasses import dataclass, replace
from typing import Any

import msgspec
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from fixtures.analysis.gate import Judgement, judge
from fixtures.analysis.measurements import Cell, Night
from fixtures.analysis.record import make_record
from fixtures.analysis.verdicts import Gate, Outcome
from tests.unit.handmade import RULES, SPEEDUP, night, recording

RECORD = make_record(recording(), "first")
few = settings(max_examples=12, deadline=None, suppress_health_check=[HealthCheck.too_slow], derandomize=True)


@dataclass(frozen=True)
class Draw:
    """Any speed-ups, any launches within 3 %, one block or two: small, so that hypothesis can print it."""

    ratios: tuple[float, ...]
    factors: tuple[float, ...]
    order: str

    def night(self) -> Night:
        """The night of these numbers."""
        return night(dict(zip(SPEEDUP, self.ratios, strict=True)), factors=self.factors, order=self.order, day=20)


draws = st.builds(
    Draw,
    ratios=st.tuples(*[st.floats(0.5, 2.0)] * len(SPEEDUP)),
    factors=st.tuples(*[st.floats(0.97, 1.03)] * 8),
    order=st.sampled_from(["ABBA", "ABBABAAB"]),
)


def told(it: Night) -> Judgement:
    """The judgement against the record alone."""
    return judge(it, RECORD, [], RULES)


def by_claim(it: Judgement, *gates: Gate) -> dict[tuple[Gate, int | None], Outcome]:
    """Outcome of each claim of *gates*."""
    return {(v.gate, v.concurrency): v.outcome for v in it.verdicts if v.gate in gates}


@few
@given(draws, st.floats(0.01, 100.0))
def test_scale_leaves_signs_and_ratios(drawn: Draw, factor: float) -> None:
    """Another unit of throughput is another number and the same answer."""
    it = drawn.night()
    scaled = [
        replace(c, rounds=tuple(replace(w, output_tokens=w.output_tokens * factor) for w in c.rounds)) for c in it.cells
    ]

    here, there = (by_claim(told(of), Gate.SIGN, Gate.RATIO) for of in (it, replace(it, cells=tuple(scaled))))
    assert [outcome.fails for outcome in here.values()] == [outcome.fails for outcome in there.values()]


@few
@given(draws, st.randoms(use_true_random=False))
def test_order_in_the_file_changes_nothing(drawn: Draw, random: Any) -> None:
    """Cells and windows are sets: a judgement reads launches from the cells."""
    it = drawn.night()
    cells = [replace(c, rounds=tuple(random.sample(c.rounds, len(c.rounds)))) for c in it.cells]
    random.shuffle(cells)

    assert by_claim(told(replace(it, cells=tuple(cells))), *Gate) == by_claim(told(it), *Gate)


@few
@given(draws, st.integers(0, 31), st.floats(0.5, 1.0))
def test_one_low_window_changes_no_verdict(drawn: Draw, index: int, factor: float) -> None:
    """The median of three equal windows does not see how low one of them is."""
    it = drawn.night()
    flat = [replace(c, rounds=(c.rounds[0],) * 3) for c in it.cells]
    index %= len(flat)
    hit = replace(flat[index].rounds[0], output_tokens=flat[index].rounds[0].output_tokens * factor)
    with_hit = [*flat]
    with_hit[index] = replace(flat[index], rounds=(hit, *flat[index].rounds[1:]))

    assert by_claim(told(replace(it, cells=tuple(with_hit))), *Gate) == by_claim(
        told(replace(it, cells=tuple(flat))), *Gate
    )


def torn(cell: Cell, how: str) -> Cell | None:
    """*cell* as a fault leaves it; None when it is gone."""
    bad: dict[str, Any] = {
        "nan": {"output_tokens": math.nan},
        "zero": {"output_tokens": 0.0},
        "infinite": {"seconds": math.inf},
        "failed": {"requests_failed": 3},
    }
    if how == "gone":
        return None
    if how == "invalid":
        return replace(cell, valid=False, invalid_reasons=("the server died",))
    return replace(cell, rounds=tuple(replace(w, **bad[how]) for w in cell.rounds))


@pytest.mark.parametrize("how", ["gone", "invalid", "nan", "zero", "infinite", "failed"])
@few
@given(drawn=draws, index=st.integers(0, 31))
def test_torn_night_is_never_held_and_never_breaks_the_gate(how: str, drawn: Draw, index: int) -> None:
    """Whatever cell is hit: the night does not pass, and what is said of it are finite values."""
    it = drawn.night()
    index %= len(it.cells)
    cells = [torn(c, how) if i == index else c for i, c in enumerate(it.cells)]
    hit = replace(it, cells=tuple(c for c in cells if c), expected=tuple(c.key for c in it.cells))

    judged = told(hit)

    assert judged.outcome is not Outcome.HELD
    assert msgspec.json.decode(msgspec.json.encode(judged), type=Judgement) == judged
    assert not re.search(r"\b(nan|inf)\b", " ".join(v.reason for v in judged.verdicts))


@few
@given(draws)
def test_every_claim_has_exactly_one_verdict(drawn: Draw) -> None:
    """Five gates a level and three for the pair: none missing, none twice."""
    it = drawn.night()
    claims = [(v.gate, v.concurrency) for v in told(it).verdicts]

    assert len(claims) == len(set(claims)) == 5 * len(SPEEDUP) + 3
