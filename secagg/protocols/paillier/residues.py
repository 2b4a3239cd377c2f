"""Arithmetic on vectors of residues: by the kernels where they are, else by gmpy2. Same results.

Every function takes and returns `Integers`, reduced to [0, modulus), and is exact. What the kernels
do and how long they take is explained in `secagg.protocols.kernels`; the portable half below is
their specification, and the tests compare the two. Neither GMP nor Python runs in constant time.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from gmpy2 import gcd, invert, mpz, powmod_base_list

from secagg.protocols.kernels import library, modular
from secagg.protocols.paillier.integers import Integers


def use_kernels(modulus: int) -> bool:
    """Return whether calculations modulo this number run on the kernels."""
    return library.available() and modular.supports(modulus)


def products(columns: Sequence[Integers], modulus: int) -> Integers:
    """Return position by position the product of all columns, each reduced and of one length."""
    if use_kernels(modulus):
        size = _size(modulus)
        return Integers(modular.products([c.resized(size).rows for c in columns], modulus))
    m = mpz(modulus)
    result = [mpz(x) for x in columns[0]]
    for column in columns[1:]:
        result = [x * y % m for x, y in zip(result, column, strict=True)]
    return _integers(result, modulus)


def scaled(values: Integers, factor: int, modulus: int) -> Integers:
    """Return value times factor modulo the modulus."""
    if use_kernels(modulus):
        return Integers(modular.scaled(values.rows, factor, modulus))
    f, m = mpz(factor), mpz(modulus)
    return _integers((f * x % m for x in values), modulus)


def powers(values: Integers, exponent: int, modulus: int) -> Integers:
    """Return value^exponent modulo the modulus, for one exponent >= 0."""
    if use_kernels(modulus):
        return Integers(modular.powers(values.rows, exponent, modulus))
    return _integers(powmod_base_list(list(values), exponent, modulus), modulus)


def split_powers(values: Integers, exponent: int, root: int) -> tuple[Integers, Integers]:
    """Return u and v, below the root, of value^exponent = u + v root modulo root^2."""
    if use_kernels(root * root):
        remainders, quotients = modular.split_powers(values.rows, exponent, root)
        return Integers(remainders), Integers(quotients)
    r = mpz(root)
    parts = [divmod(x, r) for x in powmod_base_list(list(values), exponent, r * r)]
    return _integers((u for _, u in parts), root), _integers((v for v, _ in parts), root)


def chinese_remainders(
    first: Integers, second: Integers, modulus_1: int, modulus_2: int
) -> Integers:
    """Return the x in [0, modulus_1 modulus_2) that have the given remainders."""
    if use_kernels(modulus_1 * modulus_2):
        return Integers(modular.chinese_remainders(first.rows, second.rows, modulus_1, modulus_2))
    m_1, m_2 = mpz(modulus_1), mpz(modulus_2)
    inverse = invert(m_1, m_2)
    pairs = zip(first, second, strict=True)
    return _integers((a + (b - a) * inverse % m_2 * m_1 for a, b in pairs), modulus_1 * modulus_2)


def all_units(values: Integers, modulus: int) -> bool:
    """Return whether all are coprime to the modulus: one product, one gcd.

    A prime divides the product exactly when it divides a factor, so the answer is exact.
    """
    m, product = mpz(modulus), mpz(1)
    for value in modular.residue_product(values.rows, modulus) if use_kernels(modulus) else values:
        product = product * (value % m) % m
    return bool(gcd(product, m) == 1)


def _integers(values: Iterable[mpz], modulus: int) -> Integers:
    return Integers.of([int(x) for x in values], _size(modulus))


def _size(modulus: int) -> int:
    return (modulus.bit_length() + 7) // 8
