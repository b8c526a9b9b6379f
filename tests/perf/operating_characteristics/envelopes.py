"""How often the gate on an adaptive variant cries wolf, and what it sees: nights of three arms with known truth.

`python -m tests.perf.operating_characteristics.envelopes --write README.md` puts its table between the file's markers.
"""

import argparse
import sys
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np

from fixtures.analysis.arms import summarise
from fixtures.analysis.gate import judge, suspicions
from fixtures.analysis.measurements import Cell, Night
from fixtures.analysis.rules import Envelope, Rules
from fixtures.analysis.verdicts import Outcome
from fixtures.histories import write_atomically
from tests.perf.operating_characteristics import bars
from tests.perf.operating_characteristics.bars import Bar
from tests.perf.operating_characteristics.faults import CURVES, LEVELS, Fault, only
from tests.perf.operating_characteristics.nights import NOISES, VARIANT, WORKLOAD, Noise, World, first_block

YEAR = 365
SEED = 900_000
ADAPTIVE = "adaptive"
RULES = Rules(pairs=(), envelopes=(Envelope(variant=ADAPTIVE, static=(VARIANT,), workload=WORKLOAD),))
LAUNCHES = (2, 3, 5, 8)
"""Those of the static variant; the adaptive one is launched after each. The last two are block 2."""
COLLAPSE = 30
"""The level at which the adaptive variant is worse."""
OPEN, CLOSE = "<!-- envelopes -->\n", "<!-- /envelopes -->"


class ThreeArms(World):
    """A node on which an adaptive variant is exactly the best of baseline and speculation, at every level."""

    def night(
        self, fault: Fault | None = None, *, blocks: int = 2, windows: int = 3, noise: Noise | None = None
    ) -> Night:
        """Return the next night; *fault* is the adaptive variant's alone."""
        whole = super().night(blocks=blocks, windows=windows, noise=noise)
        kept = [replace(cell, launch=10 * cell.launch) for cell in whole.cells]
        return replace(whole, cells=(*kept, *self._adaptive(fault or Fault(), blocks, windows, noise or self.noise)))

    def _adaptive(self, fault: Fault, blocks: int, windows: int, noise: Noise) -> list[Cell]:
        launches = LAUNCHES[: 2 * blocks]
        static, self.curve = self.curve, np.maximum(self.curve, 0.0)
        logs = self._logs("B" * len(launches), fault, noise, windows)
        self.curve = static
        cells = [
            self._cell(launch, "B", level, logs[row, i], fault, noise)
            for row, launch in enumerate(launches)
            for i, level in enumerate(LEVELS)
        ]
        return [replace(cell, variant=ADAPTIVE, launch=10 * cell.launch + 5) for cell in cells]


@dataclass(frozen=True, slots=True, kw_only=True)
class Envelopes:
    """How nights with an adaptive variant come out; shares of nights."""

    noise: str
    blocks: int
    change: float
    """What the adaptive variant gains at `COLLAPSE`; 0 is the best arm exactly."""
    nights: int
    fails: float
    inconclusive: float
    second_blocks: float


def envelopes(noise: str, change: float, nights: int, seed: int = SEED, blocks: int = 2) -> Envelopes:
    """Return how *nights* nights come out under *noise* when the adaptive variant is off by *change* at one level."""
    world, fault = ThreeArms(seed, CURVES["S45"], NOISES[noise]), Fault(variant=only(COLLAPSE, change))
    rules = replace(RULES, blocks=blocks)
    told = [_judged(world.night(fault), rules) for _ in range(nights)]
    return Envelopes(
        noise=noise,
        blocks=blocks,
        change=change,
        nights=nights,
        fails=float(np.mean([outcome.fails for outcome, _ in told])),
        inconclusive=float(np.mean([outcome is Outcome.INCONCLUSIVE for outcome, _ in told])),
        second_blocks=float(np.mean([second for _, second in told])),
    )


def _judged(whole: Night, rules: Rules) -> tuple[Outcome, bool]:
    """Return the outcome of one night, and whether it asked for a second block and may have it."""
    first = summarise(first_block(whole))
    second = rules.blocks > 1 and bool(suspicions(first, None, [], rules))
    return judge(whole if second else first, None, [], rules).outcome, second


def of_envelopes(*, short: bool) -> list[Bar]:
    """Return the bars on the envelope gate, under middle noise."""
    equal, runs = envelopes("middle", 0.0, 150 if short else 2000), 30 if short else 200
    worse = envelopes("middle", -0.10, runs)
    name = "false alarms a year, envelope gate, adaptive equal to the best arm, middle noise"
    return [
        bars.at_most(name, equal.fails * YEAR, 0.4, equal.nights / YEAR, share=False, short=short),
        bars.at_least(f"adaptive −10 % at C={COLLAPSE}: seen on night 1", worse.fails, 0.95, runs, short=short),
    ]


def table(nights: int, runs: int) -> str:
    """Return what the gate does on *nights* sound nights of each noise, and on *runs* of each fault."""
    head = (
        "| adaptive equal to the best arm | nights | false alarms a year | inconclusive a year "
        f"| nights with a second block | −5 % at C={COLLAPSE} seen | −10 % | −15 % |\n|{' --- |' * 8}"
    )
    cases = [*((noise, 2) for noise in NOISES), ("middle", 1)]
    return "\n".join([head, *(_row(noise, blocks, nights, runs) for noise, blocks in cases)])


def _row(noise: str, blocks: int, nights: int, runs: int) -> str:
    equal = envelopes(noise, 0.0, nights, blocks=blocks)
    seen = [envelopes(noise, change, runs, blocks=blocks).fails for change in (-0.05, -0.10, -0.15)]
    name = f"{noise} noise" + (", profile with one block" if blocks == 1 else "")
    row = (
        f"| {name} | {nights} | {equal.fails * YEAR:.2f} | {equal.inconclusive * YEAR:.1f} "
        f"| {100 * equal.second_blocks:.0f} % | {' | '.join(f'{100 * share:.0f} %' for share in seen)} |"
    )
    sys.stdout.write(f"{row}\n")
    sys.stdout.flush()
    return row


def between(text: str, body: str) -> str:
    """Return *text* with *body* between its markers; raise `ValueError` when it has none."""
    before, opened, rest = text.partition(OPEN)
    _, closed, after = rest.partition(CLOSE)
    if not (opened and closed):
        raise ValueError(f"there is no place for the table: {OPEN.strip()} and {CLOSE} are not both there")
    return f"{before}{opened}{body}\n{closed}{after}"


def main(arguments: Sequence[str] | None = None) -> None:
    """Run the study, print its rows, write the table."""
    parser = argparse.ArgumentParser(prog="envelopes", description=__doc__)
    parser.add_argument("--write", type=Path, metavar="README.md", help="put the table between the file's markers")
    parser.add_argument("--nights", type=int, default=3650)
    options = parser.parse_args(arguments)
    made = table(options.nights, 200)
    if options.write:
        write_atomically(options.write, between(options.write.read_text(encoding="utf-8"), made).encode())


if __name__ == "__main__":
    main()
