"""The benchmark of the load generator: its arithmetic, and that each goal can be missed."""

import sys
from pathlib import Path

import numpy as np
import pytest

from tests.perf.client_accuracy import sglang_clients
from tests.perf.client_accuracy.accuracy import Run, errors, joined, placed
from tests.perf.client_accuracy.goals import judge
from tests.perf.client_accuracy.sglang_clients import INSTALL, PYTHON, RUST, account, missing
from tests.perf.client_accuracy.table import as_markdown

MS = 1_000_000


def run(*, late_ms: tuple[int, ...] = (0, 0, 0, 0), sent_ms: int = 0) -> Run:
    """Two requests of two events each, 20 ms apart at the server, received late by *late_ms*; rows out of order."""
    server = [(1, 10, 30), (0, 10, 30), (0, 10, 50), (1, 10, 50)]
    rows = [
        (request, sent_ms * MS, (sent + late) * MS, arrived * MS, sent * MS)
        for (request, arrived, sent), late in zip(server, late_ms, strict=True)
    ]
    return Run(cpu_s=4e-5, wall_s=1e-4, events=np.array(rows, dtype=np.int64), tokens=4)


def test_a_perfect_client_has_no_errors() -> None:
    """Stamps equal to the server's: nothing late, nothing off, and the rate is tokens over the server's own time."""
    found = errors(run(sent_ms=10))
    assert (found.late_ms_p99, found.itl_error_ms_p99, found.ttft_error_ms_p50, found.throughput_error) == (0, 0, 0, 0)
    assert [found.tok_s, found.cpu_us_per_event, found.cpu_share] == pytest.approx([100.0, 10.0, 0.4])


def test_late_stamps_and_early_sends_are_errors() -> None:
    """A request stamped 10 ms before it arrived overstates TTFT by 10 ms and understates 40 ms of work by a fifth."""
    found = errors(run(sent_ms=0))
    assert found.ttft_error_ms_p50 == 10.0
    assert found.throughput_error == pytest.approx(-0.2)


def test_an_interval_error_needs_a_change_of_lateness() -> None:
    """Events that are all late by the same time have right gaps; one late event has one wrong gap."""
    assert errors(run(sent_ms=10, late_ms=(3, 3, 3, 3))).itl_error_ms_p99 == 0.0
    assert errors(run(sent_ms=10, late_ms=(0, 0, 4, 0))).itl_error_ms_p50 == 2.0


LOG = np.array(
    [
        (number, arrived * MS, sent * MS, tokens)
        for number, arrived, sent, tokens in [(0, 10, 30, 1), (1, 12, 30, 1), (0, 10, 50, 3), (1, 12, 50, 3)]
    ],
    dtype=np.int64,
)
"""What a server logs of two requests: one token, then two more 20 ms later."""


def test_stamps_are_joined_with_the_servers() -> None:
    """Each row of the client gets the arrival and the sending of its own event, whatever the order of either."""
    rows = np.array([(1, 11, 31, 1), (1, 11, 51, 3), (0, 9, 52, 3), (0, 9, 32, 1)], dtype=np.int64)

    assert joined(rows, LOG).tolist() == [
        [0, 9, 32, 10 * MS, 30 * MS],
        [0, 9, 52, 10 * MS, 50 * MS],
        [1, 11, 31, 12 * MS, 30 * MS],
        [1, 11, 51, 12 * MS, 50 * MS],
    ]


def test_a_lost_event_is_not_joined_away() -> None:
    """A client that has not seen all that was sent has no errors to speak of: its run does not count."""
    with pytest.raises(ValueError, match="the client tells of 3 events, the server of 4"):
        joined(LOG[:3], LOG)


def told(*gaps_s: float) -> list[dict[str, object]]:
    """Return what a client tells of the requests of `LOG`: exact TTFTs, and *gaps_s* of each."""
    return [{"number": n, "ttft_s": ttft_s, "gaps_s": gaps_s} for n, ttft_s in ((1, 0.018), (0, 0.020))]


@pytest.mark.parametrize("gaps_s", [(0.020,), (0.010, 0.010)], ids=["one an event", "one a token"])
def test_gaps_are_held_against_the_servers(gaps_s: tuple[float, ...]) -> None:
    """True gaps and TTFTs have no error, however the client spreads them; when bytes came it does not say."""
    found = errors(Run(cpu_s=1, wall_s=1, events=placed(told(*gaps_s), LOG), tokens=6, told_s=0.050))

    assert [found.itl_error_ms_p99, found.ttft_error_ms_p50] == pytest.approx([0, 0], abs=1e-6)
    assert found.throughput_error == pytest.approx(-0.2)
    assert found.late_ms_p99 is None


def test_a_wrong_gap_is_an_error() -> None:
    """A gap told 3 ms too long is wrong by 3 ms."""
    found = errors(Run(cpu_s=1, wall_s=1, events=placed(told(0.023), LOG), tokens=6, told_s=0.050))

    assert found.itl_error_ms_p50 == pytest.approx(3.0)


