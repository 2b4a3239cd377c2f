"""A Paillier key in shares: any t of K decrypt together, t - 1 learn nothing about the key.

Sources: V. Shoup, "Practical threshold signatures" (EUROCRYPT 2000), its first protocol, for the
sharing; P. Paillier, "Public-key cryptosystems based on composite degree residuosity classes"
(EUROCRYPT 1999), section 6, for decryption by an n-th root. With m = (p-1)(q-1)/4, D = n^-1 mod m
and delta = K!:

    f(x) = D + a_1 x + ... + a_(t-1) x^(t-1) with uniform a_i in Z_m; site i holds s_i = f(i) mod m
    and answers c with x_i = (c mod n)^(2 delta s_i) mod n. Any t answers give
    w = product of x_i^(lambda_i) = r^(2 delta^2) mod n, with the whole numbers
    lambda_i = delta * product of j / (j - i) over the other points j. Then
    c^(2 delta^2) w^-n = 1 + 2 delta^2 M n modulo n^2.

**A wrong answer cannot change a sum.** The last line is 1 modulo n if and only if w is right, and
`combine` checks it. No proofs need to be sent: M is the plaintext of c, whoever lied.

**t - 1 sites and the coordinator** learn the sums alone, if all follow the protocol: their shares
are uniform and independent of D, the other answers follow from these shares and r, and r is a
product of randomisers that are uniform, on the assumptions of `cryptosystem`.

docs/math/threshold-decryption.md has the proofs.

Not protected: whoever makes the key knows it, and is trusted to forget it. A share answers for
*any* ciphertext: its holder must see to it that a fresh ciphertext of an honest site is a factor,
against which nobody chose the others. (So a *contributing* site that departs from the protocol and
sends, say, a power of another's ciphertext is not stopped; that takes proofs of knowledge.) Wrong
answers stop a sum, and do not say whose they were. Timing is as open as in `cryptosystem`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import reduce
from math import factorial, prod

from gmpy2 import gcd, invert, is_prime, mpz, powmod

from secagg.core.randomness import RandomBytes, random_below
from secagg.errors import PeerError, ProtocolAbort, UsageError
from secagg.protocols.paillier import residues
from secagg.protocols.paillier.integers import Integers
from secagg.protocols.paillier.keys import MAX_BITS, MIN_BITS, PrivateKey, PublicKey, random_unit

AUXILIARY_BITS = 256
_ROUNDS = 24 + 50  # GMP: Baillie-PSW, then 50 of Miller-Rabin; a composite passes these with 4^-50


@dataclass(frozen=True)
class KeyShare:
    """One site's share of the key of `public`; `value` is left out of `repr`.

    sites: K, how many shares there are; index: which one this is, from 1 to K
    """

    public: PublicKey
    sites: int
    index: int
    value: int = field(repr=False)


def generate_keypair(bits: int, random: RandomBytes) -> PrivateKey:
    """Return a fresh key as `djn_keys.generate_keypair` does, but with primes p = 2 a b + 1.

    Here a and b are primes, a of 256 bits: p - 1 has an auxiliary prime factor of known size (as in
    FIPS 186-5, appendix A.1.6), and no small one. The usual safe primes, a = 1, would do as well
    and take ten times as long to find (at 3072 bits 12 s of processor time on average, not 1.2).
    Raises `UsageError` for odd lengths and those outside `djn_keys`' limits.
    """
    if bits % 2 or not MIN_BITS <= bits <= MAX_BITS:
        raise UsageError("threshold key", f"a modulus of {bits} bits is not offered")
    p, q = _prime(bits // 2, random), _prime(bits // 2, random)
    while gcd(p - 1, q - 1) != 2:  # p = q included; else one of four large primes is repeated
        q = _prime(bits // 2, random)
    n = p * q
    h = n - random_unit(n, random) ** 2 % n
    return PrivateKey(PublicKey(n, int(powmod(h, n, n * n))), p, q)


def share_key(key: PrivateKey, sites: int, threshold: int, random: RandomBytes) -> list[KeyShare]:
    """Return the shares of sites 1 to `sites`, any `threshold` of which decrypt.

    Raises `UsageError` unless 1 <= threshold <= sites, and for a key whose (p-1)(q-1)/4 has a
    prime factor up to `sites` (or is not whole): shares of such a key would not be independent;
    or a factor in common with n: such a key has no n-th roots.
    """
    m, rest = divmod((key.p - 1) * (key.q - 1), 4)
    if not 1 <= threshold <= sites:
        raise UsageError("threshold key", f"{threshold} of {sites} sites cannot decrypt")
    if rest or gcd(m, key.public.n * factorial(sites)) != 1:
        raise UsageError("threshold key", f"p - 1 or q - 1 has factors unfit for {sites} sites")
    root = int(invert(key.public.n, m))
    coefficients = [root, *(random_below(m, random) for _ in range(threshold - 1))]
    return [
        KeyShare(key.public, sites, index, _evaluate(coefficients, index, m))
        for index in range(1, sites + 1)
    ]


def check_share(share: KeyShare) -> None:
    """Raise `PeerError` for a share, from another party, that no honest dealer makes.

    That it fits the others shows only when it is used, in `combine`.
    """
    if not (0 <= share.value < share.public.n >> 2 and 1 <= share.index <= share.sites):
        raise PeerError("threshold key", "a share is out of range")


def partially_decrypt(share: KeyShare, ciphertexts: Sequence[int]) -> Integers:
    """Return this site's answers x_i, units modulo n, one for each ciphertext.

    ciphertexts: checked units modulo n^2, as `djn.multiply` returns them
    """
    exponent = 2 * factorial(share.sites) * share.value
    bases = Integers.of(ciphertexts, share.public.ciphertext_bytes)
    return residues.powers(bases, exponent, share.public.n)


def combine(
    public: PublicKey,
    sites: int,
    answers: Mapping[int, Sequence[int]],
    ciphertexts: Sequence[int],
) -> Integers:
    """Return the plaintexts, in [0, n), from the answers of as many sites as the threshold.

    answers: for each site's index, its answer to each of the ciphertexts
    ciphertexts: checked units modulo n^2, as `djn.multiply` returns them
    Raises `PeerError` for answers that are none, `ProtocolAbort` if they do not give the root
    (one of them is wrong, or there are fewer than the threshold).
    """
    n, size = public.n, public.ciphertext_bytes // 2
    columns: dict[int, Integers] = {}
    for index, values in answers.items():
        try:
            columns[index] = Integers.of(values, size)
        except OverflowError:
            columns[index] = Integers.of([], size)
        right = len(columns[index]) == len(ciphertexts) and columns[index].all_below(n)
        if not right or not residues.all_units(columns[index], n):
            raise PeerError("threshold key", f"share {index} gives no units modulo n")
    delta = factorial(sites)
    # w^-1 = below / above, where lambda_i > 0 and where lambda_i < 0
    above, below = ([Integers.of([1] * len(ciphertexts), size)] for _ in range(2))
    for index, column in columns.items():
        weight = _lagrange(index, list(columns), delta)
        (above if weight > 0 else below).append(residues.powers(column, abs(weight), n))
    inverses = [int(invert(x, n)) for x in residues.products(above, n)]
    roots = residues.products([*below, Integers.of(inverses, size)], n)
    shift = 2 * delta * delta
    shifted = residues.split_powers(Integers.of(ciphertexts, 2 * size), shift, n)
    blinds = residues.split_powers(roots, n, n)
    unshift = invert(shift, n)
    plaintexts: list[int] = []
    for e, f, a, b in zip(*shifted, *blinds, strict=True):
        carry, one = divmod(mpz(e) * a, n)  # (e + f n) (a + b n) = one + (carry + e b + f a) n
        if one != 1:
            raise ProtocolAbort(
                "threshold_paillier",
                "the partial decryptions do not fit together: at least one of them is wrong",
                "Nothing was released. Run again; the answers do not show whose is wrong.",
            )
        plaintexts.append(int((carry + mpz(e) * b + mpz(f) * a) * unshift % n))
    return Integers.of(plaintexts, size)


def answers_from_bytes(public: PublicKey, sender: str, data: object, count: int) -> Integers:
    """Return the `count` numbers, not yet checked, of an answer's bytes. Raises `PeerError`."""
    size = public.ciphertext_bytes // 2
    if not isinstance(data, bytes) or len(data) != count * size:
        raise PeerError(sender, f"{count} partial decryptions have {count * size} bytes")
    return Integers.from_bytes(data, size)


