"""How extents of page files are read, checked and counted.

    Extents + buffer + seeds
          |
          v
    Disk.read ---- calls.py      adjacent extents become one call; calls, bytes and seeks are counted
          |
          +------- local.py      direct: kernel queue, or threads of pread       --+
          |                      buffered: threads of pread                        |   checksum.py
          +------- remote.py     object store: parallel ranged reads             --+-> every page checked by
          |                                                                        |   the thread that read it
          +------- simulated.py  the bytes of one of these, the time of a profile --+

`open_disk` chooses among them; every kind returns the same bytes, the same counts and the same errors.
"""

from semistream.master.disk.calls import MAX_CALL_BYTES
from semistream.master.disk.checksum import CHECKSUM_BYTES, checksum, seal, seal_pages
from semistream.master.disk.descriptors import DirectIOUnavailableWarning
from semistream.master.disk.disk import Disk
from semistream.master.disk.extents import (
    ALIGNMENT,
    Extents,
    LocalFile,
    PageFile,
    RemoteFile,
    aligned_buffer,
)
from semistream.master.disk.local import LocalDisk
from semistream.master.disk.open import DISK_KINDS, DiskKind, open_disk
from semistream.master.disk.profiles import PROFILES, DiskProfile
from semistream.master.disk.remote import ObjectDisk
from semistream.master.disk.simulated import SimulatedDisk, VirtualClock
from semistream.master.disk.stats import DiskStats

__all__ = [
    "ALIGNMENT",
    "CHECKSUM_BYTES",
    "DISK_KINDS",
    "MAX_CALL_BYTES",
    "PROFILES",
    "DirectIOUnavailableWarning",
    "Disk",
    "DiskKind",
    "DiskProfile",
    "DiskStats",
    "Extents",
    "LocalDisk",
    "LocalFile",
    "ObjectDisk",
    "PageFile",
    "RemoteFile",
    "SimulatedDisk",
    "VirtualClock",
    "aligned_buffer",
    "checksum",
    "open_disk",
    "seal",
    "seal_pages",
]
