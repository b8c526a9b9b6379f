"""Adaptive speculation is written into a profile by batch size, and reaches SGLang in the form its version reads."""

import json
from pathlib import Path
from typing import Any

import msgspec
import pytest

from fixtures import profiles
from fixtures.analysis.adaptive import astray, candidates
from fixtures.engines import sglang_adaptive
from fixtures.engines.sglang import SGLang
from fixtures.profiles import Profile
from fixtures.simulator import adaptive
from tests.unit.captured import stand_in

STEPS = {1: [3], 30: [0]}
GRAPHS = [1, 2, 4, 8, 12, 16, 20, 24, 28, 30, 32, 64]


@pytest.fixture
def h200(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Profile:
    """Return the H200's profile on a machine whose SGLang is 0.5.17 and whose cache is empty."""
    monkeypatch.setenv("SGLANG_PYTHON", stand_in(tmp_path, "0.5.17"))
    monkeypatch.setenv("SGLANG_HOME", str(tmp_path))
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    for model in ("llama-8b", "eagle3-8b"):
        (tmp_path / "models" / model).mkdir(parents=True)
    return profiles.load("h200")


def flag(engine: SGLang, variant: str, name: str) -> str | None:
    """Return the word after *name* in the command of *variant*; None when it has no such flag."""
    argv = list(engine.command(variant, 1).argv)
    return argv[argv.index(name) + 1] if name in argv else None


def test_profile_s_steps_reach_the_server_as_a_file(h200: Profile) -> None:
    """The command names a file that holds them, once the launches are prepared."""
    engine = SGLang(h200)
    engine.prepare(lambda _line: None)

    path = flag(engine, "adaptive", "--speculative-adaptive-config")
    assert path
    slots = {"1": {"candidate_steps": [5]}, "20": {"candidate_steps": [3]}, "80": {"candidate_steps": [1]}}
    assert json.loads(Path(path).read_text()) == slots


def test_plan_starts_nothing_and_writes_nothing(h200: Profile, tmp_path: Path) -> None:
    """The command is known before its file is made, and a static variant has none."""
    engine = SGLang(h200)

    assert flag(engine, "adaptive", "--speculative-adaptive-config")
    assert flag(engine, "eagle3", "--speculative-adaptive-config") is None
    assert not (tmp_path / "cache").exists()
    assert engine.problems() == []


def test_server_starts_with_the_largest_candidate(h200: Profile) -> None:
    """0.5.17 sized its buffers by the start and died when it came to capture more."""
    steps = {1: [1, 3, 7], 8: [0, 1]}
    variants = {"adaptive": msgspec.structs.replace(h200.variants["adaptive"], steps_by_batch=steps)}
    engine = SGLang(msgspec.structs.replace(h200, variants={**h200.variants, **variants}))

    assert flag(engine, "adaptive", "--speculative-num-steps") == "7"
    assert flag(engine, "adaptive", "--speculative-num-draft-tokens") == "8"


def test_other_steps_are_another_file_and_another_variant(h200: Profile) -> None:
    """A night is never held against the record of another policy."""
    other = msgspec.structs.replace(h200.variants["adaptive"], steps_by_batch={1: [3], 64: [0]})
    changed = msgspec.structs.replace(h200, variants={**h200.variants, "adaptive": other})
    name = "--speculative-adaptive-config"

    assert flag(SGLang(changed), "adaptive", name) != flag(SGLang(h200), "adaptive", name)
    assert changed.identity().variants["adaptive"] != h200.identity().variants["adaptive"]
    assert changed.identity().variants["eagle3"] == h200.identity().variants["eagle3"]


@pytest.mark.parametrize(
    ("version", "written"),
    [
        ((0, 5, 12), {"candidate_steps": [0, 3]}),
        ((0, 5, 17), {"1": {"candidate_steps": [3]}, "30": {"candidate_steps": [0]}}),
        (None, {"1": {"candidate_steps": [3]}, "30": {"candidate_steps": [0]}}),
    ],
    ids=["0.5.12", "0.5.17", "unknown"],
)
def test_form_is_the_version_s(version: tuple[int, ...] | None, written: dict[str, Any]) -> None:
    """0.5.12 reads one list, its successors refuse that."""
    assert sglang_adaptive.document(STEPS, version) == written


def test_old_version_cannot_tell_batch_sizes_apart() -> None:
    """What it cannot do is said before a start."""
    (said,) = sglang_adaptive.problems("adaptive", STEPS, (0, 5, 12))

    assert said.startswith("adaptive: SGLang 0.5.12 has one list of steps for all batch sizes")
    assert not list(sglang_adaptive.problems("adaptive", STEPS, (0, 5, 17)))
    assert not list(sglang_adaptive.problems("adaptive", {1: [3]}, (0, 5, 12)))


@pytest.mark.parametrize(
    ("concurrency", "steps"),
    [(1, {3}), (28, {3}), (30, {3, 0}), (64, {0}), (500, {0})],
    ids=["alone", "below", "at the threshold", "above", "beyond the graphs"],
)
def test_steps_that_a_level_may_show(concurrency: int, steps: set[int]) -> None:
    """A batch is padded up to a graph before it is routed; between two requests it is short of C."""
    assert candidates(STEPS, GRAPHS, concurrency) == steps


@pytest.mark.parametrize(
    ("concurrency", "seen", "said"),
    [
        (28, 3, None),
        (64, 0, None),
        (30, 3, None),
        (64, 3, "adaptive: 3 steps in force at C=64, where its configuration says 0"),
        (8, 0, "adaptive: 0 steps in force at C=8, where its configuration says 3"),
        (8, None, "adaptive: the server does not say which steps are in force: start it with enable-metrics"),
    ],
    ids=["below", "above", "at the threshold", "never switched", "switched too early", "silent"],
)
def test_adaptive_server_must_show_that_it_acted(concurrency: int, seen: float | None, said: str | None) -> None:
    """One that fell back to static steps, or reads another file, is not judged as the policy."""
    assert astray(STEPS, GRAPHS, concurrency, seen) == said


@pytest.mark.parametrize("batch", [1, 9, 27, 28, 29, 30, 31, 63, 64, 65, 200])
def test_simulator_and_expectation_route_alike(tmp_path: Path, batch: int) -> None:
    """Written independently, by the same source: the slot that the simulator takes is among those expected."""
    path = sglang_adaptive.write(STEPS, None, tmp_path)
    routed = adaptive.load(str(path), 3, GRAPHS).slot(batch).steps

    assert routed in candidates(STEPS, GRAPHS, batch)
