"""Make and check keys of the Paillier cryptosystem with Damgård-Jurik-Nielsen randomisers.

Sources: P. Paillier, "Public-key cryptosystems based on composite degree residuosity classes"
(EUROCRYPT 1999), with g = n + 1; I. Damgård, M. Jurik, J. B. Nielsen, "A generalization of
Paillier's public-key system with applications to electronic voting" (Int. J. Information Security
9, 2010), section 4.1, for the modulus and for h_s.

A key pair consists of primes p = q = 3 (mod 4) with gcd(p-1, q-1) = 2, n = pq, and h_s = h^n mod
n^2 for h = -x^2 mod n with a random unit x. h_s is an n-th residue and so an encryption of zero;
its powers are the randomisers. Under these conditions -1 is a non-square of Jacobi symbol +1, and
so is h. Keys from other software (such as phe) have no h_s and may have any odd p and q; they are
used with the classical randomisers r^n.

Threat model: all users of a key trust the site that made it, which can decrypt everything. The
checks below detect damaged keys and keys that do not match. From a public key alone, nobody can see
that n has two prime factors, or that h_s is an n-th residue. The maker of a key could search for
composite numbers that pass the primality test (`_is_prime`), but would only weaken keys that it
knows anyway.

A modulus of 3072 bits gives 128-bit security, and 2048 bits give 112-bit security (NIST SP 800-57
part 1). Shorter keys are refused.

Not protected: keys are not erased from memory.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import lru_cache
from hashlib import shake_256

from gmpy2 import gcd, is_prime, jacobi, powmod

from secagg.core.randomness import RandomBytes, random_below
from secagg.errors import PeerError, UsageError
from secagg.protocols.paillier import residues
from secagg.protocols.paillier.integers import Integers

DEFAULT_BITS = 3072
MIN_BITS = 2048
MAX_BITS = 16384  # limits the work that a key of another party can cause

_ROUNDS = 50  # of Miller-Rabin; see `_is_prime`


@dataclass(frozen=True)
class PublicKey:
    """A public key: the modulus n, and h_s in [2, n^2), or None for keys made without h_s."""

    n: int
    h_s: int | None = None

    @property
    def bits(self) -> int:
        return self.n.bit_length()

    @property
    def ciphertext_bytes(self) -> int:
        """Length of an encoded ciphertext (an integer modulo n^2) in bytes."""
        return 2 * ((self.bits + 7) // 8)


@dataclass(frozen=True)
class PrivateKey:
    """A private key: the prime factors p and q of `public.n`.

    They are not in `repr`, so no log and no error shows them.
    """

    public: PublicKey
    p: int = field(repr=False)
    q: int = field(repr=False)


def check_length(
    bits: int,
    where: str = "paillier key",
    error: type[UsageError] = UsageError,
    minimum: int = MIN_BITS,
) -> None:
    """Raise an error if this length of a modulus, in bits, is not supported."""
    if bits % 2 or not minimum <= bits <= MAX_BITS:
        raise error(
            where,
            f"must be an even number of bits from {MIN_BITS} to {MAX_BITS}, not {bits}",
            f"The default is {DEFAULT_BITS}.",
        )


def generate_keypair(
    bits: int, random: RandomBytes, *, insecure_for_tests: bool = False
) -> PrivateKey:
    """Return a fresh key whose modulus has exactly `bits` bits. Its public key is in `.public`.

    bits: even, at least 2048 (or, with `insecure_for_tests`, at least 16)

    p and q are uniform among the primes of bits/2 bits that are 3 (mod 4) and have both top bits
    set (so that n has its full length), subject to gcd(p-1, q-1) = 2.
    Raises `UsageError` for other lengths.
    """
    check_length(bits, minimum=16 if insecure_for_tests else MIN_BITS)
    p = _random_prime(bits // 2, random)
    q = _random_prime(bits // 2, random, other=p)
    n = p * q
    x = random_unit(n, random)
    h = n - x * x % n
    return PrivateKey(PublicKey(n, int(powmod(h, n, n * n))), p, q)


def check_public_key(key: PublicKey, *, insecure_for_tests: bool = False) -> None:
    """Raise `PeerError` if a key from another party cannot be used to encrypt and add."""
    n, h_s = key.n, key.h_s
    if type(n) is not int or (h_s is not None and type(h_s) is not int):
        raise _refusal("n and h_s must be integers")
    if not (2 if insecure_for_tests else MIN_BITS) <= n.bit_length() <= MAX_BITS or n < 0:
        raise _refusal(f"the modulus must have {MIN_BITS} to {MAX_BITS} bits")
    if n % 2 == 0:
        raise _refusal("the modulus is even")
    if h_s is None:
        return
    if not 1 < h_s < n * n or jacobi(h_s, n) == 0:
        raise _refusal("h_s is not a unit modulo n^2")
    if h_s % n in (1, n - 1) or jacobi(h_s, n) == -1:
        raise _refusal("h_s is not of the form (-x^2)^n")


def check_private_key(key: PrivateKey, *, insecure_for_tests: bool = False) -> None:
    """Raise `PeerError` if a private key from another party does not fit its public key.

    p and q must be different probable primes (see `_is_prime`) of equal length with pq = n. They
    must not be so close that Fermat's method finds them (FIPS 186-5, appendix A.1.3). Paillier
    requires gcd(n, phi(n)) = 1, which follows from equal length, since p can divide q - 1 only if
    q > 2 p. If there is an h_s, it must encrypt zero. The first check of a key of 3072 bits takes
    about 0.1 s; then the result is cached.
    """
    check_public_key(key.public, insecure_for_tests=insecure_for_tests)
    n, h_s, p, q = key.public.n, key.public.h_s, key.p, key.q
    if type(p) is not int or type(q) is not int:
        raise _refusal("p and q must be integers")
    if p < 3 or q < 3 or p * q != n:
        raise _refusal("p q is not n")
    if p == q or p.bit_length() != q.bit_length():
        raise _refusal("p and q must differ and have the same length")
    if abs(p - q).bit_length() <= p.bit_length() - 100:
        raise _refusal("p and q are too close to each other")
    if not (_is_prime(p) and _is_prime(q)):
        raise _refusal("p or q is not prime")
    if h_s is not None and not (_decrypts_to_zero(h_s, p) and _decrypts_to_zero(h_s, q)):
        raise _refusal("h_s does not encrypt zero")


def random_unit(n: int, random: RandomBytes) -> int:
    """Return a uniform unit modulo n."""
    while True:
        x = random_below(n, random)
        if gcd(x, n) == 1:
            return x


def _refusal(what: str) -> PeerError:
    return PeerError("paillier key", what, "Make a new key with secagg.")


def _random_prime(bits: int, random: RandomBytes, other: int = 3) -> int:
    """Return a uniform prime q = 3 (mod 4) of `bits` bits with the two highest bits set.

    other: a prime p. q is uniform among the primes with q != p and gcd(p-1, q-1) = 2. The default 3
        excludes no prime
    """
    while True:
        candidate = random_below(1 << bits, random) | 0b11 << (bits - 2) | 0b11
        # Cheap tests first; the order does not change which candidate is accepted.
        fits = candidate != other and gcd(other - 1, candidate - 1) == 2
        if fits and is_prime(candidate) and _is_prime(candidate):
            return candidate


# Checks of private keys are cached, because many sites in one process may check the same key. The
# caches contain p, q and h_s of the last two keys. The tables for encryption contain these anyway.


@lru_cache(maxsize=4)
def _is_prime(candidate: int) -> bool:
    """Return whether an odd number passes GMP's test (Baillie-PSW) and 50 rounds of Miller-Rabin.

    A composite number passes one round for at most a quarter of all bases, so it passes 50 rounds
    with probability at most 4^-50 = 2^-100. GMP's bases are fixed, and an attacker that knows the
    bases can construct composites that pass (Albrecht, Massimo, Paterson, Somorovsky, "Prime and
    prejudice", CCS 2018). Therefore `passes_miller_rabin` uses a hash of the candidate as bases, so
    an attacker must try 2^100 composites. A *random* composite of 1024 bits is far less likely to
    pass (Damgård, Landrock, Pomerance, Mathematics of Computation 61, 1993).
    """
    return bool(is_prime(candidate)) and passes_miller_rabin(candidate, _ROUNDS)


def passes_miller_rabin(candidate: int, rounds: int) -> bool:
    """Return whether an odd number >= 3 is a strong probable prime to `rounds` hashed bases."""
    size = (candidate.bit_length() + 7) // 8
    hash_size = size + 16  # the remainders are then uniform up to 2^-128
    stream = shake_256(b"secagg prime test 1" + candidate.to_bytes(size, "little"))
    hashes = Integers.from_bytes(stream.digest(rounds * hash_size), hash_size)
    bases = Integers.of([1 + x % (candidate - 1) for x in hashes], size)
    twos = ((candidate - 1) & (1 - candidate)).bit_length() - 1
    for x in residues.powers(bases, (candidate - 1) >> twos, candidate):
        squares = [int(powmod(x, 1 << i, candidate)) for i in range(twos)]
        if x != 1 and candidate - 1 not in squares:
            return False
    return True


@lru_cache(maxsize=4)
def _decrypts_to_zero(h_s: int, prime: int) -> bool:
    return bool(powmod(h_s, prime - 1, prime * prime) == 1)
