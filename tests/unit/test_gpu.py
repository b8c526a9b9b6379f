"""What the GPUs did over a cell, whether it still counts, and whether a stopped server gave their memory back."""

import os
import subprocess
import sys
import time
from collections.abc import Iterator
from typing import Any

import pytest

from fixtures.engines import ServerError
from fixtures.engines.gpu import (
    GpuWatch,
    is_ours,
    memory_used_mib,
    summary,
    throttle_reasons_that_invalidate,
    wait_memory_back,
)
from fixtures.engines.nvml import Reading
from fixtures.engines.process import MARK
from tests.unit.gpus import H200, IDLE, NONE, ScriptedGpus

LOW = Reading(memory_used_mib=90_000, sm_mhz=1980, temperature_c=45, power_w=455.0, reasons=NONE)
CAPPED = Reading(
    memory_used_mib=120_000, sm_mhz=1560, temperature_c=61, power_w=693.0, reasons=frozenset({"sw_power_cap"})
)
LOST = ServerError("NVML: GPU is lost")


def watched(gpus: ScriptedGpus) -> Any:
    """Watch *gpus* until their script is over."""
    watch = GpuWatch(gpus, every_s=0.001, ours=lambda pid: pid < 1000)
    watch.start()
    for _ in range(2000):
        if gpus.left <= 0:
            break
        time.sleep(0.005)
    return watch.stop()


def one_gpu(throttle: dict[str, float], temperature_c: int | None = 88) -> dict[str, Any]:
    """Facts of a cell on one GPU."""
    return {"gpus": [{"throttle": throttle, "temperature_max_c": temperature_c}]}


def test_summary_of_a_cell() -> None:
    """Clocks as range and mean, throttling as share of the samples, the highest temperature, the mean power."""
    assert summary(H200, [LOW, CAPPED, CAPPED, LOW]) == {
        "name": "NVIDIA H200",
        "uuid": "GPU-5f1c2a9e",
        "sm_mhz": {"min": 1560, "mean": 1770.0, "max": 1980},
        "throttle": {"sw_power_cap": 0.5},
        "temperature_max_c": 61,
        "power_mean_w": 574.0,
        "memory_used_mib": 120_000,
    }


def test_gpu_without_sensors() -> None:
    """A model that has no such sensor says None, and nothing is made up."""
    facts = summary(H200, [Reading(memory_used_mib=4)])

    assert {facts[name] for name in ("sm_mhz", "throttle", "temperature_max_c", "power_mean_w")} == {None}
    assert throttle_reasons_that_invalidate({"gpus": [facts]}) == []


def test_watch_sees_every_gpu() -> None:
    """Each GPU has its own facts, in the driver's order."""
    facts = watched(ScriptedGpus([H200, H200], [[LOW, IDLE], [CAPPED, IDLE]]))

    assert [gpu["sm_mhz"]["min"] for gpu in facts["gpus"]] == [1560, 345]
    assert facts["samples"] >= 2


def test_shortest_cell_has_a_sample() -> None:
    """Started and stopped at once is sampled once."""
    watch = GpuWatch(ScriptedGpus([H200], [[LOW]]), every_s=60)
    watch.start()

    assert watch.stop()["samples"] == 1


def test_watch_is_used_for_one_cell_after_the_other() -> None:
    """A second start begins from nothing."""
    watch = GpuWatch(ScriptedGpus([H200], [[CAPPED], [LOW]]), every_s=60)
    watch.start()
    watch.stop()
    watch.start()

    facts = watch.stop()

    assert facts["samples"] == 1
    assert facts["gpus"][0]["sm_mhz"]["min"] == 1980


def test_foreign_processes_are_named() -> None:
    """Whoever else computed on the GPU during the cell is in its facts, our own server is not."""
    both = Reading(memory_used_mib=9, pids=(17, 4242))

    facts = watched(ScriptedGpus([H200], [[LOW], [both], [LOW]]))

    assert facts["gpus"][0]["foreign_pids"] == [4242]


def test_lost_gpu_is_told_and_invalidates() -> None:
    """A driver that fails in the middle of a cell ends the watch, not the run; the cell does not count."""
    facts = watched(ScriptedGpus([H200], [[LOW], LOST]))

    assert facts["samples"] == 1
    assert throttle_reasons_that_invalidate(facts) == [
        "the GPUs stopped answering during the cell: NVML: GPU is lost",
    ]


