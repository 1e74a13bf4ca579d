"""What the stream meets: the master table on disk.

source --> build ------> page files, page table, manifest      one version, never changed
           change -----> new pages beside the old ones         the next version, switched to at once
           vacuum -----> without what no reader needs
open_master --> Master --> index: key -> pages, in memory
                       --> disk:  pages -> rows, verified
"""

from semistream.master.build import build_master
from semistream.master.manifest import LAYOUTS, Layout, Statistics
from semistream.master.store import Master, Verification, open_master
from semistream.master.vacuum import Vacuumed

__all__ = [
    "LAYOUTS",
    "Layout",
    "Master",
    "Statistics",
    "Vacuumed",
    "Verification",
    "build_master",
    "open_master",
]
