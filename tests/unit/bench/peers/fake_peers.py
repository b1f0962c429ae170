"""Stand-ins for other engines: an HTTP server that answers like llama.cpp's."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any


@dataclass
class LlamaScript:
    """What the server says; ``bodies`` are the requests it got."""

    timings: Callable[[Mapping[str, Any]], Mapping[str, float] | None]
    status: int = 200
    bodies: list[dict[str, Any]] = field(default_factory=list)


@contextmanager
def llama_like_server(script: LlamaScript) -> Iterator[int]:
    """Answers /health and /completion; yields the port."""

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self._answer(200, b"{}")

        def do_POST(self) -> None:
            body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
            script.bodies.append(body)
            if body.get("stream"):
                self._stream(body)
                return
            answer = json.dumps({"content": "x", "timings": script.timings(body)}).encode()
            self._answer(script.status, answer)

        def _stream(self, body: Mapping[str, Any]) -> None:
            count = body["max_tokens"]
            event = b'data: {"choices": [{"index": 0, "text": "x"}]}\n\n'
            usage = {
                "choices": [],
                "usage": {"prompt_tokens": len(body["prompt"]), "completion_tokens": count},
            }
            self.send_response(200)
            self.end_headers()
            for _ in range(count):
                self.wfile.write(event)
                self.wfile.flush()
                threading.Event().wait(0.005)
            self.wfile.write(b"data: " + json.dumps(usage).encode() + b"\n\ndata: [DONE]\n\n")

        def _answer(self, status: int, body: bytes) -> None:
            self.send_response(status)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *arguments: object) -> None: ...

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever, args=(0.01,))
    thread.start()
    try:
        yield server.server_address[1]
    finally:
        server.shutdown()
        thread.join()
        server.server_close()
