"""Whether this machine is the profile's node is asked before any start, and all that is wrong is said at once."""

import json
import resource
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import msgspec
import pytest

from fixtures import profiles
from fixtures.engines import ServerError
from fixtures.engines.gpu import available
from fixtures.engines.node import fingerprint, preflight, suite_commit
from fixtures.engines.nvml import Gpu, Reading
from fixtures.engines.shortages import GIB, bad_place, busy, few_descriptors, small_shm
from fixtures.profiles import Profile
from tests.unit.gpus import H200, IDLE, ScriptedGpus
from tests.unit.scripted import Scripted

ROOT = Path(__file__).parents[2]
TESTS = ("tests/perf/test_node.py", "tests/perf/test_throughput.py")
BUSY = Reading(memory_used_mib=90_000, pids=(1,))


class Lacking(Scripted):
    """An engine that cannot start here."""

    def problems(self) -> list[str]:
        return ["model folder /models/8b does not exist"]


def node(name: str, **changes: Any) -> Profile:
    """Return the profile *name* with other words in its node table."""
    profile = profiles.load(name)
    return msgspec.structs.replace(profile, node=msgspec.structs.replace(profile.node, **changes))


@pytest.fixture
def few_files() -> Iterator[None]:
    """Let this process open 100 files only."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (100, hard))
    yield
    resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


def test_right_and_idle_node_has_no_problem(tmp_path: Path) -> None:
    """The quiet case: one idle H200 for the profile of one H200."""
    profile = msgspec.structs.replace(profiles.load("h200"), levels=[1, 2])

    assert preflight(profile, Scripted(), tmp_path, ScriptedGpus([H200], [[IDLE]])) == []


@pytest.mark.skipif(available() is not None, reason="this machine has a GPU: other tests tell it from the profile's")
def test_machine_without_a_gpu_is_not_the_hardware_node(tmp_path: Path) -> None:
    """On a laptop the hardware profile ends in one sentence: what it is for, what is here, what to do."""
    (problem,) = preflight(profiles.load("blackwell-tp8"), Lacking(), tmp_path)

    assert problem == (
        "profile blackwell-tp8 is for 8x NVIDIA RTX PRO 6000 Blackwell Server Edition; this machine has no NVIDIA GPU "
        "(NVML: libnvidia-ml.so.1 not found): run on that node, choose another profile with --profile, or add one for "
        "this node in fixtures/profiles"
    )


@pytest.mark.skipif(available() is not None, reason="this machine has a GPU: the run would go on")
def test_hardware_run_on_a_laptop_fails_once(tmp_path: Path) -> None:
    """`pytest -m gpu` where there is no GPU is red, never skipped: one test, one sentence, the rest not run."""
    words = ["-c", "pytest.ini", "--rootdir=.", "-p", "no:cacheprovider", "-m", "gpu", "--profile=blackwell-tp8"]
    places = [f"--run={tmp_path / 'run'}", f"--history={tmp_path / 'history'}", *TESTS]
    run = [sys.executable, "-m", "pytest", *words, *places]
    done = subprocess.run(run, cwd=ROOT, capture_output=True, text=True, timeout=120, check=False)

    assert done.returncode == 1, done.stdout
    assert "this machine has no NVIDIA GPU (NVML: libnvidia-ml.so.1 not found)" in done.stdout
    assert "1 failed" in done.stdout
    assert "not run" in done.stdout
    assert "passed" not in done.stdout
    assert "skipped" not in done.stdout


@pytest.mark.parametrize(
    ("devices", "instead"),
    [
        ([H200] * 2, "2x NVIDIA H200"),
        ([replace(H200, name="NVIDIA H100")], "1x NVIDIA H100"),
        ([H200, replace(H200, name="NVIDIA T4")], "1x NVIDIA H200, 1x NVIDIA T4"),
        ([], "no GPU that CUDA_VISIBLE_DEVICES allows"),
    ],
    ids=["too many", "another model", "mixed", "all hidden"],
)
def test_other_gpus_are_another_node(tmp_path: Path, devices: list[Gpu], instead: str) -> None:
    """Model and number must be the profile's; what is here is said, and nothing that follows from it."""
    gpus = ScriptedGpus(devices, [[BUSY] * len(devices)])

    (problem,) = preflight(profiles.load("h200"), Lacking(), tmp_path, gpus)

    assert f"profile h200 is for 1x NVIDIA H200; this machine has {instead}: " in problem


def test_driver_that_fails_is_told(tmp_path: Path) -> None:
    """A GPU that fell off the bus is no GPU, and the driver's words are in the message."""
    gpus = ScriptedGpus([H200], [ServerError("NVML: GPU is lost")])

    (problem,) = preflight(profiles.load("h200"), Scripted(), tmp_path, gpus)

    assert "this machine has no NVIDIA GPU (NVML: GPU is lost)" in problem


def test_all_problems_are_told_at_once(tmp_path: Path, few_files: None) -> None:
    """Nobody repairs a node one message a night."""
    problems = preflight(profiles.load("h200"), Lacking(), tmp_path, ScriptedGpus([H200], [[BUSY]]))

    assert [problem.partition(" ")[0] for problem in problems] == ["GPU", "model", "only"]


@pytest.mark.parametrize("name", ["cpu", "sim"])
def test_profile_without_gpus_asks_for_none(tmp_path: Path, name: str) -> None:
    """A laptop needs neither driver nor library."""
    profile = msgspec.structs.replace(profiles.load(name), levels=[1])

    assert preflight(profile, Scripted(), tmp_path) == []


