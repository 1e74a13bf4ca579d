"""CACHING's own rule for newcomers of the front stage, beside which C12 looks at ours.

Where the product's recorder lets a newcomer start with the frequency of the last victim, the paper lets it start with the number of
tuples that waited for it alone (algorithm 3, line 21).
"""

from __future__ import annotations

import numpy as np

from semistream.front.recorder import I64, FrequencyRecorder

_MOST = 1 << 30


class OwnFrequency(FrequencyRecorder):
    """A recorder by that rule; all others are the product's."""

    @staticmethod
    def instead_of(recorder: FrequencyRecorder) -> OwnFrequency:
        """Of the same places, before anybody has come in."""
        return OwnFrequency(recorder.uses, until_halved=recorder.until_halved)

    def enter(self, slots: I64, frequencies: I64) -> None:
        """Keys known by these slots came in."""
        self.uses[slots] = np.minimum(frequencies, _MOST)
