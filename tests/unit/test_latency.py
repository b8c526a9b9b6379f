"""Latency has a crossover of its own: where speculation stops improving what one request feels."""

from collections.abc import Mapping
from dataclasses import replace

import pytest

from fixtures.analysis.arms import Arm, summarise
from fixtures.analysis.crossover import Crossover, Shape
from fixtures.analysis.gate import judge
from fixtures.analysis.latency import LatencyCrossover, latency_crossovers
from fixtures.analysis.measurements import BASELINE, Cell, Night, Quantiles
from tests.unit.handmade import RULES, night, without

LEVELS = (1, 4, 16, 64)


def slowed(cell: Cell, ttft: Mapping[int, float], tail: float) -> Cell:
    """A cell whose TTFT is so many times 50 ms, and whose p95 of both latencies is *tail* times its p50."""
    factor = ttft[cell.concurrency] if cell.variant != BASELINE else 1.0
    jitter = 1 + 0.002 * (cell.launch % 2)
    first = Quantiles(p50=0.05 * factor * jitter, p95=0.05 * factor * tail * jitter, p99=1.0)
    rounds = [
        replace(w, ttft_s=first, tpot_s=replace(w.tpot_s, p95=w.tpot_s.p50 * tail)) for w in cell.rounds if w.tpot_s
    ]
    return replace(cell, rounds=tuple(rounds))


def measured(ttft: Mapping[int, float], tail: float = 1.2) -> Night:
    """A night whose speculation pays up to about C = 30 in throughput and in TPOT."""
    it = night({1: 1.5, 4: 1.3, 16: 1.1, 64: 0.8})
    tails = {BASELINE: 1.2, "eagle3": tail}
    return replace(it, cells=tuple(slowed(cell, ttft, tails[cell.variant]) for cell in it.cells))


def found(it: Night) -> dict[str, LatencyCrossover]:
    """The crossovers of the pair, by name."""
    return {each.name: each for each in judge(it, None, [], RULES).latencies["eagle3 on chat"]}


def test_tpot_crosses_where_a_token_stops_coming_sooner() -> None:
    """TPOT is the inverse of throughput here: 1.1 × at 16 and 0.8 × at 64 cross between the two."""
    of = found(measured(dict.fromkeys(LEVELS, 1.0)))["TPOT p50"].crossover

    assert of.shape is Shape.CROSSES
    assert of.point is not None
    assert 16 < of.point < 40
    assert 16 < of.interval[0] < of.interval[1] < 64


@pytest.mark.parametrize(
    ("factor", "shape"), [(1.3, Shape.ALWAYS_SLOWER), (0.7, Shape.ALWAYS_FASTER)], ids=["drafting first", "faster"]
)
def test_latency_that_never_crosses_says_so(factor: float, shape: Shape) -> None:
    """A first token that always comes later is never better, whatever throughput says."""
    it = found(measured(dict.fromkeys(LEVELS, factor)))

    assert it["TTFT p50"].crossover.shape is shape
    assert it["TTFT p95"].crossover.shape is shape
    assert it["TPOT p50"].crossover.shape is Shape.CROSSES


def test_tail_crosses_earlier_than_the_median_when_it_grows() -> None:
    """A p95 that speculation stretches by a fifth crosses where the median still gains."""
    it = found(measured(dict.fromkeys(LEVELS, 1.0), tail=1.44))

    tail, middle = it["TPOT p95"].crossover.point, it["TPOT p50"].crossover.point
    assert tail is not None
    assert middle is not None
    assert tail < 16 < middle


def test_latency_that_nobody_measured_has_no_crossover() -> None:
    """One level makes no curve, and a server that tells no TTFT has none."""
    it = night({1: 1.5, 4: 1.3})
    silent = replace(
        it, cells=tuple(replace(c, rounds=tuple(replace(w, ttft_s=None) for w in c.rounds)) for c in it.cells)
    )
    alone = without(it, variant="eagle3", level=4)

    assert set(found(silent)) == {"TPOT p50", "TPOT p95"}
    assert found(alone) == {}


def test_night_from_another_ones_file_has_no_tails() -> None:
    """What a trailing night does not carry is not made up."""
    base, arm = (_without_tails(summarise(night()).arms[name, "chat"]) for name in (BASELINE, "eagle3"))

    assert {each.name for each in latency_crossovers(base, arm, LEVELS, RULES)} == {"TPOT p50", "TTFT p50"}


def _without_tails(arm: Arm) -> Arm:
    return replace(arm, values={name: of for name, of in arm.values.items() if not name.endswith("p95")})


@pytest.mark.parametrize(
    ("shape", "point", "low", "high", "text"),
    [
        (Shape.CROSSES, 23.4, 12.0, 41.0, "up to 23.4 (12 … 41)"),
        (Shape.ALWAYS_FASTER, None, None, None, "always better (>64)"),
        (Shape.ALWAYS_SLOWER, None, None, None, "never better (<1)"),
        (Shape.NOT_RESOLVED, 3.0, None, None, "not resolved (<1 … >64)"),
        (Shape.MULTIPLE, 3.0, 2.0, 30.0, "more than once: 3, 20 (2 … 30)"),
    ],
)
def test_every_shape_has_its_words(
    shape: Shape, point: float | None, low: float | None, high: float | None, text: str
) -> None:
    """A table's cell says the number with its interval, or why there is none."""
    of = Crossover(shape=shape, lowest=1, highest=64, point=point, low=low, high=high, crossings=(3.0, 20.0))

    assert LatencyCrossover(name="TPOT p50", crossover=of).text == text
