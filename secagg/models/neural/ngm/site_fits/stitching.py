"""Stitching: a site adds its own columns to the networks of a finished run.

Chajewska and Shrivastava (2023), section 2.4. All weights of the run are frozen. The networks of
(1) in `secagg.models.neural.ngm.masked_network` are added to:

    a new column c        h_c, o_v as in (1), reading c's neighbours, shared or new             (1)
    a shared column c     o_v = (output of the run) + V_v h_c + s_v z                           (2)
                          with h_c and s_v reading new neighbours only; if `into_shared`

V and s of (2) begin at zero, so each output of a shared column begins as the run's, bit for bit.
Without `into_shared`, (2) is absent, and these outputs never change. The paper adds hidden units
that read all columns and feed all outputs; so its shared outputs change with training.

The site minimises its own mean loss plus the penalty of
`secagg.models.neural.ngm.penalty` on the new weights. Under (2), the residual standard deviation of
a shared column with a new neighbour is estimated anew; it begins as the run's.

What the result means: without `into_shared`, new columns are described given shared ones, and
nothing is learned about shared columns from new ones. To predict a shared column from a new one,
(2) is needed.

All of this happens at the site. The result depends on the site's records alone, apart from the run,
and is the site's: it may contain the values of single records in recognisable form.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from secagg.core.arrays import Array
from secagg.models.neural.local_fit import fit_locally
from secagg.models.neural.ngm.layout import NgmLayout
from secagg.models.neural.ngm.masked_network import MaskedNetwork
from secagg.models.neural.ngm.penalty import quadratic_penalty
from secagg.models.neural.ngm.record_losses import record_losses, standardised
from secagg.models.neural.parameters import Blocks, tensors
from secagg.models.neural.torch_import import one_thread

if TYPE_CHECKING:
    from torch import Tensor


@dataclass(frozen=True, eq=False)
class StitchedNetwork:
    """A run's networks, and those that a site adds; a learner of the latter's parameters.

    shared: the run's networks, whose columns are the first of the layout; frozen: their parameters
    layout, graph, centre, scale: of all columns
    """

    shared: MaskedNetwork
    frozen: Array
    layout: NgmLayout
    graph: NDArray[np.bool_]
    centre: Array
    scale: Array
    into_shared: bool

    @cached_property
    def added(self) -> MaskedNetwork:
        """The networks of (1) for new columns, and of the new terms of (2) for shared ones."""
        reads, old = self.graph.copy(), self.shared.layout.d
        reads[:old, :old] = False
        if not self.into_shared:
            reads[:old] = False
        return MaskedNetwork(self.layout, self.shared.hidden, reads, self.centre, self.scale)

    @property
    def blocks(self) -> Blocks:
        """The parameters of the added networks."""
        return self.added.blocks

    @cached_property
    def free(self) -> Array:
        """1 for each parameter that is trained, else 0; shape (parameters,)."""
        p, continuous = self.shared.layout.variables, len(self.shared.layout.continuous)
        touched = np.asarray(np.any(self.added.graph, axis=1))  # columns that read something
        arrays = {}
        for block in self.blocks.blocks:
            free = np.ones(block.shape)
            if block.name.startswith("hidden"):
                free[~touched] = 0
            elif block.name in ("output.weight", "linear.weight"):
                free[~touched[self.layout.column_of]] = 0
            elif block.name == "output.bias":
                free[:p] = 0
            else:
                chosen = touched[self.layout.column_of[self.layout.continuous]]
                free[:continuous] = chosen[:continuous]
            arrays[block.name] = free
        return self.blocks.join(arrays)

    def initial(self, seed: int) -> Array:
        """Return the first parameters: all outputs of added networks are 0."""
        theta = self.added.initial(seed)
        old = self.shared.blocks.split(self.frozen)["log_sd"]
        self.blocks.split(theta)["log_sd"][: len(old)] = old  # a view
        return theta

    def outputs(self, parameters: Mapping[str, Tensor], z: Tensor) -> Tensor:
        """Return all outputs, shape (records, variables)."""
        import torch  # noqa: PLC0415

        p = self.shared.layout.variables
        frozen = tensors(self.shared.blocks, torch.tensor(self.frozen))
        old = self.shared.outputs(frozen, z[:, :p].contiguous())
        added = self.added.outputs(parameters, z)
        if self.into_shared:
            old = old + added[:, :p]
        return torch.cat([old, added[:, p:]], dim=1)

    def losses(self, parameters: Mapping[str, Tensor], records: Tensor) -> Tensor:
        """Return each record's loss over all columns, shape (records,)."""
        z = standardised(self.layout, self.centre, self.scale, records)
        outputs = self.outputs(parameters, z)
        return record_losses(self.layout, outputs, z, parameters["log_sd"], records)

    def fit(self, values: Array, hidden: float, linear: float, seed: int) -> Array:
        """Return the trained parameters. hidden, linear: precisions of the normal prior."""
        penalty = quadratic_penalty(self.blocks, hidden, linear)
        return fit_locally(self, self.initial(seed), values, penalty, free=self.free)

    @one_thread()
    def outputs_of(self, theta: Array, values: Array) -> Array:
        """Return all outputs for records, shape (records, variables)."""
        import torch  # noqa: PLC0415

        with torch.no_grad():
            z = standardised(self.layout, self.centre, self.scale, torch.tensor(values))
            found = self.outputs(tensors(self.blocks, torch.tensor(theta)), z)
        return np.asarray(found.numpy())

    def as_one(self, theta: Array) -> dict[str, Array]:
        """Return the parameters by block of one `MaskedNetwork` with `layout` and `graph`.

        Its outputs are the same up to rounding. With `into_shared`, each hidden layer has the run's
        units first and the added ones second; else each column has units of one kind only.
        """
        old, new = self.shared.blocks.split(self.frozen), self.blocks.split(theta)
        new = new | {name: new[name] * mask for name, mask in self.added.masks.items()}
        d, p = self.shared.layout.d, self.shared.layout.variables
        first, more = (0, 1) if self.into_shared else (d, 0)  # the first column with added units
        found = {name: new[name].copy() for name in ("linear.weight", "output.bias", "log_sd")}
        found["linear.weight"][:p, :p] += old["linear.weight"]
        found["output.bias"][:p] += old["output.bias"]
        below, start = self.layout.variables, 0  # width of the layer below; its first added unit
        for number, units in enumerate(self.shared.hidden, 1):
            weight, bias = (f"hidden_{number}.{kind}" for kind in ("weight", "bias"))
            width, at = (1 + more) * units, more * units
            found[weight] = np.zeros((self.layout.d, width, below))
            found[weight][:d, :units, : old[weight].shape[2]] = old[weight]
            found[weight][first:, at:, start:] = new[weight][first:]
            found[bias] = np.zeros((self.layout.d, width))
            found[bias][:d, :units] = old[bias]
            found[bias][first:, at:] = new[bias][first:]
            below, start = width, at
        if self.shared.hidden:
            variable = p if first else 0
            found["output.weight"] = np.zeros((self.layout.variables, below))
            found["output.weight"][:p, : old["output.weight"].shape[1]] = old["output.weight"]
            found["output.weight"][variable:, start:] = new["output.weight"][variable:]
        return found


def own_units(u: Array) -> tuple[Array, Array]:
    """Return centre and scale by which a site standardises its own columns.

    u: scaled by the public bounds, shape (records, variables)
    """
    centre, sd = u.mean(axis=0), u.std(axis=0)
    constant = sd <= 1e-6
    return centre, np.where(constant, 0.0, 1 / np.where(constant, 1.0, sd))
