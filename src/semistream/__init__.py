"""semistream joins a fast stream with a master table far larger than memory, inside a fixed byte budget, on Spark.

Data flows through the folders in this order:

    workload/  what arrives  ->  master/  what it meets  ->  memory/  where it waits  ->  front/  what is hot
      ->  joins/  how it matches  ->  spark/  where it runs  ->  cli/
"""

from semistream.errors import SemistreamError
from semistream.joins import ALGORITHMS, JoinedStream, join
from semistream.master import Master, build_master, open_master

__all__ = ["ALGORITHMS", "JoinedStream", "Master", "SemistreamError", "build_master", "join", "open_master"]
