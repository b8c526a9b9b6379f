"""Single faults: each changes one thing that the law knows, and the attribution finds it, whole and in its own term."""

import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path

import pytest

from fixtures.analysis.arms import arms_of
from fixtures.analysis.attribution import Attribution, attribute
from fixtures.analysis.measurements import BASELINE
from fixtures.analysis.record import Record
from fixtures.analysis.reference import Recorded, know, reference
from fixtures.histories import Judged, read_judged
from fixtures.load.prompts import Shape
from fixtures.simulator import laws, truth
from fixtures.simulator.law import Forward, Law
from tests.perf.sim_nights.nights import Ended, Plan, record_of, run, saved
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

    def log_speedup(self, shape: Shape) -> float:
        """Return log(eagle3 tok/s / baseline tok/s) by the law, for the very requests of the night's windows."""
        fast, slow = (
            truth.windows(law, arm, LEVEL, shape, k=SOUND.k, rounds=SOUND.rounds, discard=1)
            for law, arm in ((self.speculative, self.arm), (self.plain, PLAIN))
        )
        return mean_log_throughput(fast) - mean_log_throughput(slow)


NOTHING = Fault(told=(), term="")
OF_EAGLE3 = {
    "weak": Fault(told=("acceptance-factor=0.7",), term="acceptance length", speculative=LAW.drafting(0.7)),
    "slow": Fault(
        told=("eager-past=1", "eager-factor=1.5"),
        term="step time",
        speculative=replace(LAW, bend=tuple((batch, 1.5 * factor) for batch, factor in LAW.bend)),
    ),
    "few": Fault(told=("admits=2",), term="admitted requests", arm=replace(EAGLE3, cap=2)),
    "prefill": Fault(
        told=("prefill-factor=20",),
        term="rest (prefill, queueing, client)",
        speculative=replace(LAW, prefill=times(LAW.prefill, 20)),
    ),
}
"""Variant → its fault: eagle3 with a draft that is right less often, with slower steps, …"""

OF_BASELINE = {
    name: Fault(
        told=("plain:eager-past=1", f"plain:eager-factor={factor}"),
        term="step time",
        plain=replace(LAW, decode=times(LAW.decode, factor)),
    )
    for name, factor in (("slower baseline", 1.5), ("faster baseline", 0.65))
}
"""Night → its fault: the server without speculation has another step time."""

FAULTS = {
    **{("faults of eagle3", variant): fault for variant, fault in OF_EAGLE3.items()},
    **{(night, "eagle3"): fault for night, fault in OF_BASELINE.items()},
}


def of_eagle3(folder: Path) -> Ended:
    """Run a night in which each variant is eagle3 with a fault, at the one level that is asked about."""
    plan = replace(SOUND, variants={variant: " ".join(fault.told) for variant, fault in OF_EAGLE3.items()})
    return run(plan, folder, "--levels", str(LEVEL), "--variants", ",".join(["baseline", *OF_EAGLE3]))


def of_baseline(fault: Fault) -> Callable[[Path], Ended]:
    """Return what runs the night with *fault* at the one level."""
    return lambda folder: run(replace(SOUND, faults=fault.told), folder, "--levels", str(LEVEL))


NIGHTS = {"faults of eagle3": of_eagle3, **{name: of_baseline(fault) for name, fault in OF_BASELINE.items()}}


@pytest.fixture(scope="session")
def sound(nights: Callable[[str], Ended], tmp_path_factory: pytest.TempPathFactory) -> Ended:
    """Return the recorded night without a fault, measured once, beside the others that `nights` has begun."""
    ended = run(SOUND, tmp_path_factory.mktemp("sound"), "--record", "--reason", "what faults are held against")
    assert ended.status == 0, ended
    return ended


def attribution(night: Judged, variant: str, record: Record) -> Attribution:
    """Return what the change of *variant* from the recorded eagle3 is made of, each beside its night's baseline.

    A server that admits fewer than it is offered is capped: the suite rightly calls its cells invalid and judges none.
    Their numbers were measured all the same, and it is these that are asked about here.
    """
    tonight = arms_of(replace(cell, valid=True) for cell in night.night.cells)
    known, (workload,) = know(record).arms, record.workloads.values()
    base, arm = tonight[BASELINE, "short"], tonight[variant, "short"]
    recorded = Recorded(of=workload.variants["eagle3"], base=known[BASELINE, "short"], arm=known["eagle3", "short"])
    return attribute(base, arm, reference(recorded, [], [LEVEL], (base, arm), night.rules))[LEVEL]


@pytest.mark.sim
@pytest.mark.parametrize(("night", "variant"), FAULTS)
def test_a_single_fault_lands_in_its_own_term(
    night: str, variant: str, nights: Callable[[str], Ended], sound: Ended
) -> None:
    """Of the change that the law says a fault makes, at least 90 % is in the fault's term, and in no other a tenth."""
    fault, folder = FAULTS[night, variant], nights(night).folder
    true = fault.log_speedup(shape_of(folder)) - NOTHING.log_speedup(shape_of(folder))
    found = attribution(read_judged(saved(folder)), variant, record_of(sound.folder))
    shares = {term: change / true for term, change in found.terms().items()}

    assert abs(true) > math.log(1.25)
    assert found.speedup == pytest.approx(true, rel=0.1)
    assert f"= {fault.term} " in found.sentence(variant)
    assert found.slower_arm == ("baseline" if variant == "eagle3" else "variant")
    assert 0.9 <= shares.pop(fault.term) <= 1.15, found
    assert max(map(abs, shares.values())) < 0.1, found


@pytest.mark.sim
@pytest.mark.parametrize("night", ["faults of eagle3"])
def test_numbers_of_a_capped_arm_are_not_judged(night: str, nights: Callable[[str], Ended]) -> None:
    """A server that runs fewer requests than it is offered, whatever it says of its cap, makes its cells invalid."""
    cells = [cell for cell in read_judged(saved(nights(night).folder)).night.cells if cell.variant == "few"]

    assert cells
    assert all("capped" in cell.invalid_reasons[0] for cell in cells)
