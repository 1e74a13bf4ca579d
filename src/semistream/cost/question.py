"""What is asked of the tuner: checked, with everything decided but the settings and the memory."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import pyarrow as pa

from semistream.arrow import plain
from semistream.cost.calibration import Calibration, check_disk, costs_of
from semistream.cost.case import Case, Loop
from semistream.cost.misses import Misses, check_misses, estimated_misses
from semistream.cost.models import MODELS, case_of, predict
from semistream.cost.skew import check_skew, estimated_skew
from semistream.errors import InvalidInputError
from semistream.front.steady import PLACES
from semistream.joins.join import string_bytes_of
from semistream.joins.opening import heap_bytes_of
from semistream.joins.pagefinder import check_indexed
from semistream.joins.registry import LOOKING_UP, Settings, check_algorithm
from semistream.joins.sides import JoinShape, On, pairs_of, shape_join
from semistream.master import Master
from semistream.master.disk.profiles import PROFILES
from semistream.memory.leaves import leaves_of

_PAYLOAD_BYTES = 12  # of a stream tuple beside its key, where no stream is shown: the papers' 20 B


@dataclass(frozen=True)
class Point:
    """A setting and what it is predicted to give."""

    settings: Settings
    memory_bytes: int
    rate_per_s: float
    front_share: float


@dataclass(frozen=True)
class Question:
    """What is asked, with everything but the settings and the memory decided."""

    algorithm: str
    master: Master
    shape: JoinShape
    skew: float
    disk_kind: str
    costs: Calibration
    row_heap_bytes: float
    tuple_heap_bytes: float
    parallel: int
    misses: float = 0.0  # the share of tuples that have no row
    may_be_alone: bool = False  # one block at a time is to be tried too, whatever `parallel` is

    def case(self, memory_bytes: int, settings: Settings) -> Case:
        """For the models."""
        return case_of(
            self.algorithm,
            self.master,
            self.shape,
            memory_bytes=memory_bytes,
            settings=settings,
            skew=self.skew,
            disk_kind=self.disk_kind,
            disk=self.costs.disk,
            prices=self.costs.prices,
            row_heap_bytes=self.row_heap_bytes,
            tuple_heap_bytes=self.tuple_heap_bytes,
            misses=self.misses,
        )

    def point(self, memory_bytes: int, settings: Settings, *, small_places: int = PLACES) -> Point | None:
        """What a setting gives; None where it does not fit."""
        try:
            case = replace(self.case(memory_bytes, settings), small_places=small_places)
        except InvalidInputError:
            return None
        loop: Loop = predict(case)
        return Point(settings, memory_bytes, loop.rate_per_s(case), loop.front_share)


def ask(
    algorithm: str,
    master: Master,
    *,
    skew: float | None,
    sample: pa.Table | pa.RecordBatch | None,
    on: On | None,
    columns: Sequence[str] | None,
    disk: str,
    parallel: int | None,
    misses: float | None = None,
) -> Question:
    """Check what is asked, and find out what is not said."""
    check_algorithm(algorithm)
    if algorithm not in MODELS:
        raise InvalidInputError(
            "tuning 'auto'",
            found="no algorithm",
            hint="Name one, or join with algorithm='auto', which tunes itself.",
        )
    if not master.rows:
        raise InvalidInputError(
            f"tuning for {master.path}",
            found="an empty master",
            hint="There is nothing to tune: any setting will do.",
        )
    check_disk(disk)
    if parallel is not None and parallel < 1:
        raise InvalidInputError(
            f"parallel={parallel}", found="no number of blocks", hint="Give 1 for the papers', or more."
        )
    if algorithm in LOOKING_UP:
        check_indexed(master, who=algorithm)
    batch = _as_batch(sample)
    given = list(master.key) if on is None else on
    typical = batch if batch is not None else _typical(master, given)
    shape = shape_join(typical.schema, master, on=given, columns=columns)
    unknown = skew is None or misses is None
    seen = estimated_misses(master, shape, batch) if batch is not None and unknown else Misses()
    if skew is None:
        if batch is None:
            raise InvalidInputError(
                "tuning for a stream", found="neither its skew nor a sample", hint="Give skew= or sample=."
            )
        tuples, _ = shape.keyed(batch)
        skew = estimated_skew(tuples.codes, keys_of(master), seen)
    costs = costs_of(master, disk)
    return Question(
        algorithm,
        master,
        shape,
        check_skew(skew),
        disk,
        costs,
        heap_bytes_of(master, shape),
        string_bytes_of(shape, typical),
        parallel if parallel is not None else usual_parallel(disk),
        check_misses(seen.share if misses is None else misses),
        may_be_alone=parallel is None and may_be_alone(disk),
    )


def usual_parallel(disk: str) -> int:
    """Blocks that are chosen together: one where a disk does one thing at a time, as in the papers."""
    profile = PROFILES.get(disk)
    return 1 if profile is not None and profile.queue_depth == 1 else Settings().parallel


def may_be_alone(disk: str) -> bool:
    """Whether large blocks one at a time may be as fast as small ones together: a simulated disk's queue takes either as well."""
    return disk in PROFILES and usual_parallel(disk) > 1


def keys_of(master: Master) -> int:
    """How many keys the stream can ask for: as many as rows, as long as nobody has counted them."""
    return master.statistics.distinct_keys or master.rows


def _as_batch(sample: pa.Table | pa.RecordBatch | None) -> pa.RecordBatch | None:
    if isinstance(sample, pa.Table):
        batches = sample.combine_chunks().to_batches() or [pa.RecordBatch.from_pylist([], sample.schema)]
        sample = batches[0]
    return None if sample is None else plain(sample)


def _typical(master: Master, on: On) -> pa.RecordBatch:
    """Of a stream that nobody has shown: some keys, under the names that it has for them, and a little more."""
    names = {name: of for name, of in pairs_of(on).items() if of in master.key}
    schema = pa.schema([master.schema.field(of) for of in names.values()])
    long = any(leaf.is_varying for leaf in leaves_of(schema))
    rows = next(master.scan()) if long else pa.RecordBatch.from_pylist([], master.schema)
    columns = {name: rows.column(of) for name, of in names.items()}
    payload = pa.array([bytes(_PAYLOAD_BYTES)] * len(rows), pa.binary(_PAYLOAD_BYTES))
    return plain(pa.RecordBatch.from_pydict({**columns, "semistream_payload": payload}))
