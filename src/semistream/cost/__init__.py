"""What we expect: one model per algorithm, the prices of this machine or of a simulated one, and the tuner."""

from semistream.cost.auto import choose
from semistream.cost.calibration import Calibration, calibrate, costs_of
from semistream.cost.counting import Counted, count
from semistream.cost.models import case_of, predict
from semistream.cost.prices import PRICES, Prices, counted_seconds
from semistream.cost.retuning import Retuner
from semistream.cost.skew import estimated_skew
from semistream.cost.tuner import Tuning, tune

__all__ = [
    "PRICES",
    "Calibration",
    "Counted",
    "Prices",
    "Retuner",
    "Tuning",
    "calibrate",
    "case_of",
    "choose",
    "costs_of",
    "count",
    "counted_seconds",
    "estimated_skew",
    "predict",
    "tune",
]
