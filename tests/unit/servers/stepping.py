"""A scripted server that speaks SGLang's `/generate` and obeys a law: each request in the batch gets a token a step.

    python stepping.py [--port N] [--start HOW] [--step-ms 4] [--per-request-ms 0.05] [--cap N] [--fault NAME --after N]

It prints its port, then the line that says it is ready. `--start` scripts the start: `slow` (a line every 0.2 s, five
times), `silent` (never a line), `exit` (at once, with a word of CUDA), `stubborn` (SIGTERM is ignored), `family` (a
grandchild in a session of its own). Faults begin after the N-th request: `error` (in-band), `cut` (closes without an
end marker), `abort` (HTTP 200, fewer tokens), `503`, `die` (the process exits), `mute` (never a byte).
"""

import argparse
import asyncio
import contextlib
import json
import os
import signal
import sys
from dataclasses import dataclass, field
from typing import Any


@dataclass(eq=False)
class Job:
    """One request in the server."""

    wanted: int
    number: int
    made: int = 0
    updates: asyncio.Queue[int] = field(default_factory=asyncio.Queue)


class Server:
    """The batch and its clock."""

    def __init__(self, options: argparse.Namespace) -> None:
        self.options = options
        self.running: list[Job] = []
        self.waiting: list[Job] = []
        self.seen = 0
        self.most = 0

    async def steps(self) -> None:
        """Run the batch, step by step, against absolute deadlines."""
        due = asyncio.get_running_loop().time()
        while True:
            cap = self.options.cap or len(self.waiting) + len(self.running)
            while self.waiting and len(self.running) < cap:
                self.running.append(self.waiting.pop(0))
            self.most = max(self.most, len(self.running))
            due += (self.options.step_ms + self.options.per_request_ms * len(self.running)) / 1000
            await asyncio.sleep(max(0, due - asyncio.get_running_loop().time()))
            for job in self.running:
                job.made += 1
                job.updates.put_nowait(job.made)
            self.running = [job for job in self.running if job.made < job.wanted]

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Answer the requests of one connection."""
        with contextlib.suppress(ConnectionError, asyncio.IncompleteReadError):
            while True:
                head = (await reader.readuntil(b"\r\n\r\n")).decode()
                length = next((int(x.split(":")[1]) for x in head.lower().split("\r\n") if "content-length" in x), 0)
                body = await reader.readexactly(length)
                if "/generate" in head.split("\r\n")[0]:
                    await self.generate(writer, json.loads(body))
                else:
                    await self.facts(writer)
        writer.close()

    async def facts(self, writer: asyncio.StreamWriter) -> None:
        """Say how many are running and waiting, and how many ever ran at once."""
        body = json.dumps({"running": len(self.running), "waiting": len(self.waiting), "most": self.most}).encode()
        writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n%s" % (len(body), body))
        await writer.drain()

    async def generate(self, writer: asyncio.StreamWriter, asked: dict[str, Any]) -> None:
        """Stream one reply, or the scripted fault."""
        self.seen += 1
        fault = self.options.fault if self.seen > self.options.after else ""
        if fault == "die":
            os._exit(9)
        if fault == "mute":
            await asyncio.sleep(3600)
        if fault == "503":
            writer.write(b"HTTP/1.1 503 Service Unavailable\r\nContent-Length: 5\r\n\r\nbusy.")
            return
        job = Job(wanted=asked["sampling_params"]["max_new_tokens"], number=self.seen)
        self.waiting.append(job)
        try:
            await (self.stream(writer, job, fault) if asked.get("stream", True) else self.whole(writer, job))
        finally:
            self.running = [other for other in self.running if other is not job]
            self.waiting = [other for other in self.waiting if other is not job]

    async def whole(self, writer: asyncio.StreamWriter, job: Job) -> None:
        """Send the reply in one piece once it is complete."""
        while await job.updates.get() < job.wanted:
            pass
        body = event(job, job.wanted, {"type": "length", "length": job.wanted}).removeprefix("data: ").encode()
        writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n%s" % (len(body), body))
        await writer.drain()

    async def stream(self, writer: asyncio.StreamWriter, job: Job, fault: str) -> None:
        """Send one event a token; at half of them a fault shows."""
        writer.write(b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\n\r\n")
        while job.made < job.wanted or not job.updates.empty():
            made = await job.updates.get()
            if fault and made >= job.wanted / 2:
                await self.go_wrong(writer, job, fault, made)
                return
            last = made == job.wanted
            send(writer, event(job, made, {"type": "length", "length": made} if last else None))
            await writer.drain()
        send(writer, "data: [DONE]\n\n")
        writer.write(b"0\r\n\r\n")
        await writer.drain()

    async def go_wrong(self, writer: asyncio.StreamWriter, job: Job, fault: str, made: int) -> None:
        """End the stream as the scripted *fault* does."""
        if fault == "cut":
            writer.close()
            raise ConnectionError
        if fault == "error":
            send(writer, 'data: {"error": {"message": "KV cache pool is full", "code": 500}}\n\n')
        if fault == "abort":
            send(writer, event(job, made, {"type": "abort", "message": "Aborted"}))
        send(writer, "data: [DONE]\n\n")
        writer.write(b"0\r\n\r\n")
        await writer.drain()


def event(job: Job, made: int, finish: dict[str, Any] | None) -> str:
    """Return one cumulative event of SGLang's shape."""
    meta = {
        "id": str(job.number),
        "finish_reason": finish,
        "prompt_tokens": 4,
        "completion_tokens": made,
        "cached_tokens": 0,
        "num_retractions": 0,
    }
    return f"data: {json.dumps({'output_ids': list(range(made)), 'meta_info': meta})}\n\n"


def send(writer: asyncio.StreamWriter, text: str) -> None:
    """Write *text* as one chunk."""
    data = text.encode()
    writer.write(b"%x\r\n%s\r\n" % (len(data), data))


READY = "The server is fired up and ready to roll!"


async def begin(how: str) -> None:
    """Start as scripted."""
    if how == "exit":
        sys.exit("torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB")
    if how == "silent":
        await asyncio.sleep(3600)
    if how == "stubborn":
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
    if how == "family":
        sleeper = [sys.executable, "-c", "import time; time.sleep(3600)"]
        child = await asyncio.create_subprocess_exec(*sleeper, start_new_session=True)
        print(f"grandchild {child.pid}", flush=True)
    for part in range(5 if how == "slow" else 0):
        print(f"loading shard {part}", flush=True)
        await asyncio.sleep(0.2)


async def main(options: argparse.Namespace) -> None:
    """Serve until killed."""
    server = Server(options)
    await begin(options.start)
    listening = await asyncio.start_server(server.serve, "127.0.0.1", options.port, backlog=1024)
    print(listening.sockets[0].getsockname()[1], flush=True)
    print(READY, flush=True)
    await server.steps()


def arguments() -> argparse.Namespace:
    """Return the options."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--step-ms", type=float, default=4)
    parser.add_argument("--per-request-ms", type=float, default=0.05)
    parser.add_argument("--port", type=int, default=0)
    parser.add_argument("--start", default="")
    parser.add_argument("--cap", type=int, default=0)
    parser.add_argument("--fault", default="")
    parser.add_argument("--after", type=int, default=0)
    return parser.parse_args()


if __name__ == "__main__":
    asyncio.run(main(arguments()))
