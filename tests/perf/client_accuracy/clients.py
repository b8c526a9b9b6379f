"""The clients that are compared, each in a process of its own: `clients NAME PORT CONCURRENCY TOKENS WAVES PATH`.

Each keeps CONCURRENCY streams in flight until CONCURRENCY x WAVES requests are done, and writes one line of JSON and
then the stamps of every event, as `accuracy.Run` has them. Our own keeps what the suite's readers keep, no more, and
writes number, sent, received and tokens so far of each event, for `accuracy.joined`.
"""

import asyncio
import contextlib
import gc
import importlib
import json
import sys
import time
from collections.abc import Awaitable, Callable, Coroutine, Iterator
from dataclasses import dataclass, field
from typing import Any

import httpx
import numpy as np

from fixtures.load.openai_reader import OpenAIReader
from fixtures.load.sglang_reader import SGLangReader
from fixtures.load.transport import open_transport

ID_FIELD, TEXT_FIELD = b'"id":"', b'"text":"'

NUMBER_DIGITS = 8
"""The paced server's text begins with the number that it gave the request."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Job:
    """What a client is asked to do."""

    port: int
    concurrency: int
    tokens: int
    waves: int
    path: str

    @property
    def url(self) -> str:
        """The server's root."""
        return f"http://127.0.0.1:{self.port}"

    @property
    def body(self) -> bytes:
        """The request, encoded."""
        if self.path == "/generate":
            asked: dict[str, Any] = {"text": "0" * 512, "sampling_params": {"max_new_tokens": self.tokens}}
        else:
            asked = {"prompt": "0" * 512, "max_tokens": self.tokens}
        return json.dumps(asked | {"stream": True}).encode()


@dataclass(slots=True)
class Took:
    """What one request left behind: raw pieces of the body with their stamps, decoded after the run."""

    sent_ns: int = 0
    pieces: list[tuple[int, bytes]] = field(default_factory=list)
    reader: SGLangReader | OpenAIReader | None = None
    """In place of the pieces, where the suite's own readers took them."""

    def events(self, number: int) -> Iterator[tuple[int, ...]]:
        """Yield a row of stamps for each event; an event's stamp is that of its last piece."""
        if self.reader:
            number = int(self.reader.head.partition(TEXT_FIELD)[2][:NUMBER_DIGITS])
            yield from ((number, self.sent_ns, stamp, tokens) for stamp, tokens in self.reader.events)
        rest = b""
        for stamp, piece in self.pieces:
            *whole, rest = (rest + piece).split(b"\n\n")
            for event in whole:
                at = event.find(ID_FIELD) + len(ID_FIELD)
                if at >= len(ID_FIELD):
                    yield number, self.sent_ns, stamp, int(event[at : at + 16]), int(event[at + 16 : at + 32])


Client = Callable[[Job], Coroutine[Any, Any, tuple[list[Took], dict[str, Any]]]]
CLIENTS: dict[str, Client] = {}


def client(name: str) -> Callable[[Client], Client]:
    """Register a client under *name*."""

    def register(run: Client) -> Client:
        CLIENTS[name] = run
        return run

    return register


@contextlib.contextmanager
def _measured() -> Iterator[dict[str, Any]]:
    """Fill in the CPU and wall seconds of the block, without the garbage collector in it."""
    used: dict[str, Any] = {}
    gc.collect()
    gc.freeze()
    gc.disable()
    wall, cpu = time.perf_counter(), time.process_time()
    yield used
    used |= {"cpu_s": time.process_time() - cpu, "wall_s": time.perf_counter() - wall}


async def _work(job: Job, workers: int, one: Callable[[Took], Awaitable[None]]) -> list[Took]:
    """Let *workers* workers do all requests of *job*."""
    done: list[Took] = []
    places = iter(range(job.concurrency * job.waves))

    async def worker() -> None:
        for _ in places:
            took = Took()
            done.append(took)
            await one(took)

    async with asyncio.TaskGroup() as group:
        for _ in range(min(workers, job.concurrency * job.waves)):
            group.create_task(worker())
    return done


def _ours(*, ahead: int) -> Client:
    """Run the suite's transport and readers, *ahead* requests a stream encoded and in line before their turn."""

    async def run(job: Job) -> tuple[list[Took], dict[str, Any]]:
        transport = open_transport(job.url, connections=job.concurrency, connect_s=10, first_byte_s=60, stall_s=60)
        kind = SGLangReader if job.path == "/generate" else OpenAIReader
        url, headers = httpx.URL(job.url + job.path), {"content-type": "application/json"}
        async with transport:

            async def one(took: Took) -> None:
                took.reader = reader = kind(job.tokens)
                request = httpx.Request("POST", url, content=job.body, headers=headers)
                request.extensions["reader"] = reader
                response = await transport.handle_async_request(request)
                took.sent_ns = response.extensions["sent_ns"]
                failure = reader.close().failure
                assert failure is None, failure

            await transport.connect(job.concurrency)
            with _measured() as used:
                done = await _work(job, job.concurrency * (1 + ahead), one)
        readers = [took.reader for took in done if took.reader]
        share = sum(reader.coalesced for reader in readers) / sum(reader.reads for reader in readers)
        return done, used | {"clock": transport.clock, "coalesced_share": share}

    return run


CLIENTS["ours"] = _ours(ahead=1)
CLIENTS["ours, none ahead"] = _ours(ahead=0)


@client("httpx")
async def _httpx(job: Job) -> tuple[list[Took], dict[str, Any]]:
    """Stock httpx with room for all connections, stamped as chunks come out of it."""
    limits = httpx.Limits(max_connections=None, max_keepalive_connections=None)
    async with httpx.AsyncClient(base_url=job.url, limits=limits, timeout=None, trust_env=False) as http:

        async def one(took: Took) -> None:
            took.sent_ns = time.monotonic_ns()
            async with http.stream("POST", job.path, content=job.body) as response:
                async for piece in response.aiter_raw():
                    took.pieces.append((time.monotonic_ns(), piece))

        with _measured() as used:
            return await _work(job, job.concurrency, one), used


@client("aiohttp")
async def _aiohttp(job: Job) -> tuple[list[Took], dict[str, Any]]:
    """Run aiohttp without a limit of connections, stamped as chunks come out of it."""
    aiohttp = importlib.import_module("aiohttp")  # in the benchmark's environment only

    connector = aiohttp.TCPConnector(limit=0)
    async with aiohttp.ClientSession(job.url, connector=connector, timeout=aiohttp.ClientTimeout(total=None)) as http:

        async def one(took: Took) -> None:
            took.sent_ns = time.monotonic_ns()
            async with http.post(job.path, data=job.body) as response:
                async for piece in response.content.iter_any():
                    took.pieces.append((time.monotonic_ns(), piece))

        with _measured() as used:
            return await _work(job, job.concurrency, one), used


def main() -> None:
    """Run one client, and write what it saw."""
    name, *numbers, path = sys.argv[1:]
    port, concurrency, tokens, waves = map(int, numbers)
    job = Job(port=port, concurrency=concurrency, tokens=tokens, waves=waves, path=path)
    done, used = asyncio.run(CLIENTS[name](job))
    rows = [row for number, took in enumerate(done) for row in took.events(number)]
    sys.stdout.buffer.write(json.dumps(used).encode() + b"\n" + np.array(rows, dtype=np.int64).tobytes())


if __name__ == "__main__":
    main()
