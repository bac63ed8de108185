"""Short blocking calls to a server of ours: never through a proxy, always with a deadline, its own words in errors."""

from __future__ import annotations

import http.client
import json
import urllib.error
import urllib.request
from typing import Any

from envs.errors import InfraError

_OPENER = urllib.request.build_opener(urllib.request.ProxyHandler({}))
WORDS = 300
"""Characters of a server's own words in an error message."""


class ServerError(InfraError):
    """The server answered with an error, or not at all; `status` is None where it did not answer."""

    def __init__(self, message: str, status: int | None = None) -> None:
        super().__init__(message)
        self.status = status


def get(url: str, timeout_s: float) -> Any:
    """The JSON answer, None for an empty one. ServerError otherwise."""
    return _call(urllib.request.Request(url), timeout_s)


def post(url: str, body: dict[str, Any], timeout_s: float) -> Any:
    """The JSON answer to a JSON body, None for an empty one. ServerError otherwise."""
    headers = {"Content-Type": "application/json"}
    return _call(urllib.request.Request(url, json.dumps(body).encode(), headers), timeout_s)


def words(text: str) -> str:
    """The server's message in an error body: vLLM's `{"error": {"message": ...}}` and FastAPI's `{"detail": ...}`."""
    try:
        body = json.loads(text)
        found = body.get("error", body.get("detail", text))
        found = found.get("message", found) if isinstance(found, dict) else found
    except (ValueError, AttributeError):
        found = text
    return " ".join(str(found).split())[:WORDS] or "no message"


def _call(request: urllib.request.Request, timeout_s: float) -> Any:
    url = request.full_url
    try:
        with _OPENER.open(request, timeout=timeout_s) as answer:
            text = answer.read().decode()
    except urllib.error.HTTPError as error:
        raise ServerError(f"{url} answered {error.code}: {words(_body(error))}", error.code) from None
    except TimeoutError:
        raise ServerError(f"{url} gave no answer in {timeout_s:g} s") from None
    except (OSError, http.client.HTTPException) as error:
        if isinstance(error, urllib.error.URLError) and isinstance(error.reason, TimeoutError):
            raise ServerError(f"{url} gave no answer in {timeout_s:g} s") from None
        raise ServerError(f"{url} cannot be reached: {getattr(error, 'reason', error)}") from None
    try:
        return json.loads(text) if text.strip() else None
    except ValueError:
        raise ServerError(f"{url} answered no JSON: {words(text)}") from None


def _body(error: urllib.error.HTTPError) -> str:
    try:
        return error.read().decode(errors="replace")
    except OSError:
        return ""
