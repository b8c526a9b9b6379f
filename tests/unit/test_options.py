"""What contradicts itself on the command line is one clear line and starts nothing."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]

NIGHT = Path(__file__).parent / "samples" / "nights" / "h200-gated.json"


def run(*arguments: str) -> subprocess.CompletedProcess[str]:
    """Run the suite's pytest on nothing but its options."""
    environment = {key: value for key, value in os.environ.items() if key != "CI"}
    command = [sys.executable, "-m", "pytest", "-p", "no:cacheprovider", "--collect-only", "-q", *arguments]
    return subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, timeout=60, check=False)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--record"], "--record needs --reason TEXT"),
        (["--profile", "h200", "--record", "--reason", "r", "--refine"], "there is none yet"),
        (["--against", "x.json"], "--against goes with --replay FILE"),
        (["--profile", "no-such-node"], "there is no such profile; available: "),
        (["--profile", "cpu", "--levels", "3"], "--levels 3: profile cpu has 1, 2, 4, 16"),
        (["--profile", "cpu", "--variants", "eagle9"], "--variants eagle9: profile cpu has baseline, eagle3"),
        (["--profile", "cpu", "--attach", "baseline"], "must be VARIANT=URL"),
        (["--profile", "cpu", "--rounds", "1"], "one window has no median and shows no noise"),
        (["--profile", "cpu", "--resume=.runs/never"], "--resume=.runs/never: no run was begun there"),
        (["--resume=.runs/never"], "--resume continues the run of one profile"),
        ([f"--replay={NIGHT}", "--profile", "h200"], "it goes without --plan, --resume and --profile"),
        ([f"--replay={NIGHT}", "--plan"], "it goes without --plan, --resume and --profile"),
        ([f"--replay={NIGHT.with_name('h200-aa.json')}"], "this night measured baseline alone"),
        (["-m", "gpu", "--levels", "3"], "--levels 3: profile blackwell-tp8 has 1, 2, 5"),
        (["-m", "gpu", "--variants", "eagle9"], "--variants eagle9: profile blackwell-tp8 has baseline"),
        (["--levels", "a"], "'a' must be concurrencies with commas between"),
        (["--variants", ","], "',' names nothing"),
        (["--deadline", "25:00"], "'25:00' must be a time of day"),
        (["--reason", "r"], "--reason goes with --record"),
        (["--policy-load", "2=0.5,2=0.3"], "names a level twice"),
    ],
    ids=[
        "no reason",
        "nothing to refine",
        "against nothing",
        "unknown profile",
        "unknown level",
        "unknown variant",
        "no URL",
        "one window",
        "resume of nothing",
        "resume of several",
        "replay of a named profile",
        "plan of a replay",
        "replay of one arm",
        "unknown level of the marked profile",
        "unknown variant of the marked profile",
        "no level",
        "no variant",
        "no time",
        "reason for nothing",
        "level twice",
    ],
)
def test_contradiction_is_a_usage_error(arguments: list[str], message: str) -> None:
    """Exit status 4, the reason and what is allowed, and no traceback."""
    done = run(*arguments)

    assert done.returncode == pytest.ExitCode.USAGE_ERROR
    assert message in done.stderr
    assert "Traceback" not in done.stdout + done.stderr


def test_a_night_is_judged_from_a_subfolder_too() -> None:
    """Where pytest would look no further than the folder it stands in, and find nothing to fail."""
    command = [sys.executable, "-m", "pytest", "-p", "no:cacheprovider", "--collect-only", "-q", f"--replay={NIGHT}"]
    done = subprocess.run(command, cwd=ROOT / "fixtures", capture_output=True, text=True, timeout=60, check=False)

    assert "::test_crossover[h200-" in done.stdout


def test_refining_measures_the_middle_of_the_recorded_bracket() -> None:
    """The embedded server's crossover lies between C = 4 and 16: its next record also measures C = 8."""
    done = run("--profile", "cpu", "--record", "--reason", "r", "--refine", "tests/perf/test_throughput.py")

    levels = {line.rpartition("-C")[2].rstrip("]") for line in done.stdout.splitlines() if "::test_throughput[" in line}
    assert levels == {"001", "002", "004", "008", "016"}


def test_cells_of_a_profile_are_its_launches_times_its_levels() -> None:
    """The ids name profile, launch, variant, workload and level; both blocks are collected."""
    done = run("--profile", "cpu", "--blocks", "2", "--levels", "1,16", "tests/perf/test_throughput.py")

    ids = [line.partition("[")[2].rstrip("]") for line in done.stdout.splitlines() if "::test_throughput[" in line]
    assert len(ids) == 8 * 2
    assert ids[:3] == ["cpu-1-baseline-short-C001", "cpu-1-baseline-short-C016", "cpu-2-eagle3-short-C001"]
