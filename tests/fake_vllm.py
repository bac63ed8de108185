"""A small HTTP server that answers as a vLLM server does, or fails as one may. No model: it is a fake.

    with fake_vllm("coevolve/r@x", {"/v1/completions": 500, "/collective_rpc": None}) as fake:
        ...
An entry of `answers` is a status, a JSON body, or None: never answer.
"""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler
from typing import Any

from tests.local_server import serving


@dataclass
class FakeVLLM:
    url: str
    asked: list[tuple[str, Any]] = field(default_factory=list)
    """(path, JSON body) of each POST."""
    released: threading.Event = field(default_factory=threading.Event)


def completion(body: dict[str, Any], **changes: Any) -> dict[str, Any]:
    """What vLLM answers to one prompt: three tokens, the last a stop token."""
    choice = {
        "token_ids": [70, 71, 2],
        "prompt_token_ids": body["prompt"],
        "logprobs": {"token_logprobs": [-1.0, -2.0, -3.0]},
        "finish_reason": "stop",
    }
    return {"choices": [choice | changes]}


@contextmanager
def fake_vllm(name: str, answers: Mapping[str, Any] | None = None) -> Iterator[FakeVLLM]:
    replies = {"/health": 200, "/reset_prefix_cache": 200, "/collective_rpc": 200, "/server_info": {}} | dict(
        answers or {}
    )
    replies["/v1/models"] = {"data": [{"id": name, "root": "/nowhere", "max_model_len": 256}]}

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self._answer(replies.get(self.path.split("?")[0], 404))

        def do_POST(self) -> None:
            body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
            fake.asked.append((self.path, body))
            reply = replies.get(self.path, completion(body) if self.path == "/v1/completions" else 404)
            self._answer(reply(body) if callable(reply) else reply)

        def _answer(self, reply: Any) -> None:
            if reply is None:
                fake.released.wait(30)
                return
            code = reply if isinstance(reply, int) else 200
            body = {"error": {"message": f"status {code}"}} if isinstance(reply, int) else reply
            data = b"" if reply == 200 else json.dumps(body).encode()
            self.send_response(code)
            self.send_header("Content-Length", str(len(data)))
            self.end_headers()
            self.wfile.write(data)

        def log_message(self, format: str, *args: Any) -> None:
            pass

    with serving(Handler) as url:
        fake = FakeVLLM(url=url)
        try:
            yield fake
        finally:
            fake.released.set()
