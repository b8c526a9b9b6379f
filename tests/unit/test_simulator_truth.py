"""The truth of a law: against a closed form, against the server's own scheduler, and against what was published."""

import ast
import json
import math
from dataclasses import dataclass, field, replace
from pathlib import Path

import pytest

from fixtures.analysis.measurements import RequestTrace, Window
from fixtures.analysis.windows import Loop, cut
from fixtures.load.prompts import Request, Shape, requests
from fixtures.simulator import arguments, fit, laws, truth
from fixtures.simulator.acceptance import Acceptance, fingerprint
from fixtures.simulator.jobs import Job
from fixtures.simulator.law import AllReduce, Forward, Law
from fixtures.simulator.scheduler import Scheduler

COMMON = ("--model-path", "m", "--max-running-requests", "256")
EAGLE3 = ("--speculative-algorithm", "EAGLE3", "--speculative-draft-model-path", "d", "--speculative-num-steps", "3")


def shape(output_tokens: int, prompt_tokens: int = 128, spread: float = 0.25) -> Shape:
    """Return a workload of that many tokens."""
    return Shape(
        prompt_tokens=prompt_tokens,
        output_tokens=output_tokens,
        output_spread=spread,
        vocabulary=30_000,
        temperature=0.0,
        stream_interval=16,
        seed=1,
    )


STRAIGHT = Law(
    name="straight",
    about="no fixed prefill cost: total work does not depend on how it is batched",
    decode=Forward(fixed_s=10e-3, per_token_s=50e-6, per_kv_token_s=20e-9),
    prefill=Forward(fixed_s=0.0, per_token_s=8e-6),
    draft=Forward(fixed_s=1e-3, per_token_s=2e-6),
    verify_fixed_s=0.5e-3,
    acceptance=Acceptance(probability=0.7),
)


def baseline_by_hand(concurrency: int, prompt: int, output: int, idle_steps: int) -> float:
    """Return the tok/s of STRAIGHT when each stream sits out *idle_steps* steps between two requests of *output*."""
    steps = output - 1
    read = concurrency * sum(prompt + token for token in range(1, output)) * 20e-9
    cycle = (steps + idle_steps) * 10e-3 + concurrency * (steps * 50e-6 + prompt * 8e-6) + read
    return concurrency * output / cycle


def verify_steps(tokens: int, p: float, drafts: int) -> float:
    """Return the mean steps that it takes to make *tokens*, each step making 1 + correct drafts."""
    chances = [p**right * ((1 - p) if right < drafts else 1) for right in range(drafts + 1)]
    need = [0.0]
    for wanted in range(1, tokens + 1):
        after = [need[max(0, wanted - 1 - right)] for right in range(drafts + 1)]
        need.append(1 + sum(c * n for c, n in zip(chances, after, strict=True)))
    return need[tokens]


@pytest.mark.parametrize("concurrency", [1, 8, 50, 250])
def test_baseline_agrees_with_the_closed_form(concurrency: int) -> None:
    """Without fixed prefill cost the cycle of a stream adds up on paper, up to the one step it may sit out."""
    tokens = 200
    alone = concurrency == 1
    fastest = baseline_by_hand(concurrency, 64, tokens, idle_steps=0)
    slowest = baseline_by_hand(concurrency, 64, tokens, idle_steps=0 if alone else 1)

    measured = truth.throughput(STRAIGHT, truth.Arm(), concurrency, shape(tokens, 64, spread=0.0), rounds=4)

    assert slowest * 0.9995 <= measured <= fastest * 1.0005


