from __future__ import annotations

import numpy as np
import pyarrow.compute as pc
import pytest

from semistream.errors import InvalidInputError
from semistream.workload import cloud


def test_longitudes_follow_their_weights(chi_squared_z):
    weights = cloud.longitude_weights()
    assert weights.size == 36_001
    assert np.isclose(weights.sum(), 1.0)
    drawn = cloud.Longitudes().draw(0, 4_000_000, seed=1)
    observed = np.bincount(drawn, minlength=36_001)
    assert observed[weights == 0].sum() == 0
    frequent = weights * drawn.size >= 10
    assert frequent.sum() > 5_000
    assert chi_squared_z(observed[frequent], weights[frequent]) < 4


def test_reports_are_spread_very_unevenly():
    weights = np.sort(cloud.longitude_weights())[::-1]
    assert weights[:3600].sum() > 0.5  # a tenth of the longitudes has most reports
    assert (weights > 0).sum() > 8_000
    by_degree = cloud.longitude_weights()[:36_000].reshape(360, 100).sum(axis=1)
    assert by_degree[5:25].sum() > 3 * by_degree[150:170].sum()  # Europe against the Pacific


def test_ships_report_at_tenths_of_a_degree():
    weights = cloud.longitude_weights()
    assert weights[::10].sum() > cloud.SHIP_SHARE


def test_a_report_is_32_bytes_or_as_wide_as_asked():
    assert cloud.stream(10).tuple_bytes == 32
    assert cloud.stream(100).slice(0, 100).nbytes == 3200
    assert cloud.stream(10, report_bytes=128).tuple_bytes == 128
    with pytest.raises(InvalidInputError, match="report_bytes=16"):
        cloud.stream(10, report_bytes=16)


def test_master_and_stream_match_many_to_many():
    master = cloud.reports(50_000).read_all()["lon"].to_numpy()
    stream = cloud.stream(50_000).slice(0, 50_000)["lon"].to_numpy()
    assert not np.array_equal(master, stream)
    matches = np.bincount(master, minlength=36_001)[stream]
    assert (matches > 1).mean() > 0.9
    # Two independent draws from weights w meet with chance sum w^2.
    assert np.isclose(matches.mean() / 50_000, (cloud.longitude_weights() ** 2).sum(), rtol=0.05)


def test_values_stay_in_the_codes_of_a_report():
    batch = cloud.stream(20_000).slice(0, 20_000)
    for column, low, high in (
        ("lon", 0, 36_000),
        ("lat", -9_000, 9_000),
        ("cloud_cover", 0, 8),
        ("weather", 0, 99),
    ):
        assert low <= pc.min(batch[column]).as_py() <= pc.max(batch[column]).as_py() <= high
