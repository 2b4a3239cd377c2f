"""Vectors of long non-negative integers, stored as bytes: Paillier plaintexts and ciphertexts.

`Integers` behaves like a list of `int`, but an `int` is made only when it is accessed. This saves
time, because packing, kernels and messages use the bytes. A million values become thousands of
numbers of 4096 bits.
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

        Raises `OverflowError` for a value that is negative, too long, or not below `below`.
        """
        if isinstance(values, Integers):
            integers = values.resized(size)
        else:
            data = b"".join([value.to_bytes(size, "little") for value in values])
            integers = cls.from_bytes(data, size)
        if below is not None and not integers.all_below(below):
            raise OverflowError(f"an integer is not below {below}")
        return integers

    @classmethod
    def from_bytes(cls, data: bytes, size: int) -> Integers:
        """Return the integers from the output of `to_bytes`; `size` must divide its length."""
        return cls(np.frombuffer(data, dtype=np.uint8).reshape(-1, size))

    def to_bytes(self) -> bytes:
        """Return the integers joined, `size` little-endian bytes for each."""
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
        # The top eight bytes decide, unless they are equal to the top eight bytes of the bound.
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
        """Return whether `other` is a sequence of the same integers, in any size."""
        return isinstance(other, Sequence) and list(self) == list(other)

    __hash__ = None  # type: ignore[assignment]  # mutable, like a list
