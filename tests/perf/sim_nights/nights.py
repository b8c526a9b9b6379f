"""Whole nights on the simulated SGLang: the same files and entry points as a real one, in a process of their own."""

import json
import os
import re
import shutil
import subprocess
import sys
import threading
import time
import xml.etree.ElementTree as ET
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TextIO

import msgspec

from fixtures.analysis.record import Record

ROOT = Path(__file__).parents[3]
LIMIT_S = 170
START_S = 8
STARTING = threading.Lock()

TEMPLATE = """
name = "night"
marker = "sim"
about = "a night of the tests"
levels = {levels}
[node]
lock = "{folder}/lock"
[engine]
name = "sglang"
module = "fixtures.simulator"
target_model = "simulated-target"
draft_model = "simulated-draft"
tensor_parallel = {ranks}
start_minutes = 0.12
quiet_minutes = 0.05
[engine.flags]
max-running-requests = 64
disable-radix-cache = true
random-seed = 1
enable-metrics = true
skip-tokenizer-init = true
cuda-graph-bs-decode = {levels}
sim-law = "{law}"
sim-time-scale = {scale}
sim-fault = {faults}
[variants.baseline]
{variants}
[workloads.short]
prompt_tokens = 32
output_tokens = {output}
stream_interval = {interval}
[gate]
pairs = [{{ variant = "eagle3", workload = "short" }}]
[measurement]
rounds = {rounds}
k = {{ 1 = {k} }}
blocks = 1
window_seconds = {window_s}
lateness = 6
stall_seconds = 4
cell_minutes = 0.5
"""

SPECULATIVE = """
[variants.{name}.flags]
speculative-algorithm = "EAGLE3"
speculative-draft-model-path = "{{draft_model}}"
speculative-num-steps = {steps}
speculative-eagle-topk = 1
speculative-num-draft-tokens = {drafts}
{fault}
"""

SANE = ("lives-s=170",)
"""On every server: none outlives its night, whatever becomes of the suite."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """What a night is made of."""

    law: str = "once"
    levels: tuple[int, ...] = (4, 16)
    faults: tuple[str, ...] = ()
    """Of every server; `{folder}` is the night's own."""
    variants: Mapping[str, str] = field(default_factory=dict)
    """Name → the faults of a speculative variant beside `eagle3`, with spaces between."""
    ranks: int = 1
    steps: int = 3
    output_tokens: int = 56
    stream_interval: int = 16
    rounds: int = 2
    k: int = 1
    window_s: float = 5.0
    """The server is asked for its running requests twenty times in so long."""
    scale: float = 1.0
    """Beside a request of half a second the milliseconds vanish that a busy machine is late by."""

    def toml(self, folder: Path) -> str:
        """Return the profile."""
        faults = [fault.format(folder=folder) for fault in self.faults]
        return TEMPLATE.format(
            folder=folder,
            levels=list(self.levels),
            ranks=self.ranks,
            law=self.law,
            scale=self.scale,
            faults=json.dumps([*SANE, *faults]),
            variants="\n".join(self._variant(name, fault) for name, fault in {"eagle3": "", **self.variants}.items()),
            output=self.output_tokens,
            interval=self.stream_interval,
            rounds=self.rounds,
            k=self.k,
            window_s=self.window_s,
        )

    def _variant(self, name: str, fault: str) -> str:
        own = f"sim-fault = {json.dumps([*SANE, *self.faults, *fault.split()])}" if fault else ""
        return SPECULATIVE.format(name=name, steps=self.steps, drafts=self.steps + 1, fault=own)


@dataclass(frozen=True, slots=True, kw_only=True)
class Ended:
    """How a night's run ended."""

    folder: Path
    status: int
    messages: tuple[str, ...]
    """Test id and message of each test that did not pass."""
    output: str

    def said(self, pattern: str, about: str = "") -> bool:
        """Whether the message of any test whose id holds *about* matches *pattern*."""
        return any(about in each.partition("\n")[0] and re.search(pattern, each) for each in self.messages)

    def __str__(self) -> str:
        return f"exit status {self.status}\n" + "\n".join(self.messages) + self.output[-3000:]


def run(plan: Plan, folder: Path, *options: str, record: Path | None = None) -> Ended:
    """Run one night of *plan* in *folder*, against *record*; return how it ended."""
    profile, junit = folder / "night.toml", folder / "junit.xml"
    profile.write_text(plan.toml(folder))
    if record:
        shutil.copy(record, folder / "night.json")
    argv = [sys.executable, "-m", "pytest", *_files(), "--profile", str(profile), f"--junitxml={junit}"]
    argv += ["--run", str(folder / "run"), "--history", str(folder / "history"), "-p", "no:cacheprovider", *options]
    with (folder / "output.txt").open("w") as output:
        process = _start(argv, output, folder / "run")
        try:
            status = process.wait(LIMIT_S)
        finally:
            process.kill()
            process.wait()
    return Ended(folder=folder, status=status, messages=_messages(junit), output=(folder / "output.txt").read_text())


def _start(argv: Sequence[str], output: TextIO, begun: Path) -> subprocess.Popen[str]:
    """Start a night and return once *begun* exists.

    One at a time: importing is two seconds of a core, and nights that measure meanwhile would see it as lateness.
    """
    with STARTING:
        process = subprocess.Popen(
            argv, cwd=ROOT, env=os.environ | {"CI": ""}, stdout=output, stderr=subprocess.STDOUT, text=True
        )
        until = time.monotonic() + START_S
        while not begun.exists() and process.poll() is None and time.monotonic() < until:
            time.sleep(0.1)
    return process


def saved(folder: Path) -> Path:
    """Return the file of the night that was saved in *folder*."""
    (path,) = (folder / "history").rglob("*.json")
    return path


def replayed(folder: Path) -> Ended:
    """Judge again the night that was saved in *folder*, from its file alone."""
    argv = [sys.executable, "-m", "pytest", f"--replay={saved(folder)}", "-p", "no:cacheprovider"]
    done = subprocess.run(argv, cwd=ROOT, capture_output=True, text=True, timeout=LIMIT_S, check=False)
    return Ended(folder=folder, status=done.returncode, messages=(), output=done.stdout)


def _files() -> Sequence[str]:
    return sorted(str(path.relative_to(ROOT)) for path in (ROOT / "tests" / "perf").glob("test_*.py"))


def _messages(junit: Path) -> tuple[str, ...]:
    if not junit.exists():
        return ()
    cases = ET.parse(junit).iter("testcase")
    unhappy = [(case, each) for case in cases for each in case if each.tag in {"failure", "error", "skipped"}]
    return tuple(f"{case.get('name')}\n{each.get('message')}\n{each.text}" for case, each in unhappy)


def record_of(folder: Path) -> Record:
    """Return the record that a night in *folder* wrote."""
    return msgspec.json.decode((folder / "night.json").read_bytes(), type=Record)


NODE = ("launch-factor=1.006", "launch-counter={folder}/launches")
"""Launches that differ as a node's do: against a record without noise a busy moment would make any night too noisy."""


if __name__ == "__main__":
    print(run(Plan(rounds=3, faults=NODE), Path(sys.argv[1]), "--record", "--reason", "the sound night of the tests"))
