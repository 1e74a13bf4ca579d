"""semistream joins a fast stream with a master table far larger than memory, inside a fixed byte budget, on Spark.

Data flows through the folders in this order:

    workload/  what arrives  ->  master/  what it meets  ->  spark/  where it runs  ->  cli/
"""

from semistream.errors import SemistreamError
from semistream.master import Master, build_master, open_master

__all__ = ["Master", "SemistreamError", "build_master", "open_master"]
