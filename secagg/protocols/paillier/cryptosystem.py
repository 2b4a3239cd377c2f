"""Paillier encryption of vectors of integers: encrypt, add, decrypt.

Sources: as in `keys`. A plaintext is an integer modulo n, the modulus of the public key. A
ciphertext is a unit modulo n^2. The product of ciphertexts encrypts the sum of their plaintexts.
Functions accept any sequence of `int` and return `Integers`. They assume checked keys
(`keys.check_public_key`, `check_private_key`).

Threat model: the coordinator is honest but curious. It sees the public key and all ciphertexts, and
must learn nothing about any single plaintext. This property (semantic security against chosen
plaintexts) rests on these assumptions:

* DCR, the decisional composite residuosity assumption (Paillier, section 2): random n-th residues
  modulo n^2 cannot be distinguished from random units. Keys that secagg makes have h_s, a public
  n-th residue (see `keys`). For keys without h_s, whose randomisers are r^n, DCR is enough.
* For keys with h_s, in addition: factoring is hard. The randomiser is h_s^a, where a is uniform but
  has only ceil(bits/2) bits (Damgård-Jurik-Nielsen, section 4.1). The literature refers to
  Goldreich and Rosen ("On the security of modular exponentiation with application to the
  construction of pseudorandom generators", J. Cryptology 16, 2003). According to their result, if
  factoring is hard, h^a mod n with a of half length cannot be distinguished from h^a with a of full
  length. Taking n-th powers extends the result to h_s^a. This project relies on the result without
  a proof of its own.

With a of full length, DCR is enough (docs/math/threshold-decryption.md).

Not protected:

* Chosen ciphertexts. Everybody can change ciphertexts in meaningful ways, which is what makes sums
  possible. So a key holder must decrypt only sums that its policy allows.
* The result, if a site encrypts a value out of range.
* The number of ciphertexts, which is public.
* Timing. The time of the computations depends on secrets (see `fixed_base`). This includes GMP's
  modular exponentiation with the secret exponent p - 1. Only the kernels' exponentiation takes
  constant time (see power.c). Attackers on the same computer are out of scope, and callers must not
  reveal how long a decryption takes.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

from gmpy2 import invert

from secagg.core.randomness import RandomBytes
from secagg.errors import PeerError, UsageError
from secagg.protocols.kernels.parallel import in_two_threads
from secagg.protocols.paillier import residues
from secagg.protocols.paillier.fixed_base import fixed_base
from secagg.protocols.paillier.integers import Integers
from secagg.protocols.paillier.keys import PrivateKey, PublicKey, random_unit

SHORT_EXPONENT_BITS = 256


def encrypt(
    key: PublicKey,
    plaintexts: Sequence[int],
    random: RandomBytes,
    *,
    expected: int = 0,
    short_exponent_assumption: bool = False,
) -> Integers:
    """Return c = (1 + m n) h_s^a mod n^2 for each m in [0, n), or (1 + m n) r^n without h_s.

    expected: total number of ciphertexts that this process will make under the key, if known. It
        determines the size of the table of `fixed_base`, which grows if there are more ciphertexts
    short_exponent_assumption: whether to draw an exponent a of only 256 bits. This needs the
        further assumption that such powers of h_s cannot be distinguished from random powers. The
        best generic attack (Pollard's kangaroo) takes 2^128 steps, but no reduction to factoring is
        known

    1 + m n = (1 + n)^m modulo n^2, by the binomial theorem.
    Raises `UsageError` for plaintexts out of range.
    """
    integers = _plaintexts(key, plaintexts)
    draws = _draw(key, len(integers), random, short_exponent_assumption)
    (ciphertexts,) = _encrypt_modulo(key, (key.n,), integers, draws, expected)
    return ciphertexts.resized(key.ciphertext_bytes)


def encrypt_as_key_holder(
    key: PrivateKey,
    plaintexts: Sequence[int],
    random: RandomBytes,
    *,
    expected: int = 0,
    short_exponent_assumption: bool = False,
) -> Integers:
    """Encrypt as `encrypt` does, but faster, because the key holder can compute modulo p^2 and q^2.

    With h_s, the same random bytes give the same ciphertexts as `encrypt`, by the Chinese remainder
    theorem. Without h_s, ciphertexts have the same distribution as those of `encrypt`, and take a
    quarter of the time. Proof:
    r^n = (r^q)^p, and r -> r^q permutes the units modulo p because gcd(q, p - 1) = 1. The p-th
    power of a number modulo p^2 depends only on the number modulo p. So r^n and (r mod p)^p modulo
    p^2 have the same distribution for uniform r. The same holds modulo q^2, and the two halves are
    independent.
    """
    public, p, q = key.public, key.p, key.q
    integers = _plaintexts(public, plaintexts)
    draws = _draw(public, len(integers), random, short_exponent_assumption)
    halves = _encrypt_modulo(public, (p, q), integers, draws, expected)
    ciphertexts = residues.chinese_remainders(halves[0], halves[1], p * p, q * q)
    return ciphertexts.resized(public.ciphertext_bytes)


def multiply(key: PublicKey, columns: Sequence[Sequence[int]]) -> Integers:
    """Return the ciphertexts of the sums: the elementwise product of all columns.

    columns: one vector of ciphertexts for each site, all of the same length
    Raises `PeerError` with the number of the column (from 0) if its length is not that of column 0,
    or if a number is not a unit or not between 0 and n^2. Raises `UsageError` without columns.
    """
    if not columns:
        raise UsageError("paillier", "no ciphertexts to add")
    checked: list[Integers] = []
    for index, column in enumerate(columns):
        if len(column) != len(columns[0]):
            raise PeerError("paillier", f"column {index} and column 0 differ in length")
        checked.append(_ciphertexts(key, column, f"column {index}"))
    products = residues.products(checked, key.n * key.n)
    # A product is a unit exactly when all its factors are units.
    if not residues.all_units(products, key.n):
        invalid = next(i for i, c in enumerate(checked) if not residues.all_units(c, key.n))
        raise PeerError("paillier", f"column {invalid} has a number that is not a ciphertext")
    return products.resized(key.ciphertext_bytes)


def decrypt(key: PrivateKey, ciphertexts: Sequence[int]) -> Integers:
    """Return the plaintexts, in [0, n).

    Paillier's decryption modulo p and q (section 7): c^(p-1) = 1 + m (p-1) n modulo p^2, because
    modulo p^2 the order of the randomiser divides p - 1. And (p-1) n = -n modulo p^2. So
    m = -((c^(p-1) mod p^2) - 1)/p * q^-1 modulo p.
    Raises `PeerError` for a number that is not a unit or not between 0 and n^2.
    """
    integers = _ciphertexts(key.public, ciphertexts, "ciphertexts")

    def half(prime: int, other: int) -> Integers:
        remainders, logs = residues.split_powers(integers, prime - 1, prime)
        # Fermat: 1 modulo p for units, 0 for multiples of p.
        if any(remainder != 1 for remainder in remainders):
            raise PeerError("paillier", "ciphertexts: a number is not a ciphertext")
        return residues.scaled(logs, int(invert(-other, prime)), prime)

    halves = in_two_threads([partial(half, key.p, key.q), partial(half, key.q, key.p)])
    return residues.chinese_remainders(halves[0], halves[1], key.p, key.q)


def ciphertexts_to_bytes(key: PublicKey, ciphertexts: Sequence[int]) -> bytes:
    """Return the ciphertexts as bytes, `key.ciphertext_bytes` little-endian bytes for each."""
    return Integers.of(ciphertexts, key.ciphertext_bytes).to_bytes()


def ciphertexts_from_bytes(key: PublicKey, data: bytes, count: int) -> Integers:
    """Return the `count` ciphertexts in `data`, not yet checked (`multiply` and `decrypt` do that).

    Raises `PeerError` if `data` does not have the length of `count` ciphertexts.
    """
    size = key.ciphertext_bytes
    if len(data) != count * size:
        raise PeerError(
            "paillier", f"{count} ciphertexts must have {count * size} bytes, not {len(data)}"
        )
    return Integers.from_bytes(data, size)


def _plaintexts(key: PublicKey, plaintexts: Sequence[int]) -> Integers:
    try:
        return Integers.of(plaintexts, key.ciphertext_bytes // 2, below=key.n)
    except OverflowError:
        raise UsageError("paillier", "a plaintext is outside [0, n)") from None


def _ciphertexts(key: PublicKey, ciphertexts: Sequence[int], where: str) -> Integers:
    out_of_range = PeerError("paillier", f"{where}: a number is outside (0, n^2)")
    try:
        integers = Integers.of(ciphertexts, key.ciphertext_bytes, below=key.n * key.n)
    except OverflowError:
        raise out_of_range from None
    if not integers.rows.any(axis=1).all():
        raise out_of_range
    return integers


def _draw(key: PublicKey, count: int, random: RandomBytes, short: bool) -> tuple[int, Integers]:
    """Return (bits, exponents a), uniform in their lowest `bits` bits; without h_s (0, units r)."""
    if key.h_s is None:
        if short:
            raise UsageError("paillier", "short exponents require a key with h_s")
        units = [random_unit(key.n, random) for _ in range(count)]
        return 0, Integers.of(units, key.ciphertext_bytes // 2)
    bits = (key.bits + 1) // 2
    if short:
        bits = min(bits, SHORT_EXPONENT_BITS)
    size = (bits + 7) // 8
    return bits, Integers.from_bytes(random(count * size), size)


def _encrypt_modulo(
    key: PublicKey,
    roots: tuple[int, ...],
    plaintexts: Integers,
    draws: tuple[int, Integers],
    expected: int,
) -> list[Integers]:
    """Return (1 + m n) h_s^a, or (1 + m n) r^root, modulo root^2, for each root: n, or p and q."""
    bits, randomisers = draws
    if key.h_s is not None:
        kernels = residues.use_kernels(max(roots) ** 2)
        powers = fixed_base(key.h_s, roots, bits, kernels=kernels).powers
        return powers(randomisers, plaintexts, expected)
    encrypted: list[Integers] = []
    for root in roots:
        square = root * root
        factors = [(1 + m * key.n) % square for m in plaintexts]
        roots_powers = residues.powers(randomisers, root, square)
        size = (square.bit_length() + 7) // 8
        encrypted.append(residues.products([roots_powers, Integers.of(factors, size)], square))
    return encrypted
