"""Nights on servers whose every chunk costs them: the streaming tax is found, and refused when one arm alone pays."""

import re
from collections.abc import Callable
from pathlib import Path

import msgspec
import pytest

from fixtures import profiles
from fixtures.analysis.measurements import BASELINE, Cell
from fixtures.simulator import laws, truth
from fixtures.simulator.truth.streams import Virtual
from tests.perf.sim_nights.nights import Ended, Plan, run

COST_S = 0.0015
"""Of a chunk: a request streams five of them where one would do."""
TOP = 16
PLAN = Plan(levels=(4, TOP), faults=(f"chunk-cost-us={COST_S * 1e6:.0f}",), rounds=3, scale=1.5)
ONE_ARM = Plan(levels=(4, TOP), faults=("speculative:chunk-cost-us=3000",), rounds=3, scale=1.5)


def recording(folder: Path) -> Ended:
    """Run the night that one arm alone pays for, to be recorded."""
    return run(ONE_ARM, folder, "--record", "--reason", "it must be refused")


NIGHTS: dict[str, Callable[[Path], Ended]] = {
    "calibrated": lambda folder: run(PLAN, folder, "--calibrate"),
    "one arm pays": recording,
}


def taxes(ended: Ended) -> dict[str, float]:
    """What the terminal said of the arms: variant → tax."""
    (line,) = re.findall(r"^streaming tax on short at C=16: (.*)$", ended.output, re.MULTILINE)
    return {variant: float(tax) / 100 for variant, tax in re.findall(r"(\w+) (-?[\d.]+)%", line.partition(";")[0])}


def true_tax(arm: truth.Arm, folder: Path) -> float:
    """What the cost of a chunk takes of *arm*'s throughput: a whole reply has one, a streamed one several."""
    law, shape = laws.get(PLAN.law), profiles.load(str(folder / "night.toml")).shape("short")
    done = [trace for trace in Virtual(law, arm, TOP, shape).traces(12 * TOP) if trace.ended_s]
    tokens = sum(trace.tokens for trace in done)
    chunks = sum(len(trace.events) for trace in done)
    # The scheduler pays for the chunks, one after another, in the scale of its passes.
    free_s = tokens / truth.throughput(law, arm, TOP, shape, rounds=16)
    return 1 - (free_s + COST_S * len(done)) / (free_s + COST_S * chunks)


@pytest.mark.sim
@pytest.mark.parametrize("variant", [BASELINE, "eagle3"])
@pytest.mark.parametrize("night", ["calibrated"])
def test_tax_is_found(night: str, variant: str, nights: Callable[[str], Ended]) -> None:
    """Calibrated on servers that pay for each chunk, the tax of each arm is the law's within 2.5 %."""
    ended = nights(night)
    arm = truth.Arm(steps=PLAN.steps if variant != BASELINE else None)

    assert taxes(ended)[variant] == pytest.approx(true_tax(arm, ended.folder), abs=0.025), ended


@pytest.mark.sim
@pytest.mark.parametrize("night", ["calibrated"])
def test_only_the_top_level_is_asked_without_streaming(night: str, nights: Callable[[str], Ended]) -> None:
    """It stays inside the streamed cell: no cell of its own that something could take for an ordinary one."""
    lines = (nights(night).folder / "run" / "cells.jsonl").read_bytes().splitlines()
    cells = [msgspec.json.decode(line, type=Cell) for line in lines]

    assert len(cells) == len({cell.key for cell in cells})
    assert {cell.concurrency for cell in cells if cell.streaming} == {TOP}
    assert all(len(cell.streaming.whole) == PLAN.rounds for cell in cells if cell.streaming)
    assert all(cell.streaming.counters["prefill_passes"] > 0 for cell in cells if cell.streaming)


@pytest.mark.sim
@pytest.mark.parametrize("night", ["one arm pays"])
def test_tax_of_one_arm_refuses_the_record(night: str, nights: Callable[[str], Ended]) -> None:
    """Nothing is recorded, and the refusal names both taxes and the remedy."""
    ended = nights(night)

    assert ended.status == 1, ended
    assert ended.said(
        r"not recorded: streaming costs eagle3 .* baseline -?0\.\d%.*Raise the workload's stream_interval"
    ), ended
    assert not (ended.folder / "night.json").exists()
