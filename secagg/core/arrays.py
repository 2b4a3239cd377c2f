"""The array type that statistics are computed in."""

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float64]
