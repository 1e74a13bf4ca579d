"""How stream and master are matched: one file per algorithm, behind one contract (base.py).

tuples --> front stage --> meshjoin | hybridjoin | inlj ... --> output
              ^                 |   window, disk buffer
              +---- hot rows ---+
"""

from semistream.joins.base import Join, JoinStats, Snapshot
from semistream.joins.condition import Between
from semistream.joins.join import JoinedStream, join
from semistream.joins.registry import ALGORITHMS, Settings

__all__ = ["ALGORITHMS", "Between", "Join", "JoinStats", "JoinedStream", "Settings", "Snapshot", "join"]