@pytest.mark.parametrize(
    ("requests", "problem"),
    [(told(0.02)[:1], "of 1 requests, the server of 2"), (told(0.01, 0.01, 0.01), "3 gaps between 2 events")],
    ids=["request", "gap"],
)
def test_what_the_server_does_not_know_is_not_placed(requests: list[dict[str, object]], problem: str) -> None:
    """A client that tells of other requests or events than the server made has no errors to speak of."""
    with pytest.raises(ValueError, match=problem):
        placed(requests, LOG)


def test_a_client_of_sglang_tells_of_each_request() -> None:
    """The text begins with the number that the server gave the request; a failed one ends the run."""
    columns = {"generated_texts": ["0000001200000012"], "ttfts": [0.02], "itls": [[0.01]], "errors": [""]}

    assert [*account(columns)] == [{"number": 12, "ttft_s": 0.02, "gaps_s": [0.01]}]
    with pytest.raises(ValueError, match="a request failed: reset"):
        [*account(columns | {"errors": ["reset"]})]


def test_without_sglang_both_its_clients_are_missing(monkeypatch: pytest.MonkeyPatch) -> None:
    """What is not installed is said, with the command that installs it."""
    monkeypatch.setitem(sys.modules, "sglang", None)

    assert [missing(RUST), missing(PYTHON)] == [f"sglang is not installed: {INSTALL}"] * 2


def test_sglang_is_looked_at_without_importing_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A build without the extension lacks the Rust client only; importing sglang would bring torch."""
    (tmp_path / "sglang").mkdir()
    (tmp_path / "sglang" / "__init__.py").write_text("raise AssertionError('imported')")
    monkeypatch.syspath_prepend(tmp_path)

    assert missing(PYTHON) is None
    assert missing(RUST) == f"this build of sglang has no Rust client: {INSTALL}"


def test_tox_installs_the_version_that_was_seen() -> None:
    """The command that a message names is the one that tox runs."""
    tox = (Path(__file__).parents[2] / "tox.ini").read_text()

    assert f"python -m {sglang_clients.INSTALL}\n" in tox


def test_a_client_that_is_not_installed_has_a_row() -> None:
    """The table names what could not run, and has a dash for what a client does not tell."""
    table = as_markdown([ROW | {"late_ms_p50": None}, {"scenario": "x", "client": RUST, "not_installed": "no wheel"}])

    assert "| ours | 9.0 | 1.5 | 10% | – |" in table
    assert f"| {RUST} | not installed | – |" in table


SOUND = {
    "client": "ours",
    "scenario": "C=250, 20 ms a token, /generate",
    "interval_ms": 20.0,
    "cpu_us_per_event": 9.0,
    "cpu_over_limit": 1.5,
    "itl_error_ms_p99": 0.004,
    "ttft_error_ms_p50": 0.006,
    "throughput_error": -0.00001,
    "achieved": 0.999,
}
ROW = SOUND | {
    "rounds": 3,
    "cpu_share": 0.1,
    "late_ms_p99": 0.01,
    "itl_error_ms_p50": 0.001,
    "coalesced_share": 0.0,
}
RUSTS = SOUND | {
    "client": RUST,
    "cpu_us_per_event": 9.5,
    "itl_error_ms_p99": 0.8,
    "throughput_error": 0.002,
}
WORSE = {
    "cpu_over_limit": 2.1,
    "itl_error_ms_p99": 0.03,
    "ttft_error_ms_p50": -0.2,
    "throughput_error": -0.01,
    "achieved": 0.99,
}


def test_a_sound_client_meets_every_goal() -> None:
    """Figures on the right side of all limits miss nothing."""
    assert [goal.met for goal in judge([SOUND, RUSTS])] == [True] * 8


@pytest.mark.parametrize("figure", WORSE)
def test_each_goal_can_be_missed(figure: str) -> None:
    """A worse figure misses its own goal and no other, in either direction of error."""
    missed = [goal for goal in judge([SOUND | {figure: WORSE[figure]}, RUSTS]) if not goal.met]
    own = [goal for goal in missed if "Rust" not in goal.what]
    assert len(own) == 1
    assert all(goal.line.startswith("MISSED") for goal in missed)


@pytest.mark.parametrize(
    ("figure", "rusts"), [("cpu_us_per_event", 8.9), ("itl_error_ms_p99", 0.003), ("throughput_error", -0.000005)]
)
def test_a_better_rust_client_is_a_missed_goal(figure: str, rusts: float) -> None:
    """Where SGLang's Rust client is ahead, that goal is missed and no other."""
    missed = [goal for goal in judge([SOUND, RUSTS | {figure: rusts}]) if not goal.met]
    assert len(missed) == 1
    assert "Rust" in missed[0].line


@pytest.mark.parametrize(
    "others",
    [(), ({"client": RUST, "scenario": SOUND["scenario"], "not_installed": "no wheel"},)],
    ids=["left out", "not installed"],
)
def test_a_goal_without_the_rust_client_is_not_measured(others: tuple[dict[str, object], ...]) -> None:
    """What was not measured is not met, and says which it is."""
    left = [goal for goal in judge([SOUND, *others]) if not goal.met]
    assert [goal.line.split(" against")[0].split(",")[0] for goal in left] == [
        "NOT MEASURED throughput error",
        "NOT MEASURED ITL error p99",
        "NOT MEASURED CPU per event",
    ]
