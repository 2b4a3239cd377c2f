"""Paillier encryption of vectors of integers: encrypt, add, decrypt.

Sources: as in `djn_keys`. Plaintexts are integers modulo n, ciphertexts units modulo n^2; the
product of ciphertexts encrypts the sum of their plaintexts. Vectors of either may come as any
sequence of `int`, and are returned as `Integers`, which is one. Keys are taken as checked
(`djn_keys.check_public_key`, `check_private_key`).

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
constant time (see `fixed_base`; GMP's power with exponent p - 1 neither; the kernels' power is, see
power.c there), so an attacker on the same machine is out of scope, and callers must not expose the
time of a decryption.
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

    expected: ciphertexts this process will make under the key in all, if known (sets the size of
        the table; where there turn out to be many more, it grows, see `fixed_base`)
    short_exponent_assumption: draw a of 256 bits. This assumes in addition that such powers of h_s
        cannot be told from random ones. The best generic attack (Pollard's kangaroo) takes 2^128
        steps, but no reduction to factoring is known. Off unless the caller takes this on.

    1 + m n = (1 + n)^m modulo n^2, by the binomial theorem.
    Raises `UsageError` for plaintexts out of range.
    """
    integers = _plaintexts(key, plaintexts)
    draws = _draw(key, len(integers), random, short_exponent_assumption)
    (whole,) = _encrypt_modulo(key, (key.n,), integers, draws, expected)
    return whole.resized(key.ciphertext_bytes)


def encrypt_as_key_holder(
    key: PrivateKey,
    plaintexts: Sequence[int],
    random: RandomBytes,
    *,
    expected: int = 0,
    short_exponent_assumption: bool = False,
) -> Integers:
    """Encrypt as `encrypt` does, but calculate modulo p^2 and q^2, which is faster.

    With h_s: the same random bytes give the same ciphertexts as `encrypt`, by the Chinese remainder
    theorem. Without: the same distribution, at a quarter of the cost. r^n = (r^q)^p, and
    r -> r^q permutes the units modulo p because gcd(q, p - 1) = 1; the p-th power of a number
    modulo p^2 depends only on the number modulo p. So r^n and (r mod p)^p modulo p^2 have the same
    distribution for uniform r, likewise modulo q^2, and the two halves are independent.
    """
    public, p, q = key.public, key.p, key.q
    integers = _plaintexts(public, plaintexts)
    draws = _draw(public, len(integers), random, short_exponent_assumption)
    halves = _encrypt_modulo(public, (p, q), integers, draws, expected)
    whole = residues.chinese_remainders(halves[0], halves[1], p * p, q * q)
    return whole.resized(public.ciphertext_bytes)


def multiply(key: PublicKey, columns: Sequence[Sequence[int]]) -> Integers:
    """Return the ciphertexts of the sums: position by position the product of all columns.

    columns: one vector of ciphertexts a site, all of the same length
    Raises `PeerError` that names the column (from 0) for one of another length, a number outside
    (0, n^2) or one that is no unit; `UsageError` for no columns at all.
    """
    if not columns:
        raise UsageError("paillier", "no ciphertexts to add")
    checked: list[Integers] = []
    for index, column in enumerate(columns):
        if len(column) != len(columns[0]):
            raise PeerError("paillier", f"column {index} has another length than column 0")
        checked.append(_ciphertexts(key, column, f"column {index}"))
    products = residues.products(checked, key.n * key.n)
    # A product is a unit exactly when all its factors are.
    if not residues.all_units(products, key.n):
        culprit = next(i for i, c in enumerate(checked) if not residues.all_units(c, key.n))
        raise PeerError("paillier", f"column {culprit} holds a number that is no ciphertext")
    return products.resized(key.ciphertext_bytes)


def decrypt(key: PrivateKey, ciphertexts: Sequence[int]) -> Integers:
    """Return the plaintexts, in [0, n).

    Paillier's decryption modulo p and q (section 7): c^(p-1) = 1 + m (p-1) n modulo p^2, since the
    randomiser's order divides p - 1 there; and (p-1) n = -n modulo p^2, so that
    m = -((c^(p-1) mod p^2) - 1)/p * q^-1 modulo p.
    Raises `PeerError` for numbers outside (0, n^2) and for no units.
    """
    integers = _ciphertexts(key.public, ciphertexts, "ciphertexts")

    def half(prime: int, other: int) -> Integers:
        remainders, logs = residues.split_powers(integers, prime - 1, prime)
        # Fermat: 1 modulo p for units, 0 for multiples of p.
        if any(remainder != 1 for remainder in remainders):
            raise PeerError("paillier", "ciphertexts hold a number that is no ciphertext")
        return residues.scaled(logs, int(invert(-other, prime)), prime)

    halves = in_two_threads([partial(half, key.p, key.q), partial(half, key.q, key.p)])
    return residues.chinese_remainders(halves[0], halves[1], key.p, key.q)


def ciphertexts_to_bytes(key: PublicKey, ciphertexts: Sequence[int]) -> bytes:
    """Return the ciphertexts as little-endian fields of `key.ciphertext_bytes` each."""
    return Integers.of(ciphertexts, key.ciphertext_bytes).to_bytes()


def ciphertexts_from_bytes(key: PublicKey, data: bytes, count: int) -> Integers:
    """Return the `count` ciphertexts of `data`, not yet checked (`multiply`, `decrypt` do that).

    Raises `PeerError` if `data` is not exactly as long as `count` ciphertexts are.
    """
    size = key.ciphertext_bytes
    if len(data) != count * size:
        raise PeerError("paillier", f"{count} ciphertexts have {count * size} bytes")
    return Integers.from_bytes(data, size)


def _plaintexts(key: PublicKey, plaintexts: Sequence[int]) -> Integers:
    try:
        return Integers.of(plaintexts, key.ciphertext_bytes // 2, below=key.n)
    except OverflowError:
        raise UsageError("paillier", "a plaintext is outside [0, n)") from None


def _ciphertexts(key: PublicKey, ciphertexts: Sequence[int], where: str) -> Integers:
    refusal = PeerError("paillier", f"{where}: a number is outside (0, n^2)")
    try:
        integers = Integers.of(ciphertexts, key.ciphertext_bytes, below=key.n * key.n)
    except OverflowError:
        raise refusal from None
    if not integers.rows.any(axis=1).all():
        raise refusal
    return integers


def _draw(key: PublicKey, count: int, random: RandomBytes, short: bool) -> tuple[int, Integers]:
    """Return (bits, exponents a uniform in their lowest bits), or (0, units r) without h_s."""
    if key.h_s is None:
        if short:
            raise UsageError("paillier", "short exponents need a key with h_s")
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
    """Return (1 + m n) h_s^a, or (1 + m n) r^root, modulo root^2: root is n, or p and then q."""
    bits, drawn = draws
    if key.h_s is not None:
        kernels = residues.use_kernels(max(roots) ** 2)
        return fixed_base(key.h_s, roots, bits, kernels=kernels).powers(drawn, plaintexts, expected)
    encrypted: list[Integers] = []
    for root in roots:
        square = root * root
        factors = [(1 + m * key.n) % square for m in plaintexts]
        powers = residues.powers(drawn, root, square)
        size = (square.bit_length() + 7) // 8
        encrypted.append(residues.products([powers, Integers.of(factors, size)], square))
    return encrypted
