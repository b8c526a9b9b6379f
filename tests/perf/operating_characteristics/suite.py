"""The suite at work on a synthetic node: block 1, a second block on a suspicion, the verdict, the night saved."""

import copy
import os
from dataclasses import dataclass, replace
from pathlib import Path

from fixtures.analysis.arms import Summary, summarise
from fixtures.analysis.gate import Rules, judge, suspicions
from fixtures.analysis.judgement import Judgement
from fixtures.analysis.measurements import Night
from fixtures.analysis.record import make_record
from fixtures.analysis.reference import KnownRecord, know
from fixtures.analysis.verdicts import Gate, Outcome
from tests.perf.operating_characteristics.faults import Fault, Floats
from tests.perf.operating_characteristics.files import through_file
from tests.perf.operating_characteristics.nights import VARIANT, WORKLOAD, Noise, Together, World, first_block

RULES = Rules(pairs=((VARIANT, WORKLOAD),))
TONIGHT = frozenset({Gate.SIGN, Gate.RATIO, Gate.CROSSOVER, Gate.ACCEPTANCE, Gate.TTFT, Gate.TPOT})
"""The gates that one night can fail by itself; throughput needs a built reference, drift many nights."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Told:
    """How one night came out."""

    judgement: Judgement
    second_block: bool

    @property
    def outcome(self) -> Outcome:
        """The night's outcome."""
        return self.judgement.outcome

    @property
    def tonight(self) -> bool:
        """Whether a gate of one night fails."""
        return any(v.gate in TONIGHT for v in self.judgement.failures())

    @property
    def whole(self) -> bool:
        """Whether anything fails, a ticket of the CUSUM counted as a failure."""
        return bool(self.judgement.failures()) or self.drift

    @property
    def drift(self) -> bool:
        """Whether a CUSUM alarms."""
        return any(state.alarms for state in self.judgement.drifts.values())

    def says(self, words: str) -> bool:
        """Whether a failure says *words*."""
        return any(words in verdict.reason for verdict in self.judgement.failures())


class Suite:
    """A recorded node and its nights so far. With a *folder*, every night goes through a saved file."""

    def __init__(self, world: World | Together, rules: Rules = RULES, folder: Path | None = None) -> None:
        self.world, self.rules, self.folder = world, rules, folder
        self.record: KnownRecord = know(make_record(self._saved(world.night(windows=5)), "synthetic"))
        self.history: list[Summary] = []

    def night(self, fault: Fault | None = None, noise: Noise | None = None) -> Told:
        """Measure and judge the next night, and keep it with its outcome."""
        whole = self.world.night(fault, noise=noise)
        seen = self._saved(first_block(whole))
        second = self.rules.blocks > 1 and bool(suspicions(seen, self.record, self.history, self.rules))
        if second:
            seen = self._saved(whole)
        judgement = judge(seen, self.record, self.history, self.rules)
        self.history.append(replace(summarise(seen), status=str(judgement.outcome)))
        return Told(judgement=judgement, second_block=second)

    def fork(self, seed: int | None = None) -> "Suite":
        """Return a copy that goes its own way from here; with other luck when given a *seed*."""
        out = copy.copy(self)
        out.world, out.history = copy.deepcopy(self.world), list(self.history)
        if seed is not None:
            out.world.reseed(seed)
        return out

    def _saved(self, night: Night) -> Night:
        return through_file(night, self.folder / f"{os.getpid()}.json") if self.folder else night


def run(suite: Suite, nights: int, fault: Fault | None = None) -> list[Told]:
    """Return how the next *nights* come out."""
    return [suite.night(fault) for _ in range(nights)]


def start(seed: int, curve: Floats, noise: Noise, folder: Path | None = None, rules: Rules = RULES) -> Suite:
    """Return a freshly recorded node."""
    return Suite(World(seed, curve, noise), rules, folder)


def start_pairs(seed: int, curve: Floats, noise: Noise, pairs: int) -> Suite:
    """Return a freshly recorded node with so many gated pairs, a workload each."""
    names = [f"{WORKLOAD}{i}" for i in range(pairs)]
    worlds = Together({name: World(pairs * seed + i, curve, noise) for i, name in enumerate(names)})
    return Suite(worlds, replace(RULES, pairs=tuple((VARIANT, name) for name in names)))
