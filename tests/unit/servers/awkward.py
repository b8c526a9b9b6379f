"""A server with every awkward habit that a transport must survive; the path of a request names the habit.

Prints its port. `GET /seen` answers what it saw: connections accepted, requests by path, and paths whose client left.
"""

import contextlib
import json
import socket
import socketserver
import struct
import sys
import threading
import time

HEAD = b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ntransfer-encoding: chunked\r\n\r\n"
LAST = b"0\r\n\r\n"
TOKENS = 5
STEP_S = 0.01


def chunk(data: bytes) -> bytes:
    """Return one chunk of a chunked body."""
    return b"%x\r\n%s\r\n" % (len(data), data)


def event(tokens: int) -> bytes:
    """Return one event of SGLang's."""
    finish = b'{"type":"length"}' if tokens == TOKENS else b"null"
    return b'data: {"output_ids":[1],"meta_info":{"finish_reason":%s,"completion_tokens":%d}}\n\n' % (finish, tokens)


def whole(status: bytes, body: bytes, *headers: bytes) -> bytes:
    """Return a reply of known length."""
    lines = b"".join(b"%s\r\n" % header for header in headers)
    return b"HTTP/1.1 %s\r\n%scontent-length: %d\r\n\r\n%s" % (status, lines, len(body), body)


class Seen:
    """What the server saw, of all connections."""

    def __init__(self) -> None:
        self.lock = threading.Lock()
        self.accepted = 0
        self.requests: dict[str, int] = {}
        self.left: list[str] = []

    def as_json(self) -> bytes:
        with self.lock:
            return json.dumps({"accepted": self.accepted, "requests": self.requests, "left": self.left}).encode()


seen = Seen()


class Handler(socketserver.StreamRequestHandler):
    """One connection."""

    def handle(self) -> None:
        with seen.lock:
            seen.accepted += 1
        self.connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        while (path := self.receive()) is not None:
            if path != "/seen":
                with seen.lock:
                    seen.requests[path] = seen.requests.get(path, 0) + 1
            habit = getattr(self, "do_" + path.strip("/").replace("-", "_"))
            try:
                if habit() is False:
                    return
            except OSError:
                return

    def receive(self) -> str | None:
        """Read one request; return its path."""
        try:
            line = self.rfile.readline()
            length = 0
            while (header := self.rfile.readline()) not in (b"\r\n", b""):
                name, _, value = header.partition(b":")
                length = int(value) if name.lower() == b"content-length" else length
            path = line.split()[1].decode() if line else None
            if path == "/slow-reader":
                time.sleep(0.1)
            self.body = self.rfile.read(length)
        except OSError:
            return None
        return path

    def say(self, data: bytes) -> None:
        self.connection.sendall(data)

    def wait_until_it_leaves(self, path: str) -> bool:
        with contextlib.suppress(OSError):
            self.connection.recv(1)
        with seen.lock:
            seen.left.append(path)
        return False

    def do_seen(self) -> None:
        self.say(whole(b"200 OK", seen.as_json()))

    def do_stream(self) -> None:
        self.say(HEAD)
        for tokens in range(1, TOKENS + 1):
            time.sleep(STEP_S)
            self.say(chunk(event(tokens)))
        self.say(chunk(b"data: [DONE]\n\n") + LAST)

    def do_burst(self) -> None:
        """Everything in one segment."""
        events = b"".join(chunk(event(tokens)) for tokens in range(1, TOKENS + 1))
        self.say(HEAD + events + chunk(b"data: [DONE]\n\n") + LAST)

    def do_drip(self) -> None:
        """A byte a segment."""
        body = b"".join(chunk(event(tokens)) for tokens in range(1, TOKENS + 1))
        for byte in HEAD + body + chunk(b"data: [DONE]\n\n") + LAST:
            self.say(bytes([byte]))

    def do_until_closed(self) -> bool:
        """No length and no chunks: the end of the connection is the end of the body."""
        body = b"".join(event(tokens) for tokens in range(1, TOKENS + 1))
        self.say(b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\n\r\n" + body + b"data: [DONE]\n\n")
        return False

    def do_say_close(self) -> bool:
        self.say(whole(b"200 OK", b"bye", b"connection: close"))
        return False

    def do_leave(self) -> bool:
        """A whole reply, then the end of the connection, unannounced."""
        self.say(whole(b"200 OK", b"bye"))
        return False

    def do_break_promise(self) -> bool:
        """A whole reply, then the end of the connection once the next request has come."""
        self.say(whole(b"200 OK", b"bye"))
        self.connection.recv(65536)
        return False

    def do_echo(self) -> None:
        self.say(whole(b"200 OK", b"%d" % len(self.body)))

    do_slow_reader = do_echo

    def do_refuse(self) -> None:
        self.say(whole(b"503 Service Unavailable", b'{"error":"the queue is full"}'))

    def do_continue(self) -> None:
        self.say(b"HTTP/1.1 100 Continue\r\n\r\n" + whole(b"200 OK", b"after all"))

    def do_headless(self) -> None:
        self.say(b"HTTP/1.1 200 OK\r\ncontent-length: 5\r\n\r\n")

    def do_mute(self) -> bool:
        return self.wait_until_it_leaves("/mute")

    def do_head_only(self) -> bool:
        self.say(HEAD)
        return self.wait_until_it_leaves("/head-only")

    def do_stall(self) -> bool:
        self.say(HEAD + chunk(event(1)) + chunk(event(2)))
        return self.wait_until_it_leaves("/stall")

    def do_cut(self) -> bool:
        self.say(HEAD + chunk(event(1)) + chunk(event(2)))
        return False

    def do_reset(self) -> bool:
        self.say(HEAD + chunk(event(1)) + chunk(event(2)))
        time.sleep(5 * STEP_S)
        self.connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        self.connection.close()
        return False

    def do_garbage(self) -> bool:
        self.say(b"SMTP ready\r\n\r\n")
        return False


class Server(socketserver.ThreadingTCPServer):
    """One thread a connection."""

    allow_reuse_address = daemon_threads = True
    request_queue_size = 128


if __name__ == "__main__":
    with Server(("127.0.0.1", 0), Handler) as server:
        sys.stdout.write(f"{server.server_address[1]}\n")
        sys.stdout.flush()
        server.serve_forever()
