"""Captured replies of real servers, served again on a real socket."""

import asyncio
import json
import subprocess
import sys
from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx
import msgspec

from fixtures.profiles import Profile

SERVER = Path(__file__).parent / "servers" / "captured.py"
SAMPLES = Path(__file__).parent / "samples" / "sglang"

Answers = Mapping[str, Sequence[tuple[int, str]]]


def sample(name: str) -> str:
    """Return the captured text *name*."""
    return (SAMPLES / name).read_text(encoding="utf-8")


def server_info(name: str) -> dict[str, Any]:
    """Return the captured body of `/server_info` of server *name*."""
    info: dict[str, Any] = json.loads(sample(f"{name}.server_info.json"))
    return info


@dataclass(frozen=True, slots=True, kw_only=True)
class Replaying:
    """A running server of captured replies."""

    base_url: str
    _seen: Path

    @property
    def seen(self) -> list[tuple[str, str, str | None]]:
        """Method, path and authorization of each request so far."""
        return [tuple(json.loads(line)) for line in self._seen.read_text(encoding="utf-8").splitlines()]


@contextmanager
def replaying(folder: Path, answers: Answers) -> Iterator[Replaying]:
    """Serve *answers*, path → status and body in turn, from a process of its own."""
    script, seen = folder / "answers.json", folder / "seen.jsonl"
    script.write_text(json.dumps(answers), encoding="utf-8")
    seen.touch()
    command = [sys.executable, str(SERVER), str(script), str(seen)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        try:
            assert process.stdout
            yield Replaying(base_url=f"http://127.0.0.1:{int(process.stdout.readline())}", _seen=seen)
        finally:
            process.kill()


def asked(server: Replaying, question: Callable[[httpx.AsyncClient], Awaitable[Any]]) -> Any:
    """Return what *question* gets from *server*."""

    async def ask() -> Any:
        async with httpx.AsyncClient(base_url=server.base_url, trust_env=False) as client:
            return await question(client)

    return asyncio.run(ask())


def altered(profile: Profile, **engine: Any) -> Profile:
    """Return *profile* with keys of its [engine] table set otherwise."""
    return msgspec.structs.replace(profile, engine=msgspec.structs.replace(profile.engine, **engine))


def stand_in(folder: Path, says: str, status: int = 0) -> str:
    """Return an executable in *folder* that answers as the Python of an SGLang environment does."""
    path = folder / "python"
    path.write_text(f"#!/bin/sh\necho '{says}'\nexit {status}\n", encoding="utf-8")
    path.chmod(0o755)
    return str(path)
