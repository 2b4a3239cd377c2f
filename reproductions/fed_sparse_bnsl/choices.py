"""What the sources of Fed-Sparse-BNSL do not state: the settings that did best in a search.

`benchmarks/peers/fed_sparse_choices.py` found them on graphs that the comparison does not use. The
keys are the number of variables and epsilon (inf without noise). `benchmarks/peers/
notears_choices.py` found penalty and threshold of NOTEARS on the same graphs.
"""

from __future__ import annotations

import math
from collections.abc import Mapping

from reproductions.fed_sparse_bnsl.tasks.consensus import Choices

FOUND: Mapping[tuple[int, float], Choices] = {
    # d, epsilon: rounds, steps, penalty, clip, selection, threshold, rho1, rho2, last1, last2
    (10, 1): Choices(20, 10, 0.02, 0.25, 0.75, 0.3, 0.001, 0.01, 100, 10),
    (10, 8): Choices(40, 5, 0.02, 1, 0.25, 0.4, 0.001, 0.01, 1e5, 10),
    (10, math.inf): Choices(80, 50, 0.02, 4, 0.5, 0.3, 0.001, 1, 100, 10),
    (20, 1): Choices(40, 10, 0.02, 0.25, 0.5, 0.4, 0.001, 0.1, 100, 10),
    (20, 8): Choices(20, 10, 0.02, 1, 0.75, 0.3, 0.001, 0.01, 100, 10),
    (20, math.inf): Choices(80, 50, 0.02, 4, 0.5, 0.3, 0.001, 1, 100, 10),
    (50, 1): Choices(10, 5, 0.2, 0.25, 0.5, 0.4, 0.1, 0.1, 1e5, 10),
    (50, 8): Choices(20, 10, 0.02, 1, 0.75, 0.2, 0.001, 0.01, 100, 10),
    (50, math.inf): Choices(40, 20, 0.05, 2, 0.25, 0.3, 0.001, 0.01, 1e5, 10),
}
NOTEARS: Mapping[tuple[int, float], tuple[float, float]] = {
    (10, 1): (0.1, 0.3),
    (10, 8): (0.1, 0.2),
    (20, 1): (0.2, 0.4),
    (20, 8): (0.1, 0.2),
    (50, 1): (0.2, 0.4),
    (50, 8): (0.2, 0.4),
}
"""penalty and threshold, with noise at the sites"""
