"""The stream readers: right for any chunking, and every failure has its name."""

import itertools
import json
from collections.abc import Callable, Sequence
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fixtures.load.openai_reader import LlamaCppReader, LlamaCppWholeReader, OpenAIReader
from fixtures.load.sglang_reader import SGLangReader, SGLangWholeReader
from fixtures.load.sse import Framer
from fixtures.load.streams import EventStreamReader, Reply, StreamReader, WholeReader

DONE = b"data: [DONE]\n\n"
ERROR = (
    b'data: {"error": {"message": "EngineCore encountered an issue", "type": "InternalServerError", "code": 500}}\n\n'
)

Wire = bytes


def events(*payloads: object) -> Wire:
    """Return one event for each payload."""
    return b"".join(b"data: %s\n\n" % json.dumps(p, ensure_ascii=False).encode() for p in payloads)


def sglang(tokens: int, *, of: int = 0, text: str = "", **more: object) -> dict[str, Any]:
    """Return an event of `/generate`."""
    finish = {"type": "length", "length": of} if tokens == of else None
    meta = {"id": "a", "finish_reason": finish, "prompt_tokens": 7, "num_retractions": 0, "completion_tokens": tokens}
    return {"text": text, "output_ids": list(range(tokens)), "meta_info": meta | {"cached_tokens": 3} | more}


def completion(text: str, finish: str | None = None, **more: object) -> dict[str, Any]:
    """Return a chunk of `/v1/completions`."""
    return {"object": "text_completion", "choices": [{"index": 0, "text": text, "finish_reason": finish}]} | more


def chat(delta: dict[str, Any], finish: str | None = None, **more: object) -> dict[str, Any]:
    """Return a chunk of `/v1/chat/completions`."""
    return {"object": "chat.completion.chunk", "choices": [{"delta": delta, "finish_reason": finish}]} | more


def usage(tokens: int) -> dict[str, Any]:
    """Return an OpenAI usage object."""
    return {"completion_tokens": tokens, "prompt_tokens": 7, "prompt_tokens_details": {"cached_tokens": 3}}


SGLANG = events(
    sglang(1, text="雪"),
    sglang(4, text='雪の "completion_tokens":99 data: [DONE]'),
    sglang(8, of=8, text="雪の🙂", spec_verify_ct=3, spec_num_correct_drafts=4),
)
COMPLETIONS = events(
    completion("雪"),
    completion("の"),
    completion("🙂", "length"),
    {"object": "text_completion", "choices": [], "usage": usage(8)},
)
CHAT = events(
    chat({"role": "assistant", "content": ""}),
    chat({"reasoning_content": "雪", "content": None}),
    chat({"content": "🙂"}),
    chat({"content": ""}, "length"),
    {"object": "chat.completion.chunk", "choices": [], "usage": usage(8)},
)
LLAMA = events(
    *(completion(text) for text in ("a", "", "雪", "d", "e", "f", "g", "h")),
    completion("", "length", usage=usage(8), timings={"predicted_n": 8, "draft_n": 6, "draft_n_accepted": 4}),
)
STREAMS: dict[str, tuple[Callable[[], EventStreamReader], Wire]] = {
    "sglang": (lambda: SGLangReader(8), SGLANG),
    "completions": (lambda: OpenAIReader(8), COMPLETIONS),
    "chat": (lambda: OpenAIReader(8), CHAT),
    "llama.cpp": (lambda: LlamaCppReader(8, speculative=True), LLAMA),
}
every_stream = pytest.mark.parametrize(("make", "wire"), STREAMS.values(), ids=STREAMS)


def read(reader: StreamReader, pieces: Sequence[bytes]) -> Reply:
    """Feed *pieces*, stamped by their place, and close."""
    for stamp, piece in enumerate(pieces):
        reader.feed(stamp, piece)
    return reader.close()


def cut(wire: Wire, places: Sequence[int]) -> list[bytes]:
    """Cut *wire* at *places*."""
    edges = [0, *sorted({place % len(wire) for place in places}), len(wire)]
    return [wire[a:b] for a, b in itertools.pairwise(edges) if a != b]


