"""The network of each column in numpy, from the arrays of a result.

Results have one of two kinds of networks:

    `fedngm`   a network for each column (`secagg.models.neural.ngm.masked_network`)
    `fedngr`   one network of all columns (`secagg.models.neural.ngm.shared_network`); here each
               column reads its neighbours in the graph only. Weak paths below the threshold of the
               graph are cut, and so is every path from a column to itself
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from secagg.core.arrays import Array
from secagg.errors import UsageError
from secagg.models.neural.ngm.layout import NgmLayout
from secagg.models.neural.ngm.shared_network import softplus

Arrays = Mapping[str, NDArray[Any]]
_HIDDEN = "hidden_{}.{}"
_LAYER = "layer_{}.{}"


@dataclass(frozen=True, eq=False)
class ColumnNetwork:
    """The network of one column.

    inputs: positions of the variables that it reads
    hidden: weights (units, inputs) and biases (units,) of each hidden layer
    output: shape (variables of the column, units of the last layer)
    linear: shape (variables of the column, inputs); bias: shape (variables of the column,)
    softplus: whether units are `shared_network.softplus`; otherwise they are tanh(x)
    """

    inputs: NDArray[np.intp]
    hidden: tuple[tuple[Array, Array], ...]
    output: Array
    linear: Array
    bias: Array
    softplus: bool = False

    def __call__(self, z: Array) -> Array:
        """Return the outputs, shape (variables of the column, states). z: (variables, states)."""
        read = z[self.inputs]
        found = self.linear @ read + self.bias[:, None]
        for weight, bias in self.hidden:
            units = weight @ read + bias[:, None]
            read = softplus(units) if self.softplus else np.tanh(units)
        return found + self.output @ read if self.hidden else found


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
    shared = _LAYER.format(1, "weight") in arrays
    check_arrays(arrays, _shared_shapes(layout, arrays) if shared else _shapes(layout, arrays))
    read = layout.inputs(graph)
    return tuple(
        (_of_shared if shared else _of_own)(
            arrays, number, list(column.positions), np.flatnonzero(read[number])
        )
        for number, column in enumerate(layout.columns)
    )


def _layers(arrays: Arrays, name: str) -> int:
    prefix, suffix = name.format("|", "weight").split("|")
    return sum(each.startswith(prefix) and each.endswith(suffix) for each in arrays)


def _units(arrays: Arrays, weight: str, dimensions: int) -> int:
    """Return the number of units of a layer; 0 if its weights are missing or wrong."""
    if weight not in arrays or arrays[weight].ndim != dimensions:
        return 0
    return int(arrays[weight].shape[-2])


def _shapes(layout: NgmLayout, arrays: Arrays) -> dict[str, tuple[int, ...]]:
    d, p = layout.d, layout.variables
    shapes: dict[str, tuple[int, ...]] = {"linear.weight": (p, p), "output.bias": (p,)}
    below = p
    for number in range(1, _layers(arrays, _HIDDEN) + 1):
        weight, bias = (_HIDDEN.format(number, kind) for kind in ("weight", "bias"))
        units = _units(arrays, weight, 3)
        shapes |= {weight: (d, units, below), bias: (d, units), "output.weight": (p, units)}
        below = units
    return shapes


def _of_own(arrays: Arrays, number: int, at: list[int], inputs: NDArray[np.intp]) -> ColumnNetwork:
    """Return the network of one column, without what its mask cuts."""
    hidden = []
    for layer in range(1, _layers(arrays, _HIDDEN) + 1):
        weight, bias = (arrays[_HIDDEN.format(layer, kind)][number] for kind in ("weight", "bias"))
        hidden.append((weight[:, inputs] if layer == 1 else weight, bias))
    output = arrays["output.weight"][at] if hidden else np.zeros((len(at), 0))
    linear = arrays["linear.weight"][at][:, inputs]
    return ColumnNetwork(inputs, tuple(hidden), output, linear, arrays["output.bias"][at])


def _shared_shapes(layout: NgmLayout, arrays: Arrays) -> dict[str, tuple[int, ...]]:
    shapes: dict[str, tuple[int, ...]] = {}
    below, last = layout.variables, _layers(arrays, _LAYER)
    for number in range(1, last + 1):
        weight, bias = (_LAYER.format(number, kind) for kind in ("weight", "bias"))
        units = layout.variables if number == last else _units(arrays, weight, 2)
        shapes |= {weight: (units, below), bias: (units,)}
        below = units
    return shapes


def _of_shared(
    arrays: Arrays, number: int, at: list[int], inputs: NDArray[np.intp]
) -> ColumnNetwork:
    """Return the part of the shared network that one column uses."""
    layers = []
    for layer in range(1, _layers(arrays, _LAYER) + 1):
        weight, bias = (arrays[_LAYER.format(layer, kind)] for kind in ("weight", "bias"))
        layers.append((weight[:, inputs] if layer == 1 else weight, bias))
    *hidden, (weight, bias) = layers
    output = weight[at] if hidden else np.zeros((len(at), 0))
    linear = np.zeros((len(at), len(inputs))) if hidden else weight[at]
    return ColumnNetwork(inputs, tuple(hidden), output, linear, bias[at], softplus=True)
