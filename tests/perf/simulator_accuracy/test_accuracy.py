"""Does the simulated server hold its law on the wall clock? The suite's own cell against the truth of the law."""

import asyncio
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import pytest

from fixtures import profiles
from fixtures.analysis.measurements import Window
from fixtures.engines import Engine, factory
from fixtures.engines.probe import Deadline
from fixtures.engines.process import ServerProcess, free_port
from fixtures.load.cell import Place, attempt
from fixtures.load.loop import Work
from fixtures.load.prompts import Shape
from fixtures.simulator import laws, truth

TOLERANCE = 0.01
HALF_A_CORE = 0.5
CONCURRENCY = 250
PROFILE = """
name = "accuracy"
marker = "sim"
about = "the simulated server alone"
levels = [250]
[engine]
name = "sglang"
module = "fixtures.simulator"
target_model = "simulated-target"
draft_model = "simulated-draft"
flags = { max-running-requests = 256, enable-metrics = true, skip-tokenizer-init = true, sim-law = "plain" }
[variants.baseline]
[variants.eagle3.flags]
speculative-algorithm = "EAGLE3"
speculative-draft-model-path = "{draft_model}"
speculative-num-steps = 3
speculative-eagle-topk = 1
speculative-num-draft-tokens = 4
[workloads.short]
prompt_tokens = 64
output_tokens = 40
[gate]
pairs = [{ variant = "eagle3", workload = "short" }]
"""


@pytest.fixture
def paced(tmp_path: Path) -> profiles.Profile:
    """Return a profile whose law takes 20 ms for a step of 250 requests."""
    path = tmp_path / "accuracy.toml"
    path.write_text(PROFILE)
    return profiles.load(str(path))


@dataclass(frozen=True, slots=True, kw_only=True)
class Ready:
    """A simulated server that answers."""

    variant: str
    engine: Engine
    url: str


@pytest.fixture(params=["baseline", "eagle3"])
def server(request: pytest.FixtureRequest, paced: profiles.Profile, tmp_path: Path) -> Iterator[Ready]:
    """Return a ready simulated server, without and with speculation."""
    engine, port = factory.of(paced), free_port()
    process = ServerProcess.start(engine.command(request.param, port), tmp_path / "server.log")
    url = f"http://127.0.0.1:{port}"
    try:
        asyncio.run(process.wait_ready(engine, url, Deadline(hard_s=20, quiet_s=20)))
        yield Ready(variant=request.param, engine=engine, url=url)
    finally:
        process.stop()


@pytest.mark.sim
def test_the_server_holds_its_law_at_250_streams(server: Ready, paced: profiles.Profile) -> None:
    """At C=250, 20 ms a step and an event every 16 tokens it is within 1 % of the law's truth, the client half idle."""
    shape, work = paced.shape("short"), Work(concurrency=CONCURRENCY, k=1, rounds=3, cap_s=60)
    place = Place(
        engine=server.engine, base_url=server.url, stall_s=20, watch=lambda: None, progress=lambda _done, _of: None
    )

    measured = asyncio.run(attempt(place, shape, work)).windows

    assert mean_tok_s(measured) == pytest.approx(mean_tok_s(expectation(server.variant, shape)), rel=TOLERANCE)
    assert max(window.client_cpu_share or 0.0 for window in measured) < HALF_A_CORE


def mean_tok_s(windows: Sequence[Window]) -> float:
    """Return output tokens a second over all *windows*."""
    return sum(window.output_tokens for window in windows) / sum(window.seconds for window in windows)


def expectation(variant: str, shape: Shape) -> tuple[Window, ...]:
    """Return the windows that the law gives."""
    arm = truth.Arm(steps=3 if variant == "eagle3" else None)
    return truth.windows(laws.get("plain"), arm, CONCURRENCY, shape, rounds=3)