@pytest.mark.parametrize("concurrency", [1, 8, 50])
def test_speculation_agrees_with_the_closed_form(concurrency: int) -> None:
    """The same with speculation: the steps of a request are a renewal process whose mean is known."""
    tokens, prompt, drafts = 200, 64, 3
    law = replace(STRAIGHT, decode=Forward(fixed_s=10e-3, per_token_s=50e-6))
    steps = verify_steps(tokens - 1, 0.7, drafts)
    each = 10e-3 + 0.5e-3 + drafts * 1e-3
    own = steps * (4 * 50e-6 + drafts * 2e-6) + prompt * 8e-6
    by_hand = [
        concurrency * tokens / ((steps + idle) * each + concurrency * own)
        for idle in ((0, 0) if concurrency == 1 else (1, 0))
    ]

    measured = truth.throughput(
        law, truth.Arm(steps=drafts), concurrency, shape(tokens, prompt), k=max(1, 60 // concurrency), rounds=6
    )

    assert by_hand[0] * 0.99 <= measured <= by_hand[1] * 1.01


@dataclass(slots=True)
class Asked:
    """One request of the loop, as its client sees it."""

    request: Request
    sent_s: float
    events: list[tuple[float, int]] = field(default_factory=list)
    told: int = 0
    ended_s: float | None = None

    def tell(self, now: float, job: Job, interval: int) -> None:
        """Take the news of *job* when an event is due."""
        if job.finished or not self.events or job.tokens - self.told >= interval:
            self.events.append((now, job.tokens))
            self.told = job.tokens
        if job.finished:
            self.ended_s = now

    def trace(self) -> RequestTrace:
        """Return what the windows are cut from."""
        return RequestTrace(
            index=self.request.index,
            expected_tokens=self.request.output_tokens,
            sent_s=self.sent_s,
            events=tuple(self.events),
            ended_s=self.ended_s,
        )


def server_windows(
    law: Law, flags: tuple[str, ...], concurrency: int, workload: Shape, rounds: int
) -> tuple[Window, ...]:
    """Return the windows that the server's own scheduler would give, driven in virtual time."""
    scheduler = Scheduler(law, arguments.resolve([*COMMON, *flags]))
    wanted = requests(workload, concurrency)
    asked: dict[Job, Asked] = {}
    coming: list[Job] = []

    def ask(now: float) -> Job:
        request = next(wanted)
        prompt = fingerprint(request.prompt_ids)
        job = scheduler.job(str(request.index), prompt, workload.prompt_tokens, request.output_tokens)
        asked[job] = Asked(request, now)
        return job

    now, ended, fresh = 0.0, 0, [ask(0.0) for _ in range(concurrency)]
    while ended < concurrency * (5 + rounds):
        for job in coming:
            scheduler.submit(job)
        coming, fresh = fresh, []
        if scheduler.idle:
            scheduler.submit(coming.pop(0))
        step = scheduler.step()
        now += step.duration_s
        for job in step.advanced:
            asked[job].tell(now, job, workload.stream_interval)
        fresh = [ask(now) for job in step.advanced if job.finished]
        ended += len(fresh)
    traces = tuple(each.trace() for each in asked.values())
    return cut(Loop(concurrency=concurrency, traces=traces), 1, rounds, 0)


CROWDED = replace(
    laws.PLAIN,
    all_reduce=AllReduce(layers=4, hidden_size=64, latency_s=1e-5, bandwidth_byte_s=1e9),
    acceptance=Acceptance(probability=0.8, per_request=0.004, per_context_token=0.001),
    decode=Forward(fixed_s=5e-3, per_token_s=3e-5, per_kv_token_s=1e-8, knee_tokens=40, past_knee_s=5e-5),
    draft=Forward(fixed_s=0.5e-3, per_token_s=1e-6, per_kv_token_s=1e-9),
    draft_prefill_per_token_s=2e-6,
    bend=((1, 1.0), (9, 1.3), (40, 0.9)),
)


@pytest.mark.parametrize("concurrency", [1, 2, 7, 40])
@pytest.mark.parametrize(
    ("flags", "arm"),
    [
        pytest.param(("--tp-size", "8"), truth.Arm(ranks=8), id="baseline"),
        pytest.param((*EAGLE3, "--tp-size", "8"), truth.Arm(steps=3, ranks=8), id="eagle3"),
        pytest.param(
            ("--chunked-prefill-size", "50", "--max-running-requests", "30"),
            truth.Arm(chunk_tokens=50, cap=30),
            id="chunked and capped",
        ),
    ],
)
def test_truth_and_the_servers_scheduler_agree(flags: tuple[str, ...], arm: truth.Arm, concurrency: int) -> None:
    """Two computations that share no formula give the same windows under a law that uses every term."""
    workload = shape(40, 32)

    server = server_windows(CROWDED, flags, concurrency, workload, 4)
    expected = truth.windows(CROWDED, arm, concurrency, workload, rounds=4)

    assert [w.seconds for w in server] == pytest.approx([w.seconds for w in expected], rel=1e-9)
    assert [w.output_tokens for w in server] == pytest.approx([w.output_tokens for w in expected], rel=1e-9)


@pytest.mark.parametrize("concurrency", [4, 8, 9, 14])
def test_truth_and_an_adaptive_scheduler_agree(tmp_path: Path, concurrency: int) -> None:
    """Below, at and above a threshold, and with a price on every switch, the windows are the same."""
    config, workload = tmp_path / "adaptive.json", shape(40, 32)
    config.write_text(json.dumps({"1": {"candidate_steps": [3]}, "9": {"candidate_steps": [0]}}))
    sizes = ("--cuda-graph-bs-decode", *map(str, range(1, 17)))
    flags = (*EAGLE3, "--speculative-adaptive", "--speculative-adaptive-config", str(config), *sizes)
    law = replace(CROWDED, all_reduce=None, switch_s=3e-3)

    server = server_windows(law, flags, concurrency, workload, 4)
    expected = truth.windows(law, truth.Arm(steps=3, thresholds={1: 3, 9: 0}), concurrency, workload, rounds=4)

    assert [w.seconds for w in server] == pytest.approx([w.seconds for w in expected], rel=1e-9)


def test_truth_shares_no_formula_with_the_server() -> None:
    """Of the server's modules truth imports the law's values and the prompts' dice alone, and calls no cost of it."""
    trees = [ast.parse(path.read_text()) for path in Path(truth.__file__).parent.glob("*.py")]
    nodes = [node for tree in trees for node in ast.walk(tree)]
    imported = {
        name.name
        for node in nodes
        if isinstance(node, ast.ImportFrom) and node.module and node.module.startswith("fixtures.simulator")
        for name in node.names
        if not node.module.startswith("fixtures.simulator.truth")
    }
    called = {node.attr for node in nodes if isinstance(node, ast.Attribute)}

    assert imported == {"fingerprint", "Forward", "Law"}
    assert called.isdisjoint({"decode_s", "speculative_s", "prefill_s", "correct", "at"})


@pytest.mark.parametrize(
    ("law", "steps", "tok_s"),
    [
        pytest.param("blackwell-tp8", None, 92.6, id="CUDA 13, baseline"),
        pytest.param("blackwell-tp8", 3, 96.1, id="CUDA 13, EAGLE-3"),
        pytest.param("cuda12.8", None, 89.5, id="CUDA 12.8, baseline"),
        pytest.param("cuda12.8", 3, 54.1, id="CUDA 12.8, EAGLE-3"),
    ],
)
def test_the_seeds_laws_give_the_seeds_numbers(law: str, steps: int | None, tok_s: float) -> None:
    """At C=1 and 512 output tokens the calibrated laws predict what the seed measured."""
    predicted = truth.throughput(laws.get(law), truth.Arm(steps=steps, ranks=8), 1, shape(512))

    assert predicted == pytest.approx(tok_s, rel=0.003)


@pytest.mark.parametrize(
    ("flags", "concurrency", "tok_s"),
    [
        pytest.param(flags, c, tok_s, id=f"{'eagle3' if flags else 'baseline'}-C{c:03d}")
        for flags, curve in fit.MEASURED_TOK_S.items()
        for c, tok_s in curve.items()
    ],
)
def test_the_h200_law_replays_the_h200(flags: tuple[str, ...], concurrency: int, tok_s: float) -> None:
    """Replaying the waves that the curves were measured with gives every level of both arms within 5 %."""
    assert fit.replayed(laws.get("h200"), flags, concurrency) == pytest.approx(tok_s, rel=0.05)


PUBLISHED = [
    ("specdecode-bench-gsm8k", 5, {1: 2.01, 8: 1.86, 32: 1.53, 64: 1.29, 128: 1.07}),
    ("eagle3-paper-vllm", 2, {2: 1.75, 8: 1.58, 24: 1.42, 48: 1.21, 56: 1.01}),
    ("eagle-paper-sglang", 3, {2: 1.40, 8: 1.23, 16: 1.02, 24: 0.93, 48: 0.88, 64: 0.99}),
    ("eagle3-paper-sglang", 3, {2: 1.81, 8: 1.62, 24: 1.39, 48: 1.38, 64: 1.38}),
]


@pytest.mark.parametrize(
    ("law", "steps", "concurrency", "ratio"),
    [(law, steps, c, ratio) for law, steps, curve in PUBLISHED for c, ratio in curve.items()],
)
def test_published_laws_give_the_published_ratios(law: str, steps: int, concurrency: int, ratio: float) -> None:
    """Each published law predicts its source's speed-up within 4 %."""
    arm, k = truth.Arm(steps=steps), max(1, 16 // concurrency)

    predicted = math.exp(truth.log_ratio(laws.get(law), arm, concurrency, shape(256, 64), k=k, rounds=3))

    assert predicted == pytest.approx(ratio, rel=0.04)


@pytest.mark.parametrize(
    ("law", "expected"),
    [
        pytest.param("once", [(8, 16)], id="one crossing"),
        pytest.param("always-faster", [], id="wins everywhere"),
        pytest.param("always-slower", [], id="loses everywhere"),
        pytest.param("several", [(4, 8), (8, 16), (16, 32)], id="three crossings"),
    ],
)
def test_crossovers_lie_where_the_shape_says(law: str, expected: list[tuple[int, int]]) -> None:
    """Every crossing is found between its levels, and none where there is none."""
    found = truth.crossovers(laws.get(law), truth.Arm(steps=3), [1, 4, 8, 16, 32, 48], shape(32, 32), rounds=4)

    assert len(found) == len(expected)
    assert all(low < crossing < high for crossing, (low, high) in zip(found, expected, strict=True))


def test_a_pure_threshold_is_speculation_below_and_a_width_one_verify_above() -> None:
    """An adaptive arm is the static arm below its threshold, and above it pays the step's overhead for nothing."""
    law, workload = laws.PLAIN, shape(32, 32)
    adaptive = truth.Arm(steps=3, thresholds={1: 3, 9: 0})
    off = truth.Arm(steps=0)

    pairs = [
        truth.throughput(law, arm, c, workload, rounds=2)
        for c, other in ((4, truth.Arm(steps=3)), (40, off))
        for arm in (adaptive, other)
    ]

    assert pairs[0] == pytest.approx(pairs[1])
    assert pairs[2] == pytest.approx(pairs[3], rel=0.01)
