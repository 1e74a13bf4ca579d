"""Where it is told what a micro-batch did: a line for people, JSON lines, a Prometheus page, or a function of the caller's.

A sink is called with one `BatchMetrics` at a time. It may raise: the listener sees to it that Spark never notices.
"""

from __future__ import annotations

import contextlib
import errno
import json
import os
import re
import sys
import threading
from collections.abc import Callable
from dataclasses import asdict, dataclass
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler
from pathlib import Path
from socketserver import ThreadingTCPServer
from typing import Any, TextIO

from semistream.config import format_bytes
from semistream.errors import InvalidInputError
from semistream.spark.metrics import Counts

_HOST, _PORT = "127.0.0.1", 9464  # whoever wants the figures seen on other machines says so
_PROMETHEUS = re.compile(r"prometheus(?::(?:(?P<host>[^:\s]+):)?(?P<port>\d{1,5}))?")
_CLIENT_TIMEOUT_S = 10.0  # a client that sends nothing holds a thread no longer


@dataclass(frozen=True)
class BatchMetrics:
    """What one enrichment did in one micro-batch of a query."""

    query_id: str
    query_name: str | None
    batch_id: int
    enrichment: str
    time: str  # when the micro-batch began: ISO 8601, UTC
    duration_ms: int  # of the whole micro-batch, planning and sink included
    input_rows: int  # that the query's sources gave
    counts: Counts

    @property
    def rate_per_s(self) -> float:
        """Tuples a second of the micro-batch's duration."""
        return self.counts.tuples * 1000 / max(self.duration_ms, 1)

    def to_dict(self) -> dict[str, Any]:
        """As a flat record of JSON."""
        record = asdict(self)
        del record["counts"]
        return record | self.counts.to_dict()


Sink = Callable[[BatchMetrics], object]
To = str | os.PathLike[str] | TextIO | Sink


def sink_for(to: To) -> Sink:
    """The sink that `to` names, opened: a path or an address that cannot be used is told here."""
    if callable(to):
        return to
    if isinstance(to, os.PathLike):
        return JsonLines(to)
    if isinstance(to, str):
        if to == "console":
            return Console()
        if to.endswith((".jsonl", ".json")):
            return JsonLines(to)
        if address := _PROMETHEUS.fullmatch(to):
            return Prometheus(address["host"] or _HOST, int(address["port"] or _PORT))
    elif hasattr(to, "write"):
        return Console(to)
    raise InvalidInputError(
        f"to={to!r}",
        found="no such sink",
        hint="Choose 'console', a path ending in .jsonl or .json, 'prometheus', 'prometheus:PORT', "
        "'prometheus:HOST:PORT', an open text stream, or a function of one BatchMetrics.",
    )


class Console:
    """One line for people, on standard error unless told otherwise."""

    def __init__(self, stream: TextIO | None = None) -> None:
        self.stream = stream

    def __call__(self, record: BatchMetrics) -> None:
        """Write the line; standard error is looked up now, for notebooks replace it."""
        stream = self.stream or sys.stderr
        stream.write(line_of(record) + "\n")
        stream.flush()


def line_of(record: BatchMetrics) -> str:
    """A record in one line."""
    counts = record.counts
    return (
        f"{record.query_name or record.query_id} batch {record.batch_id} {record.enrichment}: "
        f"{counts.tuples:,} tuples ({record.rate_per_s:,.0f}/s), {counts.matches:,} matches, "
        f"{counts.misses:,} misses, front stage {counts.front_share:.1%}, {counts.pages:,} pages "
        f"({counts.bytes / 1e6:,.1f} MB in {counts.read_seconds * 1000:,.1f} ms), "
        f"{format_bytes(counts.used_bytes)} of {format_bytes(counts.budget_bytes)} used"
    )


class JsonLines:
    """A file that one line of JSON is appended to for every record.

    It is opened anew each time, so that it may be moved away or rotated while queries run.
    """

    def __init__(self, path: str | os.PathLike[str]) -> None:
        self.path = Path(path).absolute()  # wherever the driver goes later
        try:
            with open(self.path, "ab"):
                pass
        except OSError as error:
            raise InvalidInputError(
                f"to={os.fspath(path)!r}",
                found=f"a file that cannot be appended to ({error.strerror})",
                hint="Give a path in a directory that exists and may be written to.",
            ) from error

    def __call__(self, record: BatchMetrics) -> None:
        """Append the line in one write: whoever follows the file never sees half of it."""
        line = (json.dumps(record.to_dict()) + "\n").encode()
        with open(self.path, "ab", buffering=0) as file:
            if file.write(line) != len(line):
                raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), str(self.path))


@dataclass(frozen=True)
class _Family:
    """A Prometheus metric: counters add up over the micro-batches, gauges are those of the last one."""

    name: str
    kind: str
    help: str
    value: Callable[[BatchMetrics], float]


