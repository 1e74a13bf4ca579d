"""Codes compare as keys do: against tuples of Python values, for every type of key and several columns of them."""

from __future__ import annotations

import bisect
from datetime import UTC, date, datetime, time
from decimal import Decimal
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from semistream.master.keys import KeyCodec, Keys, NarrowKeys, positions_of, shortest_separators
from semistream.master.part import separate

# Few letters, so that prefixes, repeats and zero bytes are common.
TEXT = st.text(alphabet="\0\x01a\x7fé\U0010ffff", max_size=5)
BYTES = st.lists(st.sampled_from([0, 1, 0x61, 0xFE, 0xFF]), max_size=5).map(bytes)


def decimals(digits: int, scale: int) -> st.SearchStrategy[Decimal]:
    bound = 10**digits - 1
    small = st.integers(-3, 3)
    return st.one_of(small, st.integers(-bound, bound)).map(
        lambda n: Decimal((n < 0, tuple(map(int, str(abs(n)))), -scale))
    )


def integers(kind: pa.DataType, low: int, high: int) -> tuple[pa.DataType, st.SearchStrategy[int]]:
    near = st.integers(max(low, -3), 3)
    return kind, st.one_of(near, st.integers(low, high), st.sampled_from([low, high]))


MOMENTS = st.datetimes(datetime(1, 1, 2), datetime(9999, 12, 30))
TYPES: dict[str, tuple[pa.DataType, st.SearchStrategy[Any]]] = {
    "int8": integers(pa.int8(), -(2**7), 2**7 - 1),
    "int16": integers(pa.int16(), -(2**15), 2**15 - 1),
    "int32": integers(pa.int32(), -(2**31), 2**31 - 1),
    "int64": integers(pa.int64(), -(2**63), 2**63 - 1),
    "uint8": integers(pa.uint8(), 0, 2**8 - 1),
    "uint16": integers(pa.uint16(), 0, 2**16 - 1),
    "uint32": integers(pa.uint32(), 0, 2**32 - 1),
    "uint64": integers(pa.uint64(), 0, 2**64 - 1),
    "string": (pa.string(), TEXT),
    "binary": (pa.binary(), BYTES),
    "date32": (pa.date32(), st.dates()),
    "date64": (pa.date64(), st.dates()),
    "time32": (pa.time32("s"), st.times().map(lambda t: t.replace(microsecond=0))),
    "time64": (pa.time64("us"), st.times()),
    "timestamp": (pa.timestamp("us"), MOMENTS),
    "timestamp of UTC": (pa.timestamp("us", "UTC"), MOMENTS.map(lambda m: m.replace(tzinfo=UTC))),
    "decimal(5,2)": (pa.decimal128(5, 2), decimals(5, 2)),
    "decimal(18,0)": (pa.decimal128(18, 0), decimals(18, 0)),
    "decimal(19,4)": (pa.decimal128(19, 4), decimals(19, 4)),
    "decimal(38,10)": (pa.decimal128(38, 10), decimals(38, 10)),
}
COMPOSITES = [
    ("int8", "int16", "uint8"),
    ("int32", "int32"),
    ("int64", "int8"),
    ("string", "string"),
    ("binary", "int64"),
    ("int16", "binary", "binary"),
    ("string", "decimal(38,10)", "date32"),
    ("decimal(5,2)", "timestamp"),
    ("uint8", "string", "uint64"),
]
CODECS = [(name,) for name in TYPES] + COMPOSITES


@st.composite
def keys_of(draw: st.DrawFn, names: tuple[str, ...], *, min_size: int = 0) -> list[tuple[Any, ...]]:
    one = st.tuples(*(TYPES[name][1] for name in names))
    some = draw(st.lists(one, min_size=min_size, max_size=20))
    # Repeats, and tuples that share all but one part with another.
    again = draw(st.lists(st.integers(0, 19), max_size=8))
    return some + [some[i] for i in again if i < len(some)]


def codec_of(names: tuple[str, ...]) -> KeyCodec:
    return KeyCodec(tuple(TYPES[name][0] for name in names))


def encode(names: tuple[str, ...], keys: list[tuple[Any, ...]], *, skip: int = 0) -> Keys:
    """The codes, from columns that begin `skip` rows into their buffers."""
    padded = [keys[-1]] * skip + keys if keys else keys
    columns = [
        pa.array([key[i] for key in padded], TYPES[name][0]).slice(skip if keys else 0)
        for i, name in enumerate(names)
    ]
    return codec_of(names).encode(columns)


def comparable(keys: Keys) -> list[int] | list[bytes]:
    """Codes as Python values that compare as unsigned bytes do."""
    if isinstance(keys, NarrowKeys):
        return keys.codes.tolist()
    data = keys.data.tobytes()
    return [data[i:j] for i, j in zip(keys.offsets[:-1].tolist(), keys.offsets[1:].tolist(), strict=True)]


def parametrised(function):
    """Run a property for every codec, each with its own keys."""

    @pytest.mark.parametrize("names", CODECS, ids="+".join)
    @settings(max_examples=12, deadline=None)
    @given(data=st.data())
    def test(names, data):
        function(names, data)

    test.__doc__ = function.__doc__
    return test


