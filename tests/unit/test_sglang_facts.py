"""What a server says of itself decides whether it is the one that was meant, and whether the arms may be compared."""

from pathlib import Path
from typing import Any

import msgspec
import pytest

from fixtures import profiles
from fixtures.analysis.measurements import ServerFacts
from fixtures.engines import ServerError
from fixtures.engines.confounds import consequences, unequal
from fixtures.engines.sglang import API_KEY, SGLang
from fixtures.engines.sglang_facts import effective
from fixtures.profiles import Profile
from tests.unit.captured import Answers, altered, asked, replaying, sample, server_info, stand_in

BASELINE, EAGLE3, CPU = "h200-0.5.17.baseline", "h200-0.5.17.eagle3", "cpu-0.5.23"


@pytest.fixture
def h200(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Profile:
    """Return the H200's profile on a machine that has all it asks for."""
    monkeypatch.delenv(API_KEY, raising=False)
    monkeypatch.setenv("SGLANG_PYTHON", stand_in(tmp_path, "0.5.17"))
    monkeypatch.setenv("SGLANG_HOME", str(tmp_path))
    for model in ("llama-8b", "eagle3-8b"):
        (tmp_path / "models" / model).mkdir(parents=True)
    return profiles.load("h200")


def facts(name: str, *, backend_pinned: bool = True, **changed: Any) -> ServerFacts:
    """Return the facts of the captured server *name*, some *changed*."""
    info = server_info(name)
    said = {**effective(info, backend_pinned=backend_pinned), **changed}
    return ServerFacts(engine="sglang", version=info["version"], effective=said)


@pytest.mark.parametrize(
    ("answers", "paths"),
    [
        ({"/server_info": [(200, "")]}, ["/server_info"]),
        ({"/get_server_info": [(200, "")]}, ["/server_info", "/get_server_info"]),
    ],
    ids=["today's path", "the old path"],
)
def test_facts_are_the_values_in_force(h200: Profile, tmp_path: Path, answers: Answers, paths: list[str]) -> None:
    """What the real H200 said, under either name of the path."""
    body = sample(f"{EAGLE3}.server_info.json")

    with replaying(tmp_path, {path: [(200, body)] for path in answers}) as server:
        said = asked(server, SGLang(h200).facts)

    assert [path for _, path, _ in server.seen] == paths
    assert said.version == "0.5.17"
    assert said.effective["max_running_requests"] == 256
    assert said.effective["kv_tokens"] == 748027
    assert said.effective["decode_graph_batch_sizes"][-3:] == [224, 250, 256]
    assert said.effective["speculative_num_steps"] == 3


def test_graphs_that_were_not_captured_do_not_count() -> None:
    """The 0.5.23 on a CPU was configured up to 32 and captured none."""
    assert effective(server_info(CPU), backend_pinned=True)["decode_graph_batch_sizes"] == []


def test_server_without_facts_is_an_error(h200: Profile, tmp_path: Path) -> None:
    """A refusal names the path, the status and the words."""
    refusal = (401, '{"error":"Unauthorized"}')

    with (
        replaying(tmp_path, {"/server_info": [refusal]}) as server,
        pytest.raises(ServerError, match=r"answered /server_info with HTTP 401.*Unauthorized"),
    ):
        asked(server, SGLang(h200).facts)


def test_router_is_not_taken_for_a_server(h200: Profile, tmp_path: Path) -> None:
    """It answers the same path with other things; what each server behind it does is unknown."""
    with (
        replaying(tmp_path, {"/server_info": [(200, '{"version": "0.3.2", "workers": []}')]}) as server,
        pytest.raises(ServerError, match=r"has no model_path, tp_size, internal_states: is this a router\?"),
    ):
        asked(server, SGLang(h200).facts)


def test_server_that_is_gone_is_an_error(h200: Profile, tmp_path: Path) -> None:
    """It died between its first completion and the question."""
    with replaying(tmp_path, {}) as server:
        pass

    with pytest.raises(ServerError, match="did not answer /server_info: ConnectError"):
        asked(server, SGLang(h200).facts)


MODELS = {"target_model": "models/llama-8b", "draft_model": "models/eagle3-8b"}


@pytest.mark.parametrize(("server", "variant"), [(BASELINE, "baseline"), (EAGLE3, "eagle3")])
def test_server_that_was_meant_contradicts_nothing(h200: Profile, server: str, variant: str) -> None:
    """What the real node said of both arms is what the profile means."""
    assert SGLang(altered(h200, **MODELS)).contradictions(facts(server), variant) == []


@pytest.mark.parametrize(
    ("server", "changed", "variant", "problem"),
    [
        (BASELINE, {}, "eagle3", "speculation is off though the profile says EAGLE3"),
        (EAGLE3, {}, "baseline", "speculation is EAGLE3 though the profile says off"),
        (BASELINE, {"model": "other"}, "baseline", "it serves other, not models/llama-8b"),
        (BASELINE, {"tensor_parallel": 8}, "baseline", "it runs on 8 GPUs in parallel, not 1"),
        (EAGLE3, {"max_running_requests": 48}, "eagle3", "at most 48 requests at once, the top level is 250"),
        (EAGLE3, {"max_running_requests": None}, "eagle3", "at most None requests at once"),
        (EAGLE3, {"decode_graph_batch_sizes": []}, "eagle3", "it has no decode graph for the batch sizes [1, 2, 3,"),
        (EAGLE3, {"speculative_num_steps": 5}, "eagle3", "speculative_num_steps is 5 though the profile says 3"),
        (EAGLE3, {"speculative_draft_model_path": "x"}, "eagle3", "speculative_draft_model_path is x though"),
        (EAGLE3, {"speculative_adaptive": True}, "eagle3", "speculation is adaptive though the profile says static"),
    ],
    ids=[
        "speculation off", "speculation on", "other model", "other TP", "capped", "cap unknown", "no graphs",
        "other steps", "other draft", "adaptive",
    ],
)  # fmt: skip
def test_server_that_was_not_meant_is_named(
    h200: Profile, server: str, changed: dict[str, Any], variant: str, problem: str
) -> None:
    """One sentence, with both values."""
    (said,) = SGLang(altered(h200, **MODELS)).contradictions(facts(server, **changed), variant)

    assert problem in said


def test_adaptive_that_fell_back_is_named(h200: Profile) -> None:
    """SGLang warns and goes on with static speculation; only what it says of itself shows that."""
    flags = {**h200.variants["eagle3"].flags, "speculative-adaptive": True}
    variants = {**h200.variants, "eagle3": msgspec.structs.replace(h200.variants["eagle3"], flags=flags)}
    profile = msgspec.structs.replace(altered(h200, **MODELS), variants=variants)

    (said,) = SGLang(profile).contradictions(facts(EAGLE3), "eagle3")

    assert "fell back to static" in said


def test_arms_of_the_real_node_are_equal() -> None:
    """Fewer KV tokens and more graph memory come with speculation: they are shown, and confound nothing."""
    arms = {"baseline": facts(BASELINE), "eagle3": facts(EAGLE3)}

    assert unequal(arms) == []
    assert consequences(arms) == [
        "kv_tokens: baseline 788971, eagle3 748027",
        "graph_memory_gb: baseline 0.32, eagle3 1.266",
    ]


@pytest.mark.parametrize(
    ("name", "value", "sentence"),
    [
        ("max_running_requests", 48, "max_running_requests: baseline 256, eagle3 48"),
        ("chunked_prefill_size", 4096, "chunked_prefill_size: baseline 8192, eagle3 4096"),
        ("page_size", 64, "page_size: baseline 1, eagle3 64"),
        ("radix_cache", False, "radix_cache: baseline True, eagle3 False"),
        ("stream_interval", 16, "stream_interval: baseline 1, eagle3 16"),
        ("dtype", "half", "dtype: baseline auto, eagle3 half"),
        ("random_seed", 2, "random_seed: baseline 1, eagle3 2"),
        ("attention_backend", "triton", "attention_backend: baseline fa3, eagle3 triton"),
    ],
)
def test_confound_that_differs_is_named(name: str, value: Any, sentence: str) -> None:
    """With every arm's value."""
    assert unequal({"baseline": facts(BASELINE), "eagle3": facts(EAGLE3, **{name: value})}) == [sentence]


def test_graphs_that_differ_are_named() -> None:
    """Other batch sizes mean other padding at the same level."""
    (said,) = unequal({"baseline": facts(BASELINE), "eagle3": facts(EAGLE3, decode_graph_batch_sizes=[1, 2])})

    assert said.startswith("decode_graph_batch_sizes: ")


def test_backend_that_nobody_pinned_is_the_engines_choice() -> None:
    """Unpinned, SGLang chooses one per arm: part of what speculation is."""
    arms = {
        "baseline": facts(BASELINE, backend_pinned=False),
        "eagle3": facts(EAGLE3, backend_pinned=False, attention_backend="triton"),
    }

    assert unequal(arms) == []
    assert "attention_backend: baseline fa3, eagle3 triton" in consequences(arms)


def test_what_the_profile_leaves_open_cannot_differ() -> None:
    """A server that somebody else started may be attached to with a profile that names no models."""
    profile = altered(profiles.load("blackwell-tp8"), target_model="", draft_model="")
    said = facts(EAGLE3, model="/theirs/target", speculative_draft_model_path="/theirs/draft", tensor_parallel=8)

    assert SGLang(profile).contradictions(said, "eagle3") == []
