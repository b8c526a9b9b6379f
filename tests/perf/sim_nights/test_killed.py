"""A killed night loses nothing: no server stays behind, no file is half written, and a resumed run completes it."""

import os
import signal
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path

import psutil
import pytest

from fixtures.engines.process import MARK
from fixtures.histories import read_night
from tests.perf.sim_nights.nights import ROOT, Plan

pytestmark = pytest.mark.sim

PLAN = Plan(levels=(4,))
CELLS = 4
LIMIT_S = 90


def begin(folder: Path, *options: str) -> subprocess.Popen[bytes]:
    """Start the night of *folder*."""
    (folder / "night.toml").write_text(PLAN.toml(folder))
    files = ["tests/perf/test_node.py", "tests/perf/test_throughput.py", "tests/perf/test_crossover.py"]
    argv = [sys.executable, "-m", "pytest", *files, "--profile", str(folder / "night.toml"), "-p", "no:cacheprovider"]
    argv += [f"--history={folder / 'history'}", *options]
    with (folder / "output.txt").open("ab") as output:
        return subprocess.Popen(argv, cwd=ROOT, env=os.environ | {"CI": ""}, stdout=output, stderr=output)


def measured(folder: Path) -> int:
    """How many whole cells are on disk."""
    path = folder / "run" / "cells.jsonl"
    return path.read_bytes().count(b"\n") if path.exists() else 0


def wait_for_cells(night: subprocess.Popen[bytes], folder: Path, cells: int) -> None:
    """Return once *cells* of the night are measured."""
    until = time.monotonic() + LIMIT_S
    while measured(folder) < cells:
        assert night.poll() is None, (folder / "output.txt").read_text()
        assert time.monotonic() < until
        time.sleep(0.05)


def servers_of(night: psutil.Process) -> list[psutil.Process]:
    """Return the servers that *night* has running."""
    return [child for child in night.children(recursive=True) if MARK in child.environ()]


def gone(processes: Sequence[psutil.Process]) -> bool:
    """Whether all of *processes* end within seconds."""
    for _ in range(100):
        if all(not p.is_running() or p.status() == psutil.STATUS_ZOMBIE for p in processes):
            return True
        time.sleep(0.05)
    return False


@pytest.mark.parametrize(
    ("blow", "after", "status"),
    [(signal.SIGTERM, 1, 2), (signal.SIGKILL, 2, -9)],
    ids=["SIGTERM", "SIGKILL"],
)
def test_killed_night_is_resumed(tmp_path: Path, blow: signal.Signals, after: int, status: int) -> None:
    """Whatever ended it, and wherever: the server is gone, the cells are kept, and `--resume` brings the others."""
    night = begin(tmp_path, f"--run={tmp_path / 'run'}")
    wait_for_cells(night, tmp_path, after)
    servers = servers_of(psutil.Process(night.pid))
    night.send_signal(blow)

    assert night.wait(LIMIT_S) == status, (tmp_path / "output.txt").read_text()
    assert gone(servers)
    kept = measured(tmp_path)
    assert kept >= after

    resumed = begin(tmp_path, f"--resume={tmp_path / 'run'}")

    assert resumed.wait(LIMIT_S) == 10, (tmp_path / "output.txt").read_text()
    assert measured(tmp_path) == CELLS
    (*_, last) = sorted((tmp_path / "history").glob("*/*.json"))
    assert len(read_night(last).cells) == CELLS
