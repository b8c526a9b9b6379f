"""Whole nights that are not like the recorded one: each change, each fault, and what must be said of it."""

from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path

import pytest

from tests.perf.sim_nights.nights import Ended, Plan, replayed, run

SOUND = Plan(rounds=3)
RECORD = Path(__file__).with_name("sound.json")
"""The record of the sound night: a law is the same on every machine. After a change of the law or of the plan it is
measured anew by `python -m tests.perf.sim_nights.nights FOLDER`, which leaves it there as `night.json`."""
HELD, FAILS, OPEN = 0, 1, 10


@dataclass(frozen=True, slots=True, kw_only=True)
class Case:
    """A night against the record of the sound one, its exit status, and what a message must match."""

    plan: Plan
    status: int
    says: str = ""


def faulty(*faults: str, status: int, says: str = "") -> Case:
    """Return the sound night with *faults*."""
    return Case(plan=replace(SOUND, faults=faults), status=status, says=says)


JUDGED = {
    "the same law": Case(plan=SOUND, status=HELD),
    "what a sound suite shrugs off": faulty(
        *(
            "tokens-a-chunk=24",
            "split-events",
            "slow-start-s=2",
            "orphan-s=20",
            "cumulative-counters",
            "flush-refused=2",
        ),
        status=HELD,
    ),
    "speculation lost its lead": Case(
        plan=replace(SOUND, law="always-slower"), status=FAILS, says="regressed: eagle3 on short C=4"
    ),
    "speculation wins everywhere": Case(
        plan=replace(SOUND, law="always-faster"), status=FAILS, says="stale record: eagle3 on short C=16"
    ),
    "eager past the graphs": faulty("speculative:eager-past=8", status=FAILS, says="regressed: eagle3 on short C=16"),
    "bound by its chunks": faulty(
        "chunk-cost-us=3000", status=FAILS, says="regressed: .*(baseline slower|both arms slower)"
    ),
    "acceptance lost": faulty("acceptance-lost", status=FAILS, says="regressed: .*acceptance"),
    "acceptance lost half-way": faulty("acceptance-lost-after=34", status=FAILS, says="regressed: .*acceptance"),
    "capped on one arm": faulty(
        "speculative:cap=48",
        status=FAILS,
        says="invalid: unequal confounds: max_running_requests: .* 48",
    ),
    "retraction storm": faulty("kv-tokens=700", status=FAILS, says="invalid: .*capped: .* waited in the server"),
    "throttled half-way": faulty(
        "throttle-after-s=3.5", "launch-counter={folder}/launches", status=OPEN, says="inconclusive: .*launches"
    ),
    "two modes of launches": faulty(
        "launch-factor=1.3", "launch-counter={folder}/launches", status=OPEN, says="inconclusive: .*launches"
    ),
}

AT_START = {
    "crashes": ("crash-at-start", "Scheduler hit an exception"),
    "squatted": ("squatter", "exited before it was ready"),
    "silent": ("silent-start-s=9", "has said nothing new for"),
    "hangs": ("hang", "not ready"),
    "without": ("speculation-off", "not the without that was meant: speculation is off"),
    "capped": ("cap=48", "unequal confounds: .*48"),
}
"""Variant → its fault, and what the cell that misses its server says."""

IN_A_CELL = {
    "unflushed": ("flush-fails", "invalid: .*[Ff]lush"),
    "warm": ("warm-cache", "invalid: warm cache: "),
    "erring": ("error-in-band=9", "invalid: 1 failed request: .*Internal server error"),
    "unended": ("no-end-marker=9", "invalid: 1 failed request: "),
    "merging": ("merge-events", "invalid: client-bound: .*held several steps"),
    "dying": ("death-at=4", "invalid: server died: "),
}
"""Variant → its fault, and what its cell says."""


def of_variants(faults: dict[str, tuple[str, str]], folder: Path) -> Ended:
    """Run a night of one level in which each variant has a fault."""
    plan = Plan(levels=(4,), variants={name: fault for name, (fault, _) in faults.items()})
    return run(plan, folder, "--variants", ",".join(["baseline", *faults]))


NIGHTS: dict[str, Callable[..., Ended]] = {
    "at start": lambda folder: of_variants(AT_START, folder),
    "in a cell": lambda folder: of_variants(IN_A_CELL, folder),
    **{name: lambda folder, case=case: run(case.plan, folder, record=RECORD) for name, case in JUDGED.items()},
}


@pytest.mark.sim
@pytest.mark.parametrize("night", JUDGED)
def test_a_night_has_the_outcome_of_its_law(night: str, nights: Callable[[str], Ended]) -> None:
    """Measured and judged against the record of the sound law, a night comes out as what it is."""
    case, ended = JUDGED[night], nights(night)

    assert ended.status == case.status, ended
    assert not case.says or ended.said(case.says), ended


@pytest.mark.sim
@pytest.mark.parametrize("night", ["the same law", "acceptance lost", "capped on one arm", "two modes of launches"])
def test_a_saved_night_is_judged_alike(night: str, nights: Callable[[str], Ended]) -> None:
    """The file alone ends as the night did: also one of an arm that never had a server, of which nothing was timed."""
    ended = nights(night)

    assert replayed(ended.folder).status == JUDGED[night].status


@pytest.mark.sim
@pytest.mark.parametrize("variant", AT_START)
@pytest.mark.parametrize("night", ["at start"])
def test_a_start_that_fails_is_named(night: str, variant: str, nights: Callable[[str], Ended]) -> None:
    """A server that does not come up, or not as meant, is one clear failure and measures nothing."""
    ended = nights(night)

    assert ended.status == FAILS, ended
    assert ended.said(AT_START[variant][1], about=f"-{variant}-"), ended


@pytest.mark.sim
@pytest.mark.parametrize("variant", IN_A_CELL)
@pytest.mark.parametrize("night", ["in a cell"])
def test_a_cell_that_does_not_count_is_named(night: str, variant: str, nights: Callable[[str], Ended]) -> None:
    """A cell whose server or client was at fault is invalid, with the cause, and never a number."""
    ended = nights(night)

    assert ended.status == FAILS, ended
    assert ended.said(IN_A_CELL[variant][1], about=f"-{variant}-"), ended
