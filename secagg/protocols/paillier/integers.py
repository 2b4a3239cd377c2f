"""Vectors of long non-negative integers, held as bytes: plaintexts and ciphertexts of Paillier.

`Integers` reads like a list of `int`, but no `int` exists before somebody looks at one: a million
values make thousands of numbers of 4096 bits, which packing, kernels and messages want as bytes.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import overload

import numpy as np
from numpy.typing import NDArray

Rows = NDArray[np.uint8]


class Integers(Sequence[int]):
    """Integers in [0, 2^(8 size)).

    rows: uint8, shape (count, size), each integer little-endian; not copied
    """

    def __init__(self, rows: Rows) -> None:
        self.rows = rows

    @classmethod
    def of(cls, values: Sequence[int], size: int, *, below: int | None = None) -> Integers:
        """Return the values as rows of `size` bytes.

        Raises `OverflowError` for one that is negative, does not fit, or is not below `below`.
        """
        if isinstance(values, Integers):
            integers = values.resized(size)
        else:
            data = b"".join([value.to_bytes(size, "little") for value in values])
            integers = cls.from_bytes(data, size)
        if below is not None and not integers.all_below(below):
            raise OverflowError("an integer is too large")
        return integers

    @classmethod
    def from_bytes(cls, data: bytes, size: int) -> Integers:
        """Return what `to_bytes` wrote; the length of `data` must be a multiple of `size`."""
        return cls(np.frombuffer(data, dtype=np.uint8).reshape(-1, size))

    def to_bytes(self) -> bytes:
        """Return the integers one after the other, `size` little-endian bytes each."""
        return self.rows.tobytes()

    @property
    def size(self) -> int:
        """Bytes of each integer."""
        return int(self.rows.shape[1])

    def resized(self, size: int) -> Integers:
        """Return the same integers in `size` bytes. Raises `OverflowError` if one does not fit."""
        if size == self.size:
            return self
        if self.rows[:, size:].any():
            raise OverflowError(f"an integer has more than {size} bytes")
        rows = np.zeros((len(self), size), dtype=np.uint8)
        common = min(size, self.size)
        rows[:, :common] = self.rows[:, :common]
        return Integers(rows)

    def all_below(self, bound: int) -> bool:
        """Return whether every integer is below `bound`."""
        # The top eight bytes decide for all but those that share them with the bound.
        shift = max(0, self.size - 8)
        top = np.zeros((len(self), 8), dtype=np.uint8)
        top[:, : self.size - shift] = self.rows[:, shift:]
        undecided = top.view("<u8")[:, 0] >= min(bound >> 8 * shift, (1 << 64) - 1)
        return all(value < bound for value in Integers(self.rows[undecided]))

    def __len__(self) -> int:
        return len(self.rows)

    def __iter__(self) -> Iterator[int]:
        data, size = self.to_bytes(), self.size
        return (int.from_bytes(data[at : at + size], "little") for at in range(0, len(data), size))

    @overload
    def __getitem__(self, index: int) -> int: ...
    @overload
    def __getitem__(self, index: slice) -> Integers: ...
    def __getitem__(self, index: int | slice) -> int | Integers:
        if isinstance(index, slice):
            return Integers(self.rows[index])
        return int.from_bytes(self.rows[index].tobytes(), "little")

    def __eq__(self, other: object) -> bool:
        """Equal to any sequence of equal integers, whatever the sizes."""
        return isinstance(other, Sequence) and list(self) == list(other)

    __hash__ = None  # type: ignore[assignment]  # as lists: the rows may change

    def __repr__(self) -> str:
        return f"Integers({len(self)} of {self.size} bytes)"
