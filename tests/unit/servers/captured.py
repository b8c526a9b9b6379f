"""A server of captured replies: `captured.py SCRIPT SEEN`, the path that is asked for → what it answers, in turn.

SCRIPT is JSON, `{path: [[status, body], …]}`; a path's last answer repeats, an unnamed path is 404. Each request
becomes a line of SEEN. The port is the first line of the output.
"""

import json
import sys
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

ANSWERS = {path: list(answers) for path, answers in json.loads(Path(sys.argv[1]).read_text()).items()}
SEEN = Path(sys.argv[2])


class Replies(BaseHTTPRequestHandler):
    """Answers GET and POST alike."""

    protocol_version = "HTTP/1.1"

    def do_GET(self) -> None:
        self.rfile.read(int(self.headers.get("content-length", 0)))
        with SEEN.open("a") as seen:
            seen.write(json.dumps([self.command, self.path, self.headers.get("authorization")]) + "\n")
        answers = ANSWERS.get(self.path, [[404, "Not Found"]])
        status, body = answers.pop(0) if len(answers) > 1 else answers[0]
        data = body.encode()
        self.send_response(status)
        self.send_header("content-length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)

    do_POST = do_GET  # noqa: N815 - the base class's name

    def log_message(self, format: str, *arguments: object) -> None:  # noqa: A002 - the base class's name
        return


with ThreadingHTTPServer(("127.0.0.1", 0), Replies) as server:
    print(server.server_address[1], flush=True)
    server.serve_forever()
