"""A neural graphical model whose dependencies outside the graph are impossible by construction.

Chajewska and Shrivastava (2023) train one network from all variables to all variables, with a
penalty on paths that the graph does not allow (their equation 1). A penalty leaves such paths, and
the shortest way to a small loss is to copy each input to its own output (docs/math/networks.md
shows that it happens). Here each column has a network of its own that reads its neighbours' columns
only:

    h_c = tanh(W_c (k_c * z) + b_c),      o_v = V_v h_c(v) + s_v (m_c(v) * z) + a_v             (1)

z are the standardised variables, m_c the 0/1 mask of the variables that column c may read, k_c that
of those on which it may depend in a curve (the same, if nothing else is said), c(v) the column of
variable v. Further hidden layers follow the first in the same way. All indicators of a column share
its network and its masks, and m_c excludes the column itself. The linear part s makes linear
regression a special case.

The loss of a record is that of `secagg.models.neural.ngm.record_losses`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from secagg.core.arrays import Array
from secagg.models.neural.ngm.layout import NgmLayout
from secagg.models.neural.ngm.record_losses import record_losses, standardised
from secagg.models.neural.parameters import Block, Blocks

if TYPE_CHECKING:
    from torch import Tensor


_FIRST_LOG_SD = -1.4  # a quarter of half the range of the public bounds


def masked_blocks(layout: NgmLayout, hidden: tuple[int, ...]) -> Blocks:
    """Return the parameters of (1) and (2); hidden: units of each hidden layer of each column."""
    d, p = layout.d, layout.variables
    blocks: list[Block] = []
    below = p
    for number, units in enumerate(hidden, 1):
        blocks.append(Block(f"hidden_{number}.weight", (d, units, below)))
        blocks.append(Block(f"hidden_{number}.bias", (d, units)))
        below = units
    if hidden:
        blocks.append(Block("output.weight", (p, below)))
    blocks += [
        Block("linear.weight", (p, p)),
        Block("output.bias", (p,)),
        Block("log_sd", (len(layout.continuous),)),
    ]
    return Blocks(tuple(blocks))


@dataclass(frozen=True, eq=False)
class MaskedNetwork:
    """The networks of all columns, given the graph and the units.

    graph: m, shape (columns, columns), symmetric, without diagonal
    curved: k, of the same kind, within m; None if it is m
    centre, scale: a variable u, scaled by the public bounds, is read as z = (u - centre) * scale
    """

    layout: NgmLayout
    hidden: tuple[int, ...]
    graph: NDArray[np.bool_]
    centre: Array
    scale: Array
    curved: NDArray[np.bool_] | None = None

    @cached_property
    def blocks(self) -> Blocks:
        return masked_blocks(self.layout, self.hidden)

    @cached_property
    def masks(self) -> dict[str, Array]:
        """The 0/1 masks of the blocks that have one."""
        inputs = self.layout.inputs(self.graph).astype(np.float64)
        masks = {"linear.weight": inputs[self.layout.column_of]}
        if self.hidden:
            curved = self.graph if self.curved is None else self.curved
            inputs = self.layout.inputs(curved).astype(np.float64)
            masks["hidden_1.weight"] = np.repeat(inputs[:, None, :], self.hidden[0], axis=1)
        return masks

    def initial(self, seed: int) -> Array:
        """Return random first and inner layers; outputs of the hidden layers begin at 0."""
        rng = np.random.default_rng(seed)
        arrays: dict[str, Array] = {}
        for block in self.blocks.blocks:
            arrays[block.name] = np.zeros(block.shape)
            if block.name.startswith("hidden") and block.name.endswith("weight"):
                draws = rng.standard_normal(block.shape) * self.masks.get(block.name, 1.0)
                read = np.sum(np.abs(draws) > 0, axis=-1, keepdims=True)  # inputs of each unit
                arrays[block.name] = draws / np.sqrt(np.maximum(read, 1))
        if np.all(self.scale == 1):  # not standardised: the bounds are wider than the records
            arrays["log_sd"][:] = _FIRST_LOG_SD
        return self.blocks.join(arrays)

    def standardised(self, records: Tensor) -> Tensor:
        """Return z, shape (records, variables)."""
        return standardised(self.layout, self.centre, self.scale, records)

    def outputs(self, parameters: Mapping[str, Tensor], z: Tensor) -> Tensor:
        """Return (1), shape (records, variables)."""
        import torch  # noqa: PLC0415

        masks = {name: torch.tensor(mask) for name, mask in self.masks.items()}
        linear = parameters["linear.weight"] * masks["linear.weight"]
        outputs = z @ linear.T + parameters["output.bias"]
        if not self.hidden:
            return outputs
        first = (parameters["hidden_1.weight"] * masks["hidden_1.weight"]).flatten(0, 1)
        units = torch.tanh(z @ first.T + parameters["hidden_1.bias"].flatten())
        units = units.reshape(len(z), self.layout.d, self.hidden[0])
        for number in range(2, len(self.hidden) + 1):
            weight, bias = (parameters[f"hidden_{number}.{kind}"] for kind in ("weight", "bias"))
            units = torch.tanh(torch.einsum("nch,ckh->nck", units, weight) + bias)
        of_variable = units[:, self.layout.column_of.tolist(), :]
        return outputs + torch.sum(of_variable * parameters["output.weight"], dim=-1)

    def losses(self, parameters: Mapping[str, Tensor], records: Tensor) -> Tensor:
        z = self.standardised(records)
        outputs = self.outputs(parameters, z)
        return record_losses(self.layout, outputs, z, parameters["log_sd"], records)
