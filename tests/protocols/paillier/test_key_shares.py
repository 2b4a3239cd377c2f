"""Oracles: decryption with the private key, phe, rational Lagrange weights, enumeration."""

from collections.abc import Sequence
from fractions import Fraction
from itertools import combinations, permutations
from math import factorial, gcd, prod

import phe
import pytest
from gmpy2 import is_prime, jacobi, powmod
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from scipy import stats

from secagg.core.randomness import random_below, replayable_random
from secagg.errors import PeerError, ProtocolAbort, UsageError
from secagg.protocols.paillier import cryptosystem
from secagg.protocols.paillier.key_shares import (
    KeyShare,
    _lagrange,
    answers_from_bytes,
    check_share,
    combine,
    generate_keypair,
    partially_decrypt,
    share_key,
)
from secagg.protocols.paillier.keys import (
    PrivateKey,
    PublicKey,
    check_private_key,
    check_public_key,
)
from secagg.protocols.paillier.keys import generate_keypair as ordinary_keypair


def toy_key(p: int, q: int, x: int) -> PrivateKey:
    n = p * q
    return PrivateKey(PublicKey(n, pow(n - x * x % n, n, n * n)), p, q)


TOY = toy_key(1019, 1187, 2)  # safe primes: (p-1)/2 = 509 and (q-1)/2 = 593 are prime
SMALLEST = toy_key(11, 47, 2)  # m = 5 * 23 = 115: shares of up to four sites are uniform


def answers_of(shares: Sequence[KeyShare], ciphertexts: Sequence[int]) -> dict[int, list[int]]:
    return {share.index: list(partially_decrypt(share, ciphertexts)) for share in shares}


# --- any t decrypt --------------------------------------------------------------------------------


@settings(max_examples=20, deadline=None)
@given(data=st.data())
def test_any_threshold_many_sites_decrypt(data: st.DataObject) -> None:
    sites = data.draw(st.integers(1, 7))
    threshold = data.draw(st.integers(1, sites))
    n = TOY.public.n
    edges = st.sampled_from([0, 1, n - 1]) | st.integers(0, n - 1)
    plaintexts = data.draw(st.lists(edges, min_size=1, max_size=3))
    random = replayable_random(data.draw(st.integers(0, 999)))
    shares = share_key(TOY, sites, threshold, random)
    ciphertexts = cryptosystem.encrypt(TOY.public, plaintexts, random)
    assert cryptosystem.decrypt(TOY, ciphertexts) == plaintexts
    for size in range(threshold, sites + 1):
        for some in combinations(shares, size):
            answers = answers_of(list(some), ciphertexts)
            assert combine(TOY.public, sites, answers, ciphertexts) == plaintexts


def test_ciphertexts_with_any_randomiser_decrypt() -> None:
    """Also ciphertexts whose randomiser is not a power of h_s."""
    n = TOY.public.n
    shares = share_key(TOY, 5, 3, replayable_random(1))
    ciphertexts = [(1 + 77 * n) * pow(r, n, n * n) % (n * n) for r in range(2, 60)]
    answers = answers_of(shares[1:4], ciphertexts)
    assert combine(TOY.public, 5, answers, ciphertexts) == [77] * 58


