"""What a snapshot needs in order to be gone on with: its tuples, and for a scan the window they were in.

Tuples that have met a part of the master must all find room again. So a snapshot says how the join was divided: in the same memory the
same division holds them. Where "auto" chose, what it chose is taken again, and so is what a join was tuned to while it ran.
"""

from __future__ import annotations

import json
from dataclasses import asdict, replace
from pathlib import Path

from semistream.errors import InvalidInputError, SemistreamError
from semistream.joins.base import Snapshot
from semistream.joins.opening import Opening, OpenJoin
from semistream.joins.registry import Settings, check_algorithm
from semistream.joins.sides import JoinShape


def plan_of(opened: OpenJoin) -> str:
    """How a join is divided, for a snapshot of it."""
    opening = opened.opening
    return json.dumps(
        {
            "algorithm": opening.algorithm,
            "heap_bytes": opened.heap_bytes,
            "settings": asdict(opening.settings),
        }
    )


def check_resume(snapshot: Snapshot, shape: JoinShape, shed_to: str | Path | None) -> None:
    """Refuse a snapshot of another stream, and one whose shed tuples are not at hand."""
    if snapshot.tuples.schema != shape.stream:
        raise InvalidInputError(
            "resuming a join",
            found=f"a snapshot of a stream with {snapshot.tuples.schema}",
            hint=f"This stream has {shape.stream}.",
        )
    if snapshot.shed not in ("", "[]") and shed_to is None:
        raise InvalidInputError(
            "resuming a join",
            found="a snapshot of one that has shed tuples",
            hint="Pass the shed_to= and shedding= that it had.",
        )


def going_on(opening: Opening, snapshot: Snapshot) -> Opening:
    """What is to be opened for the tuples of a snapshot: as it was, where some have met a part of the master."""
    if not snapshot.begun or not snapshot.plan:
        return opening
    try:
        plan = json.loads(snapshot.plan)
        heap_bytes, algorithm = float(plan["heap_bytes"]), check_algorithm(plan["algorithm"])
        settings = Settings(**plan["settings"])
    except (ValueError, TypeError, KeyError, SemistreamError) as error:
        raise InvalidInputError(
            "resuming a join", found=f"{snapshot.plan[:80]!r} for its plan", hint="Pass what snapshot() gave."
        ) from error
    opening = replace(opening, heap_bytes=heap_bytes)
    if opening.algorithm not in ("auto", algorithm):
        return opening
    return replace(opening, algorithm=algorithm, settings=settings, why="as it was when it was stopped")
