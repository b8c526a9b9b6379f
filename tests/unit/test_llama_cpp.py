"""llama.cpp's server as an engine: what it is asked, what it says, and that a tiny one really serves."""

import asyncio
import dataclasses
import json
import os
import subprocess
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path

import httpx
import msgspec
import pytest

from fixtures import profiles, recorded
from fixtures.analysis.measurements import ServerFacts
from fixtures.engines import Counters, llama_cpp
from fixtures.engines.llama_cpp import LlamaCpp
from fixtures.engines.random_models import HeadShape, TargetShape
from fixtures.load.cell import Place, attempt
from fixtures.load.loop import Work
from fixtures.load.prompts import Request, Shape
from fixtures.load.streams import Reply
from fixtures.profiles import Profile

TARGET = TargetShape(width=64, layers=4, heads=2, kv_heads=1, feed_forward=96, vocabulary=160)
HEAD = HeadShape(target=TARGET, feed_forward=64, draft_vocabulary=40)
REQUEST = Request(index=0, prompt_ids=(20, 31, 42), output_tokens=30)
START_S = 30


def cpu(**changes: object) -> Profile:
    """Return the profile that ships, with *changes* to its engine table."""
    profile = profiles.load("cpu")
    return msgspec.structs.replace(profile, engine=msgspec.structs.replace(profile.engine, **changes))


def flagged(**changes: int) -> Profile:
    """Return the profile that ships, with *changes* to its engine's flags (underscores for dashes)."""
    flags = {name.replace("_", "-"): value for name, value in changes.items()}
    return cpu(flags={**cpu().engine.flags, **flags})


def facts(*, speculation: bool = False, slots: int = 16, model: str = "random-llama-66m") -> ServerFacts:
    """Return what a server could say of itself."""
    effective = {"speculation": speculation, "max_running_requests": slots, "model": model}
    return ServerFacts(engine="llama_cpp", version="1", effective=effective)


def argument(argv: tuple[str, ...], name: str) -> str:
    """Return the value of option *name*."""
    return argv[argv.index(name) + 1]


def test_the_profile_that_ships_can_start() -> None:
    """A fresh clone has nothing in its way."""
    assert LlamaCpp(cpu()).problems() == []


@pytest.mark.parametrize(
    ("impossible", "problem"),
    [
        (cpu(target_model="no-such-model"), "engine.target_model: 'no-such-model' is neither a GGUF file nor one of"),
        (cpu(draft_model=""), "engine.draft_model: '' is neither"),
        (cpu(vocabulary=5000), "engine.vocabulary: random-llama-66m has 4096 tokens"),
        (flagged(parallel=8), "engine.flags.parallel: 8 slots cannot run the top level, 16"),
        (flagged(ctx_size=256), "engine.flags.ctx-size: 16 tokens per slot, but a request needs up to"),
    ],
    ids=["target", "draft", "vocabulary", "slots", "context"],
)
def test_an_impossible_profile_is_named(impossible: Profile, problem: str) -> None:
    """Each thing that would stop or falsify a start is one sentence that names the key."""
    found = LlamaCpp(impossible).problems()
    assert len(found) == 1
    assert problem in found[0]


@pytest.mark.parametrize(
    ("variant", "flags"),
    [
        ("eagle3", {"--spec-type": "draft-eagle3", "--spec-draft-n-max": "4", "--spec-synth-len": "3.6"}),
        ("eagle3-light", {"--spec-type": "draft-eagle3", "--spec-draft-n-max": "1", "--spec-synth-len": "1.835"}),
        (
            "ngram",
            {"--spec-type": "ngram-simple", "--spec-ngram-simple-size-n": "1", "--spec-ngram-simple-size-m": "2"},
        ),
    ],
)
def test_the_arms_differ_by_speculation_only(variant: str, flags: Mapping[str, str]) -> None:
    """The variant's command is baseline's and the flags of its speculation after it."""
    engine = LlamaCpp(cpu())
    baseline, speculating = engine.command("baseline", 8000), engine.command(variant, 8000)
    rest = speculating.argv[len(baseline.argv) :]
    added = dict(zip(rest[::2], rest[1::2], strict=True))
    assert speculating.argv[: len(baseline.argv)] == baseline.argv
    assert ("--spec-draft-model" in added) == (flags["--spec-type"] == "draft-eagle3")
    assert {name: value for name, value in added.items() if name != "--spec-draft-model"} == flags
    assert baseline.environment == speculating.environment


