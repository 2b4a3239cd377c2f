"""Networks for nonlinear graphs: one small perceptron per variable, their loss and acyclicity.

The model of Zheng, Dan, Aragam, Ravikumar and Xing ("Learning sparse nonparametric DAGs", AISTATS
2020, section 4.1), which Ng and Zhang (AISTATS 2022, section 5.2) learn by ADMM. A separate network
with one hidden layer of m sigmoid units predicts variable j from all others,

    f_j(x) = c_j + sum_h C_jh s(b_jh + sum_i A_ijh x_i),    s(z) = 1 / (1 + exp(-z)),   A_jjh = 0,

and x_i has an effect on x_j only if some A_ijh is not zero. The equivalent adjacency is
W_ij = root(sum_h A_ijh^2); it is a DAG where h = tr exp(W o W) - d is zero.

All parameters are one flat vector theta, the form that optimisers and secure sums need. By default
A_iih is not a parameter. So no network can use its own variable, whatever theta an optimiser or
another party returns. (Ng and Zhang's program keeps A_iih and relies on h to shrink it to zero.)

Value and gradient are coded by hand. For such small networks, an automatic differentiation library
would need most of its time for overhead, and every site would have to install it.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from secagg.core.arrays import Array

FlatObjective = Callable[[Array], tuple[float, Array]]

# Activations per block of records: half a megabyte fits into a core's cache, and memory use does
# not grow with the number of records.
_BLOCK = 2**16


@dataclass(frozen=True)
class Networks:
    """The layout of theta, for d >= 2 variables and m >= 1 hidden units; a `GraphParameters`.

    theta: float64, shape (size,):
        A (d - 1, d, m), the entries with i != j in the order of (i, j), or (d, d, m);
        b (d, m); C (d, m); c (d)
    sparsity: lambda, the weight of sum |A_ijh|, at least 0
    zero_diagonal: whether A_iih is left out
    forbidden: (d, d), [i, j] where A_ijh is fixed at zero; None for no such entry
    """

    d: int
    m: int = 10
    sparsity: float = 0.0
    zero_diagonal: bool = True
    forbidden: NDArray[np.bool_] | None = field(default=None, compare=False)

    @property
    def inputs(self) -> int:
        """The number of entries of A."""
        return (self.d - self.zero_diagonal) * self.d * self.m

    @property
    def size(self) -> int:
        """The number of parameters."""
        return self.inputs + 2 * self.d * self.m + self.d

    @property
    def penalty(self) -> Array:
        """Lambda for each entry of A, inf for a forbidden one, 0 for all others, shape (size,)."""
        penalty = np.zeros(self.size)
        penalty[: self.inputs] = self.sparsity
        if self.forbidden is not None:
            fixed = self.spread(self.forbidden.astype(np.float64))
            penalty[fixed > 0] = np.inf
        return penalty

    def ridge(self, weight: float) -> Array:
        """Return `weight` for each entry of A and C, 0 for each bias, shape (size,)."""
        ridge = np.full(self.size, weight)
        _, b, _, c = self.split(ridge)
        b[:], c[:] = 0, 0
        return ridge

    def split(self, theta: Array) -> tuple[Array, Array, Array, Array]:
        """Return A, b, C and c as views of theta, in the shapes above."""
        units = self.d * self.m
        A, b, C, c = np.split(theta, np.cumsum([self.inputs, units, units]))
        shape = (self.d, self.m)
        return A.reshape(-1, *shape), b.reshape(shape), C.reshape(shape), c

    def initial(self, rng: np.random.Generator, *, random_inputs: bool = False) -> Array:
        """Return a start: no edges (A = 0), all else uniform on +-1/root(inputs of its layer).

        C and b are random because otherwise all units of a network would stay equal.
        random_inputs: draw A too, as the published programs do. The search then starts from a
            complete graph with weights near root(m / 3d). Edges of it that the search does not
            remove may be wrong.
        """
        theta = rng.uniform(-1, 1, self.size)
        A, b, C, c = self.split(theta)
        for layer, inputs in ((A, self.d), (b, self.d), (C, self.m), (c, self.m)):
            np.divide(layer, math.sqrt(inputs), out=layer)
        if not random_inputs:
            A[:] = 0
        return theta

    def free_entries(self, matrix: Array) -> Array:
        """Return a view, shaped like A, of the entries of a (d, d, ...) array that theta contains.

        matrix: contiguous
        """
        return off_diagonal(matrix) if self.zero_diagonal else matrix

    def squares(self, W: Array) -> Array:
        """Return sum_h A_ijh^2, shape (d, d). W is theta, by the name in `GraphParameters`."""
        A = self.split(W)[0]
        squares = np.zeros((self.d, self.d))
        self.free_entries(squares)[:] = np.einsum("ijh,ijh->ij", A, A)
        return squares

    def spread(self, slopes: Array) -> Array:
        """Return the derivatives of sum_ij slopes_ij W_ij^2 by the squares of theta, shape (size,).

        slopes: (d, d); the gradient of h is 2 theta o spread(exp(W o W)')
        """
        spread = np.zeros(self.size)
        self.split(spread)[0][:] = self.free_entries(np.ascontiguousarray(slopes))[:, :, None]
        return spread

    def adjacency(self, theta: Array) -> Array:
        """Return W, shape (d, d), nonnegative; [i, j] for i -> j."""
        return np.sqrt(self.squares(theta))


def off_diagonal(matrix: Array) -> Array:
    """Return a view, shape (d - 1, d, ...), of the entries (i, j), i != j, of a (d, d, ...) array.

    After the first of the d * d entries, every (d + 1)th one is on the diagonal.
    matrix: contiguous
    """
    d, *rest = matrix.shape[0], *matrix.shape[2:]
    return matrix.reshape(d * d, *rest)[1:].reshape(d - 1, d + 1, *rest)[:, :d]


def squared_loss(networks: Networks, X: Array, n: int) -> FlatObjective:
    """Return theta -> (value, gradient) of 1/(2n) sum_i |x_i - f(x_i)|^2 over the rows of X.

    X: (records, d); n: the records of all sites together, as in equation (2) of Ng and Zhang
    The code uses t = tanh(z / 2), s = (1 + t) / 2 and s' = (1 - t^2) / 4: tanh cannot overflow, exp
    can.
    """
    d, m = networks.d, networks.m
    height = max(1, _BLOCK // (d * m))
    blocks = [
        np.column_stack([rows, np.ones(len(rows))])
        for rows in np.split(np.asarray(X, dtype=np.float64), range(height, len(X), height))
    ]
    tanh, slope = np.empty((2, min(height, len(X)), d * m))
    layer = np.zeros((d + 1, d * m))  # [A; b] / 2, with zeros where theta has no entry
    inputs, biases = networks.free_entries(layer[:d].reshape(d, d, m)), layer[d].reshape(d, m)

    def objective(theta: Array) -> tuple[float, Array]:
        A, b, C, c = networks.split(theta)
        np.multiply(A, 0.5, out=inputs)
        np.multiply(b, 0.5, out=biases)
        intercept = c + 0.5 * C.sum(axis=1)
        value = 0.0
        by_layer = np.zeros_like(layer)
        by_tanh, by_residual = np.zeros((d, 1, m)), np.zeros(d)
        for block in blocks:
            rows = len(block)
            t, dt = tanh[:rows], slope[:rows]
            np.tanh(np.matmul(block, layer, out=t), out=t)
            by_network = t.reshape(rows, d, m).transpose(1, 0, 2)
            prediction = np.matmul(by_network, 0.5 * C[:, :, None])[:, :, 0].T + intercept
            residual = prediction - block[:, :d]
            value += float(np.vdot(residual, residual))
            by_residual += residual.sum(axis=0)
            by_tanh += np.matmul(residual.T[:, None, :], by_network)
            np.subtract(1, np.multiply(t, t, out=dt), out=dt)
            dt.reshape(rows, d, m)[:] *= residual[:, :, None]
            by_layer += block.T @ dt
        by_layer *= 0.25 / n * C.ravel()
        gradient = np.empty_like(theta)
        dA, db, dC, dc = networks.split(gradient)
        dA[:] = networks.free_entries(by_layer[:d].reshape(d, d, m))
        db[:] = by_layer[d].reshape(d, m)
        dC[:] = (by_tanh[:, 0] + by_residual[:, None]) / (2 * n)
        dc[:] = by_residual / n
        return value / (2 * n), gradient

    return objective
