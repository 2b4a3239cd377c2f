"""Path norms of a multilayer perceptron, and the penalties on them.

Chajewska and Shrivastava (2023), equations 1 and 5. The entry of

    P = |W_L| ... |W_2| |W_1|                                                                    (4)

in row o, column i is the sum over all paths from input i to output o of the product of the absolute
weights. If it is 0, output o does not depend on input i. The reverse does not hold: paths may
cancel, and units may be inactive. A penalty is a sum of terms

    c ||P * S||_1    or    c log(1 + ||P * S||_1)                                                (5)

with a matrix S of zeros and ones, added to the mean loss of the records. The paper writes log(.)
without the 1. This is unbounded below: whatever the records, the objective is then least for a
network without any path in S.

For layer l, the slope of ||P * S||_1 in |W_l| is A' S B' with A = |W_L| ... |W_(l+1)| and
B = |W_(l-1)| ... |W_1|. At a weight of 0 the slope is taken as 0.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from secagg.core.arrays import Array
from secagg.models.neural.ngm.layout import NgmLayout
from secagg.models.neural.parameters import Blocks
from secagg.models.neural.rounds import Penalty


@dataclass(frozen=True, eq=False)
class PathTerm:
    """One term of (5).

    factor: c; paths: S, shape (outputs, inputs)
    logarithm: the second form of (5)
    """

    factor: float
    paths: Array
    logarithm: bool = False


def path_norms(weights: Sequence[Array]) -> Array:
    """Return (4), shape (outputs, inputs). weights: of the layers, the first one first."""
    product = np.abs(weights[0])
    for weight in weights[1:]:
        product = np.abs(weight) @ product
    return product


def edge_strengths(layout: NgmLayout, norms: Array) -> Array:
    """Return the path norms between columns, symmetric, shape (columns, columns).

    Of the variables of two columns, the largest path norm in each direction counts.
    """
    positions = [list(column.positions) for column in layout.columns]
    between = np.array([[np.max(norms[np.ix_(o, i)]) for i in positions] for o in positions])
    return np.asarray((between + between.T) / 2)


def path_slopes(weights: Sequence[Array], paths: Array) -> list[Array]:
    """Return the slope of ||P * S||_1 in the absolute weights of each layer."""
    absolute = [np.abs(weight) for weight in weights]
    below = [np.eye(weights[0].shape[1])]  # B of each layer
    for weight in absolute[:-1]:
        below.append(weight @ below[-1])
    slopes: list[Array] = []
    above = paths  # A' S
    for weight, reads in zip(reversed(absolute), reversed(below), strict=True):
        slopes.append(above @ reads.T)
        above = weight.T @ above
    return slopes[::-1]


def path_penalty(blocks: Blocks, layers: Sequence[str], terms: Sequence[PathTerm]) -> Penalty:
    """Return the sum of the terms.

    layers: names of the blocks of weights, the first layer first
    """

    def penalty(theta: Array, records: float) -> tuple[float, Array]:
        arrays = blocks.split(theta)
        weights = [arrays[name] for name in layers]
        norms = path_norms(weights)
        value, slope = 0.0, np.zeros(blocks.size)
        for term in terms:
            total, factor = float(np.sum(norms * term.paths)), term.factor
            value += factor * (math.log1p(total) if term.logarithm else total)
            if term.logarithm:
                factor /= 1 + total
            for name, part in zip(layers, path_slopes(weights, term.paths), strict=True):
                slope[blocks.slices[name]] += factor * np.ravel(part * np.sign(arrays[name]))
        return value, slope

    return penalty
