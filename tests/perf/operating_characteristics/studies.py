"""The questions that are put to the real gate, each answered by seeded nights whose truth is known."""

import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path

import numpy as np

from fixtures.analysis.gate import judge
from fixtures.analysis.verdicts import Gate, Outcome
from tests.perf.operating_characteristics.faults import CURVES, FAULTS
from tests.perf.operating_characteristics.nights import NOISES, VARIANT, Noise, first_block
from tests.perf.operating_characteristics.suite import RULES, Suite, Told, run, start

YEAR = 365
WARM = 40
"""Nights before a fault: the reference is frozen and the spread full."""
SUM_S = 10e-6
"""CPU seconds for the sum of a thousand integers on the core that costs are told for; a busy host takes twice that."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Years:
    """Unchanged nights: what the gate costs when nothing happened. Rates are a year."""

    case: str
    """The curve, and what is special of the profile."""
    noise: str
    years: float
    tonight: float
    whole: float
    inconclusive: float
    second_blocks: float
    """Share of nights."""
    launches: float
    """Mean a night."""


def unchanged(case: str, noise: str, suites: Iterable[Suite]) -> Years:
    """Return the false alarms of one year of each of *suites*, freshly recorded, without any change."""
    told = [t for suite in suites for t in run(suite, YEAR)]
    span = len(told) / YEAR
    return Years(
        case=case,
        noise=noise,
        years=span,
        tonight=sum(t.tonight for t in told) / span,
        whole=sum(t.whole for t in told) / span,
        inconclusive=sum(t.outcome is Outcome.INCONCLUSIVE for t in told) / span,
        second_blocks=float(np.mean([t.second_block for t in told])),
        launches=float(np.mean([8 if t.second_block else 4 for t in told])),
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class Detection:
    """How soon a fault is seen, as shares of runs."""

    fault: str
    runs: int
    first_night: float
    seven_nights: float
    named_right: float
    """Of the runs that failed on night 1: the failure names the arm that the fault is in."""


RIGHT_WORDS = {
    "baseline": "baseline slower",
    "both": "both arms slower",
    "speculation": f"{VARIANT} slower",
    "crossover": "record is stale",
    "C=10": f"{VARIANT} slower",
    "C=100": f"{VARIANT} slower",
}
"""First word of a fault's name → what its failure must say."""


def names_right(told: Told, fault: str) -> bool:
    """Whether a failed night says what is wrong: the arm, or the term of the speed-up; and never good news for bad."""
    kind = fault.split(maxsplit=1)[0]
    if kind == "acceptance":
        levels = {v.concurrency for v in told.judgement.failures() if v.gate is Gate.RATIO}
        parts = [row.attribution for row in told.judgement.rows if row.concurrency in levels]
        return bool(parts) and all(part is not None and part.largest == "acceptance length" for part in parts)
    good_news = told.outcome is Outcome.STALE
    return told.says(RIGHT_WORDS[kind]) and good_news == (kind == "crossover")


def detection(curve: str, noise: str, faults: Sequence[str], runs: int, seed: int) -> list[Detection]:
    """Return how soon each of *faults* is seen on nodes that ran `WARM` sound nights; all from the same nodes."""
    first: dict[str, list[tuple[int | None, Told]]] = {fault: [] for fault in faults}
    for r in range(runs):
        suite = start(seed + r, CURVES[curve], NOISES[noise])
        run(suite, WARM)
        for fault in faults:
            first[fault].append(_until_seen(suite.fork(), fault))
    return [_detection(fault, seen) for fault, seen in first.items()]


def _until_seen(suite: Suite, fault: str, nights: int = 7) -> tuple[int | None, Told]:
    told = [suite.night(FAULTS[fault])]
    while not told[-1].whole and len(told) < nights:
        told.append(suite.night(FAULTS[fault]))
    return (len(told) if told[-1].whole else None), told[0]


def _detection(fault: str, seen: Sequence[tuple[int | None, Told]]) -> Detection:
    failed = [told for night, told in seen if night == 1 and told.judgement.failures()]
    return Detection(
        fault=fault,
        runs=len(seen),
        first_night=float(np.mean([night == 1 for night, _ in seen])),
        seven_nights=float(np.mean([night is not None for night, _ in seen])),
        named_right=float(np.mean([names_right(told, fault) for told in failed])) if failed else 0.0,
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class NoisyNight:
    """One night with windows three times as rough, launches twice, 15 % outliers: shares."""

    fails: float
    inconclusive: float
    environment: float
    """Of second such nights in a row: they fail as environment."""


def noisy_night(noise: str, runs: int, seed: int, forks: int = 5) -> NoisyNight:
    """Return how a suddenly shaking node is judged."""
    quiet = NOISES[noise]
    told = []
    for r in range(-(-runs // forks)):
        suite = start(seed + r, CURVES["S45"], quiet)
        run(suite, 25)
        for fork in range(forks):
            other = suite.fork(seed + 1000 * r + fork)
            told.append((other.night(noise=shaking(quiet)), other.night(noise=shaking(quiet))))
    once = [one for one, _ in told]
    again = [two for one, two in told if one.outcome is Outcome.INCONCLUSIVE and two.judgement.noise]
    return NoisyNight(
        fails=float(np.mean([bool(one.judgement.failures()) for one in once])),
        inconclusive=float(np.mean([one.outcome is Outcome.INCONCLUSIVE for one in once])),
        environment=float(np.mean([two.outcome is Outcome.INVALID for two in again])) if again else 0.0,
    )


def shaking(noise: Noise) -> Noise:
    """Return *noise* with windows ×3, launches ×2 and 15 % outliers."""
    return replace(
        noise,
        launch=2 * noise.launch,
        launch_level=2 * noise.launch_level,
        correlated=3 * noise.correlated,
        white=3 * noise.white,
        outliers=0.15,
    )


def files_judge_alike(folder: Path, seed: int, nights: int) -> bool:
    """Whether nights that went through files come out word for word as those that did not."""
    curve, noise = CURVES["S45"], NOISES["middle"]
    faults = [*FAULTS.values()]
    pair = [start(seed, curve, noise, where) for where in (None, folder)]
    told = [[suite.night(faults[n % len(faults)] if n > 12 else None) for n in range(nights)] for suite in pair]
    return [t.judgement for t in told[0]] == [t.judgement for t in told[1]]


def seconds_a_night(seed: int, history: int = 60) -> float:
    """Return the median CPU seconds that judging a night takes after *history* others, all as they were read.

    Each is a ratio to a yardstick of the same moment, in seconds of a core that sums a thousand integers in `SUM_S`.
    """
    suite = start(seed, CURVES["S45"], NOISES["middle"])
    earlier = [replace(first_block(suite.world.night()), status=str(Outcome.HELD)) for _ in range(history)]
    spent = []
    for _ in range(20):
        night = first_block(suite.world.night())
        yardstick = _cpu_s(lambda: [sum(range(1000)) for _ in range(1000)]) / 1000
        judging = _cpu_s(partial(judge, night, suite.record.record, earlier, RULES))
        spent.append(judging / yardstick * SUM_S)
    return float(np.median(spent))


def _cpu_s(work: Callable[[], object]) -> float:
    began = time.process_time()
    work()
    return time.process_time() - began