@pytest.mark.oracle
def test_a_generated_key_is_valid_and_its_shares_decrypt() -> None:
    key = generate_keypair(2048, replayable_random(5))
    p, q, n = key.p, key.q, key.public.n
    check_private_key(key)
    check_public_key(key.public)
    assert n.bit_length() == 2048
    assert p % 4 == q % 4 == 3
    assert gcd(p - 1, q - 1) == 2
    for prime in (p, q):
        assert is_prime(prime)
        assert gcd((prime - 1) // 2, factorial(1 << 12)) == 1
    assert key.public.h_s is not None
    assert jacobi(key.public.h_s, n) == 1
    plaintexts = [0, 5, n - 1]
    public = phe.PaillierPublicKey(n)
    theirs = [public.raw_encrypt(m) for m in plaintexts]
    ours = cryptosystem.encrypt(key.public, plaintexts, replayable_random(6))
    shares = share_key(key, 40, 3, replayable_random(7))
    answers = answers_of([shares[0], shares[20], shares[39]], [*ours, *theirs])
    assert combine(key.public, 40, answers, [*ours, *theirs]) == plaintexts * 2


def test_lagrange_weights_agree_with_exact_fractions() -> None:
    for sites in range(1, 8):
        for points in permutations(range(1, sites + 1), min(3, sites)):
            for i in points:
                weight = prod((Fraction(j, j - i) for j in points if j != i), start=Fraction(1))
                assert _lagrange(i, points, factorial(sites)) == factorial(sites) * weight


# --- fewer learn nothing --------------------------------------------------------------------------


def test_fewer_answers_than_the_threshold_do_not_decrypt() -> None:
    random = replayable_random(2)
    shares = share_key(TOY, 5, 3, random)
    ciphertexts = cryptosystem.encrypt(TOY.public, [123], random)
    for some in combinations(shares, 2):
        with pytest.raises(ProtocolAbort):
            combine(TOY.public, 5, answers_of(list(some), ciphertexts), ciphertexts)


def test_two_shares_of_three_are_exactly_uniform() -> None:
    """Over all polynomials, any two shares take each pair of values once.

    m = 115, so a coefficient is one byte, and all random bytes can be enumerated.
    """
    m, every = 115, {(i, j): set[tuple[int, int]]() for i, j in combinations(range(4), 2)}
    for first in range(m):
        for second in range(m):
            coefficients = iter([bytes([first]), bytes([second])])
            shares = share_key(SMALLEST, 4, 3, lambda _, c=coefficients: next(c))
            for (i, j), pairs in every.items():
                pairs.add((shares[i].value, shares[j].value))
    assert all(len(pairs) == m * m for pairs in every.values())


@pytest.mark.statistical
def test_shares_as_drawn_are_uniform() -> None:
    """Chi-square over the 115^2 pairs of values; false alarm once in a million seeds."""
    m, draws, random = 115, 100_000, replayable_random(3)
    counts = [0] * (m * m)
    for _ in range(draws):
        shares = share_key(SMALLEST, 4, 3, random)
        counts[shares[1].value * m + shares[3].value] += 1
    assert stats.chisquare(counts).pvalue > 1e-6


@settings(max_examples=40, deadline=None)
@given(seed=st.integers(0, 999), colluding=st.sets(st.integers(1, 6), min_size=3, max_size=3))
def test_other_answers_follow_from_the_colluding_shares_and_the_randomiser(
    seed: int, colluding: set[int]
) -> None:
    """Part 2 of the proof in docs/math/threshold-decryption.md."""
    random = replayable_random(seed)
    n, sites = TOY.public.n, 6
    shares = {share.index: share for share in share_key(TOY, sites, 4, random)}
    r = random_below(n - 2, random) + 2
    assume(gcd(r, n) == 1)  # the primes of this toy are small enough to be hit
    ciphertext = (1 + 5 * n) * pow(r, n, n * n) % (n * n)
    delta = factorial(sites)
    for i in set(shares) - colluding:
        points = sorted(colluding | {0})
        weights = {
            j: prod((Fraction(i - k, j - k) for k in points if k != j), start=Fraction(delta))
            for j in points
        }
        assert all(weight.denominator == 1 for weight in weights.values())
        answer = powmod(r, 2 * int(weights[0]), n)  # c^(2 D) = r^2: the part of f(0) = D
        for j in colluding:
            answer = answer * powmod(ciphertext, 2 * int(weights[j]) * shares[j].value, n) % n
        assert [answer] == partially_decrypt(shares[i], [ciphertext])


# --- wrong answers --------------------------------------------------------------------------------


@settings(max_examples=80, deadline=None)
@given(seed=st.integers(0, 999), liar=st.integers(0, 2), which=st.integers(0, 1), data=st.data())
def test_a_wrong_answer_never_changes_a_plaintext(
    seed: int, liar: int, which: int, data: st.DataObject
) -> None:
    random = replayable_random(seed)
    n = TOY.public.n
    shares = share_key(TOY, 5, 3, random)[1:4]
    ciphertexts = cryptosystem.encrypt(TOY.public, [7, 8], random)
    answers = answers_of(shares, ciphertexts)
    true = answers[liar + 2][which]
    lie = data.draw(st.sampled_from([n - true, true * true % n, 1, 0, n]) | st.integers(0, n))
    answers[liar + 2][which] = lie
    try:
        found = combine(TOY.public, 5, answers, ciphertexts)
    except ProtocolAbort:
        assert lie != true
        return
    assert found == [7, 8]  # the lie can have the same effect, as -x where x is squared


def test_malformed_answers_are_refused() -> None:
    public, shares = TOY.public, share_key(TOY, 3, 2, replayable_random(1))
    ciphertexts = cryptosystem.encrypt(public, [7, 8], replayable_random(2))
    good = answers_of(shares[:2], ciphertexts)
    for wrong in ([1], [1, 2, 3], [0, 1], [public.n, 1], [-1, 1], [TOY.p, 1]):
        with pytest.raises(PeerError):
            combine(public, 3, {**good, 2: wrong}, ciphertexts)
    answers = partially_decrypt(shares[0], [2, 3, 5])
    data = answers.to_bytes()
    assert len(data) == 3 * 3  # n has 21 bits
    assert answers_from_bytes(public, "site_1", data, 3) == answers
    for malformed in (data[:-1], data + b"\0", b"", None, "text"):
        with pytest.raises(PeerError) as caught:
            answers_from_bytes(public, "site_1", malformed, 3)
        assert caught.value.where == "site_1"


# --- arguments that are refused -------------------------------------------------------------------


def test_unsuitable_lengths_thresholds_and_keys_are_refused() -> None:
    random = replayable_random(1)
    for bits in (2047, 1024, 20_000):
        with pytest.raises(UsageError):
            generate_keypair(bits, random)
    share_key(SMALLEST, 4, 2, random)
    for key, sites, threshold in (
        (TOY, 3, 0),
        (TOY, 3, 4),
        (TOY, 0, 0),
        (SMALLEST, 5, 2),  # 5 divides m
        (toy_key(13, 23, 2), 2, 2),  # m = 12 * 22 / 4 = 66 is even
        (toy_key(11, 23, 2), 3, 2),  # no n-th roots: 11 divides 23 - 1
    ):
        with pytest.raises(UsageError):
            share_key(key, sites, threshold, random)


def test_shares_out_of_range_are_refused() -> None:
    good = share_key(TOY, 3, 2, replayable_random(1))[0]
    check_share(good)
    for value, index in ((-1, 1), (TOY.public.n >> 2, 1), (1, 0), (1, 4)):
        with pytest.raises(PeerError):
            check_share(KeyShare(TOY.public, 3, index, value))


def test_secrets_are_not_in_repr() -> None:
    key = ordinary_keypair(64, replayable_random(8), insecure_for_tests=True)
    (share,) = share_key(key, 1, 1, replayable_random(1))
    for secret, holder in ((share.value, share), (key.p, key), (key.q, key)):
        assert str(secret) not in repr(holder)
