"""Old runs get small and then go; what somebody may still ask for stays."""

import gzip
import json
import os
import time
from pathlib import Path

import pytest

from fixtures.retention import tidy

DAY_S = 86_400


def made_run(folder: Path, number: int, outcome: str | None, profile: str = "h200") -> Path:
    """Make the run of night *number*, as a session leaves it; without *outcome* it was killed, two days ago."""
    run = folder / f"{profile}-202612{number:02d}-013000-{4000 - number}"
    (run / "logs").mkdir(parents=True)
    (run / "logs" / "1-baseline.log").write_text("The server is fired up and ready to roll!\n")
    (run / "cells.jsonl").write_text("{}\n")
    if outcome is not None:
        (run / "status.json").write_text(json.dumps({"outcome": outcome}))
    else:
        age(run, 2 * DAY_S)
    return run


def age(run: Path, seconds: float) -> None:
    """Let all that *run* wrote be *seconds* old."""
    then = time.time() - seconds
    for path in run.rglob("*"):
        os.utime(path, (then, then))


def newest(folder: Path) -> None:
    """Make a run that is newer than all others: whatever is older may be tidied."""
    made_run(folder, 31, "held")


def names(folder: Path) -> list[str]:
    """The days of the runs that are left."""
    return sorted(path.name.split("-")[1][-2:] for path in folder.iterdir())


def test_logs_of_a_finished_run_are_compressed(tmp_path: Path) -> None:
    """The log's text is all in the gzip file, and the log is gone; the cells stay as they are."""
    run = made_run(tmp_path, 1, "held")
    newest(tmp_path)

    tidy(tmp_path)

    assert sorted(path.name for path in run.rglob("*") if path.is_file()) == [
        "1-baseline.log.gz", "cells.jsonl", "status.json",
    ]  # fmt: skip
    with gzip.open(run / "logs" / "1-baseline.log.gz", "rt") as log:
        assert log.read() == "The server is fired up and ready to roll!\n"


def test_newest_run_stays_as_it_is(tmp_path: Path) -> None:
    """The message that a failure printed names a log: it is there."""
    run = made_run(tmp_path, 1, "invalid")

    tidy(tmp_path, keep=0)

    assert (run / "logs" / "1-baseline.log").exists()


def test_second_time_changes_nothing(tmp_path: Path) -> None:
    """A tidy run is tidy: its compressed log is not compressed again."""
    run = made_run(tmp_path, 1, "held")
    newest(tmp_path)
    tidy(tmp_path)
    before = {path: path.stat().st_mtime_ns for path in run.rglob("*")}

    tidy(tmp_path)

    assert {path: path.stat().st_mtime_ns for path in run.rglob("*")} == before


def test_only_the_last_nights_are_kept(tmp_path: Path) -> None:
    """The newest *keep* runs stay, by the date in their names."""
    for night in range(1, 6):
        made_run(tmp_path, night, "held")

    tidy(tmp_path, keep=2)

    assert names(tmp_path) == ["04", "05"]


@pytest.mark.parametrize("outcome", ["regressed", "stale record", "invalid", None, "a word of tomorrow"])
def test_failed_run_stays_for_good(tmp_path: Path, outcome: str | None) -> None:
    """Whatever failed or was killed is evidence, however old; so is what this version cannot read."""
    made_run(tmp_path, 1, outcome)
    made_run(tmp_path, 2, "held")
    made_run(tmp_path, 3, "held")

    tidy(tmp_path, keep=1)

    assert names(tmp_path) == ["01", "03"]


@pytest.mark.parametrize("outcome", ["held", "inconclusive", "unrecorded"])
def test_run_that_failed_nobody_goes(tmp_path: Path, outcome: str) -> None:
    """A laptop that never recorded does not fill its disk."""
    made_run(tmp_path, 1, outcome)
    made_run(tmp_path, 2, "held")

    tidy(tmp_path, keep=1)

    assert names(tmp_path) == ["02"]


def test_profiles_do_not_push_each_other_out(tmp_path: Path) -> None:
    """Each profile keeps its own last nights, also one whose name has dashes."""
    made_run(tmp_path, 1, "held", profile="blackwell-tp8")
    made_run(tmp_path, 2, "held", profile="sim")
    made_run(tmp_path, 3, "held", profile="sim")

    tidy(tmp_path, keep=1)

    assert sorted(path.name.rsplit("-", 3)[0] for path in tmp_path.iterdir()) == ["blackwell-tp8", "sim"]


def test_running_run_is_left_alone(tmp_path: Path) -> None:
    """Its server still writes to the log: no status, and fresh."""
    run = made_run(tmp_path, 1, None)
    newest(tmp_path)
    age(run, 3600)

    tidy(tmp_path, keep=0)

    assert (run / "logs" / "1-baseline.log").exists()


def test_resumed_run_is_left_alone(tmp_path: Path) -> None:
    """A status that is older than the cells is that of the run before it was resumed."""
    run = made_run(tmp_path, 1, "held")
    newest(tmp_path)
    then = time.time() - 7200
    os.utime(run / "status.json", (then, then))

    tidy(tmp_path, keep=0)

    assert (run / "logs" / "1-baseline.log").exists()


def test_log_of_a_resumed_run_joins_the_compressed_one(tmp_path: Path) -> None:
    """Nothing of the first life is lost when the second one's log has the same name."""
    run = made_run(tmp_path, 1, "invalid")
    newest(tmp_path)
    tidy(tmp_path)
    (run / "logs" / "1-baseline.log").write_text("second life\n")
    (run / "status.json").write_text('{"outcome": "held"}')

    tidy(tmp_path)

    with gzip.open(run / "logs" / "1-baseline.log.gz", "rt") as log:
        assert log.read() == "The server is fired up and ready to roll!\nsecond life\n"


def test_what_is_no_run_is_left_alone(tmp_path: Path) -> None:
    """Histories, a run that somebody named and a link to a run elsewhere are not ours to touch."""
    history = tmp_path / "history"
    history.mkdir()
    (history / "0001_night.json").write_text("{}")
    (history / "notes.log").write_text("mine")
    made_run(tmp_path, 1, "held").rename(tmp_path / "before-the-upgrade")
    (tmp_path / "linked-20261101-013000-1").symlink_to(made_run(tmp_path / "elsewhere", 1, "held"))

    tidy(tmp_path, keep=0)

    assert sorted(path.name for path in history.iterdir()) == ["0001_night.json", "notes.log"]
    assert (tmp_path / "before-the-upgrade" / "logs" / "1-baseline.log").exists()
    assert len(list((tmp_path / "elsewhere").iterdir())) == 1


def test_missing_folder_is_tidy(tmp_path: Path) -> None:
    """The first run ever finds no folder of runs."""
    tidy(tmp_path / ".runs")
