"""Cells measured on a scripted server: another process, a real socket, a known step law."""

import asyncio
import re
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import httpx
import pytest

from fixtures.analysis.validity import Limits
from fixtures.engines import ServerError
from fixtures.load.cell import Attempt, Place, attempt
from fixtures.load.loop import Work
from fixtures.load.prompts import Shape
from tests.unit.scripted import SERVER, Scripted

SHAPE = Shape(
    prompt_tokens=4, output_tokens=24, output_spread=0.25, vocabulary=1000, temperature=0, stream_interval=1, seed=7
)
SHORT_REQUESTS = Limits(in_flight_deficit=0.1, coalesced_share=0.6, queued_share=0.25, client_cpu_share=1.0)
"""A request of 0.1 s and a busy machine: a millisecond between two requests is a per cent, and reads come late."""


@pytest.fixture
def start() -> Iterator[Callable[..., subprocess.Popen[str]]]:
    """Return the function that starts a scripted server; all of them are gone afterwards."""
    started: list[subprocess.Popen[str]] = []

    def begin(*options: str) -> subprocess.Popen[str]:
        process = subprocess.Popen([sys.executable, str(SERVER), *options], stdout=subprocess.PIPE, text=True)
        started.append(process)
        return process

    yield begin
    for process in started:
        process.kill()
        process.wait()
        assert process.stdout
        process.stdout.close()


def measure(
    server: subprocess.Popen[str], concurrency: int, *, stall_s: float = 5, engine: Scripted | None = None, **more: Any
) -> Attempt:
    """Measure one cell of the scripted server; *more* is of its `Work`."""
    assert server.stdout
    port = int(server.stdout.readline())

    def watch() -> None:
        if server.poll() is not None:
            raise ServerError(f"server died: exit status {server.returncode}")

    place = Place(
        engine=engine or Scripted(),
        base_url=f"http://127.0.0.1:{port}",
        stall_s=stall_s,
        watch=watch,
        progress=lambda _done, _needed: None,
        limits=SHORT_REQUESTS,
    )
    work = Work(concurrency=concurrency, **{"k": 2, "rounds": 2, "cap_s": 20, **more})
    return asyncio.run(attempt(place, SHAPE, work))


def test_healthy_cell_counts(start: Callable[..., subprocess.Popen[str]]) -> None:
    """Every window is there, every request succeeded, the loop was full and the server ran all of it."""
    cell = measure(start(), concurrency=8)

    assert cell.reasons == ()
    assert [w.requests_completed for w in cell.windows] == [16, 16]
    assert max(w.running_max or 0 for w in cell.windows) == 8


@pytest.mark.parametrize("stream", [True, False], ids=["streamed", "whole"])
def test_cell_is_counted_by_ends_when_it_ran_to_them(start: Callable[..., subprocess.Popen[str]], stream: bool) -> None:
    """Streamed or whole, the same requests give windows by ends; a whole reply may be silent for its whole time."""
    cell = measure(start("--step-ms", "8"), concurrency=8, stream=stream, to_the_end=True, stall_s=0.15)

    assert cell.reasons == ()
    assert [w.requests_completed for w in cell.at_ends] == [16, 16]
    # A step of 8 + 8 × 0.05 ms gives 8 tokens.
    assert sum(w.output_tokens for w in cell.at_ends) / sum(w.seconds for w in cell.at_ends) == pytest.approx(
        952, rel=0.2
    )


@pytest.mark.parametrize(
    ("options", "reason"),
    [
        (["--fault", "error", "--after", "20"], "in-band error: KV cache pool is full"),
        (["--fault", "cut", "--after", "20"], "the server closed the connection"),
        (["--fault", "abort", "--after", "20"], "aborted by the server"),
        (["--fault", "503", "--after", "20"], "HTTP 503"),
        (["--fault", "die", "--after", "20"], "server died: exit status 9|closed the connection|connection broke"),
        (["--fault", "mute", "--after", "20"], "ReadTimeout"),
        (["--cap", "5"], "capped: the server never ran more than 5 of 8 requests at once"),
    ],
    ids=["error in a stream", "cut stream", "abort", "503", "death", "silence", "running cap"],
)
def test_fault_is_a_named_reason(start: Callable[..., subprocess.Popen[str]], options: list[str], reason: str) -> None:
    """A server that fails is a named reason why the cell does not count, never a number that does."""
    cell = measure(start(*options), concurrency=8, stall_s=0.5)

    assert cell.reasons
    assert re.search(reason, " ".join(cell.reasons))


class Miscounting(Scripted):
    """An engine whose server says that it generated 7 tokens between any two questions."""

    asked = 0

    async def totals(self, client: httpx.AsyncClient) -> Mapping[str, float]:
        self.asked += 1
        return {"generated_tokens": 7.0 * self.asked}


def test_counters_of_the_server_are_kept_and_checked(start: Callable[..., subprocess.Popen[str]]) -> None:
    """They are asked for twice in a cell; one that contradicts the client makes it invalid."""
    engine = Miscounting()
    cell = measure(start(), concurrency=8, engine=engine)

    assert engine.asked == 2
    assert cell.counters == {"generated_tokens": 7.0}
    assert re.fullmatch("counters: the server generated 7 tokens, .*", " ".join(cell.reasons))


def test_cell_has_a_hard_cap(start: Callable[..., subprocess.Popen[str]]) -> None:
    """A server that is merely hopeless costs the cap and not the night."""
    cell = measure(start("--step-ms", "400"), concurrency=2, cap_s=1.0)

    assert cell.windows == ()
    assert cell.reasons == ("the cell took longer than its cap of 1 s",)


STARTS = {
    "lock-step": [0.0] * 8,
    "evenly staggered": [0.008 * i for i in range(8)],
    "at random": [0.061, 0.002, 0.033, 0.047, 0.018, 0.005, 0.054, 0.029],
}


def test_every_start_gives_one_throughput(start: Callable[..., subprocess.Popen[str]]) -> None:
    """Lock-step, evenly staggered and random starts measure the same server alike: drawn lengths forget the start."""
    found = {}
    for name, offsets in STARTS.items():
        cell = measure(start(), concurrency=8, start_offsets_s=offsets, k=4, rounds=3)
        assert cell.reasons == (), name
        found[name] = sum(w.output_tokens for w in cell.windows) / sum(w.seconds for w in cell.windows)

    assert max(found.values()) / min(found.values()) < 1.06, found
