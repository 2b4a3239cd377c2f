"""Long integers and moduli in groups of eight: numpy arrays with the layout of `ifma.h`.

`Lanes` is an array x of uint64 with shape (groups, digits, 8), aligned to 64 bytes. The integer
8 g + i is the sum over j of x[g, j, i] 2^(52 j). `Rows` is an array of uint8 with shape
(count, size); each row is a little-endian integer. The files `ifma.h`, `power.c` and `fixed_base.c`
name the sources of the methods, and say which bounds hold and on what the running time depends.

The digits of a modulus leave at least 16 bits free (SLACK in `ifma.h`). `ifma.h` bounds results
that are only "almost" reduced: the modulus may still have to be subtracted. These bounds depend on
the free bits. This module does not check the lengths of arrays; its caller `modular` does.

Making a constant takes longer than multiplying a few numbers, so the constants used last stay in
memory until the process ends. Some of them are factors of private keys, or are computed from these
factors. The tables for many powers stay in memory, too.
"""

from __future__ import annotations

import ctypes
import math
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

from secagg.protocols.kernels.library import call

Lanes = NDArray[np.uint64]
Rows = NDArray[np.uint8]

LANES = 8
DIGIT_BITS = 52
SLACK = 16
MAX_DIGITS = 160
MIN_DIGITS = 4  # BLOCK in ifma.h
CONSTANTS = 64  # cached; a private key needs 20, a public key 5; at most 10 KB each


def empty(*shape: int) -> Lanes:
    """Return an uninitialised array of this shape, aligned to 64 bytes."""
    size = math.prod(shape)
    memory = np.empty(size + 7, dtype=np.uint64)
    start = -memory.ctypes.data // 8 % 8
    return memory[start : start + size].reshape(shape)


