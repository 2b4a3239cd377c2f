"""Keys: the form Damgard, Jurik and Nielsen ask for, and every way a foreign key may be damaged."""

from __future__ import annotations

import math
from collections.abc import Callable
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


def small_key(seed: int, bits: int = 64) -> PrivateKey:
    return generate_keypair(bits, replayable_random(seed), insecure_for_tests=True)


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


def test_keys_differ_with_the_randomness_and_repeat_with_it() -> None:
    assert small_key(1) == small_key(1)
    assert small_key(1) != small_key(2)


@pytest.mark.parametrize("bits", [1024, 2047, 2049, 1 << 20, 0, -2048])
def test_other_lengths_are_refused(bits: int) -> None:
    with pytest.raises(UsageError):
        generate_keypair(bits, replayable_random(0))


def test_short_keys_pass_the_checks_only_on_request() -> None:
    check_private_key(TINY, insecure_for_tests=True)
    with pytest.raises(PeerError):
        check_private_key(TINY)
    with pytest.raises(PeerError):
        check_public_key(TINY.public)


def test_repr_does_not_show_the_primes(key: PrivateKey) -> None:
    assert str(key.p) not in repr(key)
    assert str(key.q) not in repr(key)


@pytest.mark.parametrize(
    "damage",
    [
        lambda k: replace(k, n=float(k.n % 10**9)),
        lambda k: replace(k, n=True),
        lambda k: replace(k, n=-k.n),
        lambda k: replace(k, n=k.n + 1),
        lambda k: replace(k, n=k.n | 1 << 20000),
        lambda k: replace(k, h_s=str(k.h_s)),
        lambda k: replace(k, h_s=0),
        lambda k: replace(k, h_s=1),
        lambda k: replace(k, h_s=1 + k.n),
        lambda k: replace(k, h_s=k.n**2 - 1),
        lambda k: replace(k, h_s=k.n),
        lambda k: replace(k, h_s=k.h_s + k.n**2),
    ],
)
def test_damaged_public_keys_are_refused(
    key: PrivateKey, damage: Callable[[PublicKey], PublicKey]
) -> None:
    check_public_key(key.public)
    with pytest.raises(PeerError):
        check_public_key(damage(key.public))


def test_h_s_of_jacobi_symbol_minus_one_is_refused(key: PrivateKey) -> None:
    def square(x: int, prime: int) -> bool:
        return pow(x, (prime - 1) // 2, prime) == 1

    n = key.public.n
    x = next(x for x in count(2) if square(x, key.p) != square(x, key.q))
    with pytest.raises(PeerError, match="form"):
        check_public_key(PublicKey(n, pow(x, n, n * n)))


def composite_pair(key: PrivateKey) -> PrivateKey:
    """n = p (q + 2) without h_s: everything fits but the second factor is composite (or 5 | it)."""
    q = next(q for q in count(key.q + 2, 2) if any(q % small == 0 for small in (3, 5, 7)))
    return PrivateKey(PublicKey(key.p * q), key.p, q)


@pytest.mark.parametrize(
    "damage",
    [
        lambda k: replace(k, p=float(2)),
        lambda k: replace(k, p=-k.p, q=-k.q),
        lambda k: replace(k, p=1, q=k.public.n),
        lambda k: replace(k, q=k.q + 2),
        lambda k: PrivateKey(PublicKey(k.p**2), k.p, k.p),
        composite_pair,
        lambda k: PrivateKey(PublicKey(k.p * (k.p + 2)), k.p, k.p + 2),
        # h_s must be an n-th residue: this one encrypts 1, so every ciphertext would be wrong
        lambda k: replace(k, public=replace(k.public, h_s=k.public.h_s * (1 + k.public.n))),
        lambda k: replace(k, public=replace(k.public, h_s=k.public.h_s * 4 % k.public.n**2)),
    ],
)
def test_damaged_private_keys_are_refused(
    key: PrivateKey, damage: Callable[[PrivateKey], PrivateKey]
) -> None:
    with pytest.raises(PeerError):
        check_private_key(damage(key))


def test_a_key_is_checked_once_a_process_and_a_damaged_one_still_refused(key: PrivateKey) -> None:
    check_private_key(key)
    before = keys._is_prime.cache_info()
    check_private_key(replace(key))
    after = keys._is_prime.cache_info()
    assert (after.misses, after.hits) == (before.misses, before.hits + 2)
    with pytest.raises(PeerError, match="not prime"):
        check_private_key(composite_pair(key))
    with pytest.raises(PeerError, match="integers"):
        check_private_key(PrivateKey(key.public, mpz(key.p), mpz(key.q)))  # type: ignore[arg-type]  # equal, and so found among what is kept


@pytest.mark.usefixtures("arithmetic")
def test_miller_rabin_tells_primes_from_composites() -> None:
    """Oracle: trial division. A composite that passed 50 rounds would be one in 2^100."""
    for candidate in range(3, 3000, 2):
        prime = all(candidate % d for d in range(3, math.isqrt(candidate) + 1, 2))
        assert keys.passes_miller_rabin(candidate, 50) == prime


def test_the_worst_composites_pass_a_round_one_time_in_four_but_not_fifty() -> None:
    """(k + 1)(2 k + 1) of primes, k = 2 modulo 4: nearly a quarter of all bases lie (Monier 1980).

    Of 400 with one base each, 100 pass, give or take 9 (binomial); 6 times that are 54.
    """
    pairs = (k for k in count(10**6 + 2, 4) if is_prime(k + 1) and is_prime(2 * k + 1))
    composites = [(k + 1) * (2 * k + 1) for k in islice(pairs, 400)]
    assert 46 <= sum(keys.passes_miller_rabin(n, 1) for n in composites) <= 154
    assert not any(keys.passes_miller_rabin(n, 50) for n in composites)


def test_a_square_is_refused_whatever_its_size() -> None:
    with pytest.raises(PeerError, match="differ"):
        check_private_key(PrivateKey(PublicKey(19 * 19), 19, 19), insecure_for_tests=True)


def test_primes_that_fermat_would_find_are_refused() -> None:
    # Two primes of 128 bits, 2^12 apart or less: below 2^(128 - 100).
    p = int(next_prime(0b11 << 126))
    q = int(next_prime(p))
    with pytest.raises(PeerError, match="too close"):
        check_private_key(PrivateKey(PublicKey(p * q), p, q), insecure_for_tests=True)


def test_common_factor_of_n_and_phi_is_refused() -> None:
    # 7 divides 29 - 1, which takes primes of different lengths
    with pytest.raises(PeerError, match="length"):
        check_private_key(PrivateKey(PublicKey(7 * 29), 7, 29), insecure_for_tests=True)
