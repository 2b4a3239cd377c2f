"""Fast computation of many powers of one base modulo a square r^2, for Paillier's randomisers.

Source: Brickell, Gordon, McCurley, Wilson, "Fast exponentiation with precomputation" (EUROCRYPT
1992). The exponent is written in digits of `window` bits. A table contains base^(d 2^(window i))
for every position i of a digit and every value d. A power is then the product of one entry for each
digit, without squarings.

The table is stored in *split form*, which halves the work again. Every unit x modulo r^2 can be
written as

    x = u (1 + v r) mod r^2,    u = x mod r,    v = ((x - u) / r) u^-1 mod r,

because u is a unit modulo r exactly when x is a unit modulo r^2. Since (1 + v r)(1 + w r) =
1 + (v + w) r modulo r^2, the second parts of a product add up:

    x_1 ... x_k = (u_1 ... u_k) (1 + (v_1 + ... + v_k) r) mod r^2.

So the factors u_i, which have half the length, replace the factors x_i, and a product of two u_i is
below r^2 without reduction. r need not be prime and its factors need not be known. Encryption with
the public key uses r = n, and the key holder uses r = p and r = q. The result is the same number as
with ordinary exponentiation (tested), so split form adds no assumption. Paillier's factor
(1 + m n) also has the form of a second part and costs one more addition.

There are two kinds of tables. One contains mpz objects for gmpy2, and the other contains digits for
the kernels. Both give the same numbers. A kernel table takes longer to make, but its
multiplications are far faster.

Not protected: timing. The exponent is secret, and it determines which table entries are read. The
running time of Python's and GMP's arithmetic depends on the numbers. (The running time of the
kernels does not, except when they read the table.) An attacker that shares the computer's caches
may learn exponents. The cached tables for r = p and r = q are as secret as the key itself, and they
stay in memory until the process ends.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache, partial

import numpy as np
from gmpy2 import invert, mpz
from numpy.typing import NDArray

from secagg.protocols.kernels.modular import FixedBaseTable
from secagg.protocols.kernels.parallel import in_two_threads
from secagg.protocols.paillier.integers import Integers

Digits = NDArray[np.uint16]

TABLE_BYTES = 1 << 26
"""Largest size of one table (64 MiB)."""
MAX_CACHED = 2  # units with their tables: two private keys (256 MiB) or two public keys
TABLE_GROWTH = 4
STEP = 2
"""When a table is replaced by a wider one: see `FixedBase`."""

_MPZ_BYTES = 72  # bytes of object, allocator and list slot, in addition to the digits
_PADDING_BYTES = 64  # upper bound: 52-bit digits are stored in 64 bits, in multiples of eight
# Time to make a table, in units of one multiplication by an entry; all measured:
_ENTRY_COST = 1.5  # per entry: 1.4 to 1.9
_KERNEL_ENTRY_COST = 3.5  # per entry: 3.0 to 3.5
_KERNEL_POSITION_COST = (
    100.0  # per position: 60 to 130 for all widths (kernel calls on few numbers)
)
_SPLIT = 1 << 14  # digits computed together
_BLOCK = 4096  # powers computed together (15 MB): each table entry read is used many times


def choose_window(exponent_bits: int, root_bits: int, powers: int, *, kernels: bool) -> int:
    """Return the window width in bits for which table and powers together take the least time.

    With width w, the table has 2^w entries for each position, and each power needs one factor for
    each position. Widths with a table above `TABLE_BYTES` are excluded. With a 2048-bit key and
    r = p, the width is 5 bits for 100 powers (table of 3 MB), 8 for 2000 (13 MB), and 10 for 18 000
    and more (42 MB). With kernels, the width is at least 5 bits, and 9 or 10 for large jobs.

    powers: number of powers to compute
    """
    number_bytes = root_bits // 8 + (_PADDING_BYTES if kernels else _MPZ_BYTES)
    entry_cost = _KERNEL_ENTRY_COST if kernels else _ENTRY_COST
    position_cost = _KERNEL_POSITION_COST if kernels else 0.0

    def positions(window: int) -> int:
        return -(-exponent_bits // window)

    def table_bytes(window: int) -> int:
        return 2 * (positions(window) << window) * number_bytes

    allowed = [w for w in range(1, 17) if w == 1 or table_bytes(w) <= TABLE_BYTES]
    return min(
        allowed, key=lambda w: positions(w) * (position_cost + entry_cost * (1 << w) + powers)
    )


def split_digits(exponents: Integers, bits: int, window: int) -> Digits:
    """Return the lowest `bits` bits of all exponents, in digits of `window` <= 16 bits.

    The result has the shape (positions, len(exponents)), with the lowest position first.
    """
    columns = np.zeros((max(exponents.size, -(-bits // 8)) + 2, len(exponents)), dtype=np.uint32)
    columns[: exponents.size] = exponents.rows.T
    starts = np.arange(0, bits, window)
    bytes_, shifts = starts // 8, (starts % 8).astype(np.uint32)[:, None]
    masks = ((1 << np.minimum(window, bits - starts)) - 1).astype(np.uint32)[:, None]
    digits = np.empty((len(starts), len(exponents)), dtype=np.uint16)
    # Process as many positions together as the cache allows: all for few exponents, one for many.
    step = max(1, _SPLIT // max(1, len(exponents)))
    for first in range(0, len(starts), step):
        block = slice(first, first + step)
        at = bytes_[block]
        three_bytes = columns[at] | columns[at + 1] << 8 | columns[at + 2] << 16
        digits[block] = three_bytes >> shifts[block] & masks[block]
    return digits


@dataclass(frozen=True, repr=False)
class GmpTable:
    """The table for gmpy2, which works on every computer.

    units: for each position i, the parts u of base^(d 2^(window i)) for d = 0, 1, ...
    logs: for each position i, the parts v of these numbers
    """

    root: mpz
    bits: int
    window: int
    units: list[list[mpz]]
    logs: list[list[mpz]]

    @classmethod
    def of(cls, base: int, root: int, exponent_bits: int, window: int) -> GmpTable:
        r = mpz(root)
        carry, u = divmod(mpz(base), r)
        inverse = invert(u, r)
        v = carry * inverse % r
        units: list[list[mpz]] = []
        logs: list[list[mpz]] = []
        for start in range(0, exponent_bits, window):
            # x^d = u_d (1 + v_d r). Let u_(d-1) u = u_d + t r = u_d (1 + t r / u_d). Then
            # v_d = v_(d-1) + v + t / u_d. No inversion is needed: 1 / u_d = (1 / u)^d.
            row_units, row_logs = [mpz(1)], [mpz(0)]
            u_d, v_d, inverse_d = mpz(1), mpz(0), mpz(1)
            for _ in range(1 << min(window, exponent_bits - start)):
                t, u_d = divmod(u_d * u, r)
                inverse_d = inverse_d * inverse % r
                v_d = (v_d + v + t * inverse_d) % r
                row_units.append(u_d)
                row_logs.append(v_d)
            # x^(2^window) is the next base
            u, v, inverse = row_units.pop(), row_logs.pop(), inverse_d
            units.append(row_units)
            logs.append(row_logs)
        return cls(r, exponent_bits, window, units, logs)

    def begin(
        self, exponents: Integers, plaintexts: Integers, factor: int
    ) -> Callable[[], Integers]:
        """Return a function that computes base^a (1 + factor root)^m mod root^2.

        The function computes this for each exponent a with its plaintext m. If an exponent has more
        bits than the table, the highest bits are ignored. The returned function does the long
        computation, so that another thread can run it.
        """
        return partial(self._powers, exponents, plaintexts, factor)

    def _powers(self, exponents: Integers, plaintexts: Integers, factor: int) -> Integers:
        digits = split_digits(exponents, self.bits, self.window)
        size = ((self.root * self.root).bit_length() + 7) // 8
        powers: list[int] = []
        for start in range(0, len(plaintexts), _BLOCK):
            block = slice(start, start + _BLOCK)
            logs = [factor * mpz(m) % self.root for m in plaintexts[block]]
            powers += [int(x) for x in self._block(digits[:, block].tolist(), logs)]
        return Integers.of(powers, size)

    def _block(self, digits: list[list[int]], logs: list[mpz]) -> list[mpz]:
        """Return a block of powers. Positions are processed one by one, to fit the cache."""
        root, square = self.root, self.root * self.root
        sums = logs
        for row, row_digits in zip(self.logs, digits, strict=True):
            sums = [v + row[d] for v, d in zip(sums, row_digits, strict=True)]
        products = [1 + v % root * root for v in sums]
        factors = zip(self.units, digits, strict=True)
        for row, row_digits in factors:  # two positions at a time; the last may be paired with 1s
            next_row, next_digits = next(factors, ([mpz(1)], [0] * len(logs)))
            products = [
                product * (row[d] * next_row[e]) % square
                for product, d, e in zip(products, row_digits, next_digits, strict=True)
            ]
        return products


class KernelTable:
    """The table for the kernels."""

    def __init__(self, base: int, root: int, exponent_bits: int, window: int) -> None:
        self.window = window
        self._table = FixedBaseTable(base, root, exponent_bits, window)

    def begin(
        self, exponents: Integers, plaintexts: Integers, factor: int
    ) -> Callable[[], Integers]:
        powers = self._table.begin(exponents.rows, plaintexts.rows, factor)
        return lambda: Integers(powers())


Table = GmpTable | KernelTable


def make_table(base: int, root: int, exponent_bits: int, window: int, *, kernels: bool) -> Table:
    make = KernelTable if kernels else GmpTable.of
    return make(base, root, exponent_bits, window)


class FixedBase:
    """Powers of one base modulo several r^2, with one table for each r.

    The number of powers is usually not known in advance, because a method may need hundreds of sums
    of few ciphertexts, or end early. So each time the number of computed powers has doubled, new
    tables are considered, which are best for `TABLE_GROWTH` times this number. They replace the old
    tables if they are wider by at least `STEP` bits. The time to make a table grows so fast that
    all tables together take less than twice the time of the last. The number of powers is the
    number of ciphertexts under a key, which is public.
    """

    def __init__(
        self, base: int, roots: tuple[int, ...], exponent_bits: int, *, kernels: bool
    ) -> None:
        self._base, self._roots, self._bits, self._kernels = base, roots, exponent_bits, kernels
        self._tables: list[Table] = []
        self._count = self._next_growth = 0

    def powers(self, exponents: Integers, plaintexts: Integers, expected: int) -> list[Integers]:
        """Return base^a (1 + n)^m mod r^2 for each root r, where n is the product of all roots.

        There is one m for each exponent a. If an exponent has more than `exponent_bits` bits, the
        highest bits are ignored.

        expected: total number of powers that this process will compute; 0 if unknown
        """
        self._count += len(exponents)
        if self._count >= self._next_growth:
            self._tables = self._wide_tables(expected)
            self._next_growth = 2 * self._count
        n = math.prod(self._roots)
        computations = [
            table.begin(exponents, plaintexts, n // root)
            for table, root in zip(self._tables, self._roots, strict=True)
        ]
        return in_two_threads(computations)

    def _wide_tables(self, expected: int) -> list[Table]:
        powers = max(expected, TABLE_GROWTH * self._count if self._tables else self._count)
        bits, length = self._bits, max(self._roots).bit_length()
        window = choose_window(bits, length, powers, kernels=self._kernels)
        if self._tables and window < self._tables[0].window + STEP:
            return self._tables
        return [
            make_table(self._base % root**2, root, bits, window, kernels=self._kernels)
            for root in self._roots
        ]


@lru_cache(maxsize=MAX_CACHED)
def fixed_base(
    base: int, roots: tuple[int, ...], exponent_bits: int, *, kernels: bool
) -> FixedBase:
    """Return the `FixedBase` of a unit modulo each root^2. The last results are cached."""
    return FixedBase(base, roots, exponent_bits, kernels=kernels)
