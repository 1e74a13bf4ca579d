"""What is hot: master rows that the stream asks for most, in memory.

recorder.py   how often each cached key is used, and which goes when room is needed
"""

from semistream.front.recorder import BYTES_PER_ROW, SKETCH_BYTES_PER_ROW, FrequencyRecorder

__all__ = ["BYTES_PER_ROW", "SKETCH_BYTES_PER_ROW", "FrequencyRecorder"]
