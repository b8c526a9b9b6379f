"""The transport against a server with every awkward habit, in another process on a real socket."""

import asyncio
import contextlib
import select
import subprocess
import sys
import time
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest

from fixtures.load.deadlines import Deadlines
from fixtures.load.fallback import EventLoopTransport
from fixtures.load.sglang_reader import SGLangReader
from fixtures.load.transport import StampedTransport, open_transport

SERVER = Path(__file__).parent / "servers" / "awkward.py"
TOKENS = 5
LONG_S = 30.0


@pytest.fixture(scope="module")
def url() -> Iterator[str]:
    """Return the root of the awkward server."""
    with subprocess.Popen([sys.executable, str(SERVER)], stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        try:
            yield f"http://127.0.0.1:{process.stdout.readline().strip()}"
        finally:
            process.kill()


@contextlib.asynccontextmanager
async def opened(url: str, *, kind: str = "stamped", **options: float) -> AsyncIterator[httpx.AsyncClient]:
    """Give a client over the transport of *kind*, with deadlines as in `Deadlines`."""
    wanted: dict[str, Any] = {
        "connections": 4,
        "connect_s": LONG_S,
        "first_byte_s": LONG_S,
        "stall_s": LONG_S,
    } | options
    connections = int(wanted.pop("connections"))
    transport: StampedTransport | EventLoopTransport
    if kind == "event loop":
        transport = EventLoopTransport(connections=connections, deadlines=Deadlines(**wanted))
    else:
        transport = open_transport(url, connections=connections, **wanted)
    async with httpx.AsyncClient(transport=transport, base_url=url, timeout=None, trust_env=False) as client:
        yield client


def ask(client: httpx.AsyncClient, path: str, body: bytes = b"{}") -> tuple[httpx.Request, SGLangReader]:
    """Return a streamed request and its reader."""
    request, reader = client.build_request("POST", path, content=body), SGLangReader(TOKENS)
    request.extensions["reader"] = reader
    return request, reader


async def seen(url: str) -> dict[str, Any]:
    """Ask the server what it saw, over another connection."""
    async with httpx.AsyncClient(base_url=url, trust_env=False) as other:
        found: dict[str, Any] = (await other.get("/seen")).json()
        return found


def stamped(client: httpx.AsyncClient) -> StampedTransport:
    """Return the transport of *client*."""
    transport = client._transport
    assert isinstance(transport, StampedTransport)
    return transport


both = pytest.mark.parametrize("kind", ["stamped", "event loop"])


@pytest.mark.asyncio
@both
@pytest.mark.parametrize("path", ["/stream", "/burst", "/drip", "/until-closed"])
async def test_a_stream_is_read_whole_however_it_is_cut(url: str, kind: str, path: str) -> None:
    """Segments, chunks and the kind of ending change neither the tokens nor the success."""
    async with opened(url, kind=kind) as client:
        request, reader = ask(client, path)
        response = await client.send(request)
        reply = reader.close()
    assert (reply.completion_tokens, reply.failure, response.content) == (TOKENS, None, b"")
    assert [tokens for _, tokens in reader.events] == [1, 2, 3, 4, 5]


@pytest.mark.asyncio
@both
async def test_stamps_are_in_order_on_the_monotonic_clock(url: str, kind: str) -> None:
    """Sent, events, end: all between two readings of `time.monotonic_ns` around the request, and rising."""
    async with opened(url, kind=kind) as client:
        before = time.monotonic_ns()
        request, reader = ask(client, "/stream")
        response = await client.send(request)
        after = time.monotonic_ns()
    sent, ended = response.extensions["sent_ns"], response.extensions["ended_ns"]
    stamps = [before, sent, *(stamp for stamp, _ in reader.events), ended, after]
    assert stamps == sorted(stamps)
    assert request.extensions["sent_ns"] == sent


@pytest.mark.asyncio
async def test_events_in_one_segment_are_counted_as_coalesced(url: str) -> None:
    """A read that held five steps is one coalesced read; steps that came apart are none."""
    async with opened(url) as client:
        burst, together = ask(client, "/burst")
        stream, apart = ask(client, "/stream")
        await client.send(burst)
        await client.send(stream)
    assert (together.coalesced, apart.coalesced) == (1, 0)


@pytest.mark.asyncio
async def test_connections_are_opened_ahead_and_kept(url: str) -> None:
    """Twelve streams over three connections use the three that were opened before the first."""
    async with opened(url, connections=3) as client:
        before = (await seen(url))["accepted"]
        await stamped(client).connect(3)
        await asyncio.gather(*(client.send(ask(client, "/stream")[0]) for _ in range(12)))
        after = (await seen(url))["accepted"]
    assert after - before == 3 + 1  # the one that asks what was seen


@pytest.mark.asyncio
async def test_streams_beyond_the_limit_wait_in_line(url: str) -> None:
    """With two places, the third stream is sent when one of the first two has ended, not before."""
    async with opened(url, connections=2) as client:
        wires = [ask(client, "/stream")[0] for _ in range(3)]
        first, second, third = await asyncio.gather(*(client.send(wire) for wire in wires))
    ended = min(first.extensions["ended_ns"], second.extensions["ended_ns"])
    assert third.extensions["sent_ns"] >= ended


@pytest.mark.asyncio
async def test_plain_requests_never_wait_in_line(url: str) -> None:
    """The server's counters can be asked for while all places are taken."""
    async with opened(url, connections=1) as client:
        busy = asyncio.create_task(client.send(ask(client, "/stall")[0]))
        async with asyncio.timeout(LONG_S):
            answer = await client.post("/echo", content=b"12345")
        busy.cancel()
        await asyncio.gather(busy, return_exceptions=True)
    assert answer.text == "5"


@pytest.mark.asyncio
@both
async def test_a_refusal_is_a_response_with_its_body(url: str, kind: str) -> None:
    """Another status than 200 feeds nothing to the reader, and the body says why."""
    async with opened(url, kind=kind) as client:
        request, reader = ask(client, "/refuse")
        response = await client.send(request)
    assert (response.status_code, response.json()["error"]) == (503, "the queue is full")
    assert reader.reads == 0


@pytest.mark.asyncio
async def test_an_interim_reply_is_not_the_reply(url: str) -> None:
    """A 100 is followed by the reply that counts."""
    async with opened(url) as client:
        assert (await client.post("/continue")).text == "after all"


@pytest.mark.asyncio
async def test_a_reply_to_head_has_no_body_to_wait_for(url: str) -> None:
    """The length of a HEAD reply is that of the body a GET would have had."""
    async with opened(url) as client:
        assert (await client.head("/headless")).headers["content-length"] == "5"


@pytest.mark.asyncio
async def test_a_request_larger_than_the_socket_leaves_in_parts(url: str) -> None:
    """A server that is slow to read gets all 16 MiB, though the socket did not take them at once."""
    async with opened(url) as client:
        assert (await client.post("/slow-reader", content=bytes(16 << 20))).text == str(16 << 20)
        assert (await client.post("/echo", content=b"and then a small one")).text == "20"


@pytest.mark.asyncio
@pytest.mark.parametrize("path", ["/leave", "/say-close"])
async def test_a_connection_that_the_server_has_left_is_not_used(url: str, path: str) -> None:
    """After a reply with whose end the server closed, announced or not, the next request gets another connection."""
    async with opened(url) as client:
        await client.get(path)
        await asyncio.sleep(0.05)
        assert (await client.post("/echo", content=b"12")).text == "2"


@pytest.mark.asyncio
async def test_a_request_that_asks_to_close_is_the_last_on_its_connection(url: str) -> None:
    """Servers say keep-alive and close all the same: what was asked for decides, and nobody in line is lost."""
    async with opened(url, connections=1) as client:
        client.headers["connection"] = "close"
        before = (await seen(url))["accepted"]
        replies = await asyncio.gather(*(client.send(ask(client, "/stream")[0]) for _ in range(3)))
        after = (await seen(url))["accepted"]
    assert [reply.status_code for reply in replies] == [200] * 3
    assert after - before == 3 + 1


@pytest.mark.asyncio
async def test_a_server_that_breaks_its_promise_is_told_apart(url: str) -> None:
    """A request that had left is not sent twice; the error names the remedy."""
    async with opened(url) as client:
        await client.get("/break-promise")
        with pytest.raises(httpx.RemoteProtocolError, match="send it 'connection: close'"):
            await client.post("/echo", content=b"12")


@pytest.mark.asyncio
async def test_a_stale_connection_is_found_before_a_byte_is_sent(url: str) -> None:
    """A closing that the event loop has not told of yet is seen at the socket itself: nothing is sent twice."""
    async with opened(url) as client:
        before = (await seen(url))["requests"].get("/echo", 0)
        await client.get("/leave")
        time.sleep(0.05)  # noqa: ASYNC251 - the loop must not run in between
        assert (await client.post("/echo", content=b"12")).text == "2"
        assert (await seen(url))["requests"]["/echo"] == before + 1


@pytest.mark.asyncio
async def test_a_request_that_could_not_leave_is_sent_once_more(url: str) -> None:
    """A connection that dies between its choice and the first byte costs a retry on a fresh one, and it is counted."""
    async with opened(url, connections=1) as client:
        transport = stamped(client)
        await transport.connect(1)
        connection = transport.pool._idle[0]
        sending = asyncio.create_task(client.send(ask(client, "/stream")[0]))
        await asyncio.sleep(0)
        connection.socket.shutdown(1)
        response = await sending
        assert (response.status_code, transport.pool.retries) == (200, 1)


FAILURES = {
    "mute": ("/mute", httpx.ReadTimeout, "no byte of the reply's body within 0.2 s"),
    "head only": ("/head-only", httpx.ReadTimeout, "no byte of the reply's body within 0.2 s"),
    "stall": ("/stall", httpx.ReadTimeout, "stalled: nothing for 0.2 s after 2 token events"),
    "cut": ("/cut", httpx.RemoteProtocolError, "closed the connection after 2 token events"),
    "reset": ("/reset", httpx.ReadError, "reset by peer"),
    "garbage": ("/garbage", httpx.RemoteProtocolError, "not HTTP/1.1"),
}


@pytest.mark.asyncio
@pytest.mark.parametrize(("path", "kind", "words"), FAILURES.values(), ids=FAILURES)
async def test_a_broken_reply_is_named(url: str, path: str, kind: type[Exception], words: str) -> None:
    """Each way to break a reply has its own error, the request's send stamp stays, and the place is free again."""
    async with opened(url, connections=1, first_byte_s=0.2, stall_s=0.2) as client:
        request, _ = ask(client, path)
        with pytest.raises(kind, match=words):
            await client.send(request)
        assert request.extensions["sent_ns"] > 0
        request, reader = ask(client, "/stream")
        await client.send(request)
        assert reader.close().failure is None


@pytest.mark.asyncio
@pytest.mark.parametrize(("path", "words"), [("/mute", "no byte"), ("/stall", "stalled")])
async def test_the_fallback_keeps_the_deadlines_too(url: str, path: str, words: str) -> None:
    """The transport of httpx is given the same deadlines."""
    async with opened(url, kind="event loop", connect_s=0.1, first_byte_s=0.2, stall_s=0.2) as client:
        with pytest.raises(httpx.ReadTimeout, match=words):
            await client.send(ask(client, path)[0])


@pytest.mark.asyncio
async def test_a_reader_that_fails_ends_its_own_request_only(url: str) -> None:
    """A mistake in a reader comes out of its own `send`; a stream beside it is read to its end."""

    class Mistaken(SGLangReader):
        def feed(self, stamp_ns: int, data: bytes) -> None:
            raise ZeroDivisionError

    async with opened(url) as client:
        wrong, right = ask(client, "/stream")[0], ask(client, "/stream")
        wrong.extensions["reader"] = Mistaken(TOKENS)
        outcomes = await asyncio.gather(client.send(wrong), client.send(right[0]), return_exceptions=True)
    assert isinstance(outcomes[0], ZeroDivisionError)
    assert right[1].close().failure is None


@pytest.mark.asyncio
@both
@pytest.mark.parametrize("path", ["/stall", "/mute"])
async def test_a_cancelled_request_leaves_the_server_at_once(url: str, kind: str, path: str) -> None:
    """The server sees the client go, the events so far stay, and the place is free for another."""
    async with opened(url, kind=kind, connections=1) as client:
        before = (await seen(url))["left"].count(path)
        request, reader = ask(client, path)
        sending = asyncio.create_task(client.send(request))
        async with asyncio.timeout(LONG_S):
            while "sent_ns" not in request.extensions or (path == "/stall" and not reader.events):
                await asyncio.sleep(0.005)
            sending.cancel()
            await asyncio.gather(sending, return_exceptions=True)
            while (await seen(url))["left"].count(path) == before:
                await asyncio.sleep(0.005)
        assert [tokens for _, tokens in reader.events] == ([1, 2] if path == "/stall" else [])
        assert (await client.send(ask(client, "/stream")[0])).status_code == 200


@pytest.mark.asyncio
async def test_a_request_cancelled_in_line_is_never_sent(url: str) -> None:
    """Who leaves the line costs no place, and the next in line is served."""
    async with opened(url, connections=1) as client:
        before = (await seen(url))["requests"].get("/mute", 0)
        first = asyncio.create_task(client.send(ask(client, "/stream")[0]))
        await asyncio.sleep(0)
        waiting = asyncio.create_task(client.send(ask(client, "/mute")[0]))
        last = asyncio.create_task(client.send(ask(client, "/stream")[0]))
        await asyncio.sleep(0)
        waiting.cancel()
        assert [(await task).status_code for task in (first, last)] == [200, 200]
        assert (await seen(url))["requests"].get("/mute", 0) == before


@pytest.mark.asyncio
async def test_a_closed_transport_ends_what_was_under_way(url: str) -> None:
    """Closing the client fails the request in flight instead of leaving its task for ever."""
    async with opened(url) as client:
        request, reader = ask(client, "/stall")
        sending = asyncio.create_task(client.send(request))
        while not reader.events:
            await asyncio.sleep(0.005)
    with pytest.raises(httpx.ReadError, match="the transport was closed after 2 token events"):
        await sending


@pytest.mark.asyncio
async def test_a_closed_transport_ends_what_had_not_begun(url: str) -> None:
    """Closing it also fails who waits in line, who is about to be sent, and who is still connecting."""
    async with opened(url, connections=2) as client:
        transport = stamped(client)
        await transport.connect(1)
        tasks = [asyncio.create_task(client.send(ask(client, "/stream")[0])) for _ in range(4)]
        await asyncio.sleep(0)
        await transport.aclose()
        outcomes = await asyncio.gather(*tasks, return_exceptions=True)
    assert [type(outcome) for outcome in outcomes] == [httpx.ReadError] * 4


@pytest.mark.asyncio
async def test_a_step_of_the_wall_clock_is_followed(url: str) -> None:
    """The kernel stamps on the wall clock; when somebody sets it during a run, the offset is taken anew."""
    async with opened(url) as client:
        transport = stamped(client)
        await transport.connect(1)
        kept = transport.pool.clock.offset_ns
        transport.pool.clock.offset_ns += 10**12
        async with asyncio.timeout(LONG_S):
            while abs(transport.pool.clock.offset_ns - kept) > 10**9:
                await asyncio.sleep(0.01)


@pytest.mark.asyncio
async def test_nobody_listening_is_a_connect_error(url: str) -> None:
    """A port without a server is named, for streams and for connections opened ahead."""
    port = httpx.URL(url).port
    async with opened("http://127.0.0.1:1") as client:
        with pytest.raises(httpx.ConnectError, match=r"no connection to 127\.0\.0\.1:1"):
            await client.send(ask(client, "/stream")[0])
        with pytest.raises(httpx.ConnectError):
            await stamped(client).connect(2)
        with pytest.raises(httpx.UnsupportedProtocol):
            await client.get(f"http://127.0.0.1:{port}/seen")


@pytest.mark.parametrize(
    ("address", "options", "clock"),
    [
        ("http://127.0.0.1:1", {}, "kernel"),
        ("https://127.0.0.1:1", {}, "event loop"),
        ("http://127.0.0.1:1", {"proxy": "http://127.0.0.1:2"}, "event loop"),
    ],
    ids=["http", "https", "proxy"],
)
@pytest.mark.skipif(sys.platform != "linux", reason="kernel stamps are Linux's")
def test_the_transport_says_which_clock_it_has(address: str, options: dict[str, Any], clock: str) -> None:
    """Where the kernel's clock cannot be had, the result says so."""
    transport = open_transport(address, connections=1, connect_s=1, first_byte_s=1, stall_s=1, **options)
    assert transport.clock == clock


@pytest.mark.asyncio
async def test_reads_without_a_kernel_stamp_take_the_kernels_name_away(url: str) -> None:
    """A clock that claims the kernel but stamps in the callback is not believed."""
    async with opened(url) as client:
        transport = stamped(client)
        await client.send(ask(client, "/stream")[0])
        kept = transport.clock
        transport.pool.clock.unstamped += transport.pool.clock.reads
        assert (kept, transport.clock) == ("kernel", "read callback")


@pytest.mark.asyncio
async def test_the_same_transport_works_on_other_systems(url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Without epoll and without kernel stamps the event loop's own readers do, large requests included."""
    monkeypatch.delattr(select, "epoll")
    deadlines = Deadlines(connect_s=LONG_S, first_byte_s=LONG_S, stall_s=LONG_S)
    transport = StampedTransport(httpx.URL(url), connections=1, deadlines=deadlines, stamped=False)
    async with httpx.AsyncClient(transport=transport, base_url=url, timeout=None, trust_env=False) as client:
        request, reader = ask(client, "/stream")
        await client.send(request)
        assert (await client.post("/slow-reader", content=bytes(16 << 20))).text == str(16 << 20)
    assert (transport.clock, reader.close().completion_tokens) == ("read callback", TOKENS)


@pytest.mark.asyncio
async def test_a_requests_own_timeout_wins(url: str) -> None:
    """A timeout of httpx, given with one request, replaces the transport's deadlines for it."""
    async with opened(url) as client:
        with pytest.raises(httpx.ReadTimeout, match=r"within 0\.1 s"):
            await client.get("/mute", timeout=0.1)
