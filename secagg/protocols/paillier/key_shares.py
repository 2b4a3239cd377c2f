"""Threshold Paillier: K sites hold shares of a key; any t of them decrypt, t - 1 learn nothing.

Sources: V. Shoup, "Practical threshold signatures" (EUROCRYPT 2000), its first protocol, for the
sharing; P. Paillier, "Public-key cryptosystems based on composite degree residuosity classes"
(EUROCRYPT 1999), section 6, for decryption by an n-th root. c is a ciphertext of the plaintext M
with randomiser r^n. With m = (p-1)(q-1)/4, D = n^-1 mod m and delta = K!:

    f(x) = D + a_1 x + ... + a_(t-1) x^(t-1) with uniform a_i in Z_m; site i holds s_i = f(i) mod m.
    Its partial decryption of c is x_i = (c mod n)^(2 delta s_i) mod n. Any t of these give
    w = product of x_i^(lambda_i) = r^(2 delta^2) mod n, with the integers
    lambda_i = delta * product of j / (j - i) over the other points j. Then
    c^(2 delta^2) w^-n = 1 + 2 delta^2 M n modulo n^2.

**A false partial decryption cannot change a sum.** The last line is 1 modulo n if and only if w is
correct, and `combine` checks this. If the check passes, M is the plaintext of c. So sites need not
send proofs.

**t - 1 sites and the coordinator learn only sums**, if all follow the protocol. The t - 1 shares
are uniform and independent of D. The other partial decryptions can be computed from these shares
and r. Finally, r is a product of randomisers, which are uniform under the assumptions of
`cryptosystem`. The proofs are in docs/math/threshold-decryption.md.

Not protected:

* The site that makes the key knows the key, and is trusted to delete it.
* A share decrypts *any* ciphertext. So its holder must check that the product contains a fresh
  ciphertext of an honest site, and that the other ciphertexts do not depend on it. A malicious
  *contributing* site can send, for example, a power of another site's ciphertext. Only proofs of
  knowledge would prevent this, and none are sent.
* A false partial decryption stops a sum, and nobody learns which site sent it.
* Timing: as in `cryptosystem`.
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
from secagg.protocols.paillier.keys import PrivateKey, PublicKey, check_length, random_unit

AUXILIARY_BITS = 256
_ROUNDS = 24 + 50  # GMP: Baillie-PSW, then 50 of Miller-Rabin; error probability at most 4^-50


@dataclass(frozen=True)
class KeyShare:
    """One site's share of the private key.

    public: the public key
    sites: K, the number of shares
    index: number of this share, from 1 to K
    value: the share itself, which `repr` does not show
    """

    public: PublicKey
    sites: int
    index: int
    value: int = field(repr=False)


def generate_keypair(bits: int, random: RandomBytes) -> PrivateKey:
    """Return a fresh key as in `keys.generate_keypair`, but with primes p = 2 a b + 1.

    Here a and b are primes, and a has 256 bits. So p - 1 has an auxiliary prime factor of known
    size (as in FIPS 186-5, appendix A.1.6), and no small factor except 2. The usual safe primes
    (a = 1) would be possible too, but finding them takes ten times as long. (At 3072 bits this is
    12 s of processor time on average instead of 1.2 s.)

    bits: length of n, an even number within the limits of `keys`. Raises `UsageError` otherwise
    """
    check_length(bits)
    p, q = _prime(bits // 2, random), _prime(bits // 2, random)
    while gcd(p - 1, q - 1) != 2:  # p = q, or one of the four large primes is repeated
        q = _prime(bits // 2, random)
    n = p * q
    h = n - random_unit(n, random) ** 2 % n
    return PrivateKey(PublicKey(n, int(powmod(h, n, n * n))), p, q)


def share_key(key: PrivateKey, sites: int, threshold: int, random: RandomBytes) -> list[KeyShare]:
    """Return the shares of sites 1 to `sites`, any `threshold` of which decrypt.

    Raises `UsageError` if the threshold is not between 1 and `sites`, or if the key is unsuitable.
    A key is unsuitable if m = (p-1)(q-1)/4 is not an integer, if m has a prime factor up to `sites`
    (shares would not be independent), or if m and n have a common factor (n-th roots would not
    exist).
    """
    m, remainder = divmod((key.p - 1) * (key.q - 1), 4)
    if not 1 <= threshold <= sites:
        raise UsageError(
            "threshold key", f"the threshold must be from 1 to {sites} (sites), not {threshold}"
        )
    if remainder or gcd(m, key.public.n * factorial(sites)) != 1:
        raise UsageError("threshold key", f"p - 1 or q - 1 is unsuitable for {sites} sites")
    root = int(invert(key.public.n, m))
    coefficients = [root, *(random_below(m, random) for _ in range(threshold - 1))]
    return [
        KeyShare(key.public, sites, index, _evaluate(coefficients, index, m))
        for index in range(1, sites + 1)
    ]


def check_share(share: KeyShare) -> None:
    """Raise `PeerError` if a share from another party is out of range.

    This does not check that the share fits the other shares. `combine` checks this.
    """
    if not (0 <= share.value < share.public.n >> 2 and 1 <= share.index <= share.sites):
        raise PeerError("threshold key", "a share is out of range")


def partially_decrypt(share: KeyShare, ciphertexts: Sequence[int]) -> Integers:
    """Return this site's partial decryptions x_i, units modulo n, one for each ciphertext.

    ciphertexts: checked units modulo n^2, as returned by `cryptosystem.multiply`
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
    """Return the plaintexts, in [0, n), from the partial decryptions of `threshold` sites.

    sites: K, the number of shares
    answers: for the index of each site that answered, its partial decryptions of all ciphertexts
    ciphertexts: checked units modulo n^2, as returned by `cryptosystem.multiply`
    Raises `PeerError` for malformed answers. Raises `ProtocolAbort` if an answer is false or if
    there are too few answers.
    """
    n, size = public.n, public.ciphertext_bytes // 2
    columns: dict[int, Integers] = {}
    for index, values in answers.items():
        try:
            columns[index] = Integers.of(values, size)
        except OverflowError:
            columns[index] = Integers.of([], size)
        in_range = len(columns[index]) == len(ciphertexts) and columns[index].all_below(n)
        if not in_range or not residues.all_units(columns[index], n):
            raise PeerError(
                "threshold key", f"the partial decryptions with share {index} are malformed"
            )
    delta = factorial(sites)
    # w^-1 = denominator / numerator: the factors with lambda_i < 0, and those with lambda_i > 0
    numerator, denominator = ([Integers.of([1] * len(ciphertexts), size)] for _ in range(2))
    for index, column in columns.items():
        weight = _lagrange(index, list(columns), delta)
        factors = numerator if weight > 0 else denominator
        factors.append(residues.powers(column, abs(weight), n))
    inverses = [int(invert(x, n)) for x in residues.products(numerator, n)]
    inverse_roots = residues.products([*denominator, Integers.of(inverses, size)], n)
    exponent = 2 * delta * delta
    blinded = residues.split_powers(Integers.of(ciphertexts, 2 * size), exponent, n)
    unblinding = residues.split_powers(inverse_roots, n, n)
    inverse_exponent = invert(exponent, n)
    plaintexts: list[int] = []
    for e, f, a, b in zip(*blinded, *unblinding, strict=True):
        carry, one = divmod(mpz(e) * a, n)  # (e + f n) (a + b n) = one + (carry + e b + f a) n
        if one != 1:
            raise ProtocolAbort(
                "threshold_paillier",
                "the partial decryptions are inconsistent: at least one of them is wrong",
                "Nothing was released. Run again; secagg cannot tell which site's is wrong.",
            )
        plaintexts.append(int((carry + mpz(e) * b + mpz(f) * a) * inverse_exponent % n))
    return Integers.of(plaintexts, size)


def answers_from_bytes(public: PublicKey, sender: str, data: object, count: int) -> Integers:
    """Return the `count` partial decryptions in `data`, not yet checked. Raises `PeerError`."""
    size = public.ciphertext_bytes // 2
    if not isinstance(data, bytes) or len(data) != count * size:
        raise PeerError(
            sender, f"malformed message: {count} partial decryptions must have {count * size} bytes"
        )
    return Integers.from_bytes(data, size)


def _prime(bits: int, random: RandomBytes) -> int:
    """Return a prime 2 a b + 1 of `bits` bits with the two highest set, as (7/8)^2 > 3/4."""
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
    """Return the value of a polynomial at x modulo m; coefficients from the constant term up."""
    return reduce(lambda value, coefficient: (value * x + coefficient) % m, coefficients[::-1], 0)


def _lagrange(index: int, points: Sequence[int], delta: int) -> int:
    """Return delta times the Lagrange weight of f(index) in f(0): an integer, as delta = K!."""
    others = [point for point in points if point != index]
    return delta * prod(others) // prod(other - index for other in others)
