"""How long does building a store take, against Spark sorting and writing the same rows as Parquet?"""

from __future__ import annotations

import shutil
import sys
import time

from pyspark.sql import SparkSession

from data import ROOT, ROWS, SEED, products_parquet
from measure import Ratio, alternate, report
from semistream.master import build_master
from semistream.spark.environment import prepare_environment


def session() -> SparkSession:
    """Spark on two cores with memory enough not to suffer."""
    prepare_environment()
    spark = (
        SparkSession.builder.master("local[2]")
        .config("spark.ui.enabled", "false")
        .config("spark.ui.showConsoleProgress", "false")
        .config("spark.driver.memory", "6g")
        .config("spark.driver.host", "127.0.0.1")
        .config("spark.local.dir", str(ROOT / "spark"))
        .getOrCreate()
    )
    spark.sparkContext.setLogLevel("ERROR")
    return spark


def main() -> int:
    """Measure and report."""
    rows = int(sys.argv[1]) if len(sys.argv) > 1 else ROWS
    source = str(products_parquet(rows))
    spark = session()
    out = ROOT / "built"

    def timed(build: object) -> float:
        shutil.rmtree(out, ignore_errors=True)
        started = time.perf_counter()
        build()  # type: ignore[operator]
        seconds = time.perf_counter() - started
        shutil.rmtree(out, ignore_errors=True)
        return seconds

    frame = spark.read.parquet(source)
    frame.limit(100_000).orderBy("product_id").write.mode("overwrite").parquet(str(out))
    base = "Spark: sort and write Parquet"
    cases = {
        base: lambda: timed(lambda: frame.orderBy("product_id").write.parquet(str(out))),
        "build_master(Parquet directory)": lambda: timed(lambda: build_master(source, out, key="product_id")),
        "build_master(Spark DataFrame)": lambda: timed(lambda: build_master(frame, out, key="product_id")),
    }
    ratios = [
        Ratio("Parquet directory / Spark's sort", "build_master(Parquet directory)", base, at_most=1.5),
        Ratio("DataFrame / Spark's sort", "build_master(Spark DataFrame)", base, at_most=1.5),
    ]
    met = report("building a store", alternate(cases, repeats=3), ratios, unit="s", seed=SEED)
    spark.stop()
    return 0 if met else 1


if __name__ == "__main__":
    sys.exit(main())
