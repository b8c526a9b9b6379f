"""The README's measured tables: `python -m tests.unit.readme` writes them, a test says whether they are up to date."""

from collections.abc import Iterable, Sequence
from pathlib import Path

import msgspec

from fixtures.analysis.calibration import calibrate
from fixtures.analysis.gate import Rules, judge
from fixtures.analysis.record import Record
from fixtures.histories import read_night, write_atomically

ROOT = Path(__file__).parents[2]
README = ROOT / "README.md"
NIGHTS = Path(__file__).parent / "samples" / "nights"
WINDOW_S = 4.0
"""What the windows of the A/A aimed at."""


def table(names: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """Return a Markdown table."""
    return "\n".join(f"| {' | '.join(row)} |" for row in (names, ["---"] * len(names), *rows))


def cpu() -> str:
    """Return the shipped record of the embedded server."""
    record = msgspec.json.decode((ROOT / "fixtures" / "recorded" / "cpu.json").read_bytes(), type=Record)
    of = next(iter(record.workloads.values())).variants["eagle3"]
    rows = [
        (str(level), f"{x['baseline_tok_s']:.0f}", f"{x['variant_tok_s']:.0f}",
         f"{x['variant_tok_s'] / x['baseline_tok_s']:.2f}x", f"{x['acceptance_length'] or 0:.2f}", x["class"])
        for level, x in of.levels.items()
    ]  # fmt: skip
    names = ("C", "baseline tok/s", "eagle3 tok/s", "speed-up", "accepted (synthetic)", "class")
    return f"{table(names, rows)}\n\n{of.crossover.sentence('eagle3')}"


def h200() -> str:
    """Return the night and the A/A of the H200."""
    judgement = judge(read_night(NIGHTS / "h200-night.json"), None, (), Rules(pairs=(("eagle3", "short"),)))
    noise = calibrate(read_night(NIGHTS / "h200-aa.json"), Rules(pairs=()), window_s=WINDOW_S)
    rows = [
        (str(row.concurrency), f"{row.baseline_tok_s:,.0f}", f"{row.variant_tok_s:,.0f}", f"{row.speedup:.3f}x",
         f"{row.low:.3f} … {row.high:.3f}", f"{level.launch_sd:.2%}", f"{level.resolvable:.1%}")
        for row, level in zip(judgement.rows, noise, strict=True)
    ]  # fmt: skip
    names = ("C", "baseline tok/s", "eagle3 tok/s", "speed-up", "95 % interval", "launch sd (A/A)", "this gate sees")
    return f"{table(names, rows)}\n\n{judgement.sentences[0]}"


TABLES = {"cpu": cpu, "h200": h200}


def filled(text: str) -> str:
    """Return the README's *text* with each table between its markers made anew."""
    for name, make in TABLES.items():
        opening, closing = f"<!-- {name} -->\n", f"<!-- /{name} -->"
        before, _, rest = text.partition(opening)
        _, _, after = rest.partition(closing)
        text = f"{before}{opening}{make()}\n{closing}{after}"
    return text


if __name__ == "__main__":
    write_atomically(README, filled(README.read_text(encoding="utf-8")).encode())
