"""What a worker has in memory beyond its budget."""

from __future__ import annotations

import gc
import subprocess
import sys
import textwrap
import weakref

import numba
import pyarrow as pa
import pytest

import semistream as ss
from semistream.spark.giving_back import _code_of, give_back, settle


def test_reading_a_master_loads_no_pandas(tmp_path):
    """Where it is installed, as it is here, it would take 40 MB of every worker."""
    ss.build_master(pa.table({"k": range(500), "v": range(500)}), tmp_path / "m", key="k")
    program = f"""
        import sys
        import numpy as np, pyarrow as pa
        from semistream.joins.registry import Settings
        from semistream.master import open_master
        from semistream.spark.task import Step
        from semistream.spark.worker import Enrichment
        master = open_master({str(tmp_path / "m")!r})
        for algorithm in {list(ss.ALGORITHMS)!r}:
            step = Step(algorithm, "", master, {{"c0": "k"}}, "left", ("v",), algorithm, 1 << 20, "direct", Settings(), False, (pa.int64(),))
            keys = pa.Array.from_buffers(pa.int64(), 600, [None, pa.py_buffer(np.arange(600))])
            answered = list(Enrichment((step,))([pa.RecordBatch.from_arrays([keys], ["c0"])]))
            assert sum(map(len, answered)) == 600
        print(sorted({{"pandas", "pyarrow.dataset", "pyarrow.parquet", "semistream.cost", "semistream.workload"}} & set(sys.modules)))
    """
    done = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(program)], check=False, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.strip() == "[]"


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="only Linux has the call")
def test_what_loading_kernels_took_is_given_back_and_kernels_still_compile():
    @numba.njit
    def twice(x):
        return 2 * x

    assert twice(3) == 6
    assert list(_code_of("libllvmlite.so"))
    before = _resident("libllvmlite.so")
    give_back()
    after = _resident("libllvmlite.so")
    assert before > 20_000
    assert after < before / 2
    assert twice(1.5) == 3.0  # another type: compiled now


class Cyclic:
    """Kept alive by itself."""

    def __init__(self) -> None:
        self.itself = self


def test_collections_pass_over_what_was_there_when_a_worker_settled_until_it_settles_again():
    gc.unfreeze()
    kept = Cyclic()
    alive = weakref.ref(kept)
    try:
        settle()
        assert gc.get_freeze_count() > 10_000
        del kept
        gc.collect()
        assert alive() is not None, "it was looked at"
        settle()
        assert alive() is None
    finally:
        gc.unfreeze()


def _resident(library: str) -> int:
    """Kilobytes of a library that are in memory."""
    total, of_library = 0, False
    with open("/proc/self/smaps") as file:
        for line in file:
            first = line.split()[0]
            if "-" in first and not first.endswith(":"):
                of_library = line.rstrip().endswith(library)
            elif first == "Rss:" and of_library:
                total += int(line.split()[1])
    return total
