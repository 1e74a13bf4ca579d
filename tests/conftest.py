from __future__ import annotations

import os

import pytest

from semistream.spark.environment import prepare_environment


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item, call):
    """Where every requirement is met (CI), a skipped test is a failed one."""
    report = yield
    if os.environ.get("SEMISTREAM_NO_SKIPS") and report.skipped and not hasattr(report, "wasxfail"):
        report.outcome = "failed"
        report.longrepr = f"skipped where nothing may be: {report.longrepr}"
    return report


@pytest.fixture(scope="session")
def spark(tmp_path_factory):
    """One session for all tests: small, quiet, with its scratch space of its own."""
    from pyspark.sql import SparkSession

    prepare_environment()
    scratch = tmp_path_factory.mktemp("spark")
    os.environ["SPARK_LOCAL_DIRS"] = str(scratch / "local")
    session = (
        SparkSession.builder.master("local[2]")
        .appName("semistream-tests")
        .config("spark.ui.enabled", "false")
        .config("spark.sql.shuffle.partitions", "2")
        .config("spark.sql.warehouse.dir", str(scratch / "warehouse"))
        .config("spark.driver.memory", "1g")
        .config("spark.driver.host", "127.0.0.1")
        .config("spark.driver.bindAddress", "127.0.0.1")
        .config("spark.sql.session.timeZone", "Europe/Berlin")
        .config("spark.sql.timeType.enabled", "true")
        .getOrCreate()
    )
    session.sparkContext.setLogLevel("ERROR")
    yield session
    session.stop()
