"""The array type of all statistical computations."""

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float64]
