"""What the sources of Fed-Sparse-BNSL do not state: the settings that did best in a search.

`benchmarks/peers/fed_sparse_choices.py` found them on graphs that the comparison does not use. The
keys are the number of variables and epsilon (inf without noise). The columns are the fields of
`Choices`, in their order.
"""

from __future__ import annotations

import math
from collections.abc import Mapping

from reproductions.fed_sparse_bnsl.tasks.consensus import Choices

FOUND: Mapping[tuple[int, float], Choices] = {
    # d, epsilon: rounds, steps, penalty, clip, selection, threshold, rho1, rho2, last1, last2
    (10, 1): Choices(20, 10, 0.02, 1, 0.75, 0.4, 0.001, 0.1, 100, 10),
    (10, 4): Choices(20, 10, 0.1, 0.5, 0.25, 0.2, 0.1, 0.01, 100, 100),
    (10, 8): Choices(40, 2, 0.05, 2, 0.25, 0.4, 0.001, 0.01, 100000, 10),
    (10, math.inf): Choices(80, 50, 0.02, 4, 0.5, 0.3, 0.001, 1, 100, 10),
    (20, 1): Choices(20, 10, 0.02, 0.25, 0.5, 0.2, 0.001, 0.1, 100, 10),
    (20, 4): Choices(20, 10, 0.02, 1, 0.75, 0.4, 0.001, 0.1, 100, 10),
    (20, 8): Choices(20, 10, 0.02, 1, 0.75, 0.2, 0.001, 0.1, 100, 10),
    (20, math.inf): Choices(80, 50, 0.02, 4, 0.5, 0.3, 0.001, 1, 100, 10),
    (50, 1): Choices(20, 10, 0.02, 0.25, 0.5, 0.4, 0.001, 0.1, 100, 10),
    (50, 4): Choices(20, 10, 0.02, 1, 0.75, 0.4, 0.001, 0.1, 100, 10),
    (50, 8): Choices(20, 10, 0.02, 1, 0.75, 0.2, 0.001, 0.1, 100, 10),
    (50, math.inf): Choices(40, 20, 0.05, 2, 0.25, 0.3, 0.001, 0.01, 100000, 10),
}