@parametrised
def test_the_order_of_codes_is_the_order_of_keys(names, data):
    keys = data.draw(keys_of(names))
    codes = encode(names, keys, skip=data.draw(st.integers(0, 9)))
    assert len(codes) == len(keys)
    plain = comparable(codes)
    for i, a in enumerate(keys):
        for j in range(i):
            assert (plain[j] < plain[i], plain[j] == plain[i]) == (keys[j] < a, keys[j] == a), (keys[j], a)
    order = sorted(range(len(keys)), key=keys.__getitem__)
    assert codes.argsort().tolist() == order, "the order is stable"
    assert codes.is_sorted() == (order == list(range(len(keys))))
    in_order = codes.take(np.array(order, dtype=np.int64))
    assert comparable(in_order) == sorted(plain)
    assert in_order.is_sorted()
    assert codes.starts().tolist() == [i == 0 or key != keys[i - 1] for i, key in enumerate(keys)]


@parametrised
def test_keys_are_found_where_bisect_finds_them(names, data):
    among = sorted(data.draw(keys_of(names)))
    some = data.draw(keys_of(names)) + among[:5]
    for side, oracle in (("left", bisect.bisect_left), ("right", bisect.bisect_right)):
        for probes in (some, sorted(some), among[-1:]):  # each is looked for in another way
            found = positions_of(encode(names, probes), encode(names, among), side=side)
            assert found.tolist() == [oracle(among, probe) for probe in probes]


def test_few_keys_are_found_among_many():
    among = [(key // 3,) for key in range(1000)]
    probes = [(-1,), (0,), (100,), (333,), (400,)]
    for side, oracle in (("left", bisect.bisect_left), ("right", bisect.bisect_right)):
        found = positions_of(encode(("int64",), probes), encode(("int64",), among), side=side)
        assert found.tolist() == [oracle(among, probe) for probe in probes]


@parametrised
def test_codes_survive_storing_and_joining(names, data):
    pieces = [encode(names, data.draw(keys_of(names)), skip=skip) for skip in (0, 3, 0)]
    codec = codec_of(names)
    whole = codec.concat([codec.from_arrow(piece.to_arrow()) for piece in pieces])
    assert comparable(whole) == [code for piece in pieces for code in comparable(piece)]
    assert len(codec.concat([])) == 0
    assert whole.nbytes >= 8 * len(whole)


@parametrised
def test_a_separator_is_between_two_pages_and_no_longer_than_needed(names, data):
    keys = sorted(data.draw(keys_of(names, min_size=2)))
    last, first = encode(names, keys[:-1]), encode(names, keys[1:])
    for before, code, after in zip(
        comparable(last), comparable(shortest_separators(last, first)), comparable(first), strict=True
    ):
        if before == after:
            assert code == after, "a key that goes on over the edge is kept whole"
            continue
        assert before < code <= after
        if isinstance(code, bytes):
            assert after.startswith(code)
            assert code[:-1] <= before, "one byte less would not separate them"


@parametrised
def test_the_pages_of_sorted_keys_are_separated(names, data):
    keys = sorted(data.draw(keys_of(names, min_size=1)))
    cuts = sorted({0, *data.draw(st.lists(st.integers(0, len(keys) - 1), max_size=6))})
    pages = [keys[i:j] for i, j in zip(cuts, [*cuts[1:], len(keys)], strict=True)]
    first, last = encode(names, [p[0] for p in pages]), encode(names, [p[-1] for p in pages])

    separators, continues = separate(first, last, codec_of(names))

    assert continues.tolist() == [i > 0 and page[0] == pages[i - 1][-1] for i, page in enumerate(pages)]
    codes = comparable(separators)
    assert codes == sorted(codes)
    assert codes[0] == comparable(first)[0]


@pytest.mark.parametrize(
    ("names", "narrow"),
    [
        (("int64",), True),
        (("decimal(18,0)",), True),
        (("decimal(19,4)",), False),
        (("int32", "int32"), True),
        (("int8", "int16", "uint8"), True),
        (("int64", "int8"), False),
        (("string",), False),
    ],
    ids=str,
)
def test_keys_of_at_most_eight_bytes_are_one_number(names, narrow):
    assert codec_of(names).is_narrow == narrow


def test_codes_of_two_codecs_are_not_compared():
    with pytest.raises(TypeError, match="two codecs"):
        positions_of(encode(("int8",), [(1,)]), encode(("string",), [("a",)]), side="left")


@given(st.lists(TEXT, max_size=30))
@example(["", "\0", "\0\0", "a", "a\0", "a\0\0b", "ab"])
@settings(max_examples=50, deadline=None)
def test_a_single_string_is_its_own_code(words):
    assert comparable(encode(("string",), [(word,) for word in words])) == [word.encode() for word in words]


def test_known_values_of_every_kind_of_code():
    assert comparable(encode(("int64",), [(-7,), (0,), (7,)])) == [2**63 - 7, 2**63, 2**63 + 7]
    assert comparable(encode(("string", "int32"), [("ab", 1)])) == [b"ab\0\0\x80\0\0\x01"]
    assert comparable(encode(("string", "string"), [("a\0", "")])) == [b"a\0\xff\0\0\0\0"]
    assert comparable(encode(("date32",), [(date(1970, 1, 2),)])) == [2**31 + 1]
    assert comparable(encode(("time32",), [(time(0, 0, 5),)])) == [2**31 + 5]
