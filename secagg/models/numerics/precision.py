"""The rounding of float64."""

from __future__ import annotations

import numpy as np

# The mean of n equal numbers is off by at most log2(n) half units in the last place (pairwise
# summation), and the root of their scatter by as much: below 64 units for any n < 2**64.
ROUNDING = 64 * float(np.finfo(np.float64).eps)
