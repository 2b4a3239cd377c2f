"""The rounding of float64."""

from __future__ import annotations

import numpy as np

ROUNDING = 64 * float(np.finfo(np.float64).eps)
