"""The README's measured tables: `python -m tests.unit.readme` writes them, a test says whether they are up to date."""

import json
import math
from collections.abc import Iterable, Sequence
from pathlib import Path
from statistics import median

import msgspec
from scipy import stats

from fixtures.analysis.calibration import calibrate
from fixtures.analysis.gate import Judgement, Rules, judge
from fixtures.analysis.measurements import Cell
from fixtures.analysis.policy import policy_of
from fixtures.analysis.policy_contenders import counted
from fixtures.analysis.policy_page import sentence
from fixtures.analysis.record import LevelRecord, Record
from fixtures.histories import read_judged, read_night, write_atomically

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
    """Return the shipped record of the H200, the night after it, and the noise of its A/A."""
    record = msgspec.json.decode((ROOT / "fixtures" / "recorded" / "h200.json").read_bytes(), type=Record)
    of = next(iter(record.workloads.values())).variants["eagle3"]
    tonight = {row.concurrency: row for row in judged("h200-gated").rows}
    noise = {
        n.concurrency: n for n in calibrate(read_night(NIGHTS / "h200-aa.json"), Rules(pairs=()), window_s=WINDOW_S)
    }
    rows = [
        (str(level), f"{x['baseline_tok_s']:,.0f}", f"{x['variant_tok_s']:,.0f}",
         f"{math.exp(x['log_ratio']):.2f}x", interval(x), f"{tonight[level].speedup:.2f}x", x["class"],
         f"{noise[level].launch_sd:.2%}" if level in noise else "")
        for level, x in of.levels.items()
    ]  # fmt: skip
    names = (
        "C",
        "baseline tok/s",
        "eagle3 tok/s",
        "speed-up",
        "95 % interval",
        "next night",
        "class",
        "launch sd (A/A)",
    )
    return f"{table(names, rows)}\n\n{of.crossover.sentence('eagle3')}"


def interval(of: LevelRecord) -> str:
    """Return the 95 % interval of a recorded speed-up."""
    half = of["standard_error"] * float(stats.t.ppf(0.975, of["df"]))
    return f"{math.exp(of['log_ratio'] - half):.2f} … {math.exp(of['log_ratio'] + half):.2f}"


def judged(night: str) -> Judgement:
    """Return the verdicts of a saved night on what it was judged against."""
    it = read_judged(NIGHTS / f"{night}.json")
    return judge(it.night, it.record, it.history, it.rules)


PROVOKED = {
    "h200-acceptance": "SGLang simulates 2.52 accepted tokens a step instead of 2.8",
    "h200-cap": "`--max-running-requests` left out on the eagle3 arm",
    "h200-graphs": "decode graphs for half of the batch sizes on the eagle3 arm",
}
"""Night → what was done to the server behind the suite's back."""


def provoked() -> str:
    """Return what the suite said of the servers that were provoked."""
    rows = []
    for night, done in PROVOKED.items():
        worst = max((v for v in judged(night).verdicts if v.outcome.fails), key=lambda v: "=" in v.reason)
        rows.append((done, str(worst.outcome), worst.reason.replace("|", "/")))
    return table(("done to the server", "outcome", "the suite said"), rows)


CLOCKED = ("C=250, 20 ms a token, /generate", "C=250, 5 ms a token, /generate")
"""The benchmark's scenarios that the README shows."""


def clock() -> str:
    """Return what the benchmark of the load generator measured, and where."""
    measured = json.loads((ROOT / "tests" / "perf" / "client_accuracy" / "measured.json").read_bytes())
    rows = [
        (f"{row['interval_ms']:g} ms", row["client"], f"{row['cpu_us_per_event']:.1f}", f"{row['cpu_over_limit']:.1f}",
         f"{row['ttft_error_ms_p50']:.3f}", f"{row['itl_error_ms_p99']:.3f}",
         f"{row['throughput_error']:+.3%}".replace("-0.000", "0.000"),
         f"{row['achieved']:.2%}")
        for row in measured["rows"]
        if row["scenario"] in CLOCKED and not row.get("not_installed") and "ahead" not in row["client"]
    ]  # fmt: skip
    names = (
        "a token every",
        "client",
        "CPU µs an event",
        "× C client",
        "TTFT error p50, ms",
        "ITL error p99, ms",
        "throughput error",
        "of the offered rate",
    )
    where = measured["machine"]
    return (
        f"{table(names, rows)}\n\nMeasured on {where['started'][:10]}: {where['cores']} cores, load average "
        f"{where['load_average'][0]:.1f}, {where['priority']} priority, Python {where['python']}; medians of "
        f"{measured['rows'][0]['rounds']} interleaved runs."
    )


def steps() -> str:
    """Return the sweep of steps on the H200, and the policy that was made of it."""
    it = read_judged(NIGHTS / "h200-sweep.json")
    policy = policy_of(it.night, "short", it.rules)
    rows = [
        (str(choice.concurrency), *(f"{policy.tok_s[name][choice.concurrency]:,.0f}" for name in STEPS),
         " or ".join(str(STEPS[name]) for name in (choice.best, *choice.tied, *choice.unresolved)), str(choice.lead))
        for choice in policy.served
    ]  # fmt: skip
    names = ("C", *map(counted, STEPS.values()), "best", "over the next (95 %)")
    return f"{table(names, rows)}\n\n{sentence(policy)}"


STEPS = {"baseline": 0, "eagle3-light": 1, "eagle3": 3, "eagle3-deep": 5}
"""Variant → draft steps."""


def adaptive() -> str:
    """Return what an adaptive server did beside the thresholds of its file."""
    cells: dict[tuple[str, int], list[Cell]] = {}
    for cell in read_night(NIGHTS / "h200-adaptive.json").cells:
        cells.setdefault((cell.variant, cell.concurrency), []).append(cell)

    def speed(variant: str, level: int) -> str:
        launches = [median(w.output_tokens / w.seconds for w in c.rounds) for c in cells[variant, level]]
        return ", ".join(f"{tok_s:,.0f}" for tok_s in launches)

    rows = []
    for level in sorted({level for _, level in cells}):
        mine = cells["adaptive", level]
        (in_force,) = {int(cell.steps_in_force or 0) for cell in mine}
        accepted = median(w.acceptance_length or 0 for cell in mine for w in cell.rounds)
        others = [speed(variant, level) for variant in reversed(STEPS)]
        rows.append((str(level), str(in_force), f"{accepted:.2f}", speed("adaptive", level), *others))
    names = ("C", "steps in force", "accepted", "adaptive", *map(counted, reversed(STEPS.values())))
    return table(names, rows)


def cross_check() -> str:
    """Return what SGLang's own benchmark and our client said of one server."""
    told = json.loads((NIGHTS.parent / "h200-cross-check.json").read_bytes())["rows"]
    rows = [
        (str(row["concurrency"]), row["client"], f"{row['output_tok_s']:,.0f}", f"{row['tpot_ms_p50']:.2f}",
         f"{row['ttft_ms_mean']:.0f}", f"{row['e2e_ms_mean'] - row['server']['e2e_ms_mean']:.0f}")
        for row in told
    ]  # fmt: skip
    names = ("C", "client", "tok/s", "TPOT p50, ms", "TTFT mean, ms", "longer a request than the server says, ms")
    return table(names, rows)


TABLES = {
    "cpu": cpu, "h200": h200, "provoked": provoked, "steps": steps, "adaptive": adaptive, "cross-check": cross_check,
    "clock": clock,
}  # fmt: skip


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
