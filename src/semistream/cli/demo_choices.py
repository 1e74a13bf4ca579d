"""What the demo was asked for, checked before anything is written, and where it keeps what."""

from __future__ import annotations

import argparse
import contextlib
import importlib.util
import math
import tempfile
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from pathlib import Path

import pyarrow as pa

from semistream.config import format_bytes, parse_bytes
from semistream.errors import InvalidInputError, MissingDependencyError, NotAStoreError, StoreError
from semistream.joins import join
from semistream.joins.registry import Settings, check_algorithm
from semistream.master import Master, build_master, open_master
from semistream.master.manifest import is_claimed, list_versions
from semistream.master.storage import open_storage
from semistream.workload import Workload, retail
from semistream.workload.limits import MAX_KEYS, require_between, require_whole

PAGE_BYTES = 4096  # what a look-up reads and checks for one row
MASTER_SEED, STREAM_SEED = 1, 2
SALES = pa.schema(
    [
        ("sale_id", pa.int64()),
        ("product_id", pa.int64()),
        ("quantity", pa.int32()),
        ("event_time", pa.timestamp("us", tz="UTC")),
        *[(field.name, field.type) for field in retail.PRODUCTS if field.name != "product_id"],
    ]
)
COLUMNS = tuple(SALES.names)
TABLE_NAME = "sales of the semistream demo"  # in the Delta table: by this a later demo knows it as its own
MOST_TUPLES = 10**9
_NEEDED = ("pyspark", "pandas", "deltalake", "duckdb", "matplotlib")
_NOT_IN_PATHS = "[]^|\\"  # delta-rs 1.6 takes them for something else
_FEW, _FEW_TUPLES, _LITTLE_BYTES = 2_000, 20_000, 200_000
_BURST = {"burst_factor": "8", "burst_s": "1", "period_s": "7"}


@dataclass(frozen=True)
class Choices:
    """Everything the demo can be told. The stream is a pure function of them and of the moment at which it begins."""

    rows: int
    memory_bytes: int
    skew: float
    algorithm: str
    tuples: int
    rate_per_s: float
    folder: Path

    @staticmethod
    def of(words: argparse.Namespace) -> Choices:
        """What was asked on the command line; what cannot be is an error."""
        require_whole("--rows", words.rows, 1, MAX_KEYS, hint=f"Ask for at least one, at most {MAX_KEYS:,}.")
        require_between(
            "--skew", words.skew, 0, 2, hint="Give one from 0 (uniform) to 2 (most sales are of one product)."
        )
        require_between("--rate", words.rate, 1, 1e8)
        check_algorithm(words.algorithm)
        odd = sorted(set(str(Path(words.folder).absolute())) & set(_NOT_IN_PATHS))
        if odd:
            raise InvalidInputError(
                f"--folder {words.folder}",
                found=f"{' '.join(odd)} in its path",
                hint="Delta tables cannot be written there: choose another folder.",
            )
        choices = Choices(
            rows=words.rows,
            memory_bytes=parse_bytes(words.memory, name="--memory"),
            skew=words.skew,
            algorithm=words.algorithm,
            tuples=1 if words.tuples is None else words.tuples,
            rate_per_s=words.rate,
            folder=Path(words.folder),
        )
        if words.tuples is None:
            require_between("--seconds", words.seconds, 0.1, 86_400)
            arrived = choices.workload(tuples=None).arrived_by(words.seconds)
            choices = replace(choices, tuples=max(1, arrived))
        require_whole("--tuples", choices.tuples, 1, MOST_TUPLES)
        return choices

    @property
    def products(self) -> Path:
        """The master store."""
        return self.folder / "products"

    @property
    def sales(self) -> Path:
        """The warehouse: a Delta table."""
        return self.folder / "sales"

    @property
    def picture(self) -> Path:
        """Rate and front stage over time."""
        return self.folder / "stream.png"

    @property
    def log(self) -> Path:
        """What Spark says."""
        return self.folder / "spark.log"

    def stream_options(self, *, tuples: int | None, starts_at: datetime) -> dict[str, str]:
        """The stream as options of the Spark source; the same ones describe it to `Workload.from_options`."""
        options = {
            "keys": "zipf",
            "n_keys": str(self.rows),
            "exponent": str(self.skew),
            "columns": "sale_id:position,product_id:key,quantity:int32:1:9,event_time:arrival",
            "arrivals": "bursty",
            "rate": str(self.rate_per_s),
            "starts_at": starts_at.isoformat(),
            "seed": str(STREAM_SEED),
        }
        return options | _BURST | ({} if tuples is None else {"rows": str(tuples)})

    def workload(
        self, *, tuples: int | None, starts_at: datetime = datetime(2024, 1, 1, tzinfo=UTC)
    ) -> Workload:
        """The stream without Spark."""
        return Workload.from_options(self.stream_options(tuples=tuples, starts_at=starts_at))


