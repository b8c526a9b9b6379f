"""The questions that are put to the real gate, each answered by seeded nights whose truth is known."""

import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path

import numpy as np

from fixtures.analysis.gate import judge
from fixtures.analysis.verdicts import Gate, Outcome
from tests.perf.operating_characteristics.cores import each
from tests.perf.operating_characteristics.faults import CURVES, FAULTS, Floats
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


@dataclass(frozen=True, slots=True, kw_only=True)
class Unchanged:
    """Nodes whose nights are to be told for a year without any change."""

    case: str
    noise: str
    begin: Callable[[int], Suite]
    """Makes a freshly recorded node of a seed."""
    seeds: Sequence[int]


def unchanged(cases: Sequence[Unchanged]) -> Iterator[Years]:
    """Yield the false alarms of each of *cases*, in their order."""
    lives = each(_year, [(of.begin, seed) for of in cases for seed in of.seeds])
    for of in cases:
        yield _years(of, np.concatenate([next(lives) for _ in of.seeds]))


def _year(of: tuple[Callable[[int], Suite], int]) -> Floats:
    """Return nights × (failed by itself, failed, inconclusive, had a second block)."""
    begin, seed = of
    told = run(begin(seed), YEAR)
    seen = [(t.tonight, t.whole, t.outcome is Outcome.INCONCLUSIVE, t.second_block) for t in told]
    return np.array(seen, dtype=float)


def _years(of: Unchanged, nights: Floats) -> Years:
    span = len(nights) / YEAR
    tonight, whole, inconclusive, second = nights.sum(axis=0)
    return Years(
        case=of.case,
        noise=of.noise,
        years=span,
        tonight=tonight / span,
        whole=whole / span,
        inconclusive=inconclusive / span,
        second_blocks=second / len(nights),
        launches=4 + 4 * second / len(nights),
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


@dataclass(frozen=True, slots=True, kw_only=True)
class Sighting:
    """What became of one fault on one node."""

    night: int | None
    """The night that failed first, counted from the fault's first; None when none of seven did."""
    named_right: bool | None
    """Of night 1; None where no gate failed then."""


def detection(curve: str, noise: str, faults: Sequence[str], runs: int, seed: int) -> list[Detection]:
    """Return how soon each of *faults* is seen on nodes that ran `WARM` sound nights; all from the same nodes."""
    lives = [*each(partial(_sightings, curve, noise, faults), range(seed, seed + runs))]
    return [_detection(fault, seen) for fault, seen in zip(faults, zip(*lives, strict=True), strict=True)]


def _sightings(curve: str, noise: str, faults: Sequence[str], seed: int) -> list[Sighting]:
    suite = start(seed, CURVES[curve], NOISES[noise])
    run(suite, WARM)
    return [_until_seen(suite.fork(), fault) for fault in faults]


def _until_seen(suite: Suite, fault: str, nights: int = 7) -> Sighting:
    told = [suite.night(FAULTS[fault])]
    while not told[-1].whole and len(told) < nights:
        told.append(suite.night(FAULTS[fault]))
    return Sighting(
        night=len(told) if told[-1].whole else None,
        named_right=names_right(told[0], fault) if told[0].judgement.failures() else None,
    )


def _detection(fault: str, seen: Sequence[Sighting]) -> Detection:
    named = [it.named_right for it in seen if it.named_right is not None]
    return Detection(
        fault=fault,
        runs=len(seen),
        first_night=float(np.mean([it.night == 1 for it in seen])),
        seven_nights=float(np.mean([it.night is not None for it in seen])),
        named_right=float(np.mean(named)) if named else 0.0,
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
    seeds = range(seed, seed + -(-runs // forks))
    found = [of_fork for of_node in each(partial(_shaken, noise, forks), seeds) for of_fork in of_node]
    again = [environment for _, _, environment in found if environment is not None]
    return NoisyNight(
        fails=float(np.mean([fails for fails, _, _ in found])),
        inconclusive=float(np.mean([inconclusive for _, inconclusive, _ in found])),
        environment=float(np.mean(again)) if again else 0.0,
    )


def _shaken(noise: str, forks: int, seed: int) -> list[tuple[bool, bool, bool | None]]:
    """Return, for each of *forks* shaking nights: failed, inconclusive, and whether a second such failed for it."""
    quiet = NOISES[noise]
    suite = start(seed, CURVES["S45"], quiet)
    run(suite, 25)
    out = []
    for fork in range(forks):
        other = suite.fork(1000 * seed + fork)
        one, two = (other.night(noise=shaking(quiet)) for _ in range(2))
        unsure = one.outcome is Outcome.INCONCLUSIVE
        environment = two.outcome is Outcome.INVALID if unsure and two.judgement.noise else None
        out.append((bool(one.judgement.failures()), unsure, environment))
    return out


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
