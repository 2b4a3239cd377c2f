"""Keys of the Paillier cryptosystem with Damgard-Jurik-Nielsen randomisers: making and checking.

Sources: P. Paillier, "Public-key cryptosystems based on composite degree residuosity classes"
(EUROCRYPT 1999), with g = n + 1; I. Damgard, M. Jurik, J. B. Nielsen, "A generalization of
Paillier's public-key system with applications to electronic voting" (Int. J. Information Security
9, 2010), section 4.1, for the modulus and for h_s.

A key pair is p = q = 3 (mod 4) with gcd(p-1, q-1) = 2, n = pq, and h_s = h^n mod n^2 for
h = -x^2 mod n with a random unit x: an n-th residue, thus an encryption of zero, whose powers are
the randomisers. Under these conditions -1 is a non-square of Jacobi symbol +1, so h is one too.
Keys of other makers (phe among them) have no h_s and may have any odd p and q: they are used with
the classical randomisers r^n.

Whoever makes a key can decrypt everything under it, so the maker is trusted by all who use it.
The checks below catch damaged and mismatched keys; a public key alone cannot be shown to be a
product of two primes, nor h_s to be an n-th residue. A maker who searches for composites that pass
the primality test (`_is_prime`) would only spoil keys that it holds anyway. Sizes: 3072 bits for
the 128-bit level, 2048 for 112 (NIST SP 800-57 part 1); shorter keys are refused. Keys are not
wiped from memory.
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
MAX_BITS = 16384  # a longer foreign modulus would only serve to keep us busy

_ROUNDS = 50  # of Miller-Rabin: see `_is_prime`


@dataclass(frozen=True)
class PublicKey:
    """Modulus n, and h_s in [2, n^2) or None for keys that were made without it."""

    n: int
    h_s: int | None = None

    @property
    def bits(self) -> int:
        """Length of n."""
        return self.n.bit_length()

    @property
    def ciphertext_bytes(self) -> int:
        """Length of a ciphertext, an integer modulo n^2, on the wire."""
        return 2 * ((self.bits + 7) // 8)


@dataclass(frozen=True)
class PrivateKey:
    """The primes p and q of `public.n`; left out of `repr`, so that no log or error shows them."""

    public: PublicKey
    p: int = field(repr=False)
    q: int = field(repr=False)


def generate_keypair(
    bits: int, random: RandomBytes, *, insecure_for_tests: bool = False
) -> PrivateKey:
    """Return a fresh key, its public half in `.public`, whose modulus has exactly `bits` bits.

    bits: even, at least 2048 (shorter, down to 16, only with `insecure_for_tests`)

    p and q are uniform among the primes of bits/2 bits that are 3 (mod 4) and have both top bits
    set (so that n has its full length), subject to gcd(p-1, q-1) = 2.
    Raises `UsageError` for other lengths.
    """
    if bits % 2 or not (16 if insecure_for_tests else MIN_BITS) <= bits <= MAX_BITS:
        raise UsageError(
            "paillier key",
            f"a modulus of {bits} bits",
            f"Use an even length from {MIN_BITS} to {MAX_BITS}; {DEFAULT_BITS} is the default.",
        )
    p = _random_prime(bits // 2, random)
    q = _random_prime(bits // 2, random, beside=p)
    n = p * q
    x = random_unit(n, random)
    h = n - x * x % n
    return PrivateKey(PublicKey(n, int(powmod(h, n, n * n))), p, q)


def check_public_key(key: PublicKey, *, insecure_for_tests: bool = False) -> None:
    """Raise `PeerError` unless `key`, from another party, can be used to encrypt and add."""
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
    """Raise `PeerError` unless `key`, from another party, decrypts what its public half encrypts.

    p and q must be distinct probable primes (see `_ROUNDS`) of one length with pq = n, not so
    close that Fermat's method finds them (FIPS 186-5, appendix A.1.3). The one length implies
    gcd(n, phi(n)) = 1, which Paillier needs: p could divide q - 1 only if q > 2 p. Where there is
    h_s, it must encrypt zero. Costs about 0.1 s at 3072 bits, the first time in a process.
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


def _random_prime(bits: int, random: RandomBytes, beside: int = 3) -> int:
    """Return a uniform prime q that is 3 (mod 4), of `bits` bits with the two highest set.

    beside: p, for q uniform among those with q != p and gcd(p-1, q-1) = 2; all are beside 3
    """
    while True:
        candidate = random_below(1 << bits, random) | 0b11 << (bits - 2) | 0b11
        # The cheap tests come first; whoever fails one is drawn again, in whatever order they come.
        fits = candidate != beside and gcd(beside - 1, candidate - 1) == 2
        if fits and is_prime(candidate) and _is_prime(candidate):
            return candidate


# Facts about private keys, each worked out once a process: where sites share one, as in a
# simulation, each of them checks the same key, to the same end. What is kept are p, q and h_s of
# the last two keys, which the tables for encryption hold anyway.


@lru_cache(maxsize=4)
def _is_prime(candidate: int) -> bool:
    """Return whether an odd candidate passes GMP's test (Baillie-PSW), then 50 of Miller-Rabin.

    A composite passes a round of Miller-Rabin for at most a quarter of all bases: 50 of them with
    4^-50 = 2^-100. GMP would take the same bases for everybody, and whoever knows them can build
    composites that pass (Albrecht, Massimo, Paterson, Somorovsky, "Prime and prejudice", CCS 2018).
    Here they are a hash of the candidate: as good as random to whoever cannot steer the hash, so
    that a maker of composites has to try 2^100 of them. A *random* candidate of 1024 bits is far
    less likely still to be a composite that passes (Damgard, Landrock, Pomerance, Mathematics of
    Computation 61, 1993).
    """
    return bool(is_prime(candidate)) and passes_miller_rabin(candidate, _ROUNDS)


def passes_miller_rabin(candidate: int, rounds: int) -> bool:
    """Return whether an odd number from 3 on is a strong probable prime to so many hashed bases."""
    size = (candidate.bit_length() + 7) // 8
    longer = size + 16  # so that the remainders are uniform up to 2^-128
    stream = shake_256(b"secagg prime test 1" + candidate.to_bytes(size, "little"))
    drawn = Integers.from_bytes(stream.digest(rounds * longer), longer)
    bases = Integers.of([1 + x % (candidate - 1) for x in drawn], size)
    twos = ((candidate - 1) & (1 - candidate)).bit_length() - 1
    for x in residues.powers(bases, (candidate - 1) >> twos, candidate):
        chain = [int(powmod(x, 1 << i, candidate)) for i in range(twos)]
        if x != 1 and candidate - 1 not in chain:
            return False
    return True


@lru_cache(maxsize=4)
def _decrypts_to_zero(h_s: int, prime: int) -> bool:
    return bool(powmod(h_s, prime - 1, prime * prime) == 1)