def test_the_record_that_ships_is_of_the_gated_arms_alone() -> None:
    """A new variant, or other flags of one that nobody gates, leave the record of baseline and eagle3 standing."""
    profile, record = cpu(), recorded.read(recorded.path_of("cpu", None))
    assert record is not None
    gated, now = ("baseline", "eagle3"), profile.identity().variants
    assert {name: now[name] for name in gated} == {name: record.identity.variants[name] for name in gated}
    assert record.workloads[profile.workload_digest("short")].workload == "short"


def test_models_are_named_by_their_files() -> None:
    """The command points to the cache for models of ours and leaves a user's path alone."""
    ours = LlamaCpp(cpu()).command("eagle3", 8000).argv
    assert Path(argument(ours, "--model")).name.startswith("random-llama-66m-")
    assert Path(argument(ours, "--spec-draft-model")).name.startswith("random-eagle3-66m-")
    theirs = LlamaCpp(cpu(target_model="/models/other.gguf")).command("baseline", 8000).argv
    assert argument(theirs, "--model") == "/models/other.gguf"


def test_a_request_is_exact_and_cold() -> None:
    """Token ids go in as they are; the end of text is ignored; no prefix comes from a cache."""
    path, body = LlamaCpp(cpu()).encode(REQUEST, stream=True)
    sent = json.loads(body)
    assert path == "/v1/completions"
    assert sent["prompt"] == [20, 31, 42]
    assert (sent["max_tokens"], sent["temperature"], sent["ignore_eos"], sent["cache_prompt"]) == (30, 0.0, True, False)


@pytest.mark.parametrize(
    ("variant", "said", "contradiction"),
    [
        ("baseline", facts(), None),
        ("eagle3", facts(speculation=True), None),
        ("eagle3-light", facts(speculation=True), None),
        ("ngram", facts(speculation=True), None),
        ("eagle3", facts(), "speculation is off though the profile says draft-eagle3"),
        ("eagle3-light", facts(), "speculation is off though the profile says draft-eagle3"),
        ("ngram", facts(), "speculation is off though the profile says ngram-simple"),
        ("baseline", facts(speculation=True), "speculation is on though the profile says none"),
        ("baseline", facts(slots=4), "4 slots cannot run the top level, 16"),
        ("baseline", facts(model="other"), "it serves other, not random-llama-66m"),
    ],
    ids=["baseline", "eagle3", "light", "ngram", "off", "light-off", "ngram-off", "on", "slots", "model"],
)
def test_a_server_that_is_not_the_variant_is_named(variant: str, said: ServerFacts, contradiction: str | None) -> None:
    """What the server says decides, and silence means that it is what was meant."""
    found = LlamaCpp(cpu()).contradictions(said, variant)
    assert found == ([] if contradiction is None else [contradiction])


@pytest.mark.parametrize(
    ("log", "remedy"),
    [
        ("E gguf_init_from_file: failed to open GGUF file '/x.gguf' (No such file or directory)", "is missing"),
        ("E gguf_init_from_reader: invalid magic characters: 'hell', expected 'GGUF'", "is no GGUF file"),
        ("E tensor 'blk.7.ffn_gate.weight' data is not within the file bounds, model is corrupted", "is cut short"),
        ("E srv start: couldn't bind HTTP server socket, hostname: 127.0.0.1, port: 8373", "has the port"),
        ("ModuleNotFoundError: No module named 'xllamacpp'", "pip install"),
    ],
    ids=["missing", "magic", "short", "port", "package"],
)
def test_known_faults_are_named(log: str, remedy: str) -> None:
    """Each fault that was provoked once is recognized by its words and comes with its remedy."""
    assert remedy in (LlamaCpp(cpu()).diagnose(f"some line\n{log}\nanother") or "")


def test_an_unknown_log_is_not_explained_away() -> None:
    """Without known words there is no diagnosis."""
    assert LlamaCpp(cpu()).diagnose("I srv init: model loaded") is None


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Served:
    """A tiny server of one variant and its engine."""

    engine: LlamaCpp
    variant: str
    url: str


