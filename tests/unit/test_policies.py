"""`--policy DIR`: what it writes, from which night, and how it refuses."""

import json
import os
import subprocess
import sys
from argparse import ArgumentTypeError
from dataclasses import fields, replace
from pathlib import Path
from typing import Any

import pytest

from fixtures.analysis.judgement import Judgement, worst
from fixtures.analysis.measurements import BASELINE
from fixtures.analysis.policy import policy_of
from fixtures.analysis.policy_contenders import PolicyError
from fixtures.analysis.policy_page import doubts_of
from fixtures.analysis.rules import Rules
from fixtures.analysis.verdicts import Gate, Outcome, Verdict
from fixtures.arguments import shares
from fixtures.options import Settings
from fixtures.policies import save, workload_of
from tests.unit.sweeps import WORKLOAD, sweep
from tests.unit.test_policy import THREE, Speeds

ROOT = Path(__file__).parents[2]
NIGHT = Path(__file__).parent / "samples" / "nights" / "h200-night.json"
OFF = {BASELINE: {1: 100, 8: 900}, "eagle3": {1: 90, 8: 700}}


def run(*arguments: str) -> subprocess.CompletedProcess[str]:
    """Run the suite's pytest."""
    environment = {key: value for key, value in os.environ.items() if key != "CI"}
    files = [f"tests/perf/test_{name}.py" for name in ("crossover", "policy")]
    command = [sys.executable, "-m", "pytest", "-p", "no:cacheprovider", "-q", *files, *arguments]
    return subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, timeout=60, check=False)


def write(of: Speeds, folder: Path) -> Path:
    """Save the policy of a sweep in *folder*."""
    return save(policy_of(sweep(of), WORKLOAD, Rules(pairs=())), folder)


def test_a_saved_night_gives_its_policy(tmp_path: Path) -> None:
    """The H200's night, for a load of its lowest and highest level: always on, whatever the record's tests say."""
    folder = tmp_path / "new" / "policy"
    done = run(f"--replay={NIGHT}", f"--policy={folder}", "--policy-load", "1=3,250=1")

    assert done.returncode == 10, done.stdout  # there is no record of that node
    assert "Always on: `eagle3` is served at every measured level; no adaptive speculation is needed." in done.stdout
    assert f"policy: {folder}/policy.md" in done.stdout
    assert json.loads((folder / "adaptive.json").read_text()) == {"1": {"candidate_steps": [3]}}
    page = (folder / "policy.md").read_text()
    assert "(share of time: C=1 75%, C=250 25%)" in page
    assert "| 10 | eagle3 | 2.00 (1.96 … 2.05) | eagle3 | 3 | 3,631 |" in page


def test_a_night_with_an_invalid_cell_fails_with_the_cell(tmp_path: Path) -> None:
    """The refusal is a failing test that names the cell, and writes nothing."""
    document: dict[str, Any] = json.loads(NIGHT.read_text())
    first = document["benchmarks"][0]["extra_info"]
    first |= {"valid": False, "invalid_reasons": ["throttled: thermal"]}
    (tmp_path / "night.json").write_text(json.dumps(document))
    folder = tmp_path / "policy"
    folder.mkdir()
    (folder / "adaptive.json").write_text("an earlier sweep's")
    done = run(f"--replay={tmp_path}/night.json", f"--policy={folder}")

    assert done.returncode == 1
    assert "During handling" not in done.stdout
    assert "no policy: a level without all its cells has no best variant:" in done.stdout
    cell = f"launch {first['launch']} ({first['variant']}) at C={first['concurrency']}"
    assert f"- invalid: {cell}: throttled: thermal" in done.stdout
    assert list(folder.iterdir()) == []


def test_a_night_of_nothing_but_invalid_cells_fails_with_the_cells(tmp_path: Path) -> None:
    """What made them invalid is to be mended; variants to measure beside them would meet the same."""
    done = run(f"--replay={NIGHT.with_name('h200-cap.json')}", f"--policy={tmp_path}/policy")

    assert done.returncode == 1
    assert "- invalid: launch 1 (eagle3) at C=1: the server is not the eagle3 that was meant" in done.stdout
    assert "measure with --variants" not in done.stdout


def test_a_folder_that_cannot_be_written_is_named(tmp_path: Path) -> None:
    """In one sentence; the night has been judged by then and is not lost."""
    (tmp_path / "policy.md").mkdir()
    (tmp_path / "adaptive.json").write_text("an earlier sweep's")
    done = run(f"--replay={NIGHT}", f"--policy={tmp_path}")

    assert done.returncode == 1
    assert "the policy could not be written: " in done.stdout
    assert "Traceback" not in done.stdout
    assert not (tmp_path / "adaptive.json").exists()


def judged(*outcomes: Outcome) -> Judgement:
    """A night judged with these verdicts, the worst first."""
    common: dict[str, Any] = {"gate": Gate.RATIO, "variant": "eagle3", "workload": WORKLOAD, "concurrency": 30}
    verdicts = [Verdict(**common, outcome=each, reason="0.9x", next_step="Look") for each in outcomes]
    empty: dict[str, Any] = {"sentences": (), "rows": (), "crossovers": {}}
    return Judgement(outcome=worst(list(outcomes)), verdicts=tuple(verdicts), **empty)


