"""What can wait: load shedding (CACHING section 4, MESH section 3.3).

    arrivals.py   how many tuples have arrived by now
    backlog.py    arrived tuples that the join has no room for yet, in bounded memory
    overload.py   whether they are too many
    policy.py     who is shed then, and what becomes of them
    store.py      where shed tuples wait, durably, until the load falls
    estimates.py  what the answers say where shed tuples are dropped

The loop that uses them is joins/paced.py; micro-batches have theirs in pipeline/overload.py.
"""

from semistream.shedding.arrivals import ArrivalClock, Timed
from semistream.shedding.backlog import Backlog
from semistream.shedding.estimates import WEIGHT_COLUMN, Estimate, Estimator
from semistream.shedding.overload import OverloadDetector
from semistream.shedding.policy import FATES, STRATEGIES, Shedding
from semistream.shedding.stats import SheddingStats
from semistream.shedding.store import ShedStore

__all__ = [
    "FATES",
    "STRATEGIES",
    "WEIGHT_COLUMN",
    "ArrivalClock",
    "Backlog",
    "Estimate",
    "Estimator",
    "OverloadDetector",
    "ShedStore",
    "Shedding",
    "SheddingStats",
    "Timed",
]
