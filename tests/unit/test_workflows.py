"""What runs on GitHub keeps the rules that keep a hardware runner safe."""

import re
import subprocess
import sys
from pathlib import Path

import pytest

WORKFLOWS = sorted((Path(__file__).parents[2] / ".github" / "workflows").glob("*.yml"))
NIGHTLY = next(path for path in WORKFLOWS if path.stem == "nightly")


@pytest.mark.parametrize("path", WORKFLOWS, ids=lambda path: path.stem)
def test_actions_are_pinned_by_digest(path: Path) -> None:
    """Every action is a commit, with its version beside it for the reader: a tag can be moved."""
    uses = re.findall(r"uses: (.*)", path.read_text())

    assert uses
    assert [line for line in uses if not re.fullmatch(r"[\w-]+/[\w-]+@[0-9a-f]{40} # v\d+\.\d+\.\d+", line)] == []


@pytest.mark.parametrize("path", WORKFLOWS, ids=lambda path: path.stem)
def test_workflow_may_only_read(path: Path) -> None:
    """The token reads; runs of one kind do not overlap; checkouts leave no credentials behind."""
    text = path.read_text()

    assert "\npermissions:\n  contents: read\n" in text
    assert "\nconcurrency:\n" in text
    assert text.count("actions/checkout@") == text.count("persist-credentials: false")


def test_hardware_is_never_lent_to_a_pull_request() -> None:
    """The night starts by schedule or by hand; what writes there runs nothing of the repository."""
    text = re.sub(r"^ *#.*\n", "", NIGHTLY.read_text(), flags=re.MULTILINE)

    assert "pull_request" not in text
    assert [job for job in text.split("\n  ") if "self-hosted" in job and "write" in job] == []
    assert "run: |\n          gh run cancel" in text.split("permissions:\n      actions: write")[1]


def test_inputs_are_never_text_of_a_script() -> None:
    """An input is a variable of its step: a level called `$(rm -rf ~)` is a usage error, not a command."""
    scripts = re.findall(r"run: \|\n((?: {10}.*\n)+)", NIGHTLY.read_text())

    assert scripts
    assert [script for script in scripts if "${{" in script] == []


def test_night_keeps_its_history_outside_the_checkout(tmp_path: Path) -> None:
    """The night's own way to name folders works with one that exists: with a space, pytest would look there for tests.

    The second night of a runner would have died of `unrecognized arguments`.
    """
    words = re.findall(r'--(?:history|run|report|junitxml)=?(?= ?")', NIGHTLY.read_text())
    assert words
    assert [word for word in words if not word.endswith("=")] == []

    argv = [sys.executable, "-m", "pytest", "-m", "gpu", "--profile=h200", "--plan", f"--history={tmp_path}"]
    done = subprocess.run(argv, cwd=NIGHTLY.parents[2], capture_output=True, text=True, check=False)

    assert "launch 1 baseline" in done.stdout, done.stdout + done.stderr
