"""The report, served on this machine alone while a run goes on; the page loads itself again when there is news."""

from __future__ import annotations

import contextlib
import logging
import sys
import threading
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, cast

from coevolve import report
from coevolve.workspace import RunFolder, Workspace
from store.errors import CoevolveError, UsageError
from store.journal import segments, size

log = logging.getLogger(__name__)

HOST = "127.0.0.1"


def stamp(place: Workspace) -> str:
    """Changes whenever a row is appended; costs one look at the sizes of the journal's files."""
    found = segments(place.store.journal.directory)
    return f"{len(found)}-{sum(map(size, found))}"


class Server(ThreadingHTTPServer):
    """Pages are made when asked for, once for each stamp."""

    daemon_threads = True

    def __init__(self, place: Workspace, run: RunFolder, port: int, *, whole: bool = False) -> None:
        self.place, self.run, self.whole = place, run, whole
        self._page = ("", b"")
        self._making = threading.Lock()
        super().__init__((HOST, port), _Handler)

    @property
    def url(self) -> str:
        return f"http://{HOST}:{self.server_port}/"

    def page(self) -> bytes:
        with self._making:
            now = stamp(self.place)
            if now != self._page[0]:
                self._page = now, self._made(now)
            return self._page[1]

    def _made(self, now: str) -> bytes:
        return report.page(self.place, self.run, stamp=now, live=True, whole=self.whole).encode(errors="replace")


class _Handler(BaseHTTPRequestHandler):
    @property
    def ours(self) -> Server:
        return cast(Server, self.server)

    def do_GET(self) -> None:
        if self.headers.get("Host") not in {f"{name}:{self.ours.server_port}" for name in (HOST, "localhost")}:
            return self._answer(HTTPStatus.FORBIDDEN, b"this page is for this machine alone\n", "text/plain")
        try:
            if self.path == "/stamp":
                self._answer(HTTPStatus.OK, stamp(self.ours.place).encode(), "text/plain")
            elif self.path == "/":
                self._answer(HTTPStatus.OK, self.ours.page(), "text/html")
            else:
                self._answer(HTTPStatus.NOT_FOUND, b"there is only /\n", "text/plain")
        except (CoevolveError, OSError) as error:
            if isinstance(error, ConnectionError):
                return
            self._answer(HTTPStatus.INTERNAL_SERVER_ERROR, f"error: {error}\n".encode(errors="replace"), "text/plain")

    def _answer(self, status: HTTPStatus, body: bytes, kind: str) -> None:
        self.send_response(status)
        self.send_header("Content-Type", f"{kind}; charset=utf-8")
        self.send_header("Content-Length", str(len(body)))
        self.send_header("Cache-Control", "no-store")
        self.send_header("X-Content-Type-Options", "nosniff")
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format: str, *args: Any) -> None:
        log.debug(format, *args)


def serve(place: Workspace, run: RunFolder, port: int, *, whole: bool = False) -> None:
    """Serve until ctrl-C. UsageError for a port that is taken, and at once whatever error the first page has."""
    try:
        server = Server(place, run, port, whole=whole)
    except OSError as error:
        raise UsageError(f"--port {port}: {error.strerror or error}; give another, or 0 for a free one") from error
    with server:
        server.page()
        sys.stderr.write(f"run {run.id} at {server.url}; ctrl-C ends it\n")
        sys.stderr.flush()
        with contextlib.suppress(KeyboardInterrupt):
            server.serve_forever()
