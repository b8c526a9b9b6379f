"""GPUs that do what a test says."""

from collections.abc import Iterable
from itertools import chain, repeat

from fixtures.engines import ServerError
from fixtures.engines.nvml import Gpu, Reading

NONE: frozenset[str] = frozenset()
H200 = Gpu(name="NVIDIA H200", uuid="GPU-5f1c2a9e", memory_mib=143_771)
IDLE = Reading(memory_used_mib=4, sm_mhz=345, temperature_c=31, power_w=76.0, reasons=frozenset({"gpu_idle"}))


class ScriptedGpus:
    """Give one list of readings after the other, and the last one for ever; a failure in place of a list is raised."""

    def __init__(self, devices: list[Gpu], script: Iterable[list[Reading] | ServerError]) -> None:
        lines = list(script)
        self._devices = devices
        self._script = chain(lines, repeat(lines[-1]))
        self.left = len(lines)

    def devices(self) -> list[Gpu]:
        if self.left <= 0:
            raise ServerError("NVML: asked after the end")
        return self._devices

    def readings(self) -> list[Reading]:
        self.left -= 1
        now = next(self._script)
        if isinstance(now, ServerError):
            raise now
        return now

    def driver(self) -> dict[str, str]:
        return {"driver": "580.159.04", "cuda": "13.0"}
