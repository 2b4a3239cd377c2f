"""The paper's network: one multilayer perceptron from all variables to all variables.

Chajewska and Shrivastava (2023), section 2.2. D -> H -> H -> D with linear outputs:

    h_1 = s(W_1 z + b_1),    h_2 = s(W_2 h_1 + b_2),    o = W_3 h_2 + b_3,                      (6)
    s(x) = log(1 + e^4x) / 4

The paper's units are rectified, max(x, 0). Their kinks would show single records in differences of
sums (`secagg.models.neural.layers.smoothness`). This softplus is smooth, and
its slope is between 0 and 1, too, so path norms bound the dependence of an output on an input as
before. With the factor 1 instead of 4, curved dependences were found less often.

z are the standardised variables; any number of hidden layers. The loss of a record is that of
`secagg.models.neural.ngm.record_losses`; the paper's is the squared distance of o from z, also for
indicators of levels. What keeps output o_v from reading its own input z_v is a penalty only.

`derivatives` says how far outputs copy their own inputs. It averages |d o_v / d z_u| over points
drawn from the standard normal distribution. They are public: no record is used, and nothing further
is released. Records may lie elsewhere, and so may have other averages.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray
from scipy.special import expit

from secagg.core.arrays import Array
from secagg.models.neural.ngm.layout import NgmLayout
from secagg.models.neural.ngm.record_losses import record_losses, standardised
from secagg.models.neural.parameters import Block, Blocks

if TYPE_CHECKING:
    from torch import Tensor

POINTS = 200
"""Number of points of `derivatives`."""
SHARPNESS = 4.0
"""The factor in s of (6)."""
_SOFTPLUS_THRESHOLD = 40.0  # torch computes a straight line beyond; exp(-40) is below rounding
_CHUNK = 10  # points at once, which bounds memory


@dataclass(frozen=True, eq=False)
class SharedNetwork:
    """The network of all columns.

    hidden: units of each hidden layer
    centre, scale: a variable u, scaled by the public bounds, is read as z = (u - centre) * scale
    """

    layout: NgmLayout
    hidden: tuple[int, ...]
    centre: Array
    scale: Array

    @cached_property
    def layers(self) -> tuple[str, ...]:
        """The names of the layers' weights, the first layer first."""
        return tuple(f"layer_{number}.weight" for number in range(1, len(self.hidden) + 2))

    @cached_property
    def blocks(self) -> Blocks:
        p = self.layout.variables
        blocks: list[Block] = []
        for number, (below, units) in enumerate(pairwise((p, *self.hidden, p)), 1):
            blocks.append(Block(f"layer_{number}.weight", (units, below)))
            blocks.append(Block(f"layer_{number}.bias", (units,)))
        return Blocks((*blocks, Block("log_sd", (len(self.layout.continuous),))))

    def initial(self, seed: int) -> Array:
        """Return normal weights with variance 2 / inputs (He and others 2015), and no biases."""
        rng = np.random.default_rng(seed)
        arrays = {block.name: np.zeros(block.shape) for block in self.blocks.blocks}
        for name in self.layers:
            shape = arrays[name].shape
            arrays[name] = rng.standard_normal(shape) * np.sqrt(2 / shape[1])
        return self.blocks.join(arrays)

    def standardised(self, records: Tensor) -> Tensor:
        """Return z, shape (records, variables)."""
        return standardised(self.layout, self.centre, self.scale, records)

    def outputs(self, parameters: Mapping[str, Tensor], z: Tensor) -> Tensor:
        """Return (6), shape (records, variables)."""
        import torch  # noqa: PLC0415

        units = z
        for number in range(1, len(self.hidden) + 2):
            weight, bias = (parameters[f"layer_{number}.{kind}"] for kind in ("weight", "bias"))
            units = units @ weight.T + bias
            if number <= len(self.hidden):
                units = torch.nn.functional.softplus(units, SHARPNESS, _SOFTPLUS_THRESHOLD)
        return units

    def losses(self, parameters: Mapping[str, Tensor], records: Tensor) -> Tensor:
        z = self.standardised(records)
        outputs = self.outputs(parameters, z)
        return record_losses(self.layout, outputs, z, parameters["log_sd"], records)

    @property
    def masks(self) -> dict[str, Array]:
        """No block has a mask."""
        return {}

    def weights(self, theta: Array) -> list[Array]:
        """Return the weights of all layers, the first layer first."""
        arrays = self.blocks.split(theta)
        return [arrays[name] for name in self.layers]

    def derivatives(self, theta: Array, seed: int) -> Array:
        """Return the mean of |d o_v / d z_u| over public points, shape (outputs, inputs)."""
        points = np.random.default_rng(seed).standard_normal((POINTS, self.layout.variables))
        total = sum(
            np.sum(np.abs(self.slopes(theta, points[start : start + _CHUNK])), axis=0)
            for start in range(0, POINTS, _CHUNK)
        )
        return np.asarray(total / POINTS)

    def slopes(self, theta: Array, points: Array) -> Array:
        """Return d o_v / d z_u at points z, shape (points, outputs, inputs)."""
        arrays, units = self.blocks.split(theta), points
        slope = np.broadcast_to(np.eye(points.shape[1]), (len(points), *[points.shape[1]] * 2))
        for number, name in enumerate(self.layers, 1):
            weight = arrays[name]
            units, slope = units @ weight.T + arrays[f"layer_{number}.bias"], weight @ slope
            if number <= len(self.hidden):
                units, rise = softplus(units), expit(SHARPNESS * units)
                slope = slope * rise[:, :, None]
        return slope


def softplus(x: Array) -> Array:
    """Return s of (6)."""
    return np.asarray(np.logaddexp(SHARPNESS * x, 0) / SHARPNESS)


def self_paths(layout: NgmLayout) -> Array:
    """Return 1 where output and input are variables of one column, else 0."""
    column_of = layout.column_of
    return np.asarray(column_of[:, None] == column_of[None, :], dtype=np.float64)


def forbidden_paths(layout: NgmLayout, graph: NDArray[np.bool_]) -> Array:
    """Return S^c of equation 1: 1 for self paths and for pairs of columns without an edge."""
    return np.asarray(1.0 - layout.inputs(graph).astype(np.float64)[layout.column_of])
