"""The ledger keeps what was measured through kills, and refuses to mix runs."""

from dataclasses import replace
from pathlib import Path

import pytest

from fixtures.analysis.measurements import Cell, Identity, ServerFacts, Window
from fixtures.ledger import CELLS, Header, Ledger, LedgerError

WINDOW = Window(
    seconds=2.0,
    output_tokens=100.5,
    requests_completed=5,
    requests_failed=0,
    ttft_s=None,
    tpot_s=None,
    e2e_s=None,
    acceptance_length=None,
    verify_steps=None,
    step_s=None,
    running_mean=None,
)
CELL = Cell(
    profile="tiny",
    variant="baseline",
    block=1,
    launch=1,
    concurrency=4,
    workload="short",
    workload_digest="abc",
    rounds=(WINDOW,),
    server=ServerFacts(engine="none", version="1", effective={"page_size": 1}),
    valid=True,
)
HEADER = Header(
    profile="tiny",
    identity=Identity(
        gpu="", gpu_count=0, target_model="m", draft_model="d", tensor_parallel=1, variants={"baseline": "1"}
    ),
    workload_digests={"short": "abc"},
    started_at="2026-12-01T00:00:00+00:00",
)


def test_resumed_run_has_the_cells_of_the_killed_one(tmp_path: Path) -> None:
    """A cell that was appended is there after the process is gone, field by field."""
    Ledger.create(tmp_path / "run", HEADER).append(CELL)

    resumed = Ledger.resume(tmp_path / "run", HEADER)

    assert resumed.cells() == (CELL,)
    assert resumed.find(("short", "baseline", 1, 4)) == CELL


def test_launch_that_had_no_server_is_tried_again(tmp_path: Path) -> None:
    """Its cells say why in this run; the run that continues it measures them."""
    unserved = replace(CELL, rounds=(), valid=False, invalid_reasons=("server died",))
    Ledger.create(tmp_path / "run", HEADER).append(unserved)

    assert Ledger.resume(tmp_path / "run", HEADER).find(CELL.key) is None


def test_line_cut_off_by_a_kill_is_measured_again(tmp_path: Path) -> None:
    """Half a line is no cell; the whole ones before it stay, and the next one starts on a line of its own."""
    ledger = Ledger.create(tmp_path / "run", HEADER)
    ledger.append(CELL)
    with (tmp_path / "run" / CELLS).open("ab") as file:
        file.write(b'{"profile":"tiny","vari')

    resumed = Ledger.resume(tmp_path / "run", HEADER)
    resumed.append(replace(CELL, launch=2))

    assert [cell.launch for cell in Ledger.resume(tmp_path / "run", HEADER).cells()] == [1, 2]


def test_measured_again_replaces(tmp_path: Path) -> None:
    """The last cell of a key counts."""
    ledger = Ledger.create(tmp_path / "run", HEADER)
    ledger.append(CELL)
    ledger.append(replace(CELL, valid=False))

    assert [cell.valid for cell in Ledger.resume(tmp_path / "run", HEADER).cells()] == [False]


def test_run_of_another_workload_is_refused(tmp_path: Path) -> None:
    """Cells of two workloads never become one night."""
    Ledger.create(tmp_path / "run", HEADER)
    changed = Header(
        profile="tiny", identity=HEADER.identity, workload_digests={"short": "other"}, started_at=HEADER.started_at
    )

    with pytest.raises(LedgerError, match=r"workload_digests was .*abc.*, now it is .*other"):
        Ledger.resume(tmp_path / "run", changed)


def test_folder_in_use_is_refused(tmp_path: Path) -> None:
    """A second run into the same folder would mix two nights; the message names the way to continue."""
    Ledger.create(tmp_path / "run", HEADER)

    with pytest.raises(LedgerError, match="--resume"):
        Ledger.create(tmp_path / "run", HEADER)


def test_foreign_line_is_named(tmp_path: Path) -> None:
    """A whole line that is no cell is named with file and line number, not skipped."""
    Ledger.create(tmp_path / "run", HEADER).append(CELL)
    with (tmp_path / "run" / CELLS).open("ab") as file:
        file.write(b'{"hello": 1}\n')

    with pytest.raises(LedgerError, match=r"cells\.jsonl:2: not a cell of ours"):
        Ledger.resume(tmp_path / "run", HEADER)


def test_missing_cells_are_known_by_key(tmp_path: Path) -> None:
    """What was expected and not measured is listed."""
    ledger = Ledger.create(tmp_path / "run", HEADER)
    ledger.append(CELL)

    assert ledger.missing([CELL.key, ("short", "eagle3", 2, 4)]) == [("short", "eagle3", 2, 4)]
