"""The scheduler of the simulated SGLang: who runs when, and what a step yields."""

import json
from dataclasses import replace
from pathlib import Path

import pytest

from fixtures.simulator import arguments, laws
from fixtures.simulator.acceptance import Acceptance
from fixtures.simulator.jobs import Job, Step
from fixtures.simulator.law import Law
from fixtures.simulator.scheduler import Scheduler

EAGLE3 = ("--speculative-algorithm", "EAGLE3", "--speculative-draft-model-path", "d", "--speculative-num-steps", "3")


def scheduler(*flags: str, law: Law = laws.PLAIN) -> Scheduler:
    """Return a scheduler of *law* launched with *flags*."""
    return Scheduler(law, arguments.resolve(["--model-path", "m", *flags]))


def submit(server: Scheduler, number: int, *, prompt: int = 10, new: int = 4) -> list[Job]:
    """Submit *number* jobs and return them."""
    jobs = [server.job(str(n), n + 1, prompt, new) for n in range(number)]
    for job in jobs:
        server.submit(job)
    return jobs


def run(server: Scheduler) -> list[Step]:
    """Return all steps until the server is idle."""
    steps = []
    while not server.idle:
        steps.append(server.step())
    return steps


def test_prefill_makes_the_first_token_and_each_step_one_more() -> None:
    """A request of 4 tokens is one prefill and three decode steps."""
    server = scheduler()
    (job,) = submit(server, 1)

    assert [step.kind for step in run(server)] == ["prefill", "decode", "decode", "decode"]
    assert job.tokens == 4


def test_prefill_comes_first() -> None:
    """A request that arrives is prefilled before those that run get their next token."""
    server = scheduler()
    (old,) = submit(server, 1)
    server.step()
    submit(server, 1)

    assert server.step().kind == "prefill"
    assert old.tokens == 1


def test_long_prompts_are_prefilled_in_chunks() -> None:
    """25 tokens in chunks of 10 take three passes, and no request decodes meanwhile."""
    server = scheduler("--chunked-prefill-size", "10")
    first, second = submit(server, 2, prompt=25, new=2)

    steps = [server.step() for _ in range(6)]

    assert [step.kind for step in steps] == ["prefill"] * 5 + ["decode"]
    assert [len(step.advanced) for step in steps] == [0, 0, 1, 0, 1, 2]
    assert first.finished
    assert second.finished


@pytest.mark.parametrize(
    ("flags", "cap"),
    [
        pytest.param((), 4096, id="without speculation there is room for all"),
        pytest.param(EAGLE3, 48, id="speculation brings 48 unasked"),
        pytest.param((*EAGLE3, "--max-running-requests", "60"), 60, id="asked for"),
        pytest.param((*EAGLE3, "--max-running-requests", "60", "--sim-fault", "cap=7"), 7, id="as a fault"),
    ],
)
def test_no_more_than_the_cap_run_at_once(flags: tuple[str, ...], cap: int) -> None:
    """Requests over the running cap wait."""
    server = scheduler(*flags)
    submit(server, 100)

    server.step()

    assert len(server.running) == min(cap, 100)
    assert len(server.waiting) == 100 - min(cap, 100)


def test_fewer_may_run_than_the_server_says() -> None:
    """With `admits` the batch stays smaller, and the cap that the server reports does not tell."""
    server = scheduler("--max-running-requests", "4", "--sim-fault", "admits=3")
    submit(server, 5)

    assert max(step.running for step in run(server)) == 3
    assert server.launch.max_running == 4


@pytest.mark.parametrize(
    ("fault", "factor"),
    [("speculative:eager-past=1", 1.0), ("plain:eager-past=1", 1.6), ("eager-past=1", 1.6)],
    ids=["of the other arm", "of this arm", "of both arms"],
)
def test_a_fault_can_belong_to_one_arm(fault: str, factor: float) -> None:
    """The server without speculation has the faults of both arms and its own, and those of the other not."""
    sound, faulty = scheduler(), scheduler("--sim-fault", fault)
    for each in (sound, faulty):
        submit(each, 2)

    assert run(faulty)[1].duration_s == pytest.approx(run(sound)[1].duration_s * factor)


