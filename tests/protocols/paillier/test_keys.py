"""Keys: the form of Damgård, Jurik and Nielsen, and the ways in which a key may be damaged."""

import math
from dataclasses import replace
from itertools import count, islice

import pytest
from gmpy2 import is_prime, mpz, next_prime

from secagg.core.randomness import replayable_random
from secagg.errors import PeerError, UsageError
from secagg.protocols.paillier import keys
from secagg.protocols.paillier.keys import (
    PrivateKey,
    PublicKey,
    check_private_key,
    check_public_key,
    generate_keypair,
)

TINY = PrivateKey(PublicKey(437, 3004), 19, 23)


@pytest.fixture(scope="session")
def key() -> PrivateKey:
    return generate_keypair(2048, replayable_random(1))


@pytest.mark.parametrize("bits", [2048, 3072])
def test_a_generated_key_has_the_stated_form(bits: int) -> None:
    key = generate_keypair(bits, replayable_random(bits))
    p, q, n = key.p, key.q, key.public.n
    assert p * q == n
    assert n.bit_length() == bits
    assert p % 4 == q % 4 == 3
    assert math.gcd(p - 1, q - 1) == 2
    assert key.public.h_s is not None
    for prime in (p, q):
        assert pow(key.public.h_s, prime - 1, prime**2) == 1  # an n-th residue
        assert pow(key.public.h_s, (prime - 1) // 2, prime) == prime - 1  # a non-square
    check_private_key(key)


def test_equal_random_bytes_give_equal_keys() -> None:
    made = [generate_keypair(64, replayable_random(i), insecure_for_tests=True) for i in (1, 1, 2)]
    assert made[0] == made[1] != made[2]


def test_other_lengths_are_refused() -> None:
    for bits in (1024, 2047, 2049, 1 << 20, 0, -2048):
        with pytest.raises(UsageError):
            generate_keypair(bits, replayable_random(0))


def test_short_keys_are_accepted_only_on_request() -> None:
    check_private_key(TINY, insecure_for_tests=True)
    with pytest.raises(PeerError):
        check_private_key(TINY)
    with pytest.raises(PeerError):
        check_public_key(TINY.public)


def test_damaged_public_keys_are_refused(key: PrivateKey) -> None:
    check_public_key(key.public)
    n, h_s = key.public.n, key.public.h_s
    assert h_s is not None
    moduli = (float(n % 10**9), True, -n, n + 1, n | 1 << 20000)
    residues = (str(h_s), 0, 1, 1 + n, n**2 - 1, n, h_s + n**2)
    damaged = [*({"n": bad} for bad in moduli), *({"h_s": bad} for bad in residues)]
    for change in damaged:
        with pytest.raises(PeerError):
            check_public_key(replace(key.public, **change))  # type: ignore[arg-type]  # on purpose


def test_h_s_of_jacobi_symbol_minus_one_is_refused(key: PrivateKey) -> None:
    def square(x: int, prime: int) -> bool:
        return pow(x, (prime - 1) // 2, prime) == 1

    n = key.public.n
    x = next(x for x in count(2) if square(x, key.p) != square(x, key.q))
    with pytest.raises(PeerError):
        check_public_key(PublicKey(n, pow(x, n, n * n)))


def composite_pair(key: PrivateKey) -> PrivateKey:
    """Return a key without h_s that is correct except that its second factor is composite."""
    q = next(q for q in count(key.q + 2, 2) if any(q % small == 0 for small in (3, 5, 7)))
    return PrivateKey(PublicKey(key.p * q), key.p, q)


def test_damaged_private_keys_are_refused(key: PrivateKey) -> None:
    p, q, public = key.p, key.q, key.public
    n, h_s = public.n, public.h_s
    assert h_s is not None
    for damaged in (
        replace(key, p=float(2)),  # type: ignore[arg-type]  # on purpose
        replace(key, p=-p, q=-q),
        replace(key, p=1, q=n),
        replace(key, q=q + 2),
        PrivateKey(PublicKey(p**2), p, p),
        composite_pair(key),
        PrivateKey(PublicKey(p * (p + 2)), p, p + 2),
        # h_s must encrypt 0; the first of these encrypts 1, so every ciphertext would be wrong
        replace(key, public=replace(public, h_s=h_s * (1 + n))),
        replace(key, public=replace(public, h_s=h_s * 4 % n**2)),
    ):
        with pytest.raises(PeerError):
            check_private_key(damaged)


def test_checks_are_cached_and_damaged_keys_still_refused(key: PrivateKey) -> None:
    check_private_key(key)
    before = keys._is_prime.cache_info()
    check_private_key(replace(key))
    after = keys._is_prime.cache_info()
    assert (after.misses, after.hits) == (before.misses, before.hits + 2)
    for damaged in (composite_pair(key), replace(key, p=mpz(key.p))):  # mpz: equal, so cached
        with pytest.raises(PeerError):
            check_private_key(damaged)


@pytest.mark.usefixtures("arithmetic")
def test_miller_rabin_agrees_with_trial_division() -> None:
    for candidate in range(3, 3000, 2):
        prime = all(candidate % d for d in range(3, math.isqrt(candidate) + 1, 2))
        assert keys.passes_miller_rabin(candidate, 50) == prime


def test_the_worst_composites_fail_fifty_miller_rabin_rounds() -> None:
    """(k + 1)(2 k + 1) of primes, k = 2 modulo 4, passes for a quarter of bases (Monier 1980).

    Of 400 with one base each, 100 +- 9 pass (binomial); the limits are 6 standard deviations.
    """
    pairs = (k for k in count(10**6 + 2, 4) if is_prime(k + 1) and is_prime(2 * k + 1))
    composites = [(k + 1) * (2 * k + 1) for k in islice(pairs, 400)]
    assert 46 <= sum(keys.passes_miller_rabin(n, 1) for n in composites) <= 154
    assert not any(keys.passes_miller_rabin(n, 50) for n in composites)


def test_equal_close_or_unsuitable_factors_are_refused() -> None:
    # A square; two primes of 128 bits less than 2^12 apart (Fermat's method finds them: the limit
    # is 2^(128 - 100)); and a common factor of n and phi(n): 7 divides 29 - 1.
    near = int(next_prime(0b11 << 126))
    for p, q in ((19, 19), (near, int(next_prime(near))), (7, 29)):
        with pytest.raises(PeerError):
            check_private_key(PrivateKey(PublicKey(p * q), p, q), insecure_for_tests=True)
