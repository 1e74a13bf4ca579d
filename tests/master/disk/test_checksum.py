"""What the checksum must notice."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from semistream.errors import InvalidInputError
from semistream.master.disk import CHECKSUM_BYTES, aligned_buffer, checksum, seal, seal_pages

MASK = (1 << 64) - 1


def reference(data: bytes, seed: int) -> int:
    """The definition in the module's docstring, with Python's integers."""

    def mix(x: int) -> int:
        x ^= x >> 32
        x = x * 0x6A09E667 & MASK
        x ^= x >> 29
        x = x * 0xBB67AE85 & MASK
        return x ^ x >> 32

    def fold(x: int) -> int:
        return x ^ x >> 32

    k_0 = mix((mix(seed) + len(data)) & MASK)
    key = [(k_0 + i * 0x3C6EF372FE94F82B) & MASK for i in range(len(data))]
    words = [int.from_bytes(data[i : i + 8], "little") for i in range(0, len(data) & ~7, 8)]
    n = len(words) // 2
    terms = [(words[i] ^ key[i]) + 0x510E527F * fold(words[n + i] ^ key[i]) for i in range(n)]
    rest = [*words[2 * n :], int.from_bytes(data[len(data) & ~7 :], "little")]
    terms += [word ^ (k_0 + (n + i) * 0x3C6EF372FE94F82B) & MASK for i, word in enumerate(rest)]
    return mix(sum(mix(term & MASK) for term in terms) & MASK)


@settings(deadline=None)
@given(data=st.binary(max_size=300), seed=st.integers(0, MASK))
def test_it_is_the_documented_function(data: bytes, seed: int) -> None:
    assert checksum(np.frombuffer(data, np.uint8), seed) == reference(data, seed)


def test_stores_written_today_stay_readable() -> None:
    """A change of this number would make every existing store look corrupt."""
    assert checksum(np.arange(4088, dtype=np.uint64).astype(np.uint8), 42) == 0x27403F9B79889811


@pytest.mark.parametrize("content", ["random", "zeros", "ones"])
@pytest.mark.parametrize("size", [64, 256, 1021])
def test_every_single_bit_flip_is_noticed(content: str, size: int) -> None:
    rng = np.random.default_rng(5)
    page = {
        "random": rng.integers(0, 256, size, dtype=np.uint8),
        "zeros": np.zeros(size, np.uint8),
        "ones": np.full(size, 255, np.uint8),
    }[content]
    seen = {checksum(page, 9)}
    for byte in range(size):
        for bit in range(8):
            page[byte] ^= 1 << bit
            seen.add(checksum(page, 9))
            page[byte] ^= 1 << bit
    assert len(seen) == 8 * size + 1  # not only noticed: no two flips look alike


@pytest.mark.parametrize("bit", [0, 1, 30, 31, 32, 33, 61, 62, 63])
def test_equal_flips_in_two_words_do_not_cancel(bit: int) -> None:
    """The weak spot of sums."""
    words = np.zeros(64, np.uint64)
    right = checksum(words.view(np.uint8), 1)
    for i in range(64):
        for j in range(i):
            words[[i, j]] ^= np.uint64(1 << bit)
            assert checksum(words.view(np.uint8), 1) != right
            words[[i, j]] ^= np.uint64(1 << bit)


def test_every_swap_of_words_is_noticed() -> None:
    words = np.random.default_rng(6).integers(0, 1 << 63, 64, dtype=np.uint64)
    right = checksum(words.view(np.uint8), 3)
    for i in range(64):
        for j in range(i):
            words[[i, j]] = words[[j, i]]
            assert checksum(words.view(np.uint8), 3) != right
            words[[i, j]] = words[[j, i]]


@settings(deadline=None)
@given(
    data=st.binary(min_size=16, max_size=200),
    shift=st.integers(1, 15),
    seeds=st.tuples(st.integers(0, MASK), st.integers(0, MASK)),
)
def test_shifts_cuts_padding_and_foreign_seeds_are_noticed(
    data: bytes, shift: int, seeds: tuple[int, int]
) -> None:
    page = np.frombuffer(data, np.uint8)
    right = checksum(page, seeds[0])
    rotated = np.roll(page, shift)
    if not np.array_equal(rotated, page):
        assert checksum(rotated, seeds[0]) != right
    assert checksum(page[:-shift], seeds[0]) != right
    assert checksum(np.concatenate([page, np.zeros(shift, np.uint8)]), seeds[0]) != right
    if seeds[0] != seeds[1]:
        assert checksum(page, seeds[1]) != right


@settings(deadline=None)
@given(data=st.binary(min_size=64, max_size=64), cut=st.integers(0, 63), seed=st.integers(0, MASK))
def test_a_zeroed_end_is_noticed(data: bytes, cut: int, seed: int) -> None:
    page = np.frombuffer(data, np.uint8).copy()
    right = checksum(page, seed)
    if page[cut:].any():
        page[cut:] = 0
        assert checksum(page, seed) != right


def test_a_page_of_zeros_is_not_a_sealed_page() -> None:
    assert all(checksum(np.zeros(4088, np.uint8), seed) != 0 for seed in range(1000))


def test_neighbouring_seeds_have_nothing_in_common() -> None:
    page = np.zeros(4088, np.uint8)
    sums = np.array([checksum(page, seed) for seed in range(2000)], dtype=np.uint64)
    ones = np.unpackbits(sums.view(np.uint8)).reshape(2000, 64).mean(axis=0)
    assert len(set(sums.tolist())) == 2000
    assert 0.4 < ones.min() < ones.max() < 0.6


def test_memory_need_not_be_aligned_or_writable() -> None:
    memory = np.random.default_rng(1).integers(0, 256, 1000, dtype=np.uint8)
    aligned = memory[3:903].copy()
    frozen = np.frombuffer(aligned.tobytes(), np.uint8)
    assert checksum(memory[3:903], 1) == checksum(aligned, 1) == checksum(frozen, 1)
    assert checksum(memory[::2], 1) == checksum(memory[::2].copy(), 1)


def test_negative_and_large_seeds_are_taken_modulo_two_to_the_64() -> None:
    page = np.zeros(64, np.uint8)
    assert checksum(page, -1) == checksum(page, MASK) == checksum(page, (1 << 65) - 1)


def test_sealing_writes_the_last_eight_bytes_and_nothing_else() -> None:
    page = np.random.default_rng(2).integers(0, 256, 4096, dtype=np.uint8)
    before = page.copy()
    seal(page, 77)
    assert np.array_equal(page[:-CHECKSUM_BYTES], before[:-CHECKSUM_BYTES])
    assert int.from_bytes(page[-8:].tobytes(), "little") == checksum(before[:-8], 77)


def test_sealing_many_is_sealing_each() -> None:
    buffer = aligned_buffer(10 * 4096)
    buffer[:] = np.random.default_rng(2).integers(0, 256, len(buffer), dtype=np.uint8)
    each = buffer.copy()
    offset, length = np.array([0, 4096, 16384]), np.array([4096, 12288, 8192])
    seeds = np.array([5, 6, 7], dtype=np.uint64)
    seal_pages(buffer, offset, length, seeds)
    for o, n, s in zip(offset, length, seeds, strict=True):
        seal(each[o : o + n], int(s))
    assert np.array_equal(buffer, each)


@pytest.mark.parametrize(
    ("offset", "length", "seeds"),
    [([4], 64, [1]), ([0], 60, [1]), ([0], 0, [1]), ([64], 8192, [1]), ([-8], 64, [1]), ([0], 64, [1, 2])],
)
def test_pages_that_are_not_in_the_buffer_cannot_be_sealed(offset, length, seeds) -> None:
    with pytest.raises(InvalidInputError, match="sealing 1 pages in a buffer of 8192 bytes"):
        seal_pages(aligned_buffer(8192), np.array(offset), length, np.array(seeds, np.uint64))