def crlf(wire: Wire) -> Wire:
    """Dress: lines end as in HTTP."""
    return wire.replace(b"\n", b"\r\n")


def cr(wire: Wire) -> Wire:
    """Dress: lines end as on an old Mac, which the standard allows."""
    return wire.replace(b"\n", b"\r")


def with_comments(wire: Wire) -> Wire:
    """Dress: comments and other fields in between."""
    return b": keep-alive\n\n" + wire.replace(b"\n\n", b"\n: ping\nid: 7\n\n: ping\n\n")


def on_two_lines(wire: Wire) -> Wire:
    """Dress: the first event has two data lines."""
    return wire.replace(b", ", b",\ndata: ", 1)


def without_space(wire: Wire) -> Wire:
    """Dress: no space after the colon."""
    return wire.replace(b"data: {", b"data:{")


DRESSES = [bytes, crlf, cr, with_comments, on_two_lines, without_space]


@every_stream
@given(
    places=st.lists(st.integers(0, 1 << 20), max_size=60), dress=st.sampled_from(DRESSES), cut_off=st.integers(0, 400)
)
@settings(max_examples=300, deadline=None, derandomize=True)
def test_no_chunking_changes_what_is_read(
    make: Callable[[], EventStreamReader], wire: Wire, places: list[int], dress: Callable[[Wire], Wire], cut_off: int
) -> None:
    """However a stream is cut, dressed or cut off, its tokens, its account and its failure are those of one read."""
    sent = dress(wire + DONE)
    sent = sent[: len(sent) - cut_off % len(sent)]
    whole, parts = make(), make()
    expected, found = read(whole, [sent]), read(parts, cut(sent, places))
    assert found == expected
    assert [tokens for _, tokens in parts.events] == [tokens for _, tokens in whole.events]


@every_stream
@given(places=st.lists(st.integers(0, 1 << 20), max_size=60), dress=st.sampled_from(DRESSES))
@settings(max_examples=100, deadline=None, derandomize=True)
def test_no_chunking_changes_the_text(
    make: Callable[[], EventStreamReader], wire: Wire, places: list[int], dress: Callable[[Wire], Wire]
) -> None:
    """The data of every event, text included, is the same to the byte, and it is valid UTF-8."""
    expected = [json.loads(event.removeprefix(b"data: ")) for event in wire.split(b"\n\n") if event]
    framer = Framer()
    found = [payload for piece in cut(dress(wire), places) for payload in framer.push(piece)] + [*framer.flush()]
    assert [json.loads(payload) for payload in found] == expected


@every_stream
@pytest.mark.parametrize("dress", DRESSES)
def test_each_dress_of_a_sound_stream_is_a_success(
    make: Callable[[], EventStreamReader], wire: Wire, dress: Callable[[Wire], Wire]
) -> None:
    """Line ends, comments, several data lines and split characters do not change success, not even byte by byte."""
    for pieces in ([dress(wire + DONE)], [bytes([byte]) for byte in dress(wire + DONE)]):
        reply = read(make(), pieces)
        assert (reply.failure, reply.completion_tokens, reply.prompt_tokens, reply.cached_tokens) == (None, 8, 7, 3)


TOKENS = {"sglang": [1, 4, 8], "completions": [3, 5, 8], "chat": [4, 8], "llama.cpp": [1, 2, 3, 4, 5, 6, 7, 8]}


@pytest.mark.parametrize("name", STREAMS)
def test_tokens_are_the_servers_count_not_the_number_of_events(name: str) -> None:
    """Counts come from the server; one count at the end is spread over the events that carried text."""
    make, wire = STREAMS[name]
    reader = make()
    read(reader, [wire + DONE])
    assert [tokens for _, tokens in reader.events] == TOKENS[name]


