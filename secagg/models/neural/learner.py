"""What a network provides: parameters, and a loss for each record."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Protocol

from secagg.core.arrays import Array
from secagg.models.neural.parameters import Blocks

if TYPE_CHECKING:
    from torch import Tensor


class Learner(Protocol):
    """A network with a loss for each record."""

    @property
    def blocks(self) -> Blocks:
        """The parameters."""
        ...

    def initial(self, seed: int) -> Array:
        """Return the first parameters, shape (parameters,); equal for equal seeds."""
        ...

    def losses(self, parameters: Mapping[str, Tensor], records: Tensor) -> Tensor:
        """Return the loss of each record, shape (records,), each from its own record alone.

        parameters: float64, by block; records: float64, shape (records, variables), scaled by the
            public bounds
        """
        ...
