"""What the driver's library says arrives as plain values: asked of a library of ours, in a process that loads it."""

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).parents[2]
SOURCE = Path(__file__).parent / "servers" / "nvml.c"
ASK = (
    "import dataclasses, json; from fixtures.engines.nvml import Nvml\n"
    "gpus = Nvml.open(); plain = lambda many: [dataclasses.asdict(one) for one in many]\n"
    "out = {'devices': plain(gpus.devices()), 'readings': plain(gpus.readings()), 'driver': gpus.driver()}\n"
    "print(json.dumps(out, default=sorted))\n"
)
COMPILER = shutil.which("cc")

pytestmark = pytest.mark.skipif(COMPILER is None or sys.platform != "linux", reason="needs a C compiler on Linux")


@pytest.fixture(scope="module")
def library(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return the folder of a libnvidia-ml.so.1 that knows three GPUs."""
    folder = tmp_path_factory.mktemp("driver")
    command = [str(COMPILER), "-shared", "-fPIC", "-o", str(folder / "libnvidia-ml.so.1"), str(SOURCE)]
    subprocess.run(command, check=True)
    return folder


def told(library: Path, visible: str | None = None) -> dict[str, Any]:
    """Ask the GPUs in *library*, of which *visible* may be used."""
    environment = {name: value for name, value in os.environ.items() if name != "CUDA_VISIBLE_DEVICES"}
    environment |= {"LD_LIBRARY_PATH": str(library)} | ({} if visible is None else {"CUDA_VISIBLE_DEVICES": visible})
    asked = [sys.executable, "-c", ASK]
    done = subprocess.run(asked, cwd=ROOT, env=environment, check=True, capture_output=True, text=True)
    answer: dict[str, Any] = json.loads(done.stdout)
    return answer


def test_values_arrive_in_our_units(library: Path) -> None:
    """MiB, MHz, watts, names of reasons, sorted pids; CUDA's version as people write it."""
    answer = told(library)

    assert answer["driver"] == {"driver": "580.159.04", "cuda": "12.9"}
    assert answer["devices"][1] == {"name": "NVIDIA H200", "uuid": "GPU-100-aaaa", "memory_mib": 143_771}
    assert answer["readings"][1] == {
        "memory_used_mib": 5,
        "sm_mhz": 1980,
        "temperature_c": 45,
        "power_w": 455.25,
        "reasons": ["hw_thermal_slowdown", "sw_power_cap"],
        "pids": [4241, 4242],
    }


def test_missing_sensor_is_none(library: Path) -> None:
    """A GPU without a sensor still counts, and its other values stay."""
    assert told(library)["readings"][2] == {
        "memory_used_mib": 6, "sm_mhz": None, "temperature_c": None, "power_w": None, "reasons": None, "pids": [],
    }  # fmt: skip


@pytest.mark.parametrize(
    ("visible", "uuids"),
    [
        (None, ["GPU-000-aaaa", "GPU-100-aaaa", "GPU-200-aaaa"]),
        ("1", ["GPU-100-aaaa"]),
        ("GPU-2,0", ["GPU-000-aaaa", "GPU-200-aaaa"]),
        ("", []),
    ],
    ids=["not narrowed", "by number", "by the start of a uuid", "none"],
)
def test_visible_devices_narrow_the_node(library: Path, visible: str | None, uuids: list[str]) -> None:
    """A server sees what CUDA_VISIBLE_DEVICES lets it see: so does the suite."""
    assert [gpu["uuid"] for gpu in told(library, visible)["devices"]] == uuids
