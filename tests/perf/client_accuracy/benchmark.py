"""Measure the load generator against other clients: `python -m tests.perf.client_accuracy.benchmark` (`tox -e bench`).

One compiled server sends tokens on time and says in each event when; every client runs in turn against it, with the
server on one core and the client on another, rounds interleaved, medians of the rounds. `--fifo` gives both real-time
priority, for a machine that is not quiet; the table says so.
"""

import argparse
import contextlib
import json
import os
import platform
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np

from tests.perf.client_accuracy import sglang_clients
from tests.perf.client_accuracy.accuracy import Errors, Run, errors, joined, placed
from tests.perf.client_accuracy.goals import judge
from tests.perf.client_accuracy.scenarios import Scenario, scenarios
from tests.perf.client_accuracy.table import as_markdown

HERE = Path(__file__).parent
OURS = ("ours", "ours, none ahead")
CLIENTS = (*OURS, "httpx", "aiohttp", *sglang_clients.CLIENTS)
LIMIT = "C epoll"
RUN_LIMIT_S = 120

Row = dict[str, Any]
"""One client in one scenario: names and medians, as in the JSON."""

Figures = dict[str, float | None]
"""One run of one client; None for what the client does not tell."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Bench:
    """Where things run."""

    binaries: Path
    fifo: bool

    @property
    def log(self) -> Path:
        """The server's log of the last run."""
        return self.binaries / "server.log"

    def server(self, scenario: Scenario) -> list[str]:
        """Return the command of the server."""
        arguments = [str(scenario.interval_us), str(scenario.tokens_per_event), str(self.log)]
        return [*self._place(0, 6), str(self.binaries / "paced_server"), *arguments]

    def client(self, name: str, port: int, scenario: Scenario) -> list[str]:
        """Return the command of the client *name*."""
        numbers = [port, scenario.concurrency, scenario.tokens, scenario.waves]
        arguments = [*map(str, numbers), scenario.path]
        if name == LIMIT:
            return [*self._place(1, 5), str(self.binaries / "epoll_client"), *arguments]
        module = "tests.perf.client_accuracy." + ("sglang_clients" if name in sglang_clients.CLIENTS else "clients")
        return [*self._place(1, 5), sys.executable, "-m", module, name, *arguments]

    def _place(self, core: int, priority: int) -> list[str]:
        pinned = ["taskset", "-c", str(sorted(os.sched_getaffinity(0))[core])]
        return [*pinned, "chrt", "--fifo", str(priority)] if self.fifo else pinned


def compile_c(folder: Path) -> None:
    """Compile the server and the C client into *folder*."""
    for name in ("paced_server", "epoll_client"):
        command = [os.environ.get("CC", "cc"), "-O2", "-o", str(folder / name), str(HERE / f"{name}.c")]
        subprocess.run(command, check=True)


@contextlib.contextmanager
def _serving(command: Sequence[str]) -> Iterator[tuple[int, dict[str, float]]]:
    """Run the server; give its port, and its account of itself once it has stopped."""
    account: dict[str, float] = {}
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        try:
            yield int(process.stdout.readline()), account
        finally:
            process.send_signal(signal.SIGTERM)
            account |= json.loads(process.stdout.readline() or "{}")


def run_once(bench: Bench, scenario: Scenario, name: str) -> tuple[Errors, dict[str, float]]:
    """Run one client once; return its errors and the server's account."""
    with _serving(bench.server(scenario)) as (port, account):
        command = bench.client(name, port, scenario)
        done = subprocess.run(command, check=True, stdout=subprocess.PIPE, timeout=RUN_LIMIT_S)
    head, _, stamps = done.stdout.partition(b"\n")
    told = json.loads(head)
    log = np.fromfile(bench.log, np.int64).reshape(-1, 4)
    if "requests" in told:
        events = placed(told.pop("requests"), log)
    elif name in OURS:
        events = joined(np.frombuffer(stamps, np.int64).reshape(-1, 4), log)
    else:
        events = np.frombuffer(stamps, np.int64).reshape(-1, 5)
    tokens = scenario.concurrency * scenario.waves * scenario.tokens
    return errors(Run(events=events, tokens=tokens, **told)), account


def measure(bench: Bench, scenario: Scenario, names: Sequence[str], rounds: int) -> list[Row]:
    """Return one row of medians for each client, rounds interleaved; a row of why for one that cannot run here."""
    missing = {name: why for name in names if name in sglang_clients.CLIENTS and (why := sglang_clients.missing(name))}
    runs: dict[str, list[Figures]] = {name: [] for name in names if name not in missing}
    for _ in range(rounds):
        for name, of_name in runs.items():
            found, account = run_once(bench, scenario, name)
            of_name.append(found.as_dict() | {"server_worst_tick_us": account.get("worst_tick_us", 0.0)})
    rows = [_row(scenario, name, of_name) for name, of_name in runs.items()]
    limit = next((row["cpu_us_per_event"] for row in rows if row["client"] == LIMIT), None)
    for row in rows:
        row["cpu_over_limit"] = row["cpu_us_per_event"] / limit if limit else None
    return rows + [{"scenario": scenario.name, "client": name, "not_installed": why} for name, why in missing.items()]


def _row(scenario: Scenario, name: str, runs: Sequence[Figures]) -> Row:
    named = {
        "scenario": scenario.name,
        "client": name,
        "rounds": len(runs),
        "interval_ms": scenario.interval_us * scenario.tokens_per_event / 1000,
        "achieved": median(run["tok_s"] or 0.0 for run in runs) / scenario.ideal_tok_s,
    }
    return named | {key: _median([run[key] for run in runs]) for key in runs[0]}


def _median(values: Sequence[float | None]) -> float | None:
    known = [value for value in values if value is not None]
    return median(known) if known else None


def machine(bench: Bench) -> dict[str, object]:
    """Say where this was measured, and how busy it was."""
    return {
        "python": platform.python_version(),
        "kernel": platform.release(),
        "cores": os.cpu_count(),
        "load_average": os.getloadavg(),
        "priority": "SCHED_FIFO" if bench.fifo else "normal",
        "started": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()),
    }


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--clients", default=";".join([LIMIT, *CLIENTS]), help="separated by semicolons")
    parser.add_argument("--only", type=int, help="the first N scenarios")
    parser.add_argument("--fifo", action="store_true", help="real-time priority (root)")
    parser.add_argument("--json", type=Path, default=Path("report/client_accuracy.json"))
    return parser.parse_args()


def main() -> int:
    """Measure, print the table and the goals, write the JSON; 1 if a goal is missed or none could be judged."""
    asked = _arguments()
    rows: list[Row] = []
    with tempfile.TemporaryDirectory() as folder:
        bench = Bench(binaries=Path(folder), fifo=asked.fifo)
        compile_c(bench.binaries)
        where = machine(bench)
        for scenario in scenarios()[: asked.only]:
            found = measure(bench, scenario, asked.clients.split(";"), asked.rounds)
            print(as_markdown(found), flush=True)
            rows += found
    goals = judge(rows)
    print("\n".join(goal.line for goal in goals), where, sep="\n")
    asked.json.parent.mkdir(parents=True, exist_ok=True)
    asked.json.write_text(json.dumps({"machine": where, "rows": rows}, indent=1))
    return int(not goals or not all(goal.met for goal in goals))


if __name__ == "__main__":
    sys.exit(main())
