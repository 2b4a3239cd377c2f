"""Linear graphs: W is the weighted adjacency matrix. See `secagg.models.graphs.proximal_newton`."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from secagg.core.arrays import Array


@dataclass(frozen=True)
class LinearGraph:
    """The shape of W, (d (1 + lags), d), and its penalties; a `GraphParameters`.

    penalties: lambda of instantaneous and of lagged coefficients, at least 0
    zero_diagonal: fix W_ii at 0, as NOTEARS on pooled data does; the paper leaves that to h
    at_least: a smallest lambda, one or of W's shape; inf: the entry is fixed at zero
    """

    d: int
    lags: int = 0
    penalties: tuple[float, float] = (0.01, 0.01)
    zero_diagonal: bool = False
    at_least: Array | float = field(default=0.0, compare=False)

    @property
    def shape(self) -> tuple[int, int]:
        return self.d * (1 + self.lags), self.d

    @property
    def penalty(self) -> Array:
        """Lambda for each entry of W; inf for an entry that is fixed at zero."""
        return self._penalty

    @cached_property  # which type checkers do not take for the protocol's property
    def _penalty(self) -> Array:
        instantaneous, lagged = self.penalties
        penalty = np.full(self.shape, lagged, dtype=np.float64)
        penalty[: self.d] = instantaneous
        penalty = np.maximum(penalty, self.at_least)
        if self.zero_diagonal:
            np.fill_diagonal(penalty[: self.d], np.inf)
        return penalty

    @property
    def raised(self) -> bool:
        """Whether `at_least` raises a penalty of effects between variables at one step."""
        smallest = np.broadcast_to(self.at_least, self.shape)[: self.d]
        counted = ~np.eye(self.d, dtype=bool) & np.isfinite(smallest)
        return bool(np.any(smallest[counted] > self.penalties[0]))

    def without(self, forbidden: NDArray[np.bool_]) -> LinearGraph:
        """Return the graph without these entries, shaped like W."""
        return replace(self, at_least=np.where(forbidden, np.inf, self.at_least))

    def lagged(self, W: Array) -> Array:
        """Return the lagged coefficients of W, or of an array of its shape, (lags, d, d)."""
        return W[self.d :].reshape(self.lags, self.d, self.d)

    def squares(self, W: Array) -> Array:
        instantaneous = W[: self.d]
        return instantaneous * instantaneous

    def spread(self, slopes: Array) -> Array:
        """Return the slopes in W's first block, zeros in the lagged blocks."""
        if self.lags == 0:
            return slopes
        return np.concatenate([slopes, np.zeros((self.d * self.lags, self.d))])
