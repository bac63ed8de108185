"""Headless Chromium by its DevTools protocol, over a pipe: what a page logs, what it asks for, and real clicks."""

from __future__ import annotations

import itertools
import json
import os
import select
import shutil
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

FLAGS = ["--headless", "--no-sandbox", "--disable-gpu", "--no-first-run", "--lang=en-US", "--remote-debugging-pipe"]
PATIENCE_S = 60.0
DESKTOP, PHONE = (1200, 900), (390, 844)


class Tab:
    """One page, and all that happened in it since it was opened."""

    def __init__(self, reads: int, writes: int) -> None:
        self._reads, self._writes = reads, writes
        self._left, self._numbers, self._session = b"", itertools.count(1), ""
        self.events: list[dict[str, Any]] = []
        target = self.call("Target.createTarget", url="about:blank")["targetId"]
        self._session = self.call("Target.attachToTarget", targetId=target, flatten=True)["sessionId"]
        for domain in ("Page", "Runtime", "Log", "Network"):
            self.call(f"{domain}.enable")

    def open(self, url: str, size: tuple[int, int] = DESKTOP, scheme: str = "light") -> None:
        """Load the page anew, until all of it is there."""
        width, height = size
        shape = {"width": width, "height": height, "deviceScaleFactor": 1, "mobile": size == PHONE}
        self.call("Emulation.setDeviceMetricsOverride", **shape)
        self.call("Emulation.setEmulatedMedia", features=[{"name": "prefers-color-scheme", "value": scheme}])
        self.events.clear()
        self.call("Page.navigate", url=url)
        self._until(lambda: any(event["method"] == "Page.loadEventFired" for event in self.events))

    def value(self, script: str) -> Any:
        """Of an expression of JavaScript, as JSON."""
        found = self.call("Runtime.evaluate", expression=script, returnByValue=True)
        assert "exceptionDetails" not in found, found
        return found["result"].get("value")

    def wait_for(self, script: str) -> None:
        """Until an expression is true: what a click brings about comes a moment later."""
        deadline = time.monotonic() + PATIENCE_S
        while not self.value(script):
            assert time.monotonic() < deadline, f"{script} is not true"
            time.sleep(0.02)

    def click(self, selector: str) -> None:
        """With the mouse, in the middle of the first element that is found."""
        place = "document.querySelector({}).scrollIntoView({{block: 'center'}})"
        self.value(place.format(json.dumps(selector)))
        box = self.value(f"document.querySelector({json.dumps(selector)}).getBoundingClientRect().toJSON()")
        at = {"x": box["x"] + box["width"] / 2, "y": box["y"] + box["height"] / 2, "button": "left", "clickCount": 1}
        for kind in ("mousePressed", "mouseReleased"):
            self.call("Input.dispatchMouseEvent", type=kind, **at)

    @property
    def complaints(self) -> list[str]:
        """Errors and warnings of the console, exceptions, and what the browser itself logs, such as a broken policy."""
        return [json.dumps(event["params"])[:2000] for event in self.events if _complains(**event)]

    @property
    def requests(self) -> list[str]:
        """Addresses that were asked for; what is in the page itself (data:) is none."""
        sent = [event["params"] for event in self.events if event["method"] == "Network.requestWillBeSent"]
        return [told["request"]["url"] for told in sent if not told["request"]["url"].startswith("data:")]

    def call(self, method: str, **params: Any) -> dict[str, Any]:
        number = next(self._numbers)
        session = {"sessionId": self._session} if self._session else {}
        message = {"id": number, "method": method, "params": params, **session}
        os.write(self._writes, json.dumps(message).encode() + b"\0")
        answer: list[dict[str, Any]] = []
        self._until(lambda: bool(answer), number, answer)
        assert "error" not in answer[0], (method, answer[0])
        return dict(answer[0]["result"])

    def _until(self, done: Any, number: int = 0, answer: list[dict[str, Any]] | None = None) -> None:
        deadline = time.monotonic() + PATIENCE_S
        while not done():
            ready, _, _ = select.select([self._reads], [], [], max(0.0, deadline - time.monotonic()))
            assert ready, "the browser is silent"
            *whole, self._left = (self._left + os.read(self._reads, 1 << 20)).split(b"\0")
            for message in map(json.loads, whole):
                if "method" in message:
                    self.events.append(message)
                elif message["id"] == number and answer is not None:
                    answer.append(message)


def _complains(method: str, params: dict[str, Any], **_: Any) -> bool:
    if method == "Log.entryAdded":
        return params["entry"]["level"] in ("error", "warning")
    if method == "Runtime.consoleAPICalled":
        return params["type"] in ("error", "warning", "assert")
    return method == "Runtime.exceptionThrown"


@contextmanager
def chromium(profile: Path) -> Iterator[Tab]:
    """A tab of a browser of its own, whose profile is the folder; the test is skipped where there is no browser."""
    program = shutil.which("chromium") or shutil.which("google-chrome")
    if program is None:
        pytest.skip("no chromium here")
    hears, writes = os.pipe()
    reads, says = os.pipe()
    shell = f'exec "$0" "$@" 3<&{hears} 4>&{says}'
    line = ["bash", "-c", shell, program, *FLAGS, f"--user-data-dir={profile}"]
    with subprocess.Popen(line, pass_fds=(hears, says), stderr=subprocess.DEVNULL) as process:
        os.close(hears)
        os.close(says)
        try:
            yield Tab(reads, writes)
        finally:
            process.terminate()
            process.wait(PATIENCE_S)
            os.close(reads)
            os.close(writes)
