"""Judged nights to report on, made once a session: what the report's tests and the browser's check look at."""

from collections.abc import Mapping
from dataclasses import replace
from functools import cache

import numpy as np

from fixtures.analysis.arms import summarise
from fixtures.analysis.gate import Rules, judge
from fixtures.analysis.measurements import Cell, Night
from fixtures.analysis.record import make_record
from fixtures.analysis.rules import Envelope
from fixtures.reports import Context, ReportView, view_of
from tests.perf.operating_characteristics.faults import CURVES, FAULTS, LEVELS, Fault
from tests.perf.operating_characteristics.nights import H200, VARIANT, WORKLOAD, World

THEN = {"driver": "580.159.04", "sglang": "0.5.17", "gpu": {"name": "H200", "memory_mib": 143771}}
NOW = {**THEN, "driver": "580.173.02"}
RULES = Rules(pairs=((VARIANT, WORKLOAD),))
CAPPED = "capped: the server never ran more than 48 of 70 requests at once"

KINDS = ("held", "regressed", "invalid", "unrecorded", "first", "partial", "beside", "adaptive", "workloads")


def dressed(night: Night, environment: Mapping[str, object], status: str = "") -> Night:
    """Return *night* as the profile h200 measured it."""
    cells = tuple(replace(cell, profile="h200") for cell in night.cells)
    return replace(night, profile="h200", environment=environment, cells=cells, status=status)


def _of_code(cell: Cell) -> Cell:
    """A cell of another workload, on which speculation gains a fifth more and the server counts its passes."""
    gain = 1.2 if cell.variant == VARIANT else 1.0
    usage = cell.concurrency / 500
    rounds = [replace(w, output_tokens=w.output_tokens * gain, token_usage_max=usage) for w in cell.rounds]
    counters = {"prefill_tokens": 4e3, "prefill_passes": 5, "decode_passes": 50, "decode_passes_outside_graphs": 1}
    return replace(cell, workload="code", workload_digest="d2", rounds=tuple(rounds), counters=counters)


@cache
def view(kind: str) -> ReportView:
    """Return the view of a judged night: one of `KINDS`."""
    world = World(4, CURVES["S45"], H200)
    record = make_record(dressed(world.night(), THEN), "the first record of this node")
    step = Fault(variant=np.full(len(LEVELS), np.log(0.992)))
    earlier = [dressed(world.night(step if i >= 25 else None, blocks=1), THEN, "held") for i in range(40)]
    fault = FAULTS["acceptance length −10 %"] if kind == "regressed" else Fault()
    tonight = dressed(world.night(fault), NOW)
    if kind == "invalid":
        capped = {"valid": False, "invalid_reasons": (CAPPED,)}
        bad = [c.concurrency == 70 and c.variant == VARIANT for c in tonight.cells]
        cells = [replace(c, **capped) if b else c for c, b in zip(tonight.cells, bad, strict=True)]  # type: ignore[arg-type]
        tonight = replace(tonight, cells=tuple(cells))
    if kind == "partial":
        tonight = replace(tonight, cells=tonight.cells[:8], expected=tuple(c.key for c in tonight.cells))
    if kind == "beside":
        lighter = [replace(c, variant="lighter") for c in tonight.cells if c.variant == VARIANT]
        tonight = replace(tonight, cells=(*tonight.cells, *lighter))
    rules = RULES
    if kind == "adaptive":
        theirs = [replace(c, variant="adaptive") for c in tonight.cells if c.variant == VARIANT]
        tonight = replace(tonight, cells=(*tonight.cells, *theirs))
        rules = replace(RULES, envelopes=(Envelope(variant="adaptive", static=(VARIANT,), workload=WORKLOAD),))
    if kind == "workloads":
        tonight = replace(tonight, cells=(*tonight.cells, *(_of_code(cell) for cell in tonight.cells)))
    history = [] if kind == "first" else [summarise(night) for night in earlier]
    held_against = None if kind == "unrecorded" else record
    context = Context(
        about="one H200",
        notes={VARIANT: "3 steps, top-k 1"},
        night_file=".benchmarks/0041_x.json",
        set_aside=(("0007_x.json", "is cut off"),),
    )
    return view_of(tonight, held_against, history, judge(tonight, held_against, history, rules), context)
