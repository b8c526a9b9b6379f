"""SGLang is started by its version's own flags, with what a comparison needs pinned, or not at all."""

import json
from pathlib import Path

import msgspec
import pytest

from fixtures import profiles
from fixtures.engines import sglang_flags
from fixtures.engines.sglang import API_KEY, SGLang
from fixtures.engines.sglang_problems import pins
from fixtures.load.prompts import Request
from fixtures.profiles import Flag, Profile
from tests.unit.captured import altered, stand_in


@pytest.fixture
def h200(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Profile:
    """Return the H200's profile on a machine that has all it asks for."""
    monkeypatch.delenv(API_KEY, raising=False)
    monkeypatch.setenv("SGLANG_PYTHON", stand_in(tmp_path, "0.5.17"))
    monkeypatch.setenv("SGLANG_HOME", str(tmp_path))
    for model in ("llama-8b", "eagle3-8b"):
        (tmp_path / "models" / model).mkdir(parents=True)
    return profiles.load("h200")


def with_flags(profile: Profile, **flags: Flag) -> Profile:
    """Return *profile* with common flags set otherwise, `_` for `-`."""
    return altered(profile, flags={**profile.engine.flags, **{k.replace("_", "-"): v for k, v in flags.items()}})


RAN_ON_THE_H200 = (
    "-m sglang.launch_server --host 127.0.0.1 --port 30000 --load-format dummy --skip-tokenizer-init "
    "--grammar-backend none --sampling-backend pytorch --disable-prefill-cuda-graph --max-running-requests 256 "
    "--mem-fraction-static 0.8 --mm-feature-transport cpu --random-seed 1 --enable-metrics "
    "--cuda-graph-max-bs-decode 256 --cuda-graph-bs-decode 1 2 3 4 5 6 8 10 12 16 20 24 30 32 40 48 56 64 70 80 96 "
    "100 112 128 160 192 224 250 256 --attention-backend fa3"
)


SPECULATION = (
    "--speculative-algorithm EAGLE3 --speculative-num-steps 3 --speculative-eagle-topk 1 "
    "--speculative-num-draft-tokens 4"
)


def flags_of(words: list[str]) -> dict[str, list[str]]:
    """Return each flag of a command line with its words."""
    out: dict[str, list[str]] = {}
    for word in words:
        if word.startswith("-"):
            values = out[word] = []
        else:
            values.append(word)
    return out


@pytest.mark.parametrize(
    ("variant", "ran", "own"),
    [
        ("baseline", RAN_ON_THE_H200, {"--model-path", "--tp-size", "--stream-interval"}),
        (
            "eagle3",
            f"{RAN_ON_THE_H200} {SPECULATION}",
            {"--model-path", "--tp-size", "--stream-interval", "--speculative-draft-model-path"},
        ),
    ],
    ids=["baseline", "eagle3"],
)
def test_profile_starts_what_ran_on_the_real_node(h200: Profile, variant: str, ran: str, own: set[str]) -> None:
    """Flag by flag the command that was captured there; only paths, TP and the stream interval are the suite's."""
    command = SGLang(h200).command(variant, 30000)

    flags = flags_of(list(command.argv[1:]))
    assert {name: words for name, words in flags.items() if name not in own} == flags_of(ran.split())
    assert own <= set(flags)
    assert flags["--stream-interval"] == ["16"]


def test_acceptance_is_simulated_in_the_speculative_arm_alone(h200: Profile) -> None:
    """The variable is read by the server, so it is in its environment; the baseline has nothing to accept."""
    engine = SGLang(h200)

    assert engine.command("eagle3", 1).environment["SGLANG_SIMULATE_ACC_LEN"] == "2.8"
    assert "SGLANG_SIMULATE_ACC_LEN" not in engine.command("baseline", 1).environment


@pytest.mark.parametrize(
    ("version", "spelled"),
    [
        ("0.5.12", {"cuda-graph-bs": [1, 2], "disable-piecewise-cuda-graph": True}),
        ("0.5.16.post1", {"cuda-graph-bs": [1, 2], "disable-piecewise-cuda-graph": True}),
        ("0.5.17", {"cuda-graph-bs-decode": [1, 2], "disable-prefill-cuda-graph": True}),
        ("0.5.23", {"cuda-graph-bs-decode": [1, 2], "disable-prefill-cuda-graph": True}),
    ],
)
def test_flags_have_the_names_of_the_version(version: str, spelled: dict[str, Flag]) -> None:
    """0.5.23 ends with status 2 at the old names, 0.5.12 at the new ones."""
    flags: dict[str, Flag] = {"cuda-graph-bs-decode": [1, 2], "disable-prefill-cuda-graph": True}

    assert sglang_flags.spelled(flags, sglang_flags.parse(version)) == spelled


@pytest.mark.parametrize(
    ("flag", "version", "advice"),
    [
        ("speculative-use-block-verification", "0.5.17", "no --speculative-use-block-verification yet"),
        ("cuda-graph-max-bs", "0.5.23", "no --cuda-graph-max-bs any more: write cuda-graph-max-bs-decode"),
        ("speculative-skip-dp-mlp-sync", "0.5.23", "any more: leave it out"),
    ],
    ids=["too new", "renamed", "removed"],
)
def test_flag_that_the_version_refuses_is_named(flag: str, version: str, advice: str) -> None:
    """Before a start that would end with argparse's status 2."""
    parsed = sglang_flags.parse(version)
    assert parsed

    (sentence,) = sglang_flags.refused({flag: True, "random-seed": 1}, parsed)

    assert advice in sentence


def test_profile_of_this_node_has_no_problems(h200: Profile) -> None:
    """Nothing to say where everything is there."""
    assert SGLang(h200).problems() == []


def test_models_to_fill_in_are_named() -> None:
    """The Blackwell profile ships without models: the first thing that a newcomer reads is what to fill in."""
    problems = SGLang(profiles.load("blackwell-tp8")).problems()

    assert problems[0] == "fill in target_model and draft_model under [engine] in the profile blackwell-tp8"


def test_variable_that_is_not_set_is_named(h200: Profile, monkeypatch: pytest.MonkeyPatch) -> None:
    """A profile is loaded anywhere; launched only where its variables are."""
    monkeypatch.delenv("SGLANG_HOME")

    (said,) = SGLang(h200).problems()

    assert said == "the profile h200 uses ${SGLANG_HOME}, which is not set: export it and start again"


@pytest.mark.parametrize(
    ("says", "status", "problem"),
    [
        ("0.5.9", 0, "SGLang 0.5.9 is older than 0.5.12, the oldest that this suite knows: install a newer one"),
        ("PackageNotFoundError: sglang", 1, "has no sglang: it says 'PackageNotFoundError: sglang'"),
    ],
    ids=["too old", "no sglang"],
)
def test_interpreter_that_cannot_do_is_named(
    h200: Profile, tmp_path: Path, says: str, status: int, problem: str
) -> None:
    """The interpreter of the profile is asked, not the suite's own."""
    stand_in(tmp_path, says, status)

    (said,) = SGLang(h200).problems()

    assert problem in said


def test_interpreter_that_is_not_there_is_named(h200: Profile) -> None:
    """With what to do about it."""
    (said,) = SGLang(altered(h200, interpreter="/opt/none/python")).problems()

    assert "/opt/none/python is not an executable file: let it name SGLang's own Python" in said


def test_model_that_is_not_there_is_named(h200: Profile, tmp_path: Path) -> None:
    """A path that leads nowhere ends here, not after half a minute of imports."""
    (tmp_path / "models" / "eagle3-8b").rmdir()

    assert SGLang(h200).problems() == [f"engine.draft_model: there is no {tmp_path}/models/eagle3-8b"]


def test_adaptive_configuration_that_is_not_there_is_named(h200: Profile) -> None:
    """SGLang would say so in a traceback, after the baseline's launch has been measured."""
    flags = {**h200.variants["eagle3"].flags, "speculative-adaptive-config": "${SGLANG_HOME}/policy.json"}
    variants = {**h200.variants, "eagle3": msgspec.structs.replace(h200.variants["eagle3"], flags=flags)}

    (said,) = SGLang(msgspec.structs.replace(h200, variants=variants)).problems()

    assert said.startswith("variant eagle3: speculative-adaptive-config: there is no /")


def test_a_level_that_is_padded_into_a_threshold_is_no_problem(h200: Profile) -> None:
    """A policy's page says to measure it: from C=71 on an adaptive server does what it does at its threshold, 80."""
    assert 80 in h200.variants["adaptive"].steps_by_batch

    for levels, problem in (([70, 71, 80], ""), ([71, 72, 80], "lacks the levels [72]"), ([111], "levels [111]")):
        said = list(pins(msgspec.structs.replace(h200, levels=levels)))
        assert bool(said) == bool(problem)
        assert all(problem in sentence for sentence in said)


@pytest.mark.parametrize(
    ("flags", "problem"),
    [
        ({"max_running_requests": 48}, "max-running-requests is 48, the top level is 250"),
        ({"max_running_requests": False}, "max-running-requests is not pinned, the top level is 250"),
        ({"cuda_graph_bs_decode": [1, 2, 5, 10, 30, 100, 250]}, "cuda-graph-bs-decode lacks the levels [70]"),
    ],
    ids=["cap too low", "cap not pinned", "level without a graph"],
)
def test_confound_that_is_not_pinned_is_named(h200: Profile, flags: dict[str, Flag], problem: str) -> None:
    """For every variant that would be measured so."""
    said = SGLang(with_flags(h200, **flags)).problems()

    assert [sentence.partition(":")[0] for sentence in said] == [f"variant {name}" for name in h200.variants]
    assert all(problem in sentence for sentence in said)


def test_request_asks_for_its_exact_length(h200: Profile) -> None:
    """Token ids, no end before the length, and chunks of the workload's interval."""
    path, body = SGLang(h200).encode(
        Request(index=0, prompt_ids=(7, 8), output_tokens=9, stream_interval=16), stream=True
    )

    assert path == "/generate"
    assert json.loads(body) == {
        "input_ids": [7, 8],
        "stream": True,
        "sampling_params": {"max_new_tokens": 9, "temperature": 0.0, "ignore_eos": True, "stream_interval": 16},
    }
