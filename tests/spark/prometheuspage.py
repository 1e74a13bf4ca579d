"""A page for Prometheus, read as Prometheus would."""

from __future__ import annotations

import http.client
import re
from urllib.parse import urlsplit

SERIES = re.compile(
    r'semistream_(\w+)\{query="((?:[^"\\]|\\.)*)",enrichment="((?:[^"\\]|\\.)*)"\} ([\d.e+-]+)'
)


def get(url: str) -> tuple[int, str, str]:
    """Status, content type and body of a page, fetched past whatever proxy the environment has."""
    where = urlsplit(url)
    connection = http.client.HTTPConnection(where.hostname, where.port, timeout=30)
    try:
        connection.request("GET", where.path)
        answer = connection.getresponse()
        return answer.status, answer.headers["Content-Type"], answer.read().decode()
    finally:
        connection.close()


def figures(url: str) -> dict[tuple[str, str, str], float]:
    """The samples of a Prometheus page by query, enrichment and metric; each after its metric's type."""
    status, kind, page = get(url)
    assert status == 200
    assert kind == "text/plain; version=0.0.4; charset=utf-8"
    found: dict[tuple[str, str, str], float] = {}
    declared = ""
    for line in page.splitlines():
        if line.startswith("# TYPE "):
            declared, of_kind = line.removeprefix("# TYPE semistream_").split()
            assert of_kind == ("counter" if declared.endswith("_total") else "gauge")
        elif not line.startswith("# HELP "):
            name, query, enrichment, value = SERIES.fullmatch(line).groups()
            assert name == declared
            found[query, enrichment, name] = float(value)
    return found