@pytest.fixture(scope="module")
def tiny(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Profile]:
    """Return the profile that ships with models of a few hundred kB, in a cache of their own."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("XDG_CACHE_HOME", str(tmp_path_factory.mktemp("cache")))
        patch.setattr(llama_cpp, "MODELS", {"tiny": TARGET, "tiny-eagle3": HEAD})
        yield cpu(target_model="tiny", draft_model="tiny-eagle3", vocabulary=TARGET.vocabulary)


@pytest.fixture(scope="module", params=["baseline", "eagle3", "eagle3-light", "ngram"])
def served(tiny: Profile, request: pytest.FixtureRequest) -> Iterator[Served]:
    """Return a running server of each variant; it must exit cleanly when told to."""
    engine = LlamaCpp(tiny)
    engine.prepare(lambda _: None)
    command = engine.command(request.param, 0)
    with subprocess.Popen(
        command.argv,
        env=os.environ | dict(command.environment),
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
    ) as process:
        try:
            assert process.stdout is not None
            line = next((line for line in process.stdout if line.startswith(engine.ready_line)), "")
            yield Served(engine=engine, variant=request.param, url=line.split()[-1])
        finally:
            process.terminate()
            assert process.wait(START_S) == 0


async def talk(served: Served) -> tuple[ServerFacts, list[list[int]], list[Reply], list[bytes], Counters]:
    """Ask for the facts, then stream one request twice; return what came."""
    async with httpx.AsyncClient(base_url=served.url, headers=dict(served.engine.headers), trust_env=False) as client:
        said = await served.engine.facts(client)
        counts, replies, bodies = [], [], []
        for _ in range(2):
            path, body = served.engine.encode(REQUEST, stream=True)
            reader = served.engine.reader(REQUEST)
            response = await client.post(path, content=body, headers={"content-type": "application/json"})
            reader.feed(1, response.content)
            replies.append(reader.close())
            counts.append([tokens for _, tokens in reader.events])
            bodies.append(response.content)
        return said, counts, replies, bodies, await served.engine.counters(client)


async def totals_around_two_requests(served: Served) -> tuple[Mapping[str, float], Mapping[str, float]]:
    """Return the server's totals before and after two requests."""
    async with httpx.AsyncClient(base_url=served.url, headers=dict(served.engine.headers), trust_env=False) as client:
        before = await served.engine.totals(client)
        await talk(served)
        return before, await served.engine.totals(client)


def test_a_real_server_serves_exactly_what_was_asked(served: Served) -> None:
    """One chunk a token, the exact length, a cold prefill each time, and facts that fit the variant."""
    said, counts, replies, bodies, counters = asyncio.run(talk(served))
    assert served.engine.contradictions(said, served.variant) == []
    assert said.effective["max_running_requests"] == 16
    assert counts == [list(range(1, 31))] * 2
    assert [(r.failure, r.completion_tokens, r.prompt_tokens, r.cached_tokens) for r in replies] == [
        (None, 30, 3, 0)
    ] * 2
    assert bodies[0].count(b"data: {") == 31
    assert (counters.running, counters.queued) == (0, 0)
    assert counters.totals["tokens_predicted_total"] == 60


def test_totals_have_the_suites_names(served: Served) -> None:
    """The server counts a request's tokens and its prompt's, by the names that every engine has."""
    before, after = asyncio.run(totals_around_two_requests(served))

    assert {name: after[name] - before.get(name, 0) for name in after} == {"generated_tokens": 60, "prefill_tokens": 6}


def test_the_counters_of_a_healthy_cell_agree_with_the_client(served: Served) -> None:
    """Over a cell with requests in flight at its end the server counts what the client received."""
    place = Place(
        engine=served.engine, base_url=served.url, stall_s=10, watch=lambda: None, progress=lambda _done, _needed: None
    )
    shape = Shape(
        prompt_tokens=4, output_tokens=24, output_spread=0.25, vocabulary=TARGET.vocabulary, temperature=0,
        stream_interval=1, seed=7,
    )  # fmt: skip
    cell = asyncio.run(attempt(place, shape, Work(concurrency=4, k=2, rounds=2, cap_s=30)))

    assert [reason for reason in cell.reasons if "counters:" in reason or "failed" in reason] == []
    assert cell.counters["generated_tokens"] > 28 * 18


def test_only_the_speculative_server_has_an_acceptance_length(served: Served) -> None:
    """The steps and the drafts of a reply add up to its tokens; baseline has neither."""
    _, _, replies, _, counters = asyncio.run(talk(served))
    if served.variant == "baseline":
        assert all(reply.verify_steps is None and reply.correct_drafts is None for reply in replies)
        return
    for reply in replies:
        assert reply.verify_steps is not None
        assert reply.correct_drafts is not None
        assert 1 + reply.verify_steps + reply.correct_drafts == 30
        assert reply.correct_drafts > 0
    assert counters.totals["spec_decode_num_accepted_tokens_total"] > 0


def test_the_command_line_is_strict() -> None:
    """A misspelt option ends the child at once with status 2 and its name."""
    argv = [sys.executable, "-m", "fixtures.engines.llama_server", "--model", "x", "--port", "1", "--thread", "1"]
    done = subprocess.run(argv, cwd=llama_cpp.ROOT, capture_output=True, text=True, timeout=START_S, check=False)
    assert done.returncode == 2
    assert "--thread" in done.stderr
