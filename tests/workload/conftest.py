"""The statistics that several test files share."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
from numpy.typing import NDArray

Statistic = Callable[[NDArray[np.int64], NDArray[np.float64]], float]


@pytest.fixture(scope="session")
def chi_squared_z() -> Statistic:
    """Pearson's chi-squared statistic as a standard normal deviate (Wilson and Hilferty): above 4 is one in 30,000."""

    def z(observed: NDArray[np.int64], probabilities: NDArray[np.float64]) -> float:
        expected = probabilities / probabilities.sum() * observed.sum()
        assert expected.min() >= 5, "bins too small for the statistic"
        freedom = observed.size - 1
        statistic = float(((observed - expected) ** 2 / expected).sum())
        spread = 2.0 / (9.0 * freedom)
        return float(((statistic / freedom) ** (1 / 3) - (1.0 - spread)) / np.sqrt(spread))

    return z