def test_server_on_another_host_keeps_its_gpus_there(tmp_path: Path) -> None:
    """A start command may start it anywhere: this machine's GPUs then say nothing."""
    profile = node("h200", gpu="NVIDIA Nonesuch", gpu_count=72)
    engine = msgspec.structs.replace(profile.engine, url="http://node7.example:{port}")
    profile = msgspec.structs.replace(profile, engine=engine, levels=[1])

    assert preflight(profile, Scripted(), tmp_path, ScriptedGpus([H200], [[BUSY]])) == []


def test_history_that_cannot_be_is_told(tmp_path: Path) -> None:
    """The night's file must have a place before hours are spent on it."""
    (tmp_path / "file").write_text("")
    profile = msgspec.structs.replace(profiles.load("cpu"), levels=[1])

    (problem,) = preflight(profile, Scripted(), tmp_path / "file" / "history")

    assert problem == f"{tmp_path}/file/history cannot be made: {tmp_path}/file is no folder"


def test_gpu_in_use_names_its_user() -> None:
    """Whoever computes there is named with pid, user and command."""
    (problem,) = busy([H200, H200], [IDLE, BUSY])

    assert problem.startswith("GPU 1 is in use by pid 1 of ")


def test_memory_in_use_by_nobody_who_shows() -> None:
    """A process of another container is seen by its memory only; a driver's own few MiB are nobody."""
    (problem,) = busy([H200], [replace(IDLE, memory_used_mib=40_000)])

    assert problem.startswith("GPU 0 has 40000 of 143771 MiB in use though no process shows")
    assert list(busy([H200], [replace(IDLE, memory_used_mib=700)])) == []


@pytest.mark.parametrize(
    ("gpu_count", "free_mib", "fires"),
    [(8, 64, True), (8, 8191, True), (8, 8192, False), (1, 64, False)],
    ids=["a container's default", "just too small", "enough", "one GPU talks to nobody"],
)
def test_shared_memory(gpu_count: int, free_mib: int, *, fires: bool) -> None:
    """NCCL's buffers live there when there are several GPUs."""
    assert bool(list(small_shm(gpu_count, free_mib << 20))) == fires


@pytest.mark.parametrize(
    ("soft", "hard", "problem"),
    [
        (1000, 1000, None),
        (resource.RLIM_INFINITY, resource.RLIM_INFINITY, None),
        (999, 4096, "only 999 files may be open, C=250 needs 1000: run `ulimit -n 1000` first"),
        (
            999,
            resource.RLIM_INFINITY,
            "only 999 files may be open, C=250 needs 1000: run `ulimit -n 1000` first",
        ),
        (256, 512, "only 256 files may be open, C=250 needs 1000: have root raise the hard limit of 512"),
    ],
    ids=["just enough", "no limit", "soft limit", "no hard limit", "hard limit"],
)
def test_open_file_limit(soft: int, hard: int, problem: str | None) -> None:
    """Four descriptors a stream of the top level; the remedy is one that works."""
    assert list(few_descriptors(250, soft, hard)) == ([problem] if problem else [])


def test_disk() -> None:
    """A place that is full, or somebody else's, is told; one with room is not."""
    place = Path("nights")

    (full,) = bad_place(place, writable=True, free=GIB // 2)
    (foreign,) = bad_place(place, writable=False, free=9 * GIB)

    assert "nights has 0.5 GiB free, a run wants 1" in full
    assert "nights cannot be written by " in foreign
    assert list(bad_place(place, writable=True, free=GIB)) == []


def test_fingerprint_hides_secrets(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of the variables only those that SGLang, NCCL and CUDA read are kept, and of a key only that it is set."""
    monkeypatch.setenv("SGLANG_API_KEY", "abc")
    monkeypatch.setenv("NCCL_ALGO", "Ring")
    monkeypatch.setenv("HF_HOME", "/models")

    variables = fingerprint(ScriptedGpus([H200], [[IDLE]]))["variables"]

    assert variables["SGLANG_API_KEY"] == "…"
    assert variables["NCCL_ALGO"] == "Ring"
    assert "HF_HOME" not in variables


def test_fingerprint_is_kept_as_json() -> None:
    """It lands in the night's file: driver, CUDA and the GPUs by uuid among host, kernel, Python and packages."""
    facts = json.loads(json.dumps(fingerprint(ScriptedGpus([H200], [[IDLE]])), allow_nan=False))

    assert facts["driver"] == "580.159.04"
    assert facts["cuda"] == "13.0"
    assert facts["gpus"] == [{"name": "NVIDIA H200", "uuid": "GPU-5f1c2a9e", "memory_mib": 143_771}]
    assert {"host", "kernel", "cpu", "cpu_count", "python", "suite", "packages", "variables"} < set(facts)
    assert facts["packages"]["pytest"] == pytest.__version__


def git(folder: Path, *words: str) -> None:
    """Run git in *folder* as somebody, without this machine's settings."""
    author = ["-c", "user.name=a", "-c", "user.email=a@example.org", "-c", "commit.gpgsign=false"]
    subprocess.run(["git", "-C", str(folder), *author, *words], check=True, capture_output=True)


def test_commit_of_the_suite(tmp_path: Path) -> None:
    """The commit, and whether the checkout is that commit; outside git nothing is said."""
    assert suite_commit(tmp_path) == {}
    git(tmp_path, "init", "-q")
    (tmp_path / "file").write_text("one")
    git(tmp_path, "add", "file")
    git(tmp_path, "commit", "-qm", "One")

    clean = suite_commit(tmp_path)
    (tmp_path / "file").write_text("two")
    changed = suite_commit(tmp_path)

    assert len(clean["commit"]) == 40
    assert clean == {"commit": changed["commit"], "dirty": False}
    assert changed["dirty"] is True
