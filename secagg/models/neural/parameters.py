"""The parameters of a network as one vector with named blocks.

A sum covers one vector. A block is one tensor of the network, flattened in C order; blocks follow
each other in the order of their list.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING

import numpy as np

from secagg.core.arrays import Array
from secagg.errors import InternalError

if TYPE_CHECKING:
    from torch import Tensor


@dataclass(frozen=True)
class Block:
    """One named tensor of the parameters."""

    name: str
    shape: tuple[int, ...]

    @property
    def size(self) -> int:
        """Number of entries."""
        return math.prod(self.shape)


@dataclass(frozen=True)
class Blocks:
    """All parameters of a network, in order."""

    blocks: tuple[Block, ...]

    @cached_property
    def size(self) -> int:
        """Number of parameters."""
        return sum(block.size for block in self.blocks)

    @cached_property
    def slices(self) -> Mapping[str, slice]:
        """Where each block is in the vector."""
        found: dict[str, slice] = {}
        start = 0
        for block in self.blocks:
            found[block.name] = slice(start, start + block.size)
            start += block.size
        return found

    def split(self, vector: Array) -> dict[str, Array]:
        """Return each block as a view of `vector`, shape (size,)."""
        return {b.name: vector[self.slices[b.name]].reshape(b.shape) for b in self.blocks}

    def join(self, arrays: Mapping[str, Array]) -> Array:
        """Return the vector of these blocks. Raises `InternalError` for a wrong shape."""
        for block in self.blocks:
            if arrays[block.name].shape != block.shape:
                raise InternalError("parameters", f"block {block.name!r} has the wrong shape")
        parts = [np.ravel(arrays[block.name]) for block in self.blocks]
        return np.concatenate(parts).astype(np.float64) if parts else np.zeros(0)


def tensors(blocks: Blocks, vector: Tensor) -> dict[str, Tensor]:
    """Return each block of a vector of parameters, as a view."""
    return {b.name: vector[blocks.slices[b.name]].reshape(b.shape) for b in blocks.blocks}
