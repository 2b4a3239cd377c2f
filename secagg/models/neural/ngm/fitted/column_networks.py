"""The network of each column in numpy, from the arrays of a result.

They are the networks of `secagg.models.neural.ngm.masked_network`, without what its masks cut.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.special import softmax

from secagg.core.arrays import Array
from secagg.errors import UsageError
from secagg.models.neural.ngm.layout import NgmLayout

Arrays = Mapping[str, NDArray[Any]]
_HIDDEN = "hidden_{}.{}"


@dataclass(frozen=True, eq=False)
class ColumnNetwork:
    """The network of one column.

    inputs: positions of the variables that it reads
    curved: which of the inputs the hidden layers read; the linear part reads all
    hidden: weights (units, curved inputs) and biases (units,) of each hidden layer
    output: shape (variables of the column, units of the last layer)
    linear: shape (variables of the column, inputs); bias: shape (variables of the column,)
    """

    inputs: NDArray[np.intp]
    curved: NDArray[np.bool_]
    hidden: tuple[tuple[Array, Array], ...]
    output: Array
    linear: Array
    bias: Array

    def __call__(self, z: Array) -> Array:
        """Return the outputs, shape (variables of the column, states). z: (variables, states)."""
        read = z[self.inputs]
        found = self.linear @ read + self.bias[:, None]
        read = read[self.curved]
        for weight, bias in self.hidden:
            read = np.tanh(weight @ read + bias[:, None])
        return found + self.output @ read if self.hidden else found

    @property
    def parameters(self) -> int:
        """Number of parameters."""
        parts = [array for layer in self.hidden for array in layer]
        return sum(part.size for part in (*parts, self.output, self.linear, self.bias))

    def parameters_in_order(self) -> Array:
        """Return the parameters in the order of `derivatives`."""
        parts = [np.ravel(array) for layer in self.hidden for array in layer]
        return np.concatenate([*parts, self.output.ravel(), self.linear.ravel(), self.bias])

    def curvature(self, z: Array, variance: float | None) -> Array:
        """Return the sum of D' A D over states, shape (parameters, parameters).

        D: `derivatives`; A: the Fisher information of the outputs. z: shape (variables, states)
        variance: of the residuals; None for levels, where A = diag(p) - p p' without the first one
        """
        D = self.derivatives(z)
        if variance is not None:
            return np.asarray(D[0].T @ D[0] / variance)
        logits = np.vstack([np.zeros(z.shape[1]), self(z)])
        p = softmax(logits, axis=0)[1:]
        mean = np.einsum("vs,vsp->sp", p, D)
        return np.asarray(np.einsum("vsp,vs,vsq->pq", D, p, D, optimize=True) - mean.T @ mean)

    def precisions(self, hidden: float, linear: float) -> Array:
        """Return the precision of each parameter's prior, in the order of `derivatives`.

        hidden, linear: of the weights of hidden layers and outputs, and of the linear part
        """
        found = []
        for weight, bias in self.hidden:
            found += [np.full(weight.size, hidden), np.zeros(bias.size)]
        found += [np.full(self.output.size, hidden), np.full(self.linear.size, linear)]
        return np.concatenate([*found, np.zeros(self.bias.size)])

    def derivatives(self, z: Array) -> Array:
        """Return the slopes of the outputs by the parameters.

        z: shape (variables, states). Shape (variables of the column, states, parameters), in the
        order: weights and biases of each hidden layer, output, linear, bias.
        """
        layers = [z[self.inputs[self.curved]]]
        for weight, bias in self.hidden:
            layers.append(np.tanh(weight @ layers[-1] + bias[:, None]))
        variables, states = len(self.bias), z.shape[1]
        found = np.zeros((variables, states, self.parameters))
        end = self.parameters
        last = layers[-1] if self.hidden else layers[-1][:0]
        for read in (np.ones((1, states)), z[self.inputs], last):  # bias, linear, output
            start = end - variables * len(read)
            for v in range(variables):
                found[v, :, start + v * len(read) : start + (v + 1) * len(read)] = read.T
            end = start
        above = np.repeat(self.output[:, None, :], states, axis=1)  # by the units of the layer
        for number in reversed(range(len(self.hidden))):
            weight, bias = self.hidden[number]
            inner = above * (1 - layers[number + 1].T ** 2)
            found[:, :, end - len(bias) : end] = inner
            end -= len(bias)
            by_weight = inner[:, :, :, None] * layers[number].T[None, :, None, :]
            found[:, :, end - weight.size : end] = by_weight.reshape(variables, states, -1)
            end -= weight.size
            above = inner @ weight
        return found


def malformed(what: str) -> UsageError:
    return UsageError("the model", what, "Give the result of a run of 'fedngm' or 'fedngr'.")


def check_arrays(arrays: Arrays, shapes: Mapping[str, tuple[int, ...]]) -> None:
    """Raise `UsageError` if an array is missing, has another shape or is not finite."""
    for name, shape in shapes.items():
        if name not in arrays or arrays[name].shape != shape:
            raise malformed(f"{name!r} is missing or has the wrong shape")
        if not np.all(np.isfinite(arrays[name])):
            raise malformed(f"{name!r} is not finite")


def column_networks(
    layout: NgmLayout, graph: NDArray[np.bool_], arrays: Arrays
) -> tuple[ColumnNetwork, ...]:
    """Return the networks of all columns. Raises `UsageError` if an array is missing or wrong."""
    check_arrays(arrays, _shapes(layout, arrays))
    read, curved = layout.inputs(graph), layout.inputs(arrays.get("curved", graph) != 0)
    return tuple(
        _of_column(arrays, n, list(column.positions), np.flatnonzero(read[n]), curved[n][read[n]])
        for n, column in enumerate(layout.columns)
    )


def _layers(arrays: Arrays) -> int:
    return sum(name.startswith("hidden_") and name.endswith(".weight") for name in arrays)


def _units(arrays: Arrays, weight: str, dimensions: int) -> int:
    """Return the number of units of a layer; 0 if its weights are missing or wrong."""
    if weight not in arrays or arrays[weight].ndim != dimensions:
        return 0
    return int(arrays[weight].shape[-2])


def _shapes(layout: NgmLayout, arrays: Arrays) -> dict[str, tuple[int, ...]]:
    d, p = layout.d, layout.variables
    shapes: dict[str, tuple[int, ...]] = {"linear.weight": (p, p), "output.bias": (p,)}
    if "curved" in arrays:
        shapes["curved"] = (d, d)
    below = p
    for number in range(1, _layers(arrays) + 1):
        weight, bias = (_HIDDEN.format(number, kind) for kind in ("weight", "bias"))
        units = _units(arrays, weight, 3)
        shapes |= {weight: (d, units, below), bias: (d, units), "output.weight": (p, units)}
        below = units
    return shapes


def _of_column(
    arrays: Arrays,
    number: int,
    at: list[int],
    inputs: NDArray[np.intp],
    curved: NDArray[np.bool_],
) -> ColumnNetwork:
    """Return the network of one column, without what its mask cuts."""
    hidden = []
    for layer in range(1, _layers(arrays) + 1):
        weight, bias = (arrays[_HIDDEN.format(layer, kind)][number] for kind in ("weight", "bias"))
        hidden.append((weight[:, inputs[curved]] if layer == 1 else weight, bias))
    output = arrays["output.weight"][at] if hidden else np.zeros((len(at), 0))
    linear = arrays["linear.weight"][at][:, inputs]
    return ColumnNetwork(inputs, curved, tuple(hidden), output, linear, arrays["output.bias"][at])
