"""Which noisy numbers to release for tables that are asked together: the matrix mechanism.

Source: Xiao, He, Zhang and Kifer 2023, "An optimal and scalable matrix mechanism for noisy
marginals under convex loss functions" (ResidualPlanner), sections 4 and 5, for the sum of all
variances as loss; the same problem as OPT_M of McKenna, Miklau, Hay and Machanavajjhala 2018
(HDMM), which takes from a smaller set of mechanisms. docs/math/tables.md has the proofs.

Columns i have n_i levels. A table B is a set of columns, with n_B = prod n_i cells, and x_B are its
counts. It is the sum of independent parts, one for each subset A of B (an analysis of variance:
total, main effects, interactions). The part of A is the projection P_A x_A with P_A the Kronecker
product of I - J / n_i over i in A, of rank r_A = prod (n_i - 1). With J = 11',

    x_B = sum over A in B of  (n_A / n_B) E_AB P_A x_A,                                         (1)

where E_AB repeats an entry for all levels of the columns that are not in A.

Released are, for each A that is part of an asked table, the whole numbers

    y_A = n_A P_A x_A + noise,  independent, of variance v w_A in each entry,                   (2)

with whole weights w_A. A record moves y_A by a column of n_A P_A, whose entries are products of
n_i - 1 (its own level) and -1. So the square of the change, in units in which noise has variance 1,
is, for every record alike,

    add or remove   sum over A of  n_A r_A / w_A,                                               (3)

and for two records whose levels differ in the columns D,

    replace   sum over A of  (2 / w_A) (n_A r_A - prod over i in A of c_i),                      (4)

with c_i = -n_i for columns in D and n_i (n_i - 1) for the others, at the D for which it is largest.
Some records attain both.

P_A y_A / n_A estimates the part of A, and (1) gives all asked tables. They agree in every margin,
and each is the generalised least squares estimate. A cell of B has the variance

    v sum over A in B of  w_A r_A / (n_A n_B^2),                                                (5)

the same for all cells. Let the loss be the sum over the asked tables W of c_B times (5) times n_B,
with c_B = 1 (the variances of all cells), or c_B = 1 / n_B (one cell of each table). By (3), (5)
and Cauchy-Schwarz, it is least, for a given (3), at

    w_A proportional to  n_A / root(a_A),   a_A = sum over B in W with A in B of  c_B / n_B,    (6)

and (3) times the loss is then (sum_A r_A root(a_A))^2, which is the singular value bound of Li and
Miklau 2013 for every matrix mechanism: no other Gaussian noise has a smaller loss.
Weights are (6) times a constant, rounded up, and at least 2^10. So (3) is at most, and (5) at most
1 + 2^-10 times, what (6) itself would give.

Not covered: the least error for replaced records, as (4) is not constant; the noise is optimal for
added and removed ones. Non-negative counts: estimates are unbiased, and may be negative.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from itertools import combinations

import numpy as np

from secagg.contracts.noise import Sensitivity
from secagg.core.arrays import Array

Columns = tuple[int, ...]
"""A set of columns: their positions, in increasing order."""

_LEAST_WEIGHT = 1024
_ROUND_UP = 1 + 2.0**-40


def subsets(columns: Columns) -> list[Columns]:
    """Return all subsets, the smaller ones first."""
    return [each for k in range(len(columns) + 1) for each in combinations(columns, k)]


@dataclass(frozen=True)
class Strategy:
    """The noisy numbers for the asked tables.

    sizes: n_i of each column; asked: W, different sets of columns
    by_table: whether c_B is 1 / n_B
    """

    sizes: tuple[int, ...]
    asked: tuple[Columns, ...]
    by_table: bool = False

    @cached_property
    def parts(self) -> tuple[Columns, ...]:
        """Each A, in the order of release."""
        found = {A for B in self.asked for A in subsets(B)}
        return tuple(sorted(found, key=lambda A: (len(A), A)))

    @cached_property
    def weights(self) -> Mapping[Columns, int]:
        """w_A, by (6)."""
        power = 2 if self.by_table else 1  # c_B / n_B = n_B^-power
        shares = {B: float(self.cells(B)) ** -power for B in self.asked}
        ideal = {
            A: self.cells(A) / math.sqrt(math.fsum(shares[B] for B in self.asked if {*A} <= {*B}))
            for A in self.parts
        }
        unit = _LEAST_WEIGHT / min(ideal.values())
        return {A: math.ceil(w * unit) for A, w in ideal.items()}

    @property
    def numbers(self) -> int:
        """The number of released numbers."""
        return sum(map(self.cells, self.parts))

    def cells(self, columns: Columns) -> int:
        """Return n_B."""
        return math.prod(self.sizes[i] for i in columns)

    def shape(self, columns: Columns) -> tuple[int, ...]:
        return tuple(self.sizes[i] for i in columns)

    def rank(self, columns: Columns) -> int:
        """Return r_A."""
        return math.prod(self.sizes[i] - 1 for i in columns)

    @cached_property
    def sensitivity(self) -> Sensitivity:
        """How far one record can move all y_A: (3) and (4), and the weight of each number."""
        add = math.fsum(self.cells(A) * self.rank(A) / self.weights[A] for A in self.parts)
        of_levels = np.zeros((2,) * len(self.sizes))  # (4) for each D
        for A in self.parts:
            joint = np.ones((1,) * len(self.sizes))
            for i in A:
                n = self.sizes[i]
                along = [2 if j == i else 1 for j in range(len(self.sizes))]
                joint = joint * np.array([n * (n - 1.0), -n]).reshape(along)
            of_levels += 2 / self.weights[A] * (self.cells(A) * self.rank(A) - joint)
        weights = tuple(self.weights[A] for A in self.parts for _ in range(self.cells(A)))
        replace = math.sqrt(float(of_levels.max()))
        return Sensitivity(math.sqrt(add) * _ROUND_UP, replace * _ROUND_UP, weights)

    def variance_of_cell(self, table: Columns) -> float:
        """Return (5) for v = 1."""
        terms = (self.weights[A] * self.rank(A) / self.cells(A) for A in subsets(table))
        return math.fsum(terms) / self.cells(table) ** 2

    def variance_of_part(self, columns: Columns) -> float:
        """Return the variance c of P_A y_A / n_A, whose covariance is c P_A, for v = 1."""
        return self.weights[columns] / self.cells(columns) ** 2

    def tables(self, y: Mapping[Columns, Array]) -> list[Array]:
        """Return the estimates of the asked tables, by (1). y: y_A, in the shape of its table."""
        parts = {A: _projected(y[A]) for A in self.parts}  # n_A times those of (1)
        found = []
        for B in self.asked:
            total = np.zeros(self.shape(B))
            for A in subsets(B):
                total += parts[A].reshape([self.sizes[i] if i in A else 1 for i in B])
            found.append(total / self.cells(B))
        return found


def residuals(counts: Array) -> Array:
    """Return n_A P_A x_A: whole numbers, exact in float64 up to 2^36 records at a site.

    counts: x_A in the shape of its table
    """
    for axis, n in enumerate(counts.shape):
        counts = n * counts - counts.sum(axis=axis, keepdims=True)
    return counts


def _projected(values: Array) -> Array:
    """Return P_A y_A."""
    for axis in range(values.ndim):
        values = values - values.mean(axis=axis, keepdims=True)
    return values
