"""The engine of the scripted server: SGLang's wire, and nothing else of it."""

import json
from collections.abc import Callable, Mapping
from pathlib import Path

import httpx

from fixtures.analysis.measurements import ServerFacts
from fixtures.engines import Command, Counters
from fixtures.load.prompts import Request
from fixtures.load.sglang_reader import SGLangReader, SGLangWholeReader
from fixtures.load.streams import StreamReader

SERVER = Path(__file__).parent / "servers" / "stepping.py"


class Scripted:
    """The engine of the scripted server."""

    name = "scripted"
    ready_line: str | None = "The server is fired up and ready to roll!"
    sample_every_s = 0.05
    headers: Mapping[str, str] = {}

    def problems(self) -> list[str]:
        return []

    def prepare(self, report: Callable[[str], None]) -> None:
        return None

    def command(self, variant: str, port: int) -> Command:
        return Command(argv=())

    def encode(self, request: Request, *, stream: bool) -> tuple[str, bytes]:
        sampling = {"max_new_tokens": request.output_tokens}
        body = {"input_ids": request.prompt_ids, "sampling_params": sampling, "stream": stream}
        return "/generate", json.dumps(body).encode()

    def reader(self, request: Request, *, stream: bool = True) -> StreamReader:
        return SGLangReader(request.output_tokens) if stream else SGLangWholeReader(request.output_tokens)

    async def facts(self, client: httpx.AsyncClient) -> ServerFacts:
        return ServerFacts(engine="scripted", version="1")

    def contradictions(self, facts: ServerFacts, variant: str) -> list[str]:
        return []

    async def counters(self, client: httpx.AsyncClient) -> Counters:
        seen = (await client.get("/")).json()
        return Counters(running=seen["running"], queued=seen["waiting"])

    async def totals(self, client: httpx.AsyncClient) -> Mapping[str, float]:
        return {}

    async def steps_in_force(self, client: httpx.AsyncClient) -> float | None:
        return None

    async def flush(self, client: httpx.AsyncClient) -> None:
        return None

    def diagnose(self, log: str) -> str | None:
        return "the GPU's memory is full: lower mem-fraction-static" if "CUDA out of memory" in log else None