def _prime(bits: int, random: RandomBytes) -> int:
    """Return a prime 2 a b + 1 of `bits` bits, the two highest set: (7/8)^2 > 3/4."""
    b = _odd(bits - AUXILIARY_BITS - 1, random)
    while not is_prime(b, _ROUNDS):
        b = _odd(bits - AUXILIARY_BITS - 1, random)
    while True:
        a = _odd(AUXILIARY_BITS, random)
        p = 2 * a * b + 1
        if is_prime(a) and is_prime(p, _ROUNDS) and is_prime(a, _ROUNDS):
            return p


def _odd(bits: int, random: RandomBytes) -> int:
    """Return a uniform odd number of `bits` bits with the three highest set."""
    return random_below(1 << bits, random) | 0b111 << (bits - 3) | 1


def _evaluate(coefficients: Sequence[int], x: int, m: int) -> int:
    """Return the polynomial's value at x modulo m; the constant term comes first."""
    return reduce(lambda value, coefficient: (value * x + coefficient) % m, coefficients[::-1], 0)


def _lagrange(index: int, points: Sequence[int], delta: int) -> int:
    """Return delta times the weight of f(index) in f(0): whole, as delta is a factorial."""
    others = [point for point in points if point != index]
    return delta * prod(others) // prod(other - index for other in others)
