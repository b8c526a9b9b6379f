"""Cells that look sound alone and do not count beside the other arm, or beside the record."""

from dataclasses import replace
from typing import Any

import msgspec
import pytest

from fixtures.analysis.arms import summarise
from fixtures.analysis.gate import judge
from fixtures.analysis.measurements import BASELINE, Cell, Night
from fixtures.analysis.night_validity import beside_each_other, beside_the_record
from fixtures.analysis.record import Refused, make_record
from fixtures.analysis.verdicts import Outcome
from tests.unit.handmade import RULES, changed, night, recording, rewound

POOLS = {BASELINE: 788_971, "eagle3": 748_027}
"""As an H200 said with and without a draft model."""


def pooled(of: Night, pools: dict[str, int] = POOLS) -> Night:
    """*of* on servers with such KV pools."""
    cells = [
        replace(c, server=replace(c.server, effective={"kv_tokens": pools[c.variant]})) if c.variant in pools else c
        for c in of.cells
    ]
    return replace(of, cells=tuple(cells))


def invalid(cells: tuple[Cell, ...]) -> set[tuple[str, int]]:
    """Variant and level of those of *cells* that do not count."""
    return {(c.variant, c.concurrency) for c in cells if not c.valid}


@pytest.mark.parametrize("arm", [BASELINE, "eagle3"])
@pytest.mark.parametrize("pressure", [{"token_usage_max": 0.86}, {"retractions": 3}], ids=["full", "retracted"])
def test_unequal_pools_under_pressure_do_not_count(arm: str, pressure: dict[str, Any]) -> None:
    """Whichever arm was short of room, the speculative one shows no longer what speculation does; both are told."""
    of = rewound(pooled(night()), variant=arm, level=64, **pressure)
    cells = beside_each_other(of.cells)

    assert invalid(cells) == {("eagle3", 64)}
    (reason,) = next(c.invalid_reasons for c in cells if not c.valid)
    assert reason.startswith(f"unequal KV tokens: eagle3 748027, baseline 788971, and {arm} ")


@pytest.mark.parametrize(
    ("pools", "pressure"),
    [
        (POOLS, {"token_usage_max": 0.8}),
        ({BASELINE: 748_027, "eagle3": 748_027}, {"token_usage_max": 0.99, "retractions": 3}),
        ({}, {"token_usage_max": 0.99}),
    ],
    ids=["there is room", "equal pools", "pools that nobody tells"],
)
def test_pools_that_decide_nothing_count(pools: dict[str, int], pressure: dict[str, Any]) -> None:
    """A draft model's memory is part of speculation as long as nothing waits for it."""
    assert invalid(beside_each_other(rewound(pooled(night(), pools), **pressure).cells)) == set()


def test_order_of_measuring_does_not_matter() -> None:
    """The first arm's cells are judged by the second's as well: the rule looks at the whole night, and at no order."""
    of = rewound(pooled(night()), level=64, token_usage_max=0.9).cells

    assert invalid(beside_each_other(of)) == invalid(beside_each_other(of[::-1]))


def test_night_with_unequal_pools_is_judged_invalid_and_not_recorded() -> None:
    """The level's verdicts name the cause; the cells stay as they were measured, so that a replay says the same."""
    of = rewound(pooled(night()), level=64, token_usage_max=0.9)
    judged = judge(of, make_record(recording(), "first"), [], RULES)

    reasons = {v.reason for v in judged.verdicts if v.outcome is Outcome.INVALID and v.concurrency == 64}
    assert all("unequal KV tokens" in reason for reason in reasons)
    assert reasons
    assert all(cell.valid for cell in of.cells)
    assert summarise(msgspec.json.decode(msgspec.json.encode(of), type=Night)).invalid == summarise(of).invalid
    with pytest.raises(Refused, match="unequal KV tokens"):
        make_record(of, "no")


def clocked(of: Night, mhz: float, **which: Any) -> Night:
    """*of* with some cells measured at *mhz* on average, 30 MHz less and more at times."""
    clocks = {"min": mhz - 30, "mean": mhz, "max": mhz + 30}
    return changed(of, **which, gpu={"gpus": [{"name": "NVIDIA H200", "sm_mhz": clocks}]})


RECORDED = clocked(recording(), 1900).cells


@pytest.mark.parametrize("arm", [BASELINE, "eagle3"])
def test_clock_that_fell_on_one_arm_does_not_count(arm: str) -> None:
    """Recorded at 1870 to 1930 MHz, one arm at 1600: it lost by its clock, not by what it does."""
    cells = beside_the_record(clocked(clocked(night(), 1900), 1600, variant=arm, level=16).cells, RECORDED)

    assert invalid(cells) == {(arm, 16)}
    (reason,) = next(c.invalid_reasons for c in cells if not c.valid)
    assert reason.startswith("throttled: GPU 0 ran at 1600 MHz on average, recorded were 1870 to 1930 MHz")


@pytest.mark.parametrize(
    "tonight",
    [
        clocked(night(), 1900),
        clocked(night(), 1840),
        clocked(night(), 1600),
        night(),
        clocked(clocked(night(), 1900), 1600, variant="lighter"),
    ],
    ids=["as recorded", "within the slack", "on both arms", "not known", "of nobody"],
)
def test_clock_that_fell_on_no_arm_alone_counts(tonight: Night) -> None:
    """What the node does to both arms leaves them comparable; what is not known is no reason."""
    assert invalid(beside_the_record(tonight.cells, RECORDED)) == set()


def test_record_without_clocks_judges_none() -> None:
    """A record of a node without NVML has no range to leave."""
    assert invalid(beside_the_record(clocked(night(), 300, variant=BASELINE).cells, recording().cells)) == set()


def test_clock_of_one_arm_makes_its_level_invalid() -> None:
    """The judge looks at the record's clocks by itself."""
    record = make_record(clocked(recording(), 1900), "first")
    tonight = clocked(clocked(night(), 1900), 1500, variant="eagle3", level=4)

    invalids = {v.concurrency for v in judge(tonight, record, [], RULES).verdicts if v.outcome is Outcome.INVALID}
    assert 4 in invalids
    assert invalids <= {4, None}