_FAMILIES = (
    _Family("batches_total", "counter", "Micro-batches with tuples.", lambda _: 1),
    _Family("batch_seconds_total", "counter", "Time of these micro-batches.", lambda r: r.duration_ms / 1000),
    _Family("tuples_total", "counter", "Tuples that arrived.", lambda r: r.counts.tuples),
    _Family("matches_total", "counter", "Tuples that met a master row.", lambda r: r.counts.matches),
    _Family("misses_total", "counter", "Tuples that met no master row.", lambda r: r.counts.misses),
    _Family("rows_total", "counter", "Rows put out.", lambda r: r.counts.rows),
    _Family("front_hits_total", "counter", "Tuples the front stage answered.", lambda r: r.counts.front_hits),
    _Family("pages_total", "counter", "Master pages read.", lambda r: r.counts.pages),
    _Family("read_bytes_total", "counter", "Bytes read of the master.", lambda r: r.counts.bytes),
    _Family("read_seconds_total", "counter", "Time in reading, all tasks.", lambda r: r.counts.read_seconds),
    _Family("join_seconds_total", "counter", "Time in the join, all tasks.", lambda r: r.counts.join_seconds),
    _Family("front_share", "gauge", "Share the front stage answered.", lambda r: r.counts.front_share),
    _Family("budget_bytes", "gauge", "Memory budget of a worker.", lambda r: r.counts.budget_bytes),
    _Family("used_bytes", "gauge", "Used of that budget, at most.", lambda r: r.counts.used_bytes),
    _Family("peak_rss_bytes", "gauge", "Peak memory of a worker.", lambda r: r.counts.peak_rss_bytes),
    _Family("master_version", "gauge", "Version of the master that answered.", lambda r: r.counts.version),
)


class Prometheus:
    """A page in Prometheus's text format, served from a daemon thread until it is closed."""

    def __init__(self, host: str, port: int) -> None:
        self._lock = threading.Lock()  # records come from Spark's thread, requests from the server's
        self._series: dict[tuple[str, str], dict[str, float]] = {}
        try:
            self._server = _Server((host, port), _Handler)
        except (OSError, OverflowError) as error:
            raise InvalidInputError(
                f"to='prometheus:{host}:{port}'",
                found=f"an address that cannot be listened on ({error})",
                hint="Choose another port, or port 0 for any that is free.",
            ) from error
        self._server.page = self.page
        self.address = "http://{}:{}/metrics".format(*self._server.server_address[:2])
        self._thread = threading.Thread(
            target=self._server.serve_forever, name="semistream-prometheus", daemon=True
        )
        self._thread.start()

    def __call__(self, record: BatchMetrics) -> None:
        """Add the record to its series, which is the query's, by name if it has one."""
        with self._lock:
            series = self._series.setdefault((record.query_name or record.query_id, record.enrichment), {})
            for family in _FAMILIES:
                before = series.get(family.name, 0) if family.kind == "counter" else 0
                series[family.name] = before + family.value(record)

    def page(self) -> str:
        """The metrics as they stand."""
        with self._lock:
            series = [
                (f'{{query="{_escaped(query)}",enrichment="{_escaped(enrichment)}"}}', dict(values))
                for (query, enrichment), values in self._series.items()
            ]
        lines = []
        for family in _FAMILIES:
            name = f"semistream_{family.name}"
            lines += [f"# HELP {name} {family.help}", f"# TYPE {name} {family.kind}"]
            lines += [f"{name}{labels} {values[family.name]}" for labels, values in series]
        return "\n".join(lines) + "\n"

    def close(self) -> None:
        """Stop serving, and give the port back."""
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()


def _escaped(label: str) -> str:
    return label.replace("\\", r"\\").replace('"', r"\"").replace("\n", r"\n")


class _Server(ThreadingTCPServer):
    """Not `HTTPServer`, which asks the name service for this host's name before it listens."""

    allow_reuse_address = True
    daemon_threads = True
    page: Callable[[], str]


class _Handler(BaseHTTPRequestHandler):
    server: _Server
    timeout = _CLIENT_TIMEOUT_S

    def do_GET(self) -> None:
        """Answer with the page; a client that has gone away needs no answer."""
        with contextlib.suppress(ConnectionError):
            if self.path.partition("?")[0] not in ("/", "/metrics"):
                self.send_error(HTTPStatus.NOT_FOUND)
                return
            page = self.server.page().encode()
            self.send_response(HTTPStatus.OK)
            self.send_header("Content-Type", "text/plain; version=0.0.4; charset=utf-8")
            self.send_header("Content-Length", str(len(page)))
            self.end_headers()
            self.wfile.write(page)

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002
        """Say nothing: standard error is the driver's."""
