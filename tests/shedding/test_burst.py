"""After a burst everything that was shed is joined, the backlog is empty, and memory never left the budget."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pytest
from pacing import paced

import semistream as ss
from semistream.shedding import Shedding
from semistream.workload.arrivals import Bursty

QUIET, BURST_S, PERIOD_S = 20.0, 60.0, 150.0  # tuples a second, and seconds of virtual time
ROWS = 100_000  # two thousand pages: a read of 13 ms answers less than two of the tuples that wait


@pytest.mark.parametrize("strategy", ["considering", "upfront"])
def test_ten_times_the_load_for_a_minute(strategy, tmp_path):
    arrivals = Bursty(
        QUIET * (PERIOD_S + 9 * BURST_S) / PERIOD_S, burst_factor=10.0, burst_s=BURST_S, period_s=PERIOD_S
    )
    assert arrivals.quiet_rate == pytest.approx(QUIET)
    tuples = int(arrivals.rate * PERIOD_S)
    generator = np.random.default_rng(3)
    names = [f"{i:064d}" for i in range(ROWS)]
    master = pa.table({"k": np.arange(ROWS), "v": np.arange(ROWS), "name": names})
    built = ss.build_master(master, tmp_path / "m", key="k", page_bytes=4096)
    keys = generator.integers(0, ROWS, tuples)
    stream = pa.table({"k": pa.array(keys, pa.int64()), "n": pa.array(range(tuples), pa.int64())})
    joined = paced(
        stream,
        built,
        arrivals,
        shedding=Shedding(strategy),
        shed_to=tmp_path / "shed",
        on="k",
        columns=["v"],
        algorithm="chybridjoin",
        memory=120_000,
    )
    answered = np.zeros(tuples, dtype=np.int64)
    most_shed = 0
    for batch in joined:
        assert batch["v"].equals(batch["k"])
        answered[batch["n"].to_numpy()] += 1
        stats = joined.stats
        most_shed = max(most_shed, stats.shed)
        assert stats.used_bytes <= stats.budget_bytes
        assert stats.shedding.buffer_bytes_most <= stats.used["stream buffer"]
    assert stats.shedding.overloads >= 1
    assert most_shed > 1000  # or it was no burst
    assert (answered == 1).all()
    stats = joined.stats
    assert (stats.waiting, stats.shed, stats.shedding.backlog) == (0, 0, 0)
    assert stats.shedding.returned == stats.shedding.shed_in_all > 0
    assert not (tmp_path / "shed").exists()
