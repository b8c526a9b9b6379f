"""The engine and the simulated SGLang from command to stop: what one says is what the other reads."""

import asyncio
from collections.abc import Awaitable, Callable, Iterator
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Any

import httpx
import msgspec
import pytest

from fixtures import profiles
from fixtures.engines import ServerError, sglang_load
from fixtures.engines.confounds import consequences, unequal
from fixtures.engines.probe import Deadline
from fixtures.engines.process import ServerProcess, free_port
from fixtures.engines.sglang import SGLang
from fixtures.load.cell import Place, attempt
from fixtures.load.loop import Work
from fixtures.load.prompts import Request
from fixtures.profiles import Flag, Profile

DEADLINE = Deadline(hard_s=30, quiet_s=20)
REQUEST = Request(index=0, prompt_ids=tuple(range(50, 82)), output_tokens=40, stream_interval=8)
LONG = Request(index=1, prompt_ids=tuple(range(50, 82)), output_tokens=4000, stream_interval=8)


def sim(**flags: Flag) -> Profile:
    """Return the profile that ships, some of its common flags set otherwise (`_` for `-`)."""
    profile = profiles.load("sim")
    changed = {name.replace("_", "-"): value for name, value in flags.items()}
    # Whatever a test does, no server outlives it by much.
    faults = ["lives-s=60", *([changed.pop("sim-fault")] if "sim-fault" in changed else [])]
    table = {**profile.engine.flags, **changed, "sim-fault": faults}
    return msgspec.structs.replace(profile, engine=msgspec.structs.replace(profile.engine, flags=table))


@dataclass(frozen=True, slots=True, kw_only=True)
class Running:
    """A started server of one variant and the engine that knows it."""

    engine: SGLang
    variant: str
    base_url: str
    process: ServerProcess

    def ask(self, question: Callable[[httpx.AsyncClient], Awaitable[Any]]) -> Any:
        """Return the answer to *question*."""

        async def asked() -> Any:
            async with httpx.AsyncClient(base_url=self.base_url, timeout=20, trust_env=False) as client:
                return await question(client)

        return asyncio.run(asked())


def start(profile: Profile, variant: str, folder: Path) -> Running:
    """Return a server of *variant*, ready."""
    engine, port = SGLang(profile), free_port()
    process = ServerProcess.start(engine.command(variant, port), folder / f"{variant}.log")
    url = f"http://127.0.0.1:{port}"
    try:
        asyncio.run(process.wait_ready(engine, url, DEADLINE))
    except ServerError:
        process.stop()
        raise
    return Running(engine=engine, variant=variant, base_url=url, process=process)


@pytest.fixture(scope="module")
def arms(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, Running]]:
    """Return a running server of each variant of the profile that ships."""
    folder, started = tmp_path_factory.mktemp("arms"), {}
    try:
        for variant in ("baseline", "eagle3"):
            started[variant] = start(sim(), variant, folder)
        yield started
    finally:
        for running in started.values():
            running.process.stop()


@pytest.fixture(params=["baseline", "eagle3"])
def arm(arms: dict[str, Running], request: pytest.FixtureRequest) -> Running:
    """Return the server of one variant."""
    return arms[request.param]


def test_nothing_stands_in_the_way_of_a_simulated_start() -> None:
    """The interpreter that runs the tests answers for the simulator, as the newest SGLang that is known."""
    engine = SGLang(sim())

    assert engine.problems() == []
    assert engine.version == (0, 5, 23)


def test_a_started_server_is_the_one_that_was_meant(arm: Running) -> None:
    """Its own words contradict nothing of the profile."""
    said = arm.ask(arm.engine.facts)

    assert said.version == "0.5.23"
    assert said.effective["max_running_requests"] == 64
    assert said.effective["stream_interval"] == 16
    assert arm.engine.contradictions(said, arm.variant) == []


def test_the_other_variants_server_is_noticed(arm: Running) -> None:
    """Whoever else answers on the port, with or without speculation, is not taken for the variant."""
    other = {"baseline": "eagle3", "eagle3": "baseline"}[arm.variant]

    (problem,) = arm.engine.contradictions(arm.ask(arm.engine.facts), other)

    assert problem.startswith("speculation is ")


