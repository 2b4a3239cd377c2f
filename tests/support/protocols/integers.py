"""The integers of an encoded contribution: slow and exact, the oracle of every sum."""

from collections.abc import Mapping

import numpy as np
from numpy.typing import NDArray

from secagg.core import ring
from secagg.sessions.fixed_point import encode
from secagg.sessions.sum_plan import SumPlan


def quantised(plan: SumPlan, update: Mapping[str, NDArray[np.float64]]) -> list[int]:
    """Return the exact integers of one site's update, clip counts last."""
    return ring.to_integers(encode(plan, dict(update)))
