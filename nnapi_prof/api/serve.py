"""Reports in a browser: an index of bundles and their runs, and what works right now.

The server listens on this machine alone. It answers GET, gives no file away, and knows a bundle
only by the names of its own index.
"""

from __future__ import annotations

import http.server
import json
import os
import threading
import urllib.parse
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from http import HTTPStatus
from pathlib import Path

from nnapi_prof.api.report import report_data, with_run
from nnapi_prof.api.running import running
from nnapi_prof.bundle.plan_set import SelectionRule
from nnapi_prof.bundle.storage import read_bundle
from nnapi_prof.device.protocol.description import description_parts
from nnapi_prof.errors import NnapiProfError, UsageError, option
from nnapi_prof.execution.report import RunReport, every
from nnapi_prof.reports.html import render, template
from nnapi_prof.reports.words import place_words

HOST = "127.0.0.1"
MOST_BUNDLES = 300
MOST_DEPTH = 4
"""Of folders below those that are served."""
_NAMES = ("127.0.0.1", "localhost", "[::1]")
"""What a browser of this machine calls it: a page elsewhere whose name leads here is refused."""
_HEADERS = {
    "Cache-Control": "no-store",
    "X-Content-Type-Options": "nosniff",
    "Content-Security-Policy": "default-src 'none'; style-src 'unsafe-inline'; script-src"
    " 'unsafe-inline'; img-src data:; connect-src 'self'; base-uri 'none'; form-action 'none'",
}


@dataclass(frozen=True)
class Entry:
    """A bundle of the index."""

    name: str
    """Its path below what is served."""
    model: str = ""
    device: str = ""
    simulated: bool = False
    kind: str = ""
    """``split over sim-npu and CPU``, ``3 plans for phones``."""
    n_segments: int = 0
    predicted_ms: float | None = None
    measured_ms: float | None = None
    """Of the last run."""
    runs: tuple[RunReport, ...] = ()
    """The oldest first."""
    error: str = ""
    """Why it cannot be read."""


@dataclass(frozen=True)
class Answer:
    """To a request."""

    status: HTTPStatus
    kind: str
    body: str


class Site:
    """The pages of some folders and bundles."""

    def __init__(self, folders: Sequence[Path], costs: str | None = None) -> None:
        """``costs`` is the cost table of the reports. UsageError where a folder is none."""
        for folder in folders:
            if not folder.is_dir():
                raise UsageError(f"{folder}: there is no such folder to serve")
        self.folders = tuple(folders)
        self.costs = costs
        self._drawing = threading.Lock()  # matplotlib has one set of settings

    def bundles(self) -> dict[str, Path]:
        """Name -> folder, sorted; of many the first :data:`MOST_BUNDLES`."""
        paths: dict[str, Path] = {}
        for folder in self.folders:
            for path in _bundles(folder, MOST_DEPTH):
                name = path.name if path == folder else str(path.relative_to(folder))
                paths.setdefault(name, path)
        return dict(sorted(paths.items())[:MOST_BUNDLES])

    def answer(self, target: str) -> Answer:
        """To a request for this path with its query."""
        url = urllib.parse.urlsplit(target)
        query = dict(urllib.parse.parse_qsl(url.query))
        try:
            if url.path == "/":
                return _page(
                    "serve.html", entries=[_entry(*each) for each in self.bundles().items()]
                )
            if url.path == "/running.json":
                body = json.dumps([asdict(state) for state in running()])
                return Answer(HTTPStatus.OK, "application/json", body)
            if url.path == "/report":
                return self._report(query)
        except NnapiProfError as error:
            return _page("serve_error.html", HTTPStatus.INTERNAL_SERVER_ERROR, error=str(error))
        return _page("serve_error.html", HTTPStatus.NOT_FOUND, error=f"{url.path}: no such page")

    def _report(self, query: dict[str, str]) -> Answer:
        name = query.get("bundle", "")
        path = self.bundles().get(name)
        if path is None:
            error = f"{name or 'no name'}: there is no such bundle (any more)"
            return _page("serve_error.html", HTTPStatus.NOT_FOUND, error=error)
        data = report_data(path, self.costs)
        number = query.get("run", "")
        history = every(path)
        if number.isdecimal() and int(number) < len(history):
            data = with_run(data, history[int(number)], path)
        with self._drawing:
            return Answer(HTTPStatus.OK, "text/html", render(data))


def server(site: Site, port: int) -> http.server.ThreadingHTTPServer:
    """A server of the site on this machine; a ``port`` of 0 is any that is free. Raises UsageError
    where the port is taken."""

    class Handler(http.server.BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            host = self.headers.get("Host", "").rpartition(":")
            if (host[0] if host[2].isdecimal() else host[2]) not in _NAMES:
                self._send(Answer(HTTPStatus.FORBIDDEN, "text/plain", "ask for 127.0.0.1\n"))
                return
            self._send(site.answer(self.path))

        def _send(self, answer: Answer) -> None:
            body = answer.body.encode()
            self.send_response(answer.status)
            self.send_header("Content-Type", f"{answer.kind}; charset=utf-8")
            self.send_header("Content-Length", str(len(body)))
            for name, value in _HEADERS.items():
                self.send_header(name, value)
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, format: str, *arguments: object) -> None:
            """Requests are not told."""

    try:
        return http.server.ThreadingHTTPServer((HOST, port), Handler)
    except OSError as error:
        raise UsageError(
            f"{option('port', str(port))}: {error.strerror or error}: choose another, or 0 for any"
        ) from error


def _bundles(folder: Path, depth: int) -> Iterator[Path]:
    """Bundles in a folder and below; a folder that is one."""
    if folder.suffix == ".nnprof":
        yield folder
        return
    try:
        inside = sorted(entry.name for entry in os.scandir(folder) if entry.is_dir())
    except OSError:
        return
    for name in inside:
        if name.endswith(".nnprof") or (depth > 0 and not name.startswith(".")):
            yield from _bundles(folder / name, depth - 1)


def _entry(name: str, path: Path) -> Entry:
    try:
        bundle, runs = read_bundle(path), every(path)
    except NnapiProfError as error:
        return Entry(name, error=str(error))
    plan = bundle.plan
    places = list(dict.fromkeys(place_words(segment.target.key) for segment in plan.segments))
    kind = f"split over {' and '.join(places)}" if len(places) > 1 else f"all on {places[0]}"
    if bundle.plan_set is not None and bundle.plan_set.rule is SelectionRule.PHONES:
        kind = f"fleet: {len(bundle.plan_set.choices)} plans for phones"
    median = runs[-1].runs[0].median_ns if runs and runs[-1].runs else None
    return Entry(
        name=name,
        model=bundle.model,
        device=description_parts(runs[-1].device if runs else bundle.device)[0],
        simulated=bundle.simulated,
        kind=kind,
        n_segments=len(plan.segments),
        predicted_ms=plan.predicted_ns / 1e6,
        measured_ms=None if median is None else median / 1e6,
        runs=runs,
    )


def _page(name: str, status: HTTPStatus = HTTPStatus.OK, **values: object) -> Answer:
    return Answer(status, "text/html", template(name).render(**values))
