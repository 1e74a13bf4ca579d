"""Micro-batches of one held enrichment without Spark: every slot run in this process, the ledger in a folder."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
from enriching import rows_of

from semistream.joins.registry import SCANNING, Settings
from semistream.master import Master
from semistream.pipeline.holding import Slot
from semistream.pipeline.overload import Load, Overload, Ration, carry, come_back
from semistream.pipeline.routing import Route
from semistream.pipeline.spool import Spool, Written
from semistream.pipeline.tasks import canonical
from semistream.pipeline.waiting import KINDS, Form
from semistream.pipeline.work import Hold, Tally, Work
from semistream.spark.metrics import BatchId, Place
from semistream.spark.softstate import digest_of
from semistream.spark.task import Step, Task
from semistream.spark.types import for_spark

STREAM = pa.schema([("c0", pa.int64()), ("c1", pa.int64()), ("c2", pa.string())])
SECOND = 1_000_000


def hold_of(
    master: Master,
    algorithm: str,
    *,
    how: str = "left",
    delay_s: float = 0,
    retry_s: float | None = None,
    cycles: int = 0,
    memory: int = 1_000_000,
    parallel: int = 256,
) -> Hold:
    columns = [name for name in master.schema.names if name not in master.key]
    columns += [master.key[0]] if retry_s is not None else []
    step = Step(
        uid=digest_of((algorithm, how, memory, parallel, delay_s, retry_s, master.path))[:32],
        label="held",
        master=master,
        on={"c0": master.key[0]},
        how=how,
        columns=tuple(columns),
        algorithm=algorithm,
        memory_bytes=memory,
        disk="buffered",
        settings=Settings(at_once=not delay_s, parallel=parallel),
        follows=False,
        types=tuple(for_spark(master.schema.field(name).type, name) for name in columns),
    )
    scans = algorithm in SCANNING
    return Hold(
        number=0,
        label="held",
        step=step,
        form=Form(STREAM, ("k", "n", "text")),
        scans=scans,
        retries=retry_s is not None,
        delay_us=int(delay_s * SECOND),
        slack_us=int(delay_s * SECOND) // 10,
        retry_us=int((retry_s or 0) * SECOND),
        retry_every_us=SECOND,
        cycles=cycles,
    )


@dataclass
class Held:
    """The micro-batches of an enrichment, one after the other."""

    hold: Hold
    folder: Path
    slots: int = 1
    number: int = 0
    now_us: int = 1_700_000_000_000_000
    files: list[Written] = field(default_factory=list)  # the ledger of the last one
    answered: Counter = field(default_factory=Counter)
    dead: list[dict] = field(default_factory=list)
    total: Tally = field(default_factory=Tally)
    last: Tally = field(default_factory=Tally)  # of the last one
    overload: Overload | None = None
    load: Load = field(default_factory=Load)

    def batch(
        self,
        arrived: pa.Table,
        master: Master,
        *,
        after_s: float = 1.0,
        drain: bool = False,
        ration: Ration | None = None,
    ) -> Tally:
        self.now_us += int(after_s * SECOND)
        hold = self.hold
        share = 1 / hold.cycles if hold.cycles else min(1.0, after_s * SECOND / max(hold.delay_us, 1))
        route = Route.to(
            hold.step, hold.form.aged, master, most=self.slots, scan_share=share if hold.scans else None
        )
        folder = self.folder / f"{self.number}"
        spool = Spool(folder, "in")
        for batch in arrived.to_batches():
            for slot, part in route.split(canonical(batch, STREAM)):
                spool.write("arrived", 0, slot, part)
        files: dict[int, list[str]] = {}
        sizes: Counter[int] = Counter()
        for file in spool.close():
            files.setdefault(file.slot, []).append(str(folder / file.name))
            sizes[file.slot] += file.rows
        before = self.folder / f"{self.number - 1}"
        if ration is None:
            ration = Ration()
            if self.overload is not None:
                ration = self.overload.ration(self.load, sizes, batch=self.number, drain=drain)
        self.load = ration.load
        back, stay = come_back([f for f in self.files if f.kind == "shed"], ration.room, before)
        carry(stay, before, folder)
        work = Work(
            hold=self.hold,
            route=route,
            version=master.version,
            now_us=self.now_us,
            share=share,
            drain=drain,
            ledger=tuple(
                (f.kind, f.slot, str(before / f.name))
                for f in self.files
                if f.kind in KINDS and f.kind != "shed"
            ),
            arrived=files,
            ration=ration,
            returned=tuple(back),
        )
        self.files, self.last = stay, Tally()
        for number in range(route.slots):
            spool = Spool(folder, f"out{number}")
            slot = Slot(work, number, spool, Task(BatchId(), Place(), None))
            for rows in slot.answers():
                self.answered += rows_of(pa.Table.from_batches([rows]))
            slot.tally.check("held")
            self.files += spool.close()
            for name in vars(self.last):
                setattr(self.last, name, getattr(self.last, name) + getattr(slot.tally, name))
                setattr(self.total, name, getattr(self.total, name) + getattr(slot.tally, name))
        for file in self.files:
            if file.kind == "dead":
                self.dead += pq.read_table(folder / file.name).to_pylist()
        self.number += 1
        return self.last

    @property
    def waiting(self) -> int:
        return sum(file.rows for file in self.files if file.kind in KINDS)

    @property
    def shed(self) -> int:
        return sum(file.rows for file in self.files if file.kind == "shed")
