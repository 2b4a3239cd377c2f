"""Arithmetic on vectors of residues, with compiled kernels if available and gmpy2 otherwise.

Both give the same results. Every function takes and returns `Integers` in [0, modulus), and is
exact. `secagg.protocols.kernels` explains the kernels. The gmpy2 code below defines what the
kernels compute, and tests compare both.

Not protected: timing. The running time of GMP and Python depends on the numbers.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from gmpy2 import gcd, invert, mpz, powmod_base_list

from secagg.protocols.kernels import library, modular
from secagg.protocols.kernels.lanes import Modulus
from secagg.protocols.paillier.integers import Integers


def use_kernels(modulus: int) -> bool:
    """Return whether arithmetic modulo this number runs on the kernels."""
    return library.available() and Modulus.supports(modulus)


def products(columns: Sequence[Integers], modulus: int) -> Integers:
    """Return the elementwise product of all columns, which are reduced and of equal length."""
    if use_kernels(modulus):
        size = _size(modulus)
        return Integers(modular.products([c.resized(size).rows for c in columns], modulus))
    m = mpz(modulus)
    result = [mpz(x) for x in columns[0]]
    for column in columns[1:]:
        result = [x * y % m for x, y in zip(result, column, strict=True)]
    return _integers(result, modulus)


def scaled(values: Integers, factor: int, modulus: int) -> Integers:
    """Return value * factor modulo the modulus, for each value."""
    if use_kernels(modulus):
        return Integers(modular.scaled(values.rows, factor, modulus))
    f, m = mpz(factor), mpz(modulus)
    return _integers((f * x % m for x in values), modulus)


def powers(values: Integers, exponent: int, modulus: int) -> Integers:
    """Return value^exponent modulo the modulus, for each value; exponent >= 0."""
    if use_kernels(modulus):
        return Integers(modular.powers(values.rows, exponent, modulus))
    return _integers(powmod_base_list(list(values), exponent, modulus), modulus)


def split_powers(values: Integers, exponent: int, root: int) -> tuple[Integers, Integers]:
    """Return u and v below root with value^exponent = u + v root modulo root^2, for each value."""
    if use_kernels(root * root):
        remainders, quotients = modular.split_powers(values.rows, exponent, root)
        return Integers(remainders), Integers(quotients)
    r = mpz(root)
    parts = [divmod(x, r) for x in powmod_base_list(list(values), exponent, r * r)]
    return _integers((u for _, u in parts), root), _integers((v for v, _ in parts), root)


def chinese_remainders(
    first: Integers, second: Integers, modulus_1: int, modulus_2: int
) -> Integers:
    """Return the x in [0, modulus_1 modulus_2) with the given remainders."""
    if use_kernels(modulus_1 * modulus_2):
        return Integers(modular.chinese_remainders(first.rows, second.rows, modulus_1, modulus_2))
    m_1, m_2 = mpz(modulus_1), mpz(modulus_2)
    inverse = invert(m_1, m_2)
    pairs = zip(first, second, strict=True)
    return _integers((a + (b - a) * inverse % m_2 * m_1 for a, b in pairs), modulus_1 * modulus_2)


def all_units(values: Integers, modulus: int) -> bool:
    """Return whether all values are coprime to the modulus.

    This computes the gcd of the modulus and the product of all values. A prime divides the product
    exactly when it divides one of the values.
    """
    m, product = mpz(modulus), mpz(1)
    for value in modular.residue_product(values.rows, modulus) if use_kernels(modulus) else values:
        product = product * (value % m) % m
    return bool(gcd(product, m) == 1)


def _integers(values: Iterable[mpz], modulus: int) -> Integers:
    return Integers.of([int(x) for x in values], _size(modulus))


def _size(modulus: int) -> int:
    return (modulus.bit_length() + 7) // 8
