"""Where the memory is: every term of M, as the papers have them and as the joins take them (MESH eq. 1, X-HYBRID eq. 4, OPT-X eq. 1).

    MESH      M = b v_P + w v_S + w f (N_R / b) v_S + (N_R / b) w sizeof(ptr)
    X-HYBRID  M = (k + l) v_P + alpha [M - (k + l) v_P] + (1 - alpha) [M - (k + l) v_P]
    OPT-X     the same, with l v_P for H_R

How ours differ: these are the bytes of the structures themselves, as an opened join takes them, without a fudge factor f and without a
guess at alpha. The window is hash table and queue in one, H_S + Q, with the strings of its tuples; MESH counts the stream's buffer of w
tuples apart, here it is the caller's. A disk buffer has a word for the key of every row beside its pages, and two halves where pages
are read ahead. H_R is sized in rows, with the output's columns only and a counter for each. And the index takes memory,
for which the papers have no term.
"""

from __future__ import annotations

from semistream.joins.division import Division


def disk_buffer_bytes(division: Division) -> int:
    """Where pages land: b v_P or k v_P."""
    return division.parts.get("disk buffer", 0)


def pinned_bytes(division: Division) -> int:
    """Pages of X-HYBRIDJOIN that are never swapped: l v_P."""
    return division.parts.get("pinned pages", 0)


def front_stage_bytes(division: Division) -> int:
    """H_R with its recorder: l v_P of Optimised X-HYBRIDJOIN and of the front stage; or all of the master."""
    return division.parts.get("front stage", 0) + division.parts.get("master", 0)


def window_bytes(division: Division) -> int:
    """H_S + Q: alpha [...] + (1 - alpha) [...]."""
    return division.parts.get("window", 0)


def index_bytes(division: Division) -> int:
    """The index, and the buffer for its pages where it is on disk."""
    return division.parts.get("index", 0) + division.parts.get("index buffer", 0)


def memory_by_part(division: Division) -> dict[str, int]:
    """All terms by name, without those that an algorithm has not."""
    terms = {
        "disk buffer": disk_buffer_bytes(division),
        "pinned pages": pinned_bytes(division),
        "hot rows": front_stage_bytes(division),
        "window": window_bytes(division),
        "index": index_bytes(division),
    }
    return {name: nbytes for name, nbytes in terms.items() if nbytes}
