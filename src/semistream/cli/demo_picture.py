"""The demo's picture: what arrived, what was served and what the front stage answered, over time."""

from __future__ import annotations

import logging
from pathlib import Path

import numpy as np

from semistream.cli.demo_live import Watched

_STEP_S = 0.5


def draw(watched: Watched, path: Path, *, title: str) -> None:
    """Save the picture."""
    logging.getLogger("matplotlib").setLevel(logging.ERROR)  # it tells when it looks for fonts the first time
    import matplotlib as mpl

    mpl.use("Agg")
    from matplotlib import pyplot as plt

    batches = watched.flow.batches
    ends = np.array([batch.written_at - watched.began for batch in batches])
    moments = np.arange(0.0, ends[-1] + _STEP_S, _STEP_S)
    arrived = np.array([watched.stream.arrived_by(float(moment)) for moment in moments])
    figure, (above, below) = plt.subplots(2, 1, sharex=True, figsize=(9, 5.5), height_ratios=(2, 1))
    above.stairs(np.diff(arrived) / _STEP_S / 1e3, moments, fill=True, color="#d5dbe3", label="arriving")
    served = np.array(watched.rates()) / 1e3
    above.stairs(served, [0.0, *ends], baseline=None, color="#1f5fa8", label="served (micro-batches)")
    above.set_ylabel("thousand tuples/s")
    above.set_ylim(0, 1.2 * max(served.max(), (np.diff(arrived) / _STEP_S / 1e3).max()))
    above.legend(loc="upper right", frameon=False, ncols=2)
    above.set_title(title, loc="left", fontsize=10)
    share = np.array([batch.counts.front_share for batch in batches])
    below.stairs(share * 100, [0.0, *ends], baseline=None, color="#c25a1c")
    below.set_ylabel("front stage, %")
    below.set_ylim(0, 100)
    below.set_xlabel("seconds")
    for axes in (above, below):
        axes.spines[["top", "right"]].set_visible(False)
    figure.tight_layout()
    figure.savefig(path, dpi=120)
    plt.close(figure)
