"""A provocation reaches speculative servers alone, and the suite is told nothing of it."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from fixtures.offline import provoke
from fixtures.offline.unpack import install, interpreter
from tests.unit.test_offline import packed

SHOW = "import json, os, sys; print(json.dumps([sys.argv[1:], os.environ.get('SGLANG_SIMULATE_ACC_LEN')]))"
COMMON = ["--max-running-requests", "256", "--cuda-graph-bs-decode", "1", "2", "5", "10", "--enable-metrics"]
EAGLE3 = [*COMMON, "--speculative-algorithm", "EAGLE3"]


def started(home: Path, arguments: list[str]) -> tuple[list[str], str | None]:
    """Return the arguments and the simulated acceptance that a server started with *arguments* in *home* sees."""
    done = subprocess.run(
        [interpreter(home), "-c", SHOW, *arguments],
        env={**os.environ, "SGLANG_SIMULATE_ACC_LEN": "2.8"}, capture_output=True, text=True, check=True,
    )  # fmt: skip
    seen: list[str]
    acceptance: str | None
    seen, acceptance = json.loads(done.stdout)
    return seen, acceptance


@pytest.mark.parametrize(
    ("name", "arguments", "acceptance"),
    [
        ("acceptance", EAGLE3, "2.520"),
        ("cap", [*COMMON[2:], "--speculative-algorithm", "EAGLE3"], "2.8"),
        ("graphs", ["--max-running-requests", "256", "--enable-metrics", "--speculative-algorithm", "EAGLE3",
                    "--cuda-graph-bs-decode", "1", "2"], "2.8"),
    ],
    ids=["acceptance", "cap", "graphs"],
)  # fmt: skip
def test_a_speculative_server_gets_the_fault(tmp_path: Path, name: str, arguments: list[str], acceptance: str) -> None:
    """One thing is changed, and only that."""
    package, home = packed(tmp_path), tmp_path / "home"
    install(package, home, name)

    assert started(home, EAGLE3) == (arguments, acceptance)


@pytest.mark.parametrize("name", ["", *provoke.PROVOCATIONS])
def test_baseline_is_started_as_it_was_told(tmp_path: Path, name: str) -> None:
    """The fault is on one arm: that is what must be noticed."""
    package, home = packed(tmp_path), tmp_path / "home"
    install(package, home, name)

    assert started(home, COMMON) == (COMMON, "2.8")


def test_without_a_provocation_nothing_is_changed(tmp_path: Path) -> None:
    """An interpreter that was provoked once is sound again after the next unpacking."""
    package, home = packed(tmp_path), tmp_path / "home"
    install(package, home, "cap")
    install(package, home)

    assert started(home, EAGLE3) == (EAGLE3, "2.8")
    assert sys.executable in interpreter(home).read_text()
