"""What arrives: streams of tuples, and the masters they meet, from a description and a seed.

    keys  (uniform, zipf, hot spot,      --+
           temporal locality, every key)   |
    arrivals (constant, poisson, bursty, --+-->  Workload  --slice(start, stop)-->  RecordBatch
              self-similar)                |        |
    columns (key, number, text, ...)     --+        +--arrived_by(seconds)------->  how many by now
    retail, cloud, tpch, trace: data sets made of the same parts

Row i is a pure function of (seed, i): any task computes any rows, and a replay computes the same ones.
"""

from semistream.workload import cloud, retail, tpch
from semistream.workload.arrivals import Arrivals, Bursty, Constant, Poisson, SelfSimilar
from semistream.workload.columns import ArrivalTime, Column, Key, Number, Position, Text
from semistream.workload.keys import EveryKey, Keys, Popularity, Uniform, Zipf
from semistream.workload.moving import HotSpot, TemporalLocality
from semistream.workload.sliced import Sliced
from semistream.workload.stream import SALES, Workload
from semistream.workload.trace import Trace, open_trace
from semistream.workload.zipf import zipf_mass

__all__ = [
    "SALES",
    "ArrivalTime",
    "Arrivals",
    "Bursty",
    "Column",
    "Constant",
    "EveryKey",
    "HotSpot",
    "Key",
    "Keys",
    "Number",
    "Poisson",
    "Popularity",
    "Position",
    "SelfSimilar",
    "Sliced",
    "TemporalLocality",
    "Text",
    "Trace",
    "Uniform",
    "Workload",
    "Zipf",
    "cloud",
    "open_trace",
    "retail",
    "tpch",
    "zipf_mass",
]