@pytest.mark.parametrize("count", [b"2", b" 2", b"2 "])
def test_a_count_may_end_its_object(count: bytes) -> None:
    """The order of keys is the server's, and so is the space between them."""
    reader = SGLangReader(2)
    body = b'data: {"meta_info":{"finish_reason":{"type":"length"},"completion_tokens":%b}}\n\n' % count

    assert read(reader, [body + DONE]).failure is None
    assert [tokens for _, tokens in reader.events] == [2]


def test_continuous_usage_is_cumulative() -> None:
    """Usage on every event is the count so far, never summed."""
    reader = OpenAIReader(8)
    wire = events(*(completion("a", usage=usage(n)) for n in (1, 4)), completion("b", "length", usage=usage(8)))
    assert read(reader, [wire + DONE]).failure is None
    assert [tokens for _, tokens in reader.events] == [1, 4, 8]


def test_incremental_output_is_read() -> None:
    """Incremental output has the same cumulative count; an event without growth carries no token."""
    reader = SGLangReader(3)
    wire = events(
        sglang(1) | {"output_ids": [5]}, sglang(1) | {"output_ids": []}, sglang(3, of=3) | {"output_ids": [6, 7]}
    )
    reply = read(reader, [wire + DONE])
    assert (reply.failure, reader.events) == (None, [(0, 1), (0, 3)])


@pytest.mark.parametrize(
    ("reader", "wire", "steps", "correct"),
    [
        (SGLangReader(8), SGLANG, 3, 4),
        (LlamaCppReader(8, speculative=True), LLAMA, 3, 4),
        (LlamaCppReader(8), LLAMA, None, None),
        (OpenAIReader(8), COMPLETIONS, None, None),
    ],
    ids=["sglang", "llama.cpp", "llama.cpp without", "openai"],
)
def test_the_account_of_speculation(reader: StreamReader, wire: Wire, steps: int | None, correct: int | None) -> None:
    """Verify steps and correct drafts as the server has them: 8 tokens, 4 of them accepted, 1 from prefill, 3 steps."""
    reply = read(reader, [wire + DONE])
    assert (reply.verify_steps, reply.correct_drafts) == (steps, correct)


TEN = events(*(sglang(n) for n in range(1, 11)))
FAILURES: dict[str, tuple[EventStreamReader, Wire, str]] = {
    "error, then done": (SGLangReader(20), TEN + ERROR + DONE, "in-band error: EngineCore encountered an issue"),
    "error only": (SGLangReader(20), ERROR, "in-band error: EngineCore"),
    "openai error": (OpenAIReader(20), ERROR + DONE, "in-band error: EngineCore"),
    "old openai error": (
        OpenAIReader(20),
        events({"object": "error", "message": "too long"}) + DONE,
        "in-band error: too long",
    ),
    "count null": (
        SGLangReader(10),
        TEN + b'data: {"meta_info":{"completion_tokens":null,"cached_tokens":0}}\n\n' + TEN + DONE,
        "unexpected event: b'{",
    ),
    "clean close": (SGLangReader(20), TEN, "missing end marker: no [DONE] and no finish reason after 10 of 20 tokens"),
    "cut inside the end marker": (SGLangReader(20), TEN + DONE[:9], "unexpected event: b'[DO'"),
    "too few": (SGLangReader(512), events(sglang(510, of=510)) + DONE, "wrong token count: 510 of 512"),
    "too many": (SGLangReader(512), events(sglang(513, of=513)) + DONE, "wrong token count: 513 of 512"),
    "abort": (
        SGLangReader(8),
        events(sglang(4, finish_reason={"type": "abort", "message": "Aborted"})) + DONE,
        "aborted by the server: Aborted",
    ),
    "refused inside": (
        SGLangReader(8),
        events(sglang(0, finish_reason={"type": "abort", "message": "The request queue is full."})) + DONE,
        "aborted by the server: The request queue is full.",
    ),
    "a page": (SGLangReader(8), b"<html>login</html>", "no event stream: the body begins b'<html>login</html>'"),
    "empty": (SGLangReader(8), b"", "no event stream: the body begins b''"),
    "usage null": (OpenAIReader(2), events(completion("a"), completion("b", "stop", usage=None)) + DONE, "no usage"),
    "usage zero": (
        OpenAIReader(2),
        events(completion("a"), completion("b", "stop", usage=usage(0))) + DONE,
        "wrong token count: 0 of 2",
    ),
    "no text": (OpenAIReader(8), events(completion("", "stop", usage=usage(8))) + DONE, "no event carried tokens"),
    "chunks are not the tokens": (
        LlamaCppReader(3),
        events(completion("a"), completion("", "length", usage=usage(3))) + DONE,
        "wrong token count: 1 were streamed, 3 made",
    ),
    "not json": (OpenAIReader(2), b"data: {oops\n\n" + DONE, "unexpected event"),
}


