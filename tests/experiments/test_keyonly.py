"""A key-only master is the full-width one but for what its file takes."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from semistream.experiments.case import Case
from semistream.experiments.data import MasterSpec, StreamSpec, open_or_build
from semistream.experiments.keyonly import KEY_ONLY_PAGE, KeyOnlyStorage
from semistream.experiments.measure import measure
from semistream.experiments.report import KEY_ONLY, SCALING, notes
from semistream.experiments.scale import SCALES
from semistream.experiments.setups import caching

ROWS = 60_000


def spec(payload: str, layout: str) -> MasterSpec:
    return MasterSpec(ROWS, page_bytes=KEY_ONLY_PAGE, layout=layout, payload=payload)  # type: ignore[arg-type]


def taken(folder: Path) -> int:
    """Bytes of the disk, holes left out."""
    return sum(512 * path.stat().st_blocks for path in folder.rglob("*") if path.is_file())


@pytest.mark.parametrize("layout", ["heap", "key"])
def test_the_payload_is_not_stored_and_reads_as_before(out, layout):
    whole, hollow = (open_or_build(spec(kind, layout), out, seed=1) for kind in ("stored", "holes"))
    assert (whole.rows, whole.pages, whole.page_bytes) == (hollow.rows, hollow.pages, hollow.page_bytes)
    assert whole.to_reader().read_all() == hollow.to_reader().read_all()
    assert hollow.verify().rows == ROWS
    assert 5 * taken(Path(hollow.path)) < taken(Path(whole.path))


@pytest.mark.parametrize("algorithm", ["meshjoin", "cmeshjoin", "hybridjoin", "chybridjoin"])
def test_every_count_and_price_is_that_of_the_full_width(out, algorithm):
    """Pages, probes, tuples, bytes, settings that the tuner chose, bytes of every structure, seconds: all of it."""
    layout = "heap" if "mesh" in algorithm else "key"
    case = Case(algorithm, spec("stored", layout), StreamSpec(1.0), 1_500_000, models=True, measured=1.0)
    hollow = replace(case, master=spec("holes", layout))
    assert measure(case, out, seed=1) == measure(hollow, out, seed=1)


def test_blocks_of_zeros_are_left_out_wherever_they_are(tmp_path):
    pieces = [
        b"a" * 4096,
        bytes(3 * 4096),
        b"b" * 4096 + bytes(4096),
        bytes(4096) + b"c",
        bytes(9000),
        b"d",
        bytes(4096),
    ]
    storage = KeyOnlyStorage(str(tmp_path), location=str(tmp_path))
    upload = storage.upload("pages/some")
    for piece in pieces:
        upload.write(piece)
    upload.close()
    assert storage.get("pages/some") == b"".join(pieces)
    storage.put_new("versions/one", b"{}")
    assert storage.get("versions/one") == b"{}"


def test_they_are_used_at_the_papers_sizes_alone_and_that_is_said():
    assert caching(SCALES["paper"], "cmeshjoin").master.payload == "holes"
    assert caching(SCALES["paper"], "inlj").master.payload == "stored"
    assert caching(SCALES["default"], "cmeshjoin").master.payload == "stored"
    assert KEY_ONLY in notes(SCALES["paper"])
    assert SCALING in notes(SCALES["default"])
