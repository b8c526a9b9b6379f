"""A simulated SGLang in another process, for the tests of its wire and its ways to start and stop."""

import contextlib
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import httpx

ROOT = Path(__file__).parents[2]
PATIENCE_S = 20

EAGLE3 = (
    *("--speculative-algorithm", "EAGLE3", "--speculative-draft-model-path", "draft", "--speculative-num-steps", "3"),
    *("--speculative-eagle-topk", "1", "--speculative-num-draft-tokens", "4"),
)
COMMON = ("--model-path", "model", "--skip-tokenizer-init", "--enable-metrics", "--max-running-requests", "64")


@dataclass(frozen=True, slots=True, kw_only=True)
class Simulated:
    """One simulated server."""

    process: subprocess.Popen[bytes]
    port: int
    log: Path
    client: httpx.Client

    def statuses_until_ready(self) -> list[int | str]:
        """Poll `/health` until it says 200 or the process ends; return what was seen, each change once."""
        seen: list[int | str] = []
        until = time.monotonic() + PATIENCE_S
        while time.monotonic() < until and self.process.poll() is None:
            status = self._health()
            if seen[-1:] != [status]:
                seen.append(status)
            if status == 200:
                break
            time.sleep(0.005)
        return seen

    def _health(self) -> int | str:
        try:
            return self.client.get("/health").status_code
        except httpx.ConnectError:
            return "refused"
        except httpx.TransportError:
            return "closed"

    def stop(self) -> int:
        """Ask it to stop; return the exit status."""
        self.process.send_signal(signal.SIGTERM)
        return self.process.wait(PATIENCE_S)


def free_port() -> int:
    """Return a port that nobody listens on."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


@contextlib.contextmanager
def simulated(folder: Path, *flags: str, port: int | None = None) -> Iterator[Simulated]:
    """Yield a simulated server that is starting; it is gone afterwards."""
    port = port or free_port()
    log = folder / f"{port}.log"
    argv = [sys.executable, "-m", "fixtures.simulator", "--port", str(port), *COMMON, *flags]
    argv += ["--sim-fault", "lives-s=60"]
    with log.open("wb") as out, httpx.Client(base_url=f"http://127.0.0.1:{port}", timeout=PATIENCE_S) as client:
        process = subprocess.Popen(argv, stdout=out, stderr=subprocess.STDOUT, cwd=ROOT)
        try:
            yield Simulated(process=process, port=port, log=log, client=client)
        finally:
            process.kill()
            process.wait()
