"""How we compare: the papers' experiments as studies, run by one command, with a report.

claims.py --> studies/ (a record a figure) --> runner.py (a case a point, kept) --> verdicts --> report.py
                                                  |
                                     measure.py: the real join, counted; pricing.py: the clock
"""

from semistream.experiments.claims import CLAIMS, Claim, chosen_claims
from semistream.experiments.runner import Reproduction, Runner
from semistream.experiments.scale import SCALES, Scale, scale_named
from semistream.experiments.verdicts import Verdict

__all__ = [
    "CLAIMS",
    "SCALES",
    "Claim",
    "Reproduction",
    "Runner",
    "Scale",
    "Verdict",
    "chosen_claims",
    "scale_named",
]
