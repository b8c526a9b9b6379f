"""What the report says of the cells and the servers beside the verdict."""

from dataclasses import replace

import pytest

from fixtures.analysis.measurements import BASELINE, Cell, Night
from fixtures.reports.html import page
from fixtures.reports.markdown import summary
from fixtures.reports.surroundings import counted, differing, line_of
from tests.unit.handmade import night, rewound
from tests.unit.reporting import view

COUNTERS = {
    "prefill_tokens": 6400.0,
    "prefill_passes": 20.0,
    "decode_passes": 500.0,
    "decode_passes_outside_graphs": 5.0,
}
POOLS = {BASELINE: 788_971, "eagle3": 748_027}


def cell(**counters: float) -> Cell:
    """A cell over which the server's counters grew by *counters*."""
    return replace(night().cells[0], counters=counters)


def test_prefill_batch_and_passes_outside_graphs_are_shown() -> None:
    """6400 tokens in 20 prefill passes are 320 a pass; 5 of 500 decode passes are 1 %."""
    line = line_of(cell(**COUNTERS))

    assert (line.prefill_batch, line.outside_graphs) == (320.0, 0.01)


@pytest.mark.parametrize("counters", [{}, {"prefill_tokens": 6400.0, "prefill_passes": 0.0}], ids=["none", "no pass"])
def test_what_a_server_does_not_count_is_not_known(counters: dict[str, float]) -> None:
    """Never a zero that nobody measured."""
    line = line_of(cell(**counters))

    assert (line.prefill_batch, line.outside_graphs) == (None, None)


def test_retractions_of_all_windows_are_summed() -> None:
    """Three windows of two are six."""
    assert line_of(rewound(night(), retractions=2).cells[0]).retractions == 6


def pooled() -> Night:
    """A night whose arms have other KV pools, and filled them at one level."""
    of = rewound(night(), level=64, token_usage_max=0.9)
    cells = [replace(c, server=replace(c.server, effective={"kv_tokens": POOLS[c.variant]})) for c in of.cells]
    return replace(of, cells=tuple(cells))


def test_consequences_of_speculation_are_told_with_both_values() -> None:
    """On the page and in the summary; equal values are not."""
    told = differing(pooled())
    shown = replace(view("held"), consequences=tuple(told))

    assert told == ["kv_tokens: baseline 788971, eagle3 748027"]
    assert differing(night()) == []
    assert all("kv" in text and "baseline 788971, eagle3 748027" in text for text in (page(shown), summary(shown)))


def test_cells_are_shown_as_they_were_judged() -> None:
    """One that does not count beside the other arm is shown so, with the reason, though it looked sound alone."""
    lines = [line_of(each) for each in counted(pooled(), None)]

    assert {(line.variant, line.concurrency) for line in lines if not line.valid} == {("eagle3", 64)}