def test_a_slow_prefill_leaves_decoding_alone() -> None:
    """With `prefill-factor` the prefill pass takes so many times as long, and no other."""
    sound, faulty = scheduler(), scheduler("--sim-fault", "prefill-factor=4")
    for each in (sound, faulty):
        submit(each, 1)

    ratios = [slow.duration_s / fast.duration_s for slow, fast in zip(run(faulty), run(sound), strict=True)]
    assert ratios == pytest.approx([4, 1, 1, 1])


def test_a_weaker_draft_is_right_less_often() -> None:
    """With `acceptance-factor` 0.5 a draft of probability 0.8 is right as often as one of 0.4."""
    weaker, weak = (
        scheduler(*EAGLE3, *fault, law=replace(laws.PLAIN, acceptance=Acceptance(probability=probability)))
        for fault, probability in ((("--sim-fault", "acceptance-factor=0.5"), 0.8), ((), 0.4))
    )
    found = [submit(each, 1, new=200)[0] for each in (weaker, weak)]
    for each in (weaker, weak):
        run(each)

    assert found[0].histogram == found[1].histogram


def test_a_speculative_step_yields_one_token_and_the_right_drafts() -> None:
    """Tokens are 1 from prefill + a step each + the correct drafts, apart from those past the last token."""
    server = scheduler(*EAGLE3)
    jobs = submit(server, 5, new=60)

    run(server)

    for job in jobs:
        assert job.tokens == 60
        assert 60 <= 1 + job.verify_steps + job.correct_drafts <= 63
        assert sum(job.histogram) == job.verify_steps
        assert sum(right * steps for right, steps in enumerate(job.histogram)) == job.correct_drafts


def test_acceptance_does_not_depend_on_the_company() -> None:
    """A prompt is accepted alike alone and in a batch: dice belong to prompts."""
    alone, company = scheduler(*EAGLE3), scheduler(*EAGLE3)
    (one,) = submit(alone, 1, new=50)
    same, *_ = submit(company, 9, new=50)

    run(alone)
    run(company)

    assert one.histogram == same.histogram


def test_a_shared_draw_keeps_the_batch_in_step() -> None:
    """With one draw a step for the whole batch, equal requests end in the same step."""
    law = replace(laws.PLAIN, acceptance=Acceptance(probability=0.7, shared=True))
    server = scheduler(*EAGLE3, law=law)
    submit(server, 9, new=50)

    assert [len(step.advanced) for step in run(server)][-1] == 9


@pytest.mark.parametrize(
    ("fault", "lost"),
    [
        pytest.param("acceptance-lost", [True, True], id="from the start"),
        pytest.param("acceptance-lost-after=4", [False, True], id="half-way"),
    ],
)
def test_lost_acceptance_leaves_one_token_a_step(fault: str, lost: list[bool]) -> None:
    """Once the draft is never right, a request of n tokens takes n - 1 steps."""
    server = scheduler(*EAGLE3, "--sim-fault", fault)
    halves = []
    for _ in range(2):
        halves.append(submit(server, 4, new=40))
        run(server)

    assert [all(job.verify_steps == 39 for job in half) for half in halves] == lost


def test_a_small_pool_retracts_requests_and_serves_them_all_the_same() -> None:
    """When the batch outgrows the KV pool the youngest are sent back and prefilled again; none is lost."""
    server = scheduler("--sim-fault", "kv-tokens=200")
    jobs = submit(server, 8, prompt=20, new=60)

    run(server)

    assert server.retractions > 0
    assert sum(job.retractions for job in jobs) == server.retractions
    assert [job.tokens for job in jobs] == [60] * 8