def test_gpu_lost_from_the_start() -> None:
    """Without a single sample there is no GPU in the facts, only the error."""
    facts = watched(ScriptedGpus([H200], [LOST]))

    assert (facts["samples"], facts["gpus"], facts["error"]) == (0, [], "NVML: GPU is lost")


def test_nothing_to_stop() -> None:
    """A watch that never started has seen nothing."""
    assert GpuWatch(ScriptedGpus([H200], [[LOW]])).stop() == {}


@pytest.mark.parametrize(
    ("reason", "words"),
    [
        ("hw_slowdown", "hardware slowdown"),
        ("hw_thermal_slowdown", "hardware thermal slowdown"),
        ("sw_thermal_slowdown", "software thermal slowdown"),
        ("hw_power_brake_slowdown", "power brake"),
    ],
)
def test_throttled_cell_does_not_count(reason: str, words: str) -> None:
    """Heat and power faults make a cell invalid, however short they were; the sentence says which and how hot."""
    found = throttle_reasons_that_invalidate(one_gpu({reason: 0.125, "sw_power_cap": 1.0}))

    assert found == [f"throttled: GPU 0: {words} in 12% of the samples, up to 88 °C"]


@pytest.mark.parametrize("reason", ["sw_power_cap", "gpu_idle", "applications_clocks_setting", "sync_boost"])
def test_normal_limit_leaves_a_cell_valid(reason: str) -> None:
    """The software power cap is how a GPU runs at high concurrency: recorded, not judged here."""
    assert throttle_reasons_that_invalidate(one_gpu({reason: 1.0})) == []


def test_no_nvml_invalidates_nothing() -> None:
    """A node without GPUs has no facts of them."""
    assert throttle_reasons_that_invalidate({}) == []


def test_memory_comes_back_after_a_while() -> None:
    """The wait ends when every GPU is where it was before the server."""
    gpus = ScriptedGpus([H200, H200], [[LOW, LOW], [IDLE, LOW], [IDLE, IDLE]])

    wait_memory_back([4, 4], 20, gpus)

    assert gpus.left == 0


def test_memory_that_does_not_come_back_is_told() -> None:
    """The GPU, both amounts and who holds it are in the message."""
    held = Reading(memory_used_mib=90_000, pids=(4242,))

    with pytest.raises(ServerError, match=r"GPU 1 uses 90000 MiB, 4 before \(processes: 4242\)") as told:
        wait_memory_back([4, 4], 0, ScriptedGpus([H200, H200], [[IDLE, held]]))

    assert "GPU 0" not in str(told.value)


def test_used_memory_of_each_gpu() -> None:
    """One number a GPU, MiB."""
    assert memory_used_mib(ScriptedGpus([H200, H200], [[LOW, IDLE]])) == [90_000, 4]


@pytest.fixture
def orphan(request: pytest.FixtureRequest) -> Iterator[int]:
    """Return the pid of a process that left us for init, with the variables that the test asks for."""
    forker = (
        "import subprocess, sys\n"
        "sleeper = subprocess.Popen([sys.executable, '-c', 'input()'], stdin=0, start_new_session=True)\n"
        "print(sleeper.pid, flush=True); sleeper.returncode = 0\n"
    )
    environment = {**os.environ, **request.param}
    with subprocess.Popen(
        [sys.executable, "-c", forker], env=environment, stdin=subprocess.PIPE, stdout=subprocess.PIPE
    ) as parent:
        assert parent.stdout
        pid = int(parent.stdout.readline())
        parent.wait()
        yield pid  # it ends when the pipe to its standard input closes


@pytest.mark.parametrize("orphan", [{MARK: "1"}], indirect=True, ids=["marked"])
def test_orphan_of_our_server_is_ours(orphan: int) -> None:
    """A worker that left its parent and its session still carries the launch's mark."""
    assert is_ours(orphan)


@pytest.mark.parametrize("orphan", [{}], indirect=True, ids=["unmarked"])
def test_process_of_somebody_else_is_not_ours(orphan: int) -> None:
    """Neither descended from us nor marked."""
    assert not is_ours(orphan)


def test_our_own_children_are_ours() -> None:
    """A server that is started without a mark, and this very process."""
    with subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE) as child:
        assert is_ours(child.pid)
        assert is_ours(os.getpid())


def test_number_of_another_container_says_nothing() -> None:
    """From inside a container NVML names processes by numbers that do not exist there."""
    with subprocess.Popen([sys.executable, "-c", ""]) as gone:
        pass

    assert is_ours(gone.pid)