def require_packages() -> None:
    """Everything the demo will import is there, or an error that says how to get it."""
    missing = [name for name in _NEEDED if importlib.util.find_spec(name) is None]
    if missing:
        raise MissingDependencyError(
            "semistream demo",
            found=f"no {', '.join(missing)}",
            hint="pip install 'semistream[spark,cli,demo]'",
        )


def few_products(choices: Choices, path: Path) -> tuple[Choices, Master]:
    """A store like the demo's with a few rows, and a demo of them: to try something out."""
    few = replace(choices, rows=min(choices.rows, _FEW), tuples=_FEW_TUPLES)
    products = retail.products(few.rows, MASTER_SEED)
    return few, build_master(products, path, key="product_id", page_bytes=PAGE_BYTES)


def try_out(choices: Choices) -> None:
    """Join a few tuples with a few rows, in a temporary folder: a budget that cannot work is told before the demo begins.

    It also compiles the kernels, if that was not done before, in one process and not in every worker at once.
    """
    with tempfile.TemporaryDirectory(prefix="semistream-demo-") as folder:
        few, master = few_products(choices, Path(folder) / "products")
        scale = few.rows / choices.rows
        if choices.algorithm == "in-memory":
            memory = int(choices.memory_bytes * scale)
        else:  # the index grows with the master, and enrich() keeps room for that of a second version
            memory = choices.memory_bytes - 2 * math.ceil(master.index.nbytes * (1 / scale - 1))
        try:
            _join_few(few, master, max(1, memory))
        except InvalidInputError as error:
            raise InvalidInputError(
                f"--memory {format_bytes(choices.memory_bytes)} for {choices.rows:,} products",
                found=f"too little for {choices.algorithm}",
                hint="Raise it, choose another --algorithm, or ask for fewer --rows; nothing was changed.",
            ) from error
        # Where it is full, the front stage has more to do: that is to be compiled, too.
        with contextlib.suppress(InvalidInputError):
            _join_few(few, master, _LITTLE_BYTES)


def _join_few(few: Choices, master: Master, memory_bytes: int) -> None:
    for _ in join(
        few.workload(tuples=few.tuples).reader(),
        master,
        on="product_id",
        algorithm=few.algorithm,
        memory=memory_bytes,
        disk="buffered",
        settings=Settings(at_once=True),  # as enrich() does
    ):
        pass


def check_own(choices: Choices) -> None:
    """The demo writes over an earlier demo, and over nothing else."""
    store = _what_is_at(choices.products)
    if store == "something else":
        raise _not_ours(choices.products)
    if choices.sales.exists() and not _is_our_table(choices.sales):
        raise _not_ours(choices.sales)
    for path in (choices.picture, choices.log):
        if store != "a demo's store" and path.exists():
            raise _not_ours(path)


def _not_ours(path: Path) -> InvalidInputError:
    return InvalidInputError(
        f"the demo's {path}",
        found="something that no demo has made",
        hint="Choose another --folder; nothing was changed.",
    )


def _what_is_at(path: Path) -> str:
    if path.exists() and not path.is_dir():
        return "something else"
    try:
        ours = open_master(path).schema.names == retail.PRODUCTS.names
    except NotAStoreError:
        storage = open_storage(path)
        # A demo that was stopped while it built leaves a claim, and no version.
        begun = is_claimed(storage) and not list_versions(storage)
        return "nothing" if storage.is_empty() or begun else "something else"
    except StoreError as error:
        raise InvalidInputError(
            f"the demo's {path}",
            found=f"a store that cannot be opened ({error.found})",
            hint="Remove it, or choose another --folder; nothing was changed.",
        ) from error
    return "a demo's store" if ours else "something else"


def _is_our_table(path: Path) -> bool:
    from deltalake import DeltaTable

    if not (path / "_delta_log").is_dir() or not DeltaTable.is_deltatable(str(path)):
        return False
    return bool(DeltaTable(path).metadata().name == TABLE_NAME)
