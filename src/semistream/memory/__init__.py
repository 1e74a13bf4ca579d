"""Where stream tuples wait, inside the byte budget.

leaves.py    columns as plain memory        rowstore.py       rows in slots
table.py     keys -> slots                  window.py         both, and who came first
budget.py    what everything may take       windowkernels.py  its loops, compiled
"""

from semistream.memory.budget import Budget
from semistream.memory.window import Window

__all__ = ["Budget", "Window"]
