"""SGLang's benchmark beside our client: both ask a server in another process, and what each says is written down."""

import json
import sys
from pathlib import Path

import pytest

from fixtures import profiles
from fixtures.engines import Command
from fixtures.offline import cross_check
from fixtures.offline.slim import with_acceptance_by_steps

BENCHMARK = """
import json, sys
words = sys.argv[1:]
def said(name): return words[words.index("--" + name) + 1]
assert said("num-prompts") == said("max-concurrency") == "2", words
assert json.load(open(said("tokenizer") + "/tokenizer.json"))["model"]["vocab"]["t7"] == 7
keys = "duration output_throughput mean_ttft_ms median_ttft_ms median_tpot_ms mean_e2e_latency_ms".split()
open(said("output-file"), "w").write(json.dumps(dict.fromkeys(keys, 7.0)))
"""
"""Stands for SGLang's, which needs SGLang: it takes what it is told and answers in its form."""


@pytest.fixture
def pretender(tmp_path: Path) -> str:
    """An interpreter in which `sglang.benchmark.serving` is that."""
    package = tmp_path / "sglang" / "benchmark"
    package.mkdir(parents=True)
    (package / "serving.py").write_text(BENCHMARK)
    python = tmp_path / "python"
    python.write_text(f'#!/bin/sh\nPYTHONPATH={tmp_path} exec {sys.executable} "$@"\n')
    python.chmod(0o755)
    return str(python)


def test_both_clients_ask_one_server_in_turn(pretender: str, tmp_path: Path) -> None:
    """Ours, SGLang's, ours again; every token that we received was counted by the server."""
    profile = profiles.load("sim")
    rows = cross_check.run(profile, "baseline", [2], 1, tmp_path, pretender)

    assert [row["client"] for row in rows] == list(cross_check.ORDER)
    assert [row["output_tok_s"] for row in rows][1] == 7.0
    for row in (rows[0], rows[2]):
        tokens = 2 * profile.workloads["short"].output_tokens
        assert row["server"]["output_tokens"] == tokens
        assert row["output_tok_s"] == pytest.approx(tokens / row["seconds"])
        assert 0 < row["ttft_ms_p50"] < row["e2e_ms_mean"]


def test_what_the_server_times_is_what_grew_meanwhile() -> None:
    """A histogram's sum over its count, since the look before; one that nothing was added to is left out."""
    before = {"time_to_first_token_seconds_sum": 1.0, "time_to_first_token_seconds_count": 10.0}
    after = {"time_to_first_token_seconds_sum": 3.0, "time_to_first_token_seconds_count": 14.0}
    idle = {"e2e_request_latency_seconds_sum": 5.0, "e2e_request_latency_seconds_count": 2.0}
    found = cross_check.grown(
        {**before, **idle, "generation_tokens_total": 5.0}, {**after, **idle, "generation_tokens_total": 25.0}
    )

    assert found == {"output_tokens": 20.0, "ttft_ms_mean": 500.0}


def test_a_server_without_text_gets_a_tokenizer_and_another_is_left_alone(tmp_path: Path) -> None:
    """SGLang's benchmark sees no first token in a reply without text."""
    bare = Command(argv=("python", "--skip-tokenizer-init", "--port", "1"), environment={})
    other = Command(argv=("python", "--port", "1"), environment={})

    told = cross_check.with_tokenizer(bare, tmp_path).argv
    assert told == ("python", "--port", "1", "--tokenizer-path", str(tmp_path))
    assert cross_check.with_tokenizer(other, tmp_path) == other


def test_a_tokenizer_has_a_word_for_each_id(tmp_path: Path) -> None:
    """As many as the vocabulary has: a token without a word would be no text."""
    cross_check.write_tokenizer(tmp_path, 300)
    model = json.loads((tmp_path / "tokenizer.json").read_text())["model"]

    assert sorted(model["vocab"].values()) == list(range(300))
    assert model["unk_token"] in model["vocab"]


SIMULATION = """
import os
def sampled(spec_steps, simulate_acc_len):
    assert simulate_acc_len > 0.0
    return simulate_acc_len
"""


def test_simulated_acceptance_follows_the_steps(monkeypatch: pytest.MonkeyPatch) -> None:
    """As SGLang reads it: each number of steps has its own length, one that is not named has the common one."""
    scope: dict[str, object] = {}
    exec(with_acceptance_by_steps(SIMULATION), scope)
    sampled = scope["sampled"]
    assert callable(sampled)

    assert sampled(1, 2.8) == 2.8
    monkeypatch.setenv("SGLANG_SIMULATE_ACC_LEN_BY_STEPS", '{"1": 1.7, "5": 3.4}')
    assert [sampled(steps, 2.8) for steps in (1, 3, 5)] == [1.7, 2.8, 3.4]


def test_another_sglang_is_not_patched_blindly() -> None:
    """A version that says it otherwise stops the packing with what was looked for."""
    with pytest.raises(ValueError, match=r"is not that of 0\.5\.17: 'assert simulate_acc_len > 0\.0'"):
        with_acceptance_by_steps("def sampled(): ...\n")