def digits_for(bits: int) -> int:
    """Return how many digits a number of `bits` bits has."""
    return max(1, -(-bits // DIGIT_BITS))


def load(rows: Rows, digits: int) -> Lanes:
    """Return rows as lanes. Unused places of the last group are zero."""
    count, size = rows.shape
    lanes = empty(-(-count // LANES), digits, LANES)
    rows = np.ascontiguousarray(rows)
    call("load", lanes.ctypes.data, digits, rows.ctypes.data, size, count)
    return lanes


def store(lanes: Lanes, count: int, size: int) -> Rows:
    """Return the first `count` integers as rows of `size` bytes. Every integer must fit."""
    rows = np.empty((count, size), dtype=np.uint8)
    call("store", rows.ctypes.data, size, count, lanes.ctypes.data, lanes.shape[1])
    return rows


@lru_cache(maxsize=CONSTANTS)
def constant(value: int, digits: int) -> Lanes:
    """Return one read-only group that contains the same integer eight times."""
    size = digits * DIGIT_BITS // 8 + 1
    rows = np.frombuffer(value.to_bytes(size, "little") * LANES, np.uint8)
    lanes = load(rows.reshape(LANES, -1), digits)
    lanes.flags.writeable = False
    return lanes


@lru_cache(maxsize=CONSTANTS)
def _residue(value: int, shift: int, modulus: int) -> int:
    """Return value 2^shift modulo the modulus."""
    return (value << shift) % modulus


def multiply_add(a: Lanes, b: Lanes, c: Lanes, digits: int) -> Lanes:
    """Return a b + c, where b is a constant. The result must fit into `digits` digits."""
    out = empty(len(a), digits, LANES)
    call(
        "multiply_add", out.ctypes.data, digits, a.ctypes.data, a.shape[1], b.ctypes.data,
        b.shape[1], c.ctypes.data, c.shape[1], len(a),
    )  # fmt: skip
    return out


class _Structure(ctypes.Structure):
    """`modulus` of ifma.h."""

    _fields_ = (
        ("digits", ctypes.c_void_p),
        ("n", ctypes.c_size_t),
        ("inverse", ctypes.c_uint64),
    )


class Modulus:
    """An odd modulus r, stored with n digits.

    n is at least `digits` and at most `MAX_DIGITS`, and 16 bits stay free. If nothing else is said,
    factors and results are below 2 r ("almost reduced").
    """

    def __init__(self, value: int, digits: int = MIN_DIGITS) -> None:
        self.value = value
        self.n = max(digits, digits_for(value.bit_length() + SLACK))
        self._digits = constant(value, self.n)
        inverse = -pow(value, -1, 1 << DIGIT_BITS) % (1 << DIGIT_BITS)
        self._plain = _Structure(self._digits.ctypes.data, self.n, inverse)

    @staticmethod
    def supports(value: int) -> bool:
        """Return whether the kernels support this modulus."""
        return value % 2 == 1 and value.bit_length() + SLACK <= MAX_DIGITS * DIGIT_BITS

    @property
    def address(self) -> int:
        """The address of this modulus, for the kernels."""
        return ctypes.addressof(self._plain)

    def constant(self, value: int, shift: int = 0) -> Lanes:
        """Return value 2^shift modulo r as a constant of n digits."""
        return constant(_residue(value, shift, self.value), self.n)

    def multiply(self, a: Lanes, b: Lanes) -> Lanes:
        """Return a b / 2^(52 k) modulo r, where k = digits of a + digits of b - n.

        b may be a constant (one group). One of a and b must be below 2 r and have n digits. The
        other may have any value and length.
        """
        out = empty(len(a), self.n, LANES)
        step = b.shape[1] if len(b) == len(a) else 0
        call(
            "multiply", out.ctypes.data, a.ctypes.data, a.shape[1], b.ctypes.data, b.shape[1], step,
            self.address, len(a),
        )  # fmt: skip
        return out

    def scale(self, a: Lanes, factor: int) -> Lanes:
        """Return a * factor modulo r, for a of any value and length."""
        return self.multiply(a, self.constant(factor, DIGIT_BITS * a.shape[1]))

    def canonical(self, a: Lanes, times: int = 1) -> Lanes:
        """Return a modulo r, in place. a must be below (times + 1) r and may have open carries."""
        call("canonical", a.ctypes.data, self.address, times, len(a))
        return a

    def power(self, a: Lanes, exponent: int) -> Lanes:
        """Return a^exponent modulo r. The instructions depend only on the exponent's length."""
        montgomery = 1 << DIGIT_BITS * self.n
        x = self.scale(a, montgomery)
        self._power(x, exponent, self.constant(montgomery), paired=False)
        return self.multiply(x, self.constant(1))

    def _power(self, x: Lanes, exponent: int, one: Lanes, *, paired: bool) -> None:
        bits = 5 if exponent.bit_length() > 64 else 2  # 32 table entries save time if it is long
        count = max(1, -(-exponent.bit_length() // bits))
        windows = bytes(exponent >> bits * i & ((1 << bits) - 1) for i in range(count - 1, -1, -1))
        table = empty(1 << bits, *x.shape[1:])
        call(
            "power", x.ctypes.data, windows, count, bits, one.ctypes.data, self.address,
            paired, table.ctypes.data, len(x),
        )  # fmt: skip


class SquareModulus(Modulus):
    """The modulus r^2. A number c + d r is a pair (c, d) of 2 n digits together (see `power.c`).

    The methods inherited from `Modulus` compute modulo r.
    """

    def constant_pair(self, value: int) -> Lanes:
        """Return value modulo r^2 as a constant pair."""
        d, c = divmod(value % self.value**2, self.value)
        pair = empty(1, 2 * self.n, LANES)
        pair[:, : self.n], pair[:, self.n :] = constant(c, self.n), constant(d, self.n)
        return pair

    def multiply_pairs(self, a: Lanes, b: Lanes) -> Lanes:
        """Return a b / R modulo r^2, where R = 2^(52 n). b may be a constant."""
        out = empty(*a.shape)
        step = 2 * self.n if len(b) == len(a) else 0
        addresses = (out.ctypes.data, a.ctypes.data, b.ctypes.data)
        call("multiply_pairs", *addresses, step, self.address, len(a))
        return out

    def scaled_pairs(self, a: Lanes, factor: int) -> Lanes:
        """Return a * factor modulo r^2 as pairs, for a of any value and length."""
        pairs = empty(len(a), 2 * self.n, LANES)
        call("split", pairs.ctypes.data, a.ctypes.data, a.shape[1], self.address, len(a))
        return self.multiply_pairs(
            pairs, self.constant_pair(factor << DIGIT_BITS * (a.shape[1] + self.n))
        )

    def power_pairs(self, a: Lanes, exponent: int) -> Lanes:
        """Return a^exponent modulo r^2 as pairs, for a of any value. Instructions as in `power`."""
        montgomery = 1 << DIGIT_BITS * self.n
        x = self.scaled_pairs(a, montgomery)
        self._power(x, exponent, self.constant_pair(montgomery), paired=True)
        return self.multiply_pairs(x, self.constant_pair(1))

    def canonical_pairs(self, pairs: Lanes) -> tuple[Lanes, Lanes]:
        """Return c and d of pairs that `multiply_pairs` returned, reduced below r."""
        call("canonical_pairs", pairs.ctypes.data, self.address, len(pairs))
        c, d = empty(len(pairs), self.n, LANES), empty(len(pairs), self.n, LANES)
        c[:], d[:] = pairs[:, : self.n], pairs[:, self.n :]
        return c, d
