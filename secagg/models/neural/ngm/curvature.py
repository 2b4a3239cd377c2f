"""The curvature by which the coordinator scales the steps of L-BFGS, from public numbers alone.

A network has directions in which the loss is a thousand times as steep as in others, and L-BFGS
with a multiple of the identity as its first inverse Hessian needs hundreds of rounds to learn them.
Here this first Hessian is that of Gauss and Newton, a block for each column c:

    H_c = E D_c' A_c D_c + Lambda_c / N + mu I                                                   (1)

D_c: derivatives of the column's outputs by its parameters; A_c: Fisher information of the outputs,
both at the present parameters; Lambda: the precision of the prior. mu (Levenberg and Marquardt)
keeps steps short where the first term is small. With exact E it would be the expectation over the
records; here it is that over independent standard normal inputs, because inputs are standardised.
So no further sum is needed. What (1) lacks, L-BFGS learns from its steps.

On three data sets, rounds fell from 394, 137 and 264 to 154, 131 and 99 (ADR 40, prior 5).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Final

import numpy as np
from numpy.typing import NDArray
from scipy.linalg import cho_factor, cho_solve

from secagg.core.arrays import Array
from secagg.models.neural.ngm.fitted.column_networks import ColumnNetwork, column_networks
from secagg.models.neural.ngm.masked_network import MaskedNetwork
from secagg.models.neural.ngm.record_losses import MIN_VARIANCE

MAX_PARAMETERS: Final = 300
"""Of one column's network; (1) needs the square of this number."""
_DRAWN: Final = 500
_MU: Final = 0.05


@dataclass(frozen=True, eq=False)
class Curvature:
    """(1) for the networks of all columns.

    hidden, linear: the precisions of the prior; records: N
    """

    network: MaskedNetwork
    hidden: float
    linear: float
    records: float

    @property
    def usable(self) -> bool:
        """Whether the blocks are not too large, and inputs are standardised."""
        largest = max(len(positions) for positions, _ in self._columns)
        return largest <= MAX_PARAMETERS and not np.all(self.network.scale == 1)

    def solve(self, theta: Array, vector: Array) -> Array:
        """Return H^-1 vector, with H at theta; shape (parameters,)."""
        arrays, result = self.network.blocks.split(theta), vector.copy()
        log_sd = self.network.blocks.slices["log_sd"]
        result[log_sd] /= 2  # the Fisher information of log sd
        variances = iter((np.exp(2 * arrays["log_sd"]) + MIN_VARIANCE).tolist())
        columns = self.network.layout.columns
        parts = zip(self._networks(arrays), self._columns, columns, strict=True)
        for network, (positions, precision), column in parts:
            variance = None if column.indicator else next(variances)
            H = network.curvature(self._z, variance) / _DRAWN
            H[np.diag_indices_from(H)] += precision / self.records + _MU
            result[positions] = cho_solve(cho_factor(H), vector[positions])
        return result

    @cached_property
    def _z(self) -> Array:
        """The inputs over which (1) averages, shape (variables, draws); constant ones are 0."""
        network = self.network
        z = np.random.default_rng(0).standard_normal((network.layout.variables, _DRAWN))
        return np.asarray(z * (network.scale > 0)[:, None])

    @cached_property
    def _columns(self) -> list[tuple[NDArray[np.intp], Array]]:
        """The positions of each network's parameters in theta, and their precisions."""
        every = np.arange(self.network.blocks.size, dtype=np.float64)
        numbers = self._networks(self.network.blocks.split(every))
        return [
            (each.parameters_in_order().astype(np.intp), each.precisions(self.hidden, self.linear))
            for each in numbers
        ]

    def _networks(self, arrays: Mapping[str, Array]) -> tuple[ColumnNetwork, ...]:
        network = self.network
        curved = {} if network.curved is None else {"curved": network.curved}
        return column_networks(network.layout, network.graph, {**arrays, **curved})
