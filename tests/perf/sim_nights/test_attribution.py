"""Single faults: each changes one thing that the law knows, and the attribution finds it, whole and in its own term."""

import math
import re
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path

import pytest

from fixtures.analysis.attribution import Attribution
from fixtures.analysis.gate import judge
from fixtures.analysis.record import Record
from fixtures.histories import Judged, read_judged
from fixtures.load.prompts import Shape
from fixtures.simulator import laws, truth
from fixtures.simulator.law import Forward, Law
from tests.perf.sim_nights.nights import Ended, Plan, record_of, replayed, run, saved
from tests.perf.sim_nights.test_laws import mean_log_throughput, shape_of

LEVEL = 4
SOUND = Plan(law="always-faster", levels=(LEVEL, 8), k=2, window_s=1)
"""Steps of this law hardly depend on the batch, so that fewer requests at once are one change and not two."""
LAW = laws.get(SOUND.law)
PLAIN, EAGLE3 = truth.Arm(), truth.Arm(steps=SOUND.steps)


def times(costs: Forward, factor: float) -> Forward:
    """Return a pass that takes *factor* times as long."""
    return Forward(
        fixed_s=factor * costs.fixed_s,
        per_token_s=factor * costs.per_token_s,
        per_kv_token_s=factor * costs.per_kv_token_s,
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class Fault:
    """What a server is told, the term in which it must be found, and the law of each arm as the fault leaves it."""

    told: tuple[str, ...]
    term: str
    plain: Law = LAW
    speculative: Law = LAW
    arm: truth.Arm = EAGLE3

    def plan(self) -> Plan:
        """Return the night with the fault."""
        return replace(SOUND, faults=self.told)

    def log_speedup(self, shape: Shape) -> float:
        """Return log(eagle3 tok/s / baseline tok/s) by the law, for the very requests of the night's windows."""
        fast, slow = (
            truth.windows(law, arm, LEVEL, shape, k=SOUND.k, rounds=SOUND.rounds, discard=1)
            for law, arm in ((self.speculative, self.arm), (self.plain, PLAIN))
        )
        return mean_log_throughput(fast) - mean_log_throughput(slow)


NOTHING = Fault(told=(), term="")
FAULTS = {
    "a draft that is right less often": Fault(
        told=("acceptance-factor=0.7",), term="acceptance length", speculative=LAW.drafting(0.7)
    ),
    "slower speculative steps": Fault(
        told=("speculative:eager-past=1", "speculative:eager-factor=1.5"),
        term="step time",
        speculative=replace(LAW, bend=tuple((batch, 1.5 * factor) for batch, factor in LAW.bend)),
    ),
    "slower plain steps": Fault(
        told=("plain:eager-past=1", "plain:eager-factor=1.5"),
        term="step time",
        plain=replace(LAW, decode=times(LAW.decode, 1.5)),
    ),
    "faster plain steps": Fault(
        told=("plain:eager-past=1", "plain:eager-factor=0.65"),
        term="step time",
        plain=replace(LAW, decode=times(LAW.decode, 0.65)),
    ),
    "fewer admitted": Fault(told=("speculative:admits=2",), term="admitted requests", arm=replace(EAGLE3, cap=2)),
    "slower prefill": Fault(
        told=("speculative:prefill-factor=20",),
        term="rest (prefill, queueing, client)",
        speculative=replace(LAW, prefill=times(LAW.prefill, 20)),
    ),
}


def faulty(fault: Fault) -> Callable[[Path], Ended]:
    """Return what measures the night with *fault*, at the one level that is asked about, in a folder."""
    return lambda folder: run(fault.plan(), folder, "--levels", str(LEVEL))


NIGHTS = {name: faulty(fault) for name, fault in FAULTS.items()}


@pytest.fixture(scope="session")
def sound(nights: Callable[[str], Ended], tmp_path_factory: pytest.TempPathFactory) -> Ended:
    """Return the recorded night without a fault, measured once, beside the others that `nights` has begun."""
    ended = run(SOUND, tmp_path_factory.mktemp("sound"), "--record", "--reason", "what faults are held against")
    assert ended.status == 0, ended
    return ended


def attribution(night: Judged, record: Record) -> Attribution:
    """Return what the change of *night* from *record* is made of.

    A server that admits fewer than it is offered is capped: the suite rightly calls its cells invalid and judges none.
    Their numbers were measured all the same, and it is these that are asked about here.
    """
    cells = tuple(replace(cell, valid=True) for cell in night.night.cells)
    (row,) = judge(replace(night.night, cells=cells), record, [], night.rules).rows
    assert row.attribution is not None
    return row.attribution


@pytest.mark.sim
@pytest.mark.parametrize("night", FAULTS)
def test_a_single_fault_lands_in_its_own_term(night: str, nights: Callable[[str], Ended], sound: Ended) -> None:
    """Of the change that the law says a fault makes, at least 90 % is in the fault's term, and in no other a tenth."""
    fault, ended = FAULTS[night], nights(night)
    shape = shape_of(ended.folder)
    true = fault.log_speedup(shape) - NOTHING.log_speedup(shape)
    found = attribution(read_judged(saved(ended.folder)), record_of(sound.folder))
    shares = {term: change / true for term, change in found.terms().items()}

    assert abs(true) > math.log(1.25)
    assert found.speedup == pytest.approx(true, rel=0.1)
    assert found.largest == fault.term
    assert 0.9 <= shares.pop(fault.term) <= 1.15, found
    assert max(map(abs, shares.values())) < 0.1, found


@pytest.mark.sim
@pytest.mark.parametrize("night", ["fewer admitted"])
def test_numbers_of_a_capped_arm_are_not_judged(night: str, nights: Callable[[str], Ended]) -> None:
    """A server that runs fewer requests than it is offered, whatever it says of its cap, makes its cells invalid."""
    cells = read_judged(saved(nights(night).folder)).night.cells

    assert [cell.valid for cell in cells] == [cell.variant == "baseline" for cell in cells]
    assert all("capped" in cell.invalid_reasons[0] for cell in cells if not cell.valid)


@pytest.mark.sim
@pytest.mark.parametrize("night", ["a draft that is right less often"])
def test_a_failure_names_the_cause(night: str, nights: Callable[[str], Ended], sound: Ended) -> None:
    """Judged again from its file against the record, the night fails with the cause first, and what to look at."""
    ended = replayed(nights(night).folder, f"--against={sound.folder / 'night.json'}")

    assert ended.status == 1, ended
    assert re.search(r"speed-up -\d\d\.\d % = acceptance length -\d\d\.\d %, ", ended.output), ended
    assert "Look at the draft model" in ended.output, ended