@pytest.mark.parametrize(("reader", "wire", "words"), FAILURES.values(), ids=FAILURES)
def test_a_stream_that_is_no_success_says_why(reader: EventStreamReader, wire: Wire, words: str) -> None:
    """HTTP 200 is no success: each way to fail inside a stream has a reason of its own."""
    reply = read(reader, [wire] if wire else [])
    assert reply.failure is not None
    assert words in reply.failure


def test_the_in_band_error_that_vllm_sends() -> None:
    """The error object wins over the end marker that follows it, wherever the stream is cut."""
    for size in range(1, 60):
        pieces = [(ERROR + DONE)[i : i + size] for i in range(0, len(ERROR + DONE), size)]
        assert "in-band error" in str(read(OpenAIReader(4), pieces).failure)


def test_timings_count_tokens_that_got_no_chunk() -> None:
    """With llama.cpp's timings on each chunk, a token inside a UTF-8 character is counted with the next one."""
    reader = LlamaCppReader(3)
    wire = events(
        completion("a", timings={"predicted_n": 1}),
        completion("雪", timings={"predicted_n": 3}),
        completion("", "length", usage=usage(3), timings={"predicted_n": 3}),
    )
    assert read(reader, [wire + DONE]).failure is None
    assert reader.events == [(0, 1), (0, 3)]


def test_a_read_of_one_speculative_step_is_not_coalesced() -> None:
    """llama.cpp sends a step's tokens one by one: four in a read are one step of four, five are two."""
    for count, coalesced in ((4, 0), (5, 1)):
        reader = LlamaCppReader(9, step_tokens=4)
        reader.feed(1, events(*(completion("a") for _ in range(count))))
        assert reader.coalesced == coalesced


WHOLE: dict[str, tuple[Callable[[], WholeReader], object, str | None]] = {
    "sglang": (lambda: SGLangWholeReader(8), sglang(8, of=8), None),
    "sglang short": (lambda: SGLangWholeReader(9), sglang(8, of=8), "wrong token count: 8 of 9"),
    "sglang error": (lambda: SGLangWholeReader(8), {"error": {"message": "no"}}, "in-band error: no"),
    "llama.cpp": (lambda: LlamaCppWholeReader(8, speculative=True), completion("a", "length", usage=usage(8)), None),
    "llama.cpp no usage": (lambda: LlamaCppWholeReader(8), completion("a", "length"), "no usage"),
    "a list": (lambda: SGLangWholeReader(8), [1], "unexpected reply"),
}


@pytest.mark.parametrize(("make", "body", "words"), WHOLE.values(), ids=WHOLE)
def test_a_reply_that_is_not_streamed_is_one_event(
    make: Callable[[], WholeReader], body: object, words: str | None
) -> None:
    """One JSON document, in any pieces: one event at the stamp of its last byte, and the same named failures."""
    text = json.dumps(body).encode()
    for pieces in ([text], [text[:5], text[5:11], text[11:]]):
        reader = make()
        reply = read(reader, pieces)
        assert words is None if reply.failure is None else words is not None and words in reply.failure
        if words is None:
            assert reader.events == [(len(pieces) - 1, 8)]
