"""Paillier encryption of vectors of integers: encrypt, add, decrypt.

Sources: as in `djn_keys`. Plaintexts are integers modulo n, ciphertexts units modulo n^2; the
product of ciphertexts encrypts the sum of their plaintexts. Everything here takes and returns
plain integers. Keys are taken as checked (`djn_keys.check_public_key`, `check_private_key`).

Threat model: the coordinator sees the public key and all ciphertexts, follows the protocol, and
must learn nothing of any single plaintext. Semantic security (chosen plaintexts) rests on

* DCR, the decisional composite residuosity assumption (Paillier, section 2): random n-th residues
  modulo n^2 look like random units. It suffices for the randomisers r^n.
* Factoring, in addition, for keys with h_s: the randomiser is h_s^a with a uniform of only
  ceil(bits/2) bits (Damgard-Jurik-Nielsen, section 4.1). Goldreich and Rosen ("On the security of
  modular exponentiation with application to the construction of pseudorandom generators",
  J. Cryptology 16, 2003) are cited for h^a mod n with half-length a being indistinguishable from
  h^a with a full-length one if factoring is hard; taking n-th powers carries this to h_s^a. This is
  the literature's claim, which this project has not proved again. With full-length a, DCR is
  enough: replace z^n by a random unit (1 + n)^t z^n in h_s = (-z^2)^n. The change goes unnoticed
  under DCR, and then (1 + m n) h_s^a carries the factor (1 + n)^(m - ..a), where a modulo n is
  uniform and independent of a modulo the order of -z^2 (n is coprime to it), so m is hidden
  perfectly. The argument needs no generator, so small factors of p - 1 do no harm.

What it does not protect: ciphertexts are malleable by design and decryption is no defence against
chosen ciphertexts, so a key holder must only ever decrypt sums that its policy allows. A site that
encrypts a value out of range spoils the sum. The number of ciphertexts is public. Arithmetic is not
constant time (see `fixed_base`; GMP's power with exponent p - 1 neither), so an attacker on the
same machine is out of scope, and callers must not expose the time of a decryption.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import numpy as np
from gmpy2 import gcd, invert, mpz, powmod, powmod_base_list

from secagg.errors import PeerError, UsageError
from secagg.protocols.djn_keys import PrivateKey, PublicKey, random_unit
from secagg.protocols.fixed_base import Bits, choose_window, fixed_base
from secagg.randomness import RandomBytes

SHORT_EXPONENT_BITS = 256


def encrypt(
    key: PublicKey,
    plaintexts: Sequence[int],
    random: RandomBytes,
    *,
    expected: int = 0,
    short_exponent_assumption: bool = False,
) -> list[int]:
    """Return c = (1 + m n) h_s^a mod n^2 for each m in [0, n), or (1 + m n) r^n without h_s.

    expected: ciphertexts this process will make under the key in all, where more than in this call
        (sets the size of the table, see `fixed_base.choose_window`)
    short_exponent_assumption: draw a of 256 bits. This assumes in addition that such powers of h_s
        cannot be told from random ones. The best generic attack (Pollard's kangaroo) takes 2^128
        steps, but no reduction to factoring is known. Off unless the caller takes this on.

    1 + m n = (1 + n)^m modulo n^2, by the binomial theorem.
    Raises `UsageError` for plaintexts out of range.
    """
    draws = _draw(key, plaintexts, random, short_exponent_assumption)
    return [int(c) for c in _encrypt_modulo(key, key.n, plaintexts, draws, expected)]


def encrypt_as_key_holder(
    key: PrivateKey,
    plaintexts: Sequence[int],
    random: RandomBytes,
    *,
    expected: int = 0,
    short_exponent_assumption: bool = False,
) -> list[int]:
    """Encrypt as `encrypt` does, but calculate modulo p^2 and q^2, which is faster.

    With h_s: the same random bytes give the same ciphertexts as `encrypt`, by the Chinese remainder
    theorem. Without: the same distribution, at a quarter of the cost. r^n = (r^q)^p, and
    r -> r^q permutes the units modulo p because gcd(q, p - 1) = 1; the p-th power of a number
    modulo p^2 depends only on the number modulo p. So r^n and (r mod p)^p modulo p^2 have the same
    distribution for uniform r, likewise modulo q^2, and the two halves are independent.
    """
    public, p, q = key.public, key.p, key.q
    draws = _draw(public, plaintexts, random, short_exponent_assumption)
    halves = [  # 1 + m n = 1 + (m q) p = 1 + (m p) q
        _encrypt_modulo(public, prime, [m * other for m in plaintexts], draws, expected)
        for prime, other in ((p, q), (q, p))
    ]
    return _chinese_remainders(halves[0], halves[1], p * p, q * q)


def multiply(key: PublicKey, columns: Sequence[Sequence[int]]) -> list[int]:
    """Return the ciphertexts of the sums: position by position the product of all columns.

    columns: one vector of ciphertexts a site, all of the same length
    Raises `PeerError` that names the column (from 0) for one of another length, a number outside
    (0, n^2) or one that is no unit; `UsageError` for no columns at all.
    """
    if not columns:
        raise UsageError("paillier", "no ciphertexts to add")
    square = mpz(key.n) * key.n
    for index, column in enumerate(columns):
        if len(column) != len(columns[0]):
            raise PeerError("paillier", f"column {index} has another length than column 0")
        _check_range(key, column, f"column {index}")
    products = [mpz(c) for c in columns[0]]
    for column in columns[1:]:
        products = [x * c % square for x, c in zip(products, column, strict=True)]
    if not _all_units(key, products):  # a product is a unit exactly when all its factors are
        culprit = next(i for i, column in enumerate(columns) if not _all_units(key, column))
        raise PeerError("paillier", f"column {culprit} holds a number that is no ciphertext")
    return [int(c) for c in products]


def decrypt(key: PrivateKey, ciphertexts: Sequence[int]) -> list[int]:
    """Return the plaintexts, in [0, n).

    Paillier's decryption modulo p and q (section 7): c^(p-1) = 1 + m (p-1) n modulo p^2, since the
    randomiser's order divides p - 1 there; and (p-1) n = -n modulo p^2, so that
    m = -((c^(p-1) mod p^2) - 1)/p * q^-1 modulo p.
    Raises `PeerError` for numbers outside (0, n^2) and for no units.
    """
    _check_range(key.public, ciphertexts, "ciphertexts")
    if not _all_units(key.public, ciphertexts):
        raise PeerError("paillier", "ciphertexts hold a number that is no ciphertext")
    halves: list[list[mpz]] = []
    for prime, other in ((mpz(key.p), key.q), (mpz(key.q), key.p)):
        factor = invert(-other, prime)
        powers = powmod_base_list(list(ciphertexts), prime - 1, prime * prime)
        halves.append([(x - 1) // prime * factor % prime for x in powers])
    return _chinese_remainders(halves[0], halves[1], key.p, key.q)


def ciphertexts_to_bytes(key: PublicKey, ciphertexts: Iterable[int]) -> bytes:
    """Return the ciphertexts as little-endian fields of `key.ciphertext_bytes` each."""
    size = key.ciphertext_bytes
    return b"".join([c.to_bytes(size, "little") for c in ciphertexts])


def ciphertexts_from_bytes(key: PublicKey, data: bytes, count: int) -> list[int]:
    """Return the `count` ciphertexts of `data`, not yet checked (`multiply`, `decrypt` do that).

    Raises `PeerError` if `data` is not exactly as long as `count` ciphertexts are.
    """
    size = key.ciphertext_bytes
    if len(data) != count * size:
        raise PeerError("paillier", f"{count} ciphertexts have {count * size} bytes")
    return [
        int.from_bytes(data[start : start + size], "little") for start in range(0, len(data), size)
    ]


def _draw(
    key: PublicKey, plaintexts: Sequence[int], random: RandomBytes, short: bool
) -> Bits | list[int]:
    """Return one uniform exponent a for each plaintext if the key has h_s, else one unit r.

    Exponents come as bits, shape (plaintexts, bits of an exponent), lowest bit first.
    """
    if not all(0 <= m < key.n for m in plaintexts):
        raise UsageError("paillier", "a plaintext is outside [0, n)")
    if key.h_s is None:
        if short:
            raise UsageError("paillier", "short exponents need a key with h_s")
        return [random_unit(key.n, random) for _ in plaintexts]
    bits = (key.bits + 1) // 2
    if short:
        bits = min(bits, SHORT_EXPONENT_BITS)
    size = (bits + 7) // 8
    drawn = np.frombuffer(random(len(plaintexts) * size), dtype=np.uint8).reshape(-1, size)
    return np.unpackbits(drawn, axis=1, bitorder="little", count=bits)


def _encrypt_modulo(
    key: PublicKey, root: int, logs: Sequence[int], draws: Bits | list[int], expected: int
) -> Sequence[mpz]:
    """Return (1 + root)^log h_s^a, or (1 + root)^log r^root, modulo root^2; root is n, p or q."""
    if key.h_s is None or isinstance(draws, list):
        r, square = mpz(root), mpz(root) * root
        return [
            (1 + log % r * r) * powmod(unit % r, r, square) % square
            for log, unit in zip(logs, draws, strict=True)
        ]
    bits = draws.shape[1]
    window = choose_window(bits, root.bit_length(), max(expected, len(logs)))
    return list(fixed_base(key.h_s % root**2, root, bits, window).powers(draws, logs))


def _check_range(key: PublicKey, ciphertexts: Sequence[int], where: str) -> None:
    square = key.n * key.n
    if not all(0 < c < square for c in ciphertexts):
        raise PeerError("paillier", f"{where}: a number is outside (0, n^2)")


def _all_units(key: PublicKey, numbers: Iterable[int | mpz]) -> bool:
    """Return whether all are coprime to n: one product modulo n, one gcd.

    A prime divides the product exactly when it divides a factor, so the answer is exact.
    """
    n = mpz(key.n)
    product = mpz(1)
    for number in numbers:
        product = product * (number % n) % n
    return bool(gcd(product, n) == 1)


def _chinese_remainders(
    first: Sequence[mpz], second: Sequence[mpz], modulus_1: int, modulus_2: int
) -> list[int]:
    """Return the x in [0, modulus_1 modulus_2) that have the given remainders."""
    m_1, m_2 = mpz(modulus_1), mpz(modulus_2)
    inverse = invert(m_1, m_2)
    return [int(a + (b - a) * inverse % m_2 * m_1) for a, b in zip(first, second, strict=True)]
