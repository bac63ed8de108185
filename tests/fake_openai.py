"""A small OpenAI-compatible server on the standard library, which fails in the ways that real endpoints fail.

Each request takes the next behaviour of the script, the last one again and again:

    reply(text) | tool_call(name, arguments)   a normal answer (arguments as a raw string, so it may be bad JSON)
    status(code, retry_after)                  an error response
    answering(function)                        the message that the function makes of the request's body
    tarpit(seconds)                            says nothing for so long
    cut()                                      closes the connection in the middle of the body
    garbage()                                  200 with a body that is no JSON
"""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler
from typing import Any

from tests.local_server import serving

Behaviour = Callable[[BaseHTTPRequestHandler], None]


@dataclass
class FakeServer:
    url: str
    requests: list[dict[str, Any]] = field(default_factory=list)
    times: list[float] = field(default_factory=list)
    """Monotonic seconds of each request."""


def _send(handler: BaseHTTPRequestHandler, code: int, body: bytes, **headers: str) -> None:
    handler.send_response(code)
    handler.send_header("Content-Type", "application/json")
    handler.send_header("Content-Length", str(len(body)))
    for name, value in headers.items():
        handler.send_header(name.replace("_", "-"), value)
    handler.end_headers()
    handler.wfile.write(body)


def _completion(message: dict[str, Any]) -> bytes:
    usage = {"prompt_tokens": 100, "completion_tokens": 10, "total_tokens": 110}
    choice = {"index": 0, "finish_reason": "stop", "message": {"role": "assistant", **message}}
    body = {"id": "1", "object": "chat.completion", "created": 0, "model": "m", "choices": [choice], "usage": usage}
    return json.dumps(body).encode()


def reply(text: str) -> Behaviour:
    return lambda handler: _send(handler, 200, _completion({"content": text}))


def answering(answer: Callable[[dict[str, Any]], dict[str, Any]]) -> Behaviour:
    return lambda handler: _send(handler, 200, _completion(answer(handler.asked)))  # type: ignore[attr-defined]


def tool_call(name: str, arguments: str) -> Behaviour:
    function = {"name": name, "arguments": arguments}
    message = {"content": None, "tool_calls": [{"id": "1", "type": "function", "function": function}]}
    return lambda handler: _send(handler, 200, _completion(message))


def status(code: int, retry_after: str | None = None) -> Behaviour:
    headers = {"Retry_After": retry_after} if retry_after is not None else {}
    body = json.dumps({"error": {"message": f"status {code}", "type": "x", "code": str(code)}}).encode()
    return lambda handler: _send(handler, code, body, **headers)


def tarpit(seconds: float) -> Behaviour:
    return lambda handler: time.sleep(seconds)


def garbage() -> Behaviour:
    return lambda handler: _send(handler, 200, b"<html>not json</html>")


def cut() -> Behaviour:
    def behave(handler: BaseHTTPRequestHandler) -> None:
        handler.send_response(200)
        handler.send_header("Content-Length", "1000")
        handler.end_headers()
        handler.wfile.write(b'{"id": ')
        handler.wfile.flush()
        handler.close_connection = True

    return behave


@contextmanager
def serve(*script: Behaviour) -> Iterator[FakeServer]:
    left = list(script)
    lock = threading.Lock()

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            self.asked = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
            with lock:
                fake.requests.append(self.asked)
                fake.times.append(time.monotonic())
                behaviour = left.pop(0) if len(left) > 1 else left[0]
            behaviour(self)

        def log_message(self, format: str, *args: Any) -> None:
            pass

    with serving(Handler) as url:
        fake = FakeServer(url=f"{url}/v1")
        yield fake
