"""Sizes as people write them."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from semistream.config import format_bytes, parse_bytes
from semistream.errors import InvalidInputError

DECIMAL = {
    "": 1,
    "b": 1,
    "k": 10**3,
    "kb": 10**3,
    "m": 10**6,
    "mb": 10**6,
    "g": 10**9,
    "gb": 10**9,
    "t": 10**12,
    "tb": 10**12,
}
BINARY = {
    "ki": 2**10,
    "kib": 2**10,
    "mi": 2**20,
    "mib": 2**20,
    "gi": 2**30,
    "gib": 2**30,
    "ti": 2**40,
    "tib": 2**40,
}
UNITS = DECIMAL | BINARY


@pytest.mark.parametrize("unit", UNITS)
def test_every_unit_in_every_case(unit):
    for written in {unit, unit.upper(), unit.capitalize()}:
        for text in (f"3{written}", f"3 {written}", f"  3\t{written} "):
            assert parse_bytes(text) == 3 * UNITS[unit]
    if UNITS[unit] > 1:
        assert parse_bytes(f"1.5{unit}") == UNITS[unit] * 3 // 2
        assert parse_bytes(f"0.25{unit}") == UNITS[unit] // 4


@given(st.integers(1, 2**70))
def test_numbers_stand_for_themselves(size):
    assert parse_bytes(size) == size


@given(st.integers(1, 2**52))
def test_digits_stand_for_their_number(size):
    assert parse_bytes(str(size)) == size


@pytest.mark.parametrize("size", [2**53 + 1, 10**20 + 1])
def test_long_numbers_keep_their_last_digit(size):
    assert parse_bytes(str(size)) == size


def test_a_number_beyond_every_float():
    assert parse_bytes("9" * 400) == int("9" * 400)


@pytest.mark.parametrize(
    ("size", "found"),
    [
        ("", "no size"),
        ("MB", "no size"),
        ("1 2", "no size"),
        ("1,5GB", "no size"),
        ("-5", "no size"),
        ("1e6", "no size"),
        ("5 parsecs", "no size"),
        ("0x10", "no size"),
        (".5MB", "no size"),
        (0, "not positive"),
        (-1, "not positive"),
        ("0MB", "not positive"),
        ("0.0001", "not positive"),
        (1.0, "a float"),
        (True, "a bool"),
        (None, "a NoneType"),
        (b"1", "a bytes"),
    ],
)
def test_what_is_no_size(size, found):
    with pytest.raises(
        InvalidInputError, match=rf"memory=.*: found .*{found}.* Give a number of bytes or a size"
    ) as caught:
        parse_bytes(size, name="memory")
    assert caught.value.asked == f"memory={size!r}"


@pytest.mark.parametrize(
    ("size", "text"),
    [
        (0, "0 B"),
        (1023, "1023 B"),
        (1024, "1.0 KiB"),
        (1536, "1.5 KiB"),
        (2**20, "1.0 MiB"),
        (5 * 2**30, "5.0 GiB"),
        (2**40, "1.0 TiB"),
        (5000 * 2**40, "5000.0 TiB"),
    ],
)
def test_sizes_for_people(size, text):
    assert format_bytes(size) == text


@given(st.integers(1, 2**60))
def test_what_is_written_is_about_what_was_meant(size):
    assert parse_bytes(format_bytes(size)) == pytest.approx(size, rel=0.06)
