"""A stand-in for an OpenAI-compatible server whose refusals can be written down beforehand.

SGLang answers the tests in test_server.py. What cannot be had of it on demand (429 with Retry-After, 503
so many times, an abort, a dead connection, a slow answer) is what this one is for.
"""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

Reply = tuple[int, dict[str, str], dict[str, Any]]


def answered(tokens: int = 100, cached: int | None = 64, finish: str = "length") -> Reply:
    details = None if cached is None else {"cached_tokens": cached}
    usage = {"prompt_tokens": tokens, "completion_tokens": 1, "prompt_tokens_details": details}
    return 200, {}, {"choices": [{"finish_reason": finish}], "usage": usage}


def refused(status: int, **headers: str) -> Reply:
    names = {name.replace("_", "-"): value for name, value in headers.items()}
    return status, names, {"error": {"message": f"no, {status}"}}


@dataclass
class Server:
    """What it answers, and what it was asked. Fields may be changed while it runs."""

    url: str = ""
    replies: list[Reply] = field(default_factory=list)
    """For the next posts, in order; then `otherwise`."""
    otherwise: Reply = field(default_factory=answered)
    server_info: dict[str, Any] | None = None
    weight_version: str = "default"
    written: list[int] | None = None
    """For each look at the metrics; the last stays. None: there are no metrics."""
    before_reply: Callable[[int], None] = lambda number: None
    """Called with the number of the post, from 1."""
    posts: list[tuple[str, dict[str, Any], dict[str, str]]] = field(default_factory=list)
    """Path, body and headers of each."""
    lock: threading.Lock = field(default_factory=threading.Lock)

    def bodies(self) -> list[dict[str, Any]]:
        return [body for _, body, _ in self.posts]

    def get(self, path: str) -> tuple[int, str]:
        if path == "/v1/models":
            return 200, json.dumps({"data": [{"id": "tiny"}]})
        if path == "/model_info":
            return 200, json.dumps({"model_path": "/models/tiny", "weight_version": self.weight_version})
        if path == "/server_info" and self.server_info is not None:
            return 200, json.dumps(self.server_info)
        if path == "/metrics" and self.written is not None:
            with self.lock:
                size = self.written.pop(0) if len(self.written) > 1 else self.written[0]
            return 200, f'# TYPE sgkv_written_bytes counter\nsgkv_written_bytes_total{{tier="disk"}} {size}\n'
        return 404, "{}"

    def post(self, path: str, body: dict[str, Any], headers: dict[str, str]) -> Reply:
        with self.lock:
            self.posts.append((path, body, headers))
            number = len(self.posts)
            reply = self.replies.pop(0) if self.replies else self.otherwise
        self.before_reply(number)
        return reply


@contextmanager
def serving(server: Server | None = None) -> Iterator[Server]:
    """Listens on loopback until the block ends."""
    state = server or Server()

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            status, text = state.get(self.path)
            self.answer(status, {}, text)

        def do_POST(self) -> None:
            body = json.loads(self.rfile.read(int(self.headers["content-length"])))
            status, headers, content = state.post(self.path, body, dict(self.headers))
            self.answer(status, headers, json.dumps(content))

        def answer(self, status: int, headers: dict[str, str], text: str) -> None:
            self.send_response(status)
            for name, value in {**headers, "content-length": str(len(text.encode()))}.items():
                self.send_header(name, value)
            self.end_headers()
            self.wfile.write(text.encode())

        def log_message(self, *args: object) -> None:
            pass

    httpd = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    state.url = f"http://127.0.0.1:{httpd.server_port}"
    thread = threading.Thread(target=httpd.serve_forever, kwargs={"poll_interval": 0.02})
    thread.start()
    try:
        yield state
    finally:
        httpd.shutdown()
        httpd.server_close()
        thread.join()
