"""TPC-H: table Customer as master and table Orders as stream, as in CACHING, section 5.1.

The data come from PyPI's ``tpchgen-cli`` (tpcgen-rs), which writes exactly dbgen's rows. The papers use scale factor 100
and report 20 million customers; the specification says 150,000 customers and 1.5 million orders for each unit of scale.
"""

from __future__ import annotations

import shutil
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

from semistream.errors import MissingDependencyError, StoreError
from semistream.workload.arrivals import Arrivals
from semistream.workload.limits import require_above, require_whole
from semistream.workload.trace import Trace, open_trace

COMMAND = "tpchgen-cli"


@dataclass(frozen=True)
class Tpch:
    """The two tables on disk. Join them on ``{"o_custkey": "c_custkey"}``."""

    customer: tuple[Path, ...]
    orders: tuple[Path, ...]

    def stream(self, *, arrivals: Arrivals | None = None, seed: int = 0) -> Trace:
        """Give Orders as a stream, in the order of its files, timed by a process or all there at once."""
        return open_trace(self.orders, arrivals=arrivals, seed=seed)


def generate(directory: str | Path, scale: float = 1.0, *, parts: int = 1, threads: int = 1) -> Tpch:
    """Write Customer and Orders as Parquet, `parts` files each; files that are there already are kept.

    Args:
        directory: Where to write; each scale and number of parts has its own folder in it.
        scale: TPC-H's scale factor; 1 is 150,000 customers and 1,500,000 orders.
        parts: Into how many files each table is cut.
        threads: How many threads the generator may use.
    """
    require_above("scale", scale, 0)
    require_whole("parts", parts, 1, 10_000)
    require_whole("threads", threads, 1, 1_024)
    target = Path(directory) / f"scale-{scale:g}-parts-{parts}"
    finished = target / "_SUCCESS"
    if not finished.exists():
        command = [_command(), "parquet", f"--scale-factor={scale}", "--tables=customer,orders"]
        command += [
            f"--output-dir={target}",
            f"--parts={parts}",
            f"--num-threads={threads}",
            "--overwrite",
            "--quiet",
        ]
        # A list of arguments, no shell: nothing in a path can be taken for a command.
        done = subprocess.run(command, capture_output=True, text=True, check=False)  # noqa: S603
        if done.returncode != 0:
            hint = "Check that the directory can be written and has room."
            raise StoreError(
                " ".join(command), found=done.stderr.strip() or f"exit code {done.returncode}", hint=hint
            )
        finished.touch()
    customer, orders = (
        tuple(target / table / f"{table}.{part}.parquet" for part in range(1, parts + 1))
        for table in ("customer", "orders")
    )
    return Tpch(customer, orders)


def _command() -> str:
    # A virtual environment that is not activated keeps its commands beside its interpreter, not on the path.
    beside = Path(sys.executable).with_name(COMMAND)
    found = str(beside) if beside.exists() else shutil.which(COMMAND)
    if found is None:
        raise MissingDependencyError(
            "TPC-H data", found=f"no command {COMMAND}", hint="Install it: pip install 'semistream[tpch]'."
        )
    return found
