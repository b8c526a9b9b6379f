"""A sweep under a law whose best choices are known, the policy that comes of it, and a server that obeys its file."""

import asyncio
import json
from collections.abc import Callable
from pathlib import Path

import httpx
import pytest

from fixtures import profiles
from fixtures.analysis.measurements import BASELINE
from fixtures.simulator import laws, truth
from tests.perf.sim_nights.nights import Ended, Plan, run
from tests.unit.simulated import EAGLE3, simulated

LIGHT = "eagle3-s1-k1-d2"
STEPS = {BASELINE: 0, LIGHT: 1, "eagle3": 3}
BEST = {2: 3, 8: 1, 24: 0}
"""Level → the steps that are best there, by the law."""


class Sweep(Plan):
    """A night of several variants: a grid makes the lighter one."""

    def toml(self, folder: Path) -> str:
        """Return the profile."""
        return f'{super().toml(folder)}\n[grid]\nlike = "eagle3"\nsteps = [1]\n'


PLAN = Sweep(law="by-load", levels=tuple(BEST))


def sweep(folder: Path) -> Ended:
    """Measure all three variants and ask for the policy."""
    return run(PLAN, folder, "--variants", ",".join(STEPS), f"--policy={folder}/policy")


NIGHTS = {"policy": sweep}


def written(ended: Ended) -> Path:
    """The file that the night wrote for a server."""
    path = ended.folder / "policy" / "adaptive.json"
    assert path.exists(), ended
    return path


def test_the_known_best_is_the_laws() -> None:
    """Computed from the law without a server, the best variant of each level is the one that is claimed here."""
    shape = profiles.load("sim").shape("short")
    for level, best in BEST.items():
        tok_s = {n: truth.throughput(laws.get("by-load"), truth.Arm(steps=n), level, shape) for n in STEPS.values()}
        runner_up = sorted(tok_s.values())[-2]
        assert tok_s[best] > 1.05 * runner_up


@pytest.mark.sim
@pytest.mark.parametrize("night", NIGHTS)
def test_a_sweep_is_written_as_the_policy_of_its_law(night: str, nights: Callable[[str], Ended]) -> None:
    """Three steps at C = 2, one at 8, none at 24: keys are the captured sizes from which each is best."""
    ended = nights(night)

    assert json.loads(written(ended).read_text()) == {
        "1": {"candidate_steps": [3]},
        "8": {"candidate_steps": [1]},
        "24": {"candidate_steps": [0]},
    }
    assert f"C=2: `eagle3` (3 steps); C=8: `{LIGHT}` (1 step); C=24: `baseline` (0 steps)." in ended.output


@pytest.mark.sim
@pytest.mark.parametrize("night", NIGHTS)
def test_a_server_obeys_the_written_policy(night: str, nights: Callable[[str], Ended], tmp_path: Path) -> None:
    """A server that is started with that file drafts, at each level, the steps that are best there."""
    config = str(written(nights(night)))
    graphs = ("--cuda-graph-bs-decode", *map(str, BEST), "--sim-law", "by-load")

    with simulated(
        tmp_path, *EAGLE3, "--speculative-adaptive", "--speculative-adaptive-config", config, *graphs
    ) as server:
        assert server.statuses_until_ready()[-1] == 200
        seen = {level: asyncio.run(steps_under_load(server.port, level)) for level in BEST}

    assert seen == BEST


async def steps_under_load(port: int, concurrency: int) -> float:
    """Return the draft steps that a server says are in force while it runs *concurrency* requests."""
    body = {"input_ids": [1] * 8, "sampling_params": {"max_new_tokens": 400, "ignore_eos": True}}
    async with httpx.AsyncClient(base_url=f"http://127.0.0.1:{port}", timeout=20, trust_env=False) as client:
        sent = [asyncio.create_task(client.post("/generate", json=body)) for _ in range(concurrency)]
        while (now := await gauges(client))["num_running_reqs"] < concurrency:
            assert not all(request.done() for request in sent)
            await asyncio.sleep(0.05)
        await asyncio.sleep(0.2)
        now = await gauges(client)
        for request in sent:
            request.cancel()
        await asyncio.gather(*sent, return_exceptions=True)
    return now["spec_num_steps"]


async def gauges(client: httpx.AsyncClient) -> dict[str, float]:
    """Return what `/metrics` says, by name without prefix and labels."""
    lines = (await client.get("/metrics")).text.splitlines()
    samples = [line.rsplit(" ", 1) for line in lines if line.startswith("sglang:")]
    return {name.partition("{")[0].removeprefix("sglang:"): float(value) for name, value in samples}