@pytest.mark.parametrize(
    ("outcomes", "partial", "said"),
    [
        ([Outcome.HELD, Outcome.HELD], False, []),
        ([Outcome.UNRECORDED], False, []),
        ([Outcome.HELD, Outcome.REGRESSED], False, ["The sweep's night did not hold: regressed: eagle3 on chat C=30"]),
        ([Outcome.REGRESSED, Outcome.INVALID], False, ["The sweep's night did not hold: invalid: eagle3 on chat C=30"]),
        ([Outcome.HELD], True, ["Only a part of the night was selected"]),
    ],
    ids=["held", "no record", "regressed", "invalid", "partial"],
)
def test_the_page_says_what_its_night_was(
    tmp_path: Path, outcomes: list[Outcome], partial: bool, said: list[str]
) -> None:
    """A policy of a night that failed, or of a part of one, is to be looked at before it is served."""
    doubts = doubts_of(judged(*outcomes), Rules(pairs=(), partial=partial))
    path = save(policy_of(sweep(THREE), WORKLOAD, Rules(pairs=())), tmp_path, doubts)

    assert len(doubts) == len(said)
    assert all(each in path.read_text() for each in said)


def test_the_page_of_a_replayed_night_says_that_it_failed(tmp_path: Path) -> None:
    """The policy is made, and its page carries what the night's own tests say."""
    run(f"--replay={NIGHT.with_name('h200-acceptance.json')}", f"--policy={tmp_path}")

    assert "- The sweep's night did not hold: regressed: eagle3 on short C=2: " in (tmp_path / "policy.md").read_text()


def test_without_the_option_there_is_no_such_test() -> None:
    """A night that is not asked for a policy has no test of one."""
    collected = run(f"--replay={NIGHT}", "--collect-only").stdout

    assert "test_crossover[h200-eagle3-short]" in collected
    assert "test_policy_can_be_served" not in collected


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--policy", "x"], "--policy needs --profile NAME or --replay=FILE"),
        (["--profile", "cpu", "--policy", "x", "--calibrate"], "--policy and --calibrate exclude each other"),
        (["--profile", "cpu", "--policy-load", "1=1"], "--policy-load goes with --policy=DIR"),
    ],
    ids=["of which node", "calibrating", "load of nothing"],
)
def test_contradiction_is_a_usage_error(arguments: list[str], message: str) -> None:
    """Exit status 4 and the reason; nothing is started."""
    done = run("--collect-only", *arguments)

    assert done.returncode == pytest.ExitCode.USAGE_ERROR
    assert message in done.stderr


@pytest.mark.parametrize(
    ("asked", "every"),
    [
        ({}, False),
        ({"blocks": 2}, False),
        ({"policy": Path("x")}, False),
        ({"policy": Path("x"), "blocks": 2}, True),
    ],
    ids=["a night", "a night of two blocks", "a policy", "a policy of two blocks"],
)
def test_a_policy_of_two_blocks_needs_no_suspicion(asked: dict[str, Any], every: bool) -> None:
    """With --policy, --blocks 2 asks for twice the launches; a night's second block waits for a suspicion."""
    nothing: dict[str, Any] = dict.fromkeys((field.name for field in fields(Settings)), None)

    assert Settings(**{**nothing, "record": False, "calibrate": False, **asked}).every_block is every


def test_a_load_is_shares_of_time() -> None:
    """Level and share, in any unit."""
    assert shares("1=0.5, 100=2") == {1: 0.5, 100: 2.0}


@pytest.mark.parametrize("text", ["", "1=0", "1", "1=x", "1=-1,2=2", "1=inf", "1=nan"])
def test_a_load_that_is_none_is_refused(text: str) -> None:
    """No time at all, none that is negative, and nothing that is not a number."""
    with pytest.raises(ArgumentTypeError, match="must be LEVEL=SHARE"):
        shares(text)


def test_files_are_those_of_the_newest_policy(tmp_path: Path) -> None:
    """A file that an earlier policy wrote and this one has no use for is gone: a server must not start with it."""
    write(THREE, tmp_path)
    before = sorted(path.name for path in tmp_path.iterdir())
    write(OFF, tmp_path)

    assert before == ["adaptive-0.5.12.json", "adaptive.json", "policy.md"]
    assert [path.name for path in tmp_path.iterdir()] == ["policy.md"]
    assert "Always off" in (tmp_path / "policy.md").read_text()


def test_the_files_hold_both_forms(tmp_path: Path) -> None:
    """Slots by batch size for 0.5.13 and later; for 0.5.12 the one list that it knows."""
    write(THREE, tmp_path)

    assert json.loads((tmp_path / "adaptive.json").read_text()) == {
        "1": {"candidate_steps": [3]},
        "24": {"candidate_steps": [1]},
        "64": {"candidate_steps": [0]},
    }
    assert json.loads((tmp_path / "adaptive-0.5.12.json").read_text()) == {"candidate_steps": [1, 3]}


@pytest.mark.parametrize(
    ("workloads", "gated", "asked", "expected"),
    [
        (["chat"], [], None, "chat"),
        (["chat", "long"], [("eagle3", "long")], None, "long"),
        (["chat", "long"], [("eagle3", "long")], ("chat",), "chat"),
        (["chat", "long"], [("eagle3", "long"), ("eagle3", "chat")], None, None),
        (["chat", "long"], [], None, None),
    ],
    ids=["the only one", "the gated one", "as asked", "two gated", "none gated"],
)
def test_a_policy_is_for_one_workload(
    workloads: list[str], gated: list[tuple[str, str]], asked: tuple[str, ...] | None, expected: str | None
) -> None:
    """What was asked for wins, then the only gated one; two that are left are a question to the user."""
    cells = [cell for name in workloads for cell in sweep(THREE, workload=name).cells]
    night = replace(sweep(THREE), cells=tuple(cells))
    rules = Rules(pairs=tuple(gated))

    if expected:
        assert workload_of(night, rules, asked) == expected
    else:
        with pytest.raises(PolicyError, match="a policy is for one workload: name one of chat, long with --workloads"):
            workload_of(night, rules, asked)
