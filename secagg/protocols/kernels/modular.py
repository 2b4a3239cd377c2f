"""Modular arithmetic with the kernels, on whole arrays of long integers.

Arguments and results are `Rows`: arrays of uint8 with shape (count, size), in which each row is a
little-endian integer. All results are exact and fully reduced. Rows "of any value" need not be
reduced; they have at most 2080 bytes. Long arrays are processed in blocks that fit the cache. The C
files of this folder name sources and bounds. `test_modular.py` compares the results with gmpy2.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from functools import lru_cache

import numpy as np
from gmpy2 import invert, mpz, powmod

from secagg.protocols.kernels.lanes import (
    DIGIT_BITS,
    LANES,
    MAX_DIGITS,
    Lanes,
    Modulus,
    Rows,
    SquareModulus,
    constant,
    digits_for,
    empty,
    load,
    multiply_add,
    store,
)
from secagg.protocols.kernels.library import call

_BLOCK = 512
"""Number of integers processed together. With 4096 bits each, they need 320 KiB, so that a few
arrays fit the cache."""
_TABLE_BLOCK = 4096
"""Number of integers processed together with a table. It is larger, so that each table entry is
used several times while it is in the cache."""


# Cached, because many calls process few integers. `lanes` explains which secrets stay in memory.
_modulus = lru_cache(maxsize=16)(Modulus)
_square_modulus = lru_cache(maxsize=16)(SquareModulus)


@lru_cache(maxsize=16)
def _inverse(value: int, modulus: int) -> int:
    return int(invert(value, modulus))


def products(columns: Sequence[Rows], modulus: int) -> Rows:
    """Return the elementwise product of all columns, each below the modulus."""
    m = _modulus(modulus)
    # Every multiplication divides by 2^(52 n), including the last one, by this correction.
    correction = m.constant(1, DIGIT_BITS * m.n * len(columns))
    out = np.empty_like(columns[0])
    for block in _blocks(len(out)):
        product = load(columns[0][block], m.n)
        for column in columns[1:]:
            product = m.multiply(product, load(column[block], m.n))
        _save(m.canonical(m.multiply(product, correction)), out[block])
    return out


def scaled(rows: Rows, factor: int, modulus: int) -> Rows:
    """Return row * factor modulo the modulus, for rows and factors of any value."""
    m = _modulus(modulus)
    return _mapped(rows, m, lambda x: m.canonical(m.scale(x, factor)))


def powers(rows: Rows, exponent: int, modulus: int) -> Rows:
    """Return row^exponent modulo the modulus, for rows of any value; exponent >= 0."""
    m = _modulus(modulus)
    return _mapped(rows, m, lambda x: m.canonical(m.power(x, exponent)))


def split_powers(rows: Rows, exponent: int, root: int) -> tuple[Rows, Rows]:
    """Return remainder and quotient of (row^exponent modulo root^2), divided by root.

    rows: of any value
    exponent: at least 0
    root: root^2 must be a supported modulus
    """
    m = _square_modulus(root)
    size = _bytes(root)
    remainders, quotients = np.empty((2, len(rows), size), dtype=np.uint8)
    for block in _blocks(len(rows)):
        c, d = m.canonical_pairs(m.power_pairs(_load_any(rows[block], m), exponent))
        _save(c, remainders[block])
        _save(d, quotients[block])
    return remainders, quotients


def chinese_remainders(first: Rows, second: Rows, modulus_1: int, modulus_2: int) -> Rows:
    """Return the numbers x below modulus_1 modulus_2 with these two remainders.

    With the remainders a (in `first`, below modulus_1) and b (in `second`),
    x = a + modulus_1 ((b - a) / modulus_1 mod modulus_2) (Garner, IRE Transactions EC-8, 1959).
    """
    m = _modulus(modulus_2)
    inverse = _inverse(modulus_1, modulus_2)
    total = modulus_1 * modulus_2
    step = constant(modulus_1, digits_for(modulus_1.bit_length()))
    digits = digits_for(total.bit_length())
    out = np.empty((len(first), _bytes(total)), dtype=np.uint8)
    for block in _blocks(len(first)):
        a, b = _load_any(first[block], m), _load_any(second[block], m)
        sums = m.scale(b, inverse)
        sums += m.scale(a, -inverse)  # below 4 modulus_2, with open carries
        quotient = m.canonical(sums, times=3)
        _save(multiply_add(quotient, step, a, digits), out[block])
    return out


def residue_product(rows: Rows, modulus: int) -> list[int]:
    """Return eight integers whose product is coprime to the modulus if and only if all rows are."""
    m = _modulus(modulus)
    one = m.constant(1)
    product = one
    for block in _blocks(len(rows)):
        padding = np.zeros((-len(rows[block]) % LANES, rows.shape[1]), dtype=np.uint8)
        padding[:, :1] = 1
        x = m.multiply(_load_any(np.concatenate([rows[block], padding]), m), one)
        while len(x) > 1:  # multiplies by powers of 2^-52, which are coprime to the odd modulus
            half = len(x) // 2
            odd_one = x[2 * half :]
            x = m.multiply(x[:half], x[half : 2 * half])
            if len(odd_one):
                x[:1] = m.multiply(x[:1], odd_one)
        product = m.multiply(product, x)
    stored = store(product, LANES, m.n * 52 // 8 + 1)
    return [int.from_bytes(row.tobytes(), "little") for row in stored]


class FixedBaseTable:
    """A table for many powers of one base modulo root^2; see `protocols.paillier.fixed_base`.

    base: a unit modulo root^2
    root: root^2 must be a supported modulus
    exponent_bits: length of the longest exponent; at most `MAX_POSITIONS` * window
    window: bits of a digit, at most 16
    """

    MAX_POSITIONS = 4095  # the sum of so many 52-bit digits, and one of a log, is below 2^64

    def __init__(self, base: int, root: int, exponent_bits: int, window: int) -> None:
        self._bits, self._window = exponent_bits, window
        self.root = SquareModulus(root)
        self.square = Modulus(root**2, 2 * self.root.n)
        self.positions = -(-exponent_bits // window)
        if self.positions > self.MAX_POSITIONS:
            raise ValueError(
                f"{self.positions} positions are more than {self.MAX_POSITIONS}; widen the window"
            )
        self._row = -(-self.root.n // LANES) * LANES  # rows are read eight numbers at a time
        self._units = empty(self.positions, 1 << window, self._row)
        self._logs = empty(self.positions, 1 << window, self._row)
        factors, inverses = [mpz(base)], [invert(base, root)]
        square = root**2
        for _ in range(1, self.positions):
            factors.append(powmod(factors[-1], 1 << window, square))
            inverses.append(powmod(inverses[-1], 1 << window, root))
        r = self.root
        montgomery = 1 << DIGIT_BITS * r.n
        zeroth = r.constant_pair(montgomery), r.constant(1)  # f^0
        steps = r.scaled_pairs(_lanes_of(factors, self.square.n), montgomery)
        inverse_steps = r.scale(_lanes_of(inverses, r.n), montgomery)
        for group, start in enumerate(range(0, self.positions, LANES)):
            first = steps[group : group + 1], inverse_steps[group : group + 1]
            self._fill(slice(start, start + LANES), zeroth, first, window)

    def _fill(
        self, part: slice, zeroth: tuple[Lanes, Lanes], first: tuple[Lanes, Lanes], window: int
    ) -> None:
        """Compute the table entries of eight positions together.

        Step i computes f^(a + b) from f^a, for b = 2^i and all a < b. The kernel divides by R with
        every factor. Therefore an entry is the split form of f^a R = c + d r, which is u = c and
        v = d / c modulo r, where 1 / c = f^-a / R.

        zeroth: f^0 R and f^0
        first: f R and R / f
        """
        r = self.root
        pairs, inverses_c = empty(1 << window, 2 * r.n, LANES), empty(1 << window, r.n, LANES)
        pairs[:1], inverses_c[:1] = zeroth
        step, inverse_step = first
        for i in range(window):
            done, new = slice(0, 1 << i), slice(1 << i, 2 << i)
            pairs[new] = r.multiply_pairs(pairs[done], step)
            inverses_c[new] = r.multiply(inverses_c[done], inverse_step)
            step = r.multiply_pairs(step, step)
            inverse_step = r.multiply(inverse_step, inverse_step)
        c, d = r.canonical_pairs(pairs)
        v = r.canonical(r.multiply(d, inverses_c))
        for table, entries in ((self._units, c), (self._logs, v)):
            rows = table[part]
            rows[:, :, : r.n] = entries.transpose(2, 0, 1)[: len(rows)]
            rows[:, :, r.n :] = 0

    def begin(self, exponents: Rows, rows: Rows, factor: int) -> Callable[[], Rows]:
        """Return a function that computes base^a (1 + root)^(row factor) modulo root^2.

        The function computes this for each exponent a with its row. The returned function does the
        long computation, so that another thread can run it.

        exponents: one for each row; if it has more than `exponent_bits` bits, the highest bits are
            ignored
        rows: of any value
        """
        if len(exponents) != len(rows):  # numpy would repeat a single exponent
            raise ValueError(f"{len(exponents)} exponents for {len(rows)} rows")
        r, square, length = self.root, self.square, exponents.shape[1]
        size = max(length, -(-self._bits // 8)) + 3  # the kernel reads four bytes at a time
        log = r.canonical(r.scale(_load_any(rows, r), factor))
        padded = np.zeros((len(log) * LANES, size), dtype=np.uint8)
        padded[: len(rows), :length] = exponents

        def powers() -> Rows:
            out = np.empty((len(rows), _bytes(square.value)), dtype=np.uint8)
            for block in _blocks(len(out), _TABLE_BLOCK):
                logs = log[block.start // LANES : -(-block.stop // LANES)]
                x = empty(len(logs), square.n, LANES)
                call(
                    "fixed_base", x.ctypes.data, logs.ctypes.data, self._units.ctypes.data,
                    self._logs.ctypes.data, self._row, padded[block].ctypes.data, size,
                    self._bits, self._window, r.address, square.address, len(logs),
                )  # fmt: skip
                _save(square.canonical(x), out[block])
            return out

        return powers


def _blocks(count: int, size: int = _BLOCK) -> Iterator[slice]:
    return (slice(start, min(start + size, count)) for start in range(0, count, size))


def _bytes(modulus: int) -> int:
    return (modulus.bit_length() + 7) // 8


def _load_any(rows: Rows, modulus: Modulus) -> Lanes:
    """Return rows of any value as lanes, with at least as many digits as the modulus."""
    digits = digits_for(8 * rows.shape[1])
    if digits > 2 * MAX_DIGITS:  # the arrays in the C functions hold no more
        raise ValueError(f"numbers of {rows.shape[1]} bytes are too long for the kernels")
    return load(rows, max(modulus.n, digits))


def _lanes_of(values: Sequence[mpz], digits: int) -> Lanes:
    size = digits * DIGIT_BITS // 8 + 1
    data = b"".join([int(x).to_bytes(size, "little") for x in values])
    return load(np.frombuffer(data, dtype=np.uint8).reshape(-1, size), digits)


def _save(lanes: Lanes, out: Rows) -> None:
    """Write reduced integers into rows that have the size of the modulus."""
    out[:] = store(lanes, len(out), out.shape[1])


def _mapped(rows: Rows, m: Modulus, function: Callable[[Lanes], Lanes]) -> Rows:
    out = np.empty((len(rows), _bytes(m.value)), dtype=np.uint8)
    for block in _blocks(len(rows)):
        _save(function(_load_any(rows[block], m)), out[block])
    return out