@pytest.mark.parametrize(
    ("flags", "again", "after_flush"),
    [
        pytest.param((), 9, 0, id="all but the last token"),
        pytest.param(EAGLE3, 8, 0, id="with EAGLE all but two"),
        pytest.param(("--disable-radix-cache",), 0, 0, id="switched off"),
        pytest.param(("--sim-fault", "warm-cache"), 9, 9, id="the fault survives the flush"),
    ],
)
def test_the_prefix_cache_knows_prompts_until_a_flush(flags: tuple[str, ...], again: int, after_flush: int) -> None:
    """The same prompt again is cached, as on the real server, until the cache is flushed."""
    server = scheduler(*flags)
    cached = []
    for _ in range(2):
        (job,) = submit(server, 1)
        run(server)
        cached.append(job.cached)
    server.flush()
    (job,) = submit(server, 1)
    run(server)

    assert [cached[1], job.cached] == [again, after_flush]


def test_only_an_idle_server_flushes() -> None:
    """A flush is refused while a request runs."""
    server = scheduler()
    submit(server, 1)
    server.step()

    assert not server.flush()
    run(server)
    assert server.flush()


def test_batches_past_the_graphs_are_slower_until_they_have_shrunk_by_a_tenth() -> None:
    """Past 10 requests passes run eager; back at 10 they still do, at 9 no longer."""
    server = scheduler("--sim-fault", "eager-past=10")
    jobs = submit(server, 11, new=30)
    server.step()
    seen = {}
    for size in (11, 10, 9):
        step = server.step()
        seen[size] = step.in_graph
        server.abort(jobs.pop())

    assert seen == {11: False, 10: False, 9: True}


@pytest.mark.parametrize("state", ["waiting", "prefilling", "running"])
def test_an_aborted_job_is_gone_wherever_it_was(state: str) -> None:
    """An abort leaves nothing behind in the queue, in a half-done prefill or in the batch."""
    server = scheduler("--chunked-prefill-size", "5")
    (job,) = submit(server, 1)
    for _ in range({"waiting": 0, "prefilling": 1, "running": 2}[state]):
        server.step()

    server.abort(job)

    assert server.idle


def test_streamed_chunks_are_paid_for_when_they_cost() -> None:
    """With a cost per chunk the next pass is longer by the chunks that were sent."""
    sound, bound = scheduler(), scheduler("--sim-fault", "chunk-cost-us=1000")
    for server in (sound, bound):
        submit(server, 1)
        server.step()
        server.chunks = 5

    assert bound.step().duration_s - sound.step().duration_s == pytest.approx(0.005)


def test_adaptive_thresholds_follow_the_running_batch(tmp_path: Path) -> None:
    """With single candidates the file is a threshold on the batch padded to a graph size: 29 pads to 30."""
    config = tmp_path / "adaptive.json"
    config.write_text(json.dumps({"1": {"candidate_steps": [3]}, "30": {"candidate_steps": [0]}}))
    server = scheduler(*EAGLE3, "--speculative-adaptive", "--speculative-adaptive-config", str(config))
    drafts = {}
    for size in (28, 29, 40):
        jobs = submit(server, size, new=9)
        server.step()
        drafts[size] = server.step().steps
        for job in jobs:
            server.abort(job)

    assert drafts == {28: 3, 29: 0, 40: 0}


def test_a_switch_is_paid_for_once(tmp_path: Path) -> None:
    """The first step with another number of drafts costs the switch, the next one does not, and back costs it again."""
    config = tmp_path / "adaptive.json"
    config.write_text(json.dumps({"1": {"candidate_steps": [3]}, "2": {"candidate_steps": [0]}}))
    flags = (*EAGLE3, "--speculative-adaptive", "--speculative-adaptive-config", str(config))
    servers = [scheduler(*flags, law=replace(laws.PLAIN, switch_s=switch_s)) for switch_s in (0.0, 0.004)]
    seconds = []
    for server in servers:
        submit(server, 1, new=100)
        alone = [server.step(), server.step(), server.step()]
        (second,) = submit(server, 1, new=100)
        together = [server.step(), server.step(), server.step()]
        server.abort(second)
        seconds.append([step.duration_s for step in (*alone, *together, server.step(), server.step())])

    paid = [dear - free for free, dear in zip(*seconds, strict=True)]
    assert paid == pytest.approx([0, 0, 0, 0, 0.004, 0, 0.004, 0])