def test_the_arms_differ_by_consequences_only(arms: dict[str, Running]) -> None:
    """The profile pins every confound; speculation leaves fewer tokens of KV cache, which is shown."""
    said = {variant: running.ask(running.engine.facts) for variant, running in arms.items()}

    assert unequal(said) == []
    assert consequences(said) == ["kv_tokens: baseline 788971, eagle3 748027"]


def test_the_counters_of_a_healthy_cell_agree_with_the_client(arm: Running) -> None:
    """The server counts over a cell what the client received, and the steps that the replies speak of."""
    place = Place(
        engine=arm.engine,
        base_url=arm.base_url,
        stall_s=10,
        watch=lambda: None,
        progress=lambda _done, _needed: None,
    )
    cell = asyncio.run(attempt(place, sim().shape("short"), Work(concurrency=4, k=2, rounds=2, cap_s=30)))

    assert [reason for reason in cell.reasons if reason.startswith("counters:")] == []
    assert cell.counters["generated_tokens"] > 28 * 36
    assert cell.counters["prefill_passes"] > 0
    assert cell.counters["decode_passes"] > cell.counters["decode_passes_outside_graphs"] == 0
    assert ("verify_calls" in cell.counters) == (arm.variant == "eagle3")


def test_a_request_comes_back_as_it_was_asked(arm: Running) -> None:
    """Exactly as many tokens, in chunks of the request's own interval; steps and drafts only with speculation."""
    path, body = arm.engine.encode(REQUEST, stream=True)
    reader = arm.engine.reader(REQUEST)

    async def stream(client: httpx.AsyncClient) -> bytes:
        return (await client.post(path, content=body)).content

    reader.feed(1, arm.ask(stream))
    reply = reader.close()

    counts = [tokens for _, tokens in reader.events]
    assert (reply.failure, reply.completion_tokens, reply.prompt_tokens) == (None, 40, 32)
    assert counts[0] == 1
    assert all(later - earlier >= 8 for earlier, later in pairwise(counts[:-1]))
    assert (reply.verify_steps is not None) == (arm.variant == "eagle3")


def test_an_idle_server_is_flushed_and_says_that_it_is_idle(arm: Running) -> None:
    """Nothing runs, nothing waits, and a flush is answered at once."""
    arm.ask(arm.engine.flush)
    load = arm.ask(arm.engine.counters)

    assert (load.running, load.queued, load.token_usage) == (0, 0, 0.0)


async def while_streaming(running: Running, client: httpx.AsyncClient, patience_s: float) -> tuple[Any, str | None]:
    """Sample the load and try to flush while one long request runs; return the sample and the flush's complaint."""
    path, body = running.engine.encode(LONG, stream=True)
    async with client.stream("POST", path, content=body) as response:
        chunks = response.aiter_bytes()  # kept: dropped, it would close the stream and abort the request
        await anext(chunks)
        load = await running.engine.counters(client)
        try:
            await sglang_load.flush(client, {}, patience_s=patience_s)
        except ServerError as error:
            return load, str(error)
    return load, None


def test_a_busy_server_is_counted_and_not_flushed(arm: Running) -> None:
    """A flush that never succeeds is an error that says what to look for; the running request is one in the load."""
    load, complaint = arm.ask(lambda client: while_streaming(arm, client, patience_s=0.2))

    assert load.running == 1
    assert complaint is not None
    assert "HTTP 400: 'Flush cache failed.'" in complaint
    assert "See whether somebody else sends requests" in complaint


@pytest.mark.parametrize(
    ("flags", "cause"),
    [
        ({"sim_fault": "crash-at-start"}, "adaptive speculation captures graphs for more steps"),
        ({"no_such_flag": True}, "SGLang refused a flag of the profile"),
    ],
    ids=["capture", "flag"],
)
def test_a_start_that_fails_says_why(flags: dict[str, Flag], cause: str, tmp_path: Path) -> None:
    """The log's known words become a cause and a remedy; the log's end is there as well."""
    with pytest.raises(ServerError, match=cause) as raised:
        start(sim(**flags), "baseline", tmp_path)

    assert "end of " in str(raised.value)


def test_speculation_that_is_silently_off_is_noticed(tmp_path: Path) -> None:
    """The server is asked, not the command line."""
    running = start(sim(sim_fault="speculation-off"), "eagle3", tmp_path)
    try:
        said = running.ask(running.engine.facts)
    finally:
        running.process.stop()

    assert running.engine.contradictions(said, "eagle3") == ["speculation is off though the profile says EAGLE3"]
