"""Where it runs: what semistream does with Spark. Of all folders only this one, pipeline/ and cli/ import pyspark."""
