"""Oracles: phe for ciphertexts in both directions, Python's pow, enumeration.

All tests run with either arithmetic (`arithmetic` in `tests/protocols/conftest.py`).
"""

import math
from collections import Counter

import numpy as np
import phe
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats

from secagg.core.randomness import random_below, replayable_random
from secagg.errors import PeerError, UsageError
from secagg.protocols.paillier import cryptosystem
from secagg.protocols.paillier.keys import (
    PrivateKey,
    PublicKey,
    check_private_key,
    generate_keypair,
)

pytestmark = pytest.mark.usefixtures("arithmetic")

# p = 19, q = 23, x = 2: n = 437, h = -4, h_s = (-4)^437 mod 437^2 = 3004, by 436 multiplications.
TINY = PrivateKey(PublicKey(437, 3004), 19, 23)


@pytest.fixture(scope="session")
def key() -> PrivateKey:
    return generate_keypair(2048, replayable_random(1))


def small_key(seed: int, bits: int = 64) -> PrivateKey:
    return generate_keypair(bits, replayable_random(seed), insecure_for_tests=True)


# --- against phe ------------------------------------------------------------------------------


def test_phe_decrypts_ours_and_we_decrypt_phes(key: PrivateKey) -> None:
    public = phe.PaillierPublicKey(key.public.n)
    private = phe.PaillierPrivateKey(public, key.p, key.q)
    plaintexts = [0, 1, 2**2000 + 17, key.public.n - 1]
    for encrypted in (
        cryptosystem.encrypt(key.public, plaintexts, replayable_random(2)),
        cryptosystem.encrypt_as_key_holder(key, plaintexts, replayable_random(2)),
    ):
        assert [private.raw_decrypt(c) for c in encrypted] == plaintexts
    assert cryptosystem.decrypt(key, [public.raw_encrypt(m) for m in plaintexts]) == plaintexts


def test_imported_phe_keys_work_without_h_s() -> None:
    public, private = phe.generate_paillier_keypair(n_length=2048)
    ours = PrivateKey(PublicKey(public.n), private.p, private.q)
    check_private_key(ours)
    r = random_below(public.n, replayable_random(5))
    (c,) = cryptosystem.encrypt(ours.public, [99], replayable_random(5))
    assert c == public.raw_encrypt(99, r_value=r)
    plaintexts = [0, 7, public.n - 1]
    for encrypted in (
        cryptosystem.encrypt(ours.public, plaintexts, replayable_random(4)),
        cryptosystem.encrypt_as_key_holder(ours, plaintexts, replayable_random(4)),
    ):
        assert [private.raw_decrypt(c) for c in encrypted] == plaintexts
    raw = [public.encrypt(value).ciphertext() for value in plaintexts[:2]]
    assert cryptosystem.decrypt(ours, raw) == plaintexts[:2]


# --- the arithmetic -----------------------------------------------------------------------------


def test_the_tiny_key_gives_known_ciphertexts() -> None:
    # Exponents have ceil(9 / 2) = 5 bits: of the byte 0x55 the low five, 0x15 = 21.
    (c,) = cryptosystem.encrypt(TINY.public, [100], lambda n: (0x55).to_bytes(n, "little"))
    assert c == (1 + 100 * 437) * 3004**21 % 437**2 == 44487
    assert cryptosystem.decrypt(TINY, [c]) == [100]


def test_a_tiny_key_decrypts_every_unit_and_plaintext() -> None:
    n = TINY.public.n
    units = [c for c in range(1, n * n) if math.gcd(c, n) == 1][:: 11 * 13]
    # Paillier's definition of decryption, without the Chinese remainder theorem
    lam = math.lcm(18, 22)
    mu = pow((pow(n + 1, lam, n * n) - 1) // n, -1, n)
    expected = [(pow(c, lam, n * n) - 1) // n * mu % n for c in units]
    assert cryptosystem.decrypt(TINY, units) == expected
    every = list(range(n))
    assert (
        cryptosystem.decrypt(TINY, cryptosystem.encrypt(TINY.public, every, replayable_random(6)))
        == every
    )


@given(
    seed=st.integers(0, 2**32),
    bits=st.sampled_from([16, 32, 50, 64, 128]),
    size=st.integers(0, 5),
    short=st.booleans(),
    expected=st.sampled_from([0, 50, 5000]),
)
@settings(max_examples=40, deadline=None)
def test_key_holders_encrypt_to_the_same_bits_and_sums_decrypt(
    seed: int, bits: int, size: int, short: bool, expected: int
) -> None:
    key = small_key(seed, bits)
    n, random = key.public.n, replayable_random(seed + 1)
    columns, plaintexts = [], []
    for site in range(3):
        values = [random_below(n, random) for _ in range(size)]
        options = {"expected": expected, "short_exponent_assumption": short}
        column = cryptosystem.encrypt(key.public, values, replayable_random(site), **options)
        assert column == cryptosystem.encrypt_as_key_holder(
            key, values, replayable_random(site), **options
        )
        columns.append(column)
        plaintexts.append(values)
    sums = [sum(values) % n for values in zip(*plaintexts, strict=True)]
    assert cryptosystem.decrypt(key, cryptosystem.multiply(key.public, columns)) == sums


def test_full_size_ciphertexts_agree_with_the_formula(key: PrivateKey) -> None:
    plaintexts = [0, 5, key.public.n - 1]
    ours = cryptosystem.encrypt(key.public, plaintexts, replayable_random(7))
    assert ours == cryptosystem.encrypt_as_key_holder(key, plaintexts, replayable_random(7))
    n, h_s, random = key.public.n, key.public.h_s, replayable_random(7)
    assert h_s is not None
    for m, c in zip(plaintexts, ours, strict=True):
        a = int.from_bytes(random(128), "little")
        assert c == (1 + m * n) * pow(h_s, a, n * n) % (n * n)


def test_without_h_s_key_holders_ciphertexts_have_the_same_distribution() -> None:
    # Over every r once, the key holder's randomisers are those of r^n, equally often.
    n = TINY.public.n
    units = [r for r in range(n) if math.gcd(r, n) == 1]
    draws = iter(units)
    key = PrivateKey(PublicKey(n), TINY.p, TINY.q)
    made = cryptosystem.encrypt_as_key_holder(
        key, [0] * len(units), lambda size: next(draws).to_bytes(size, "little")
    )
    assert Counter(made) == Counter(pow(r, n, n * n) for r in units)


def test_exponents_are_uniform() -> None:
    # Ciphertexts of zero under a 32-bit key are h_s^a with 16-bit a; a table inverts them. The
    # false-alarm rate of each chi-squared test is 10^-6 over seeds; this seed is fixed.
    key = small_key(8, 32)
    n, h_s = key.public.n, key.public.h_s
    assert h_s is not None
    logarithm, power = {}, 1
    for a in range(1 << 16):
        logarithm[power] = a
        power = power * h_s % (n * n)
    assert len(logarithm) == 1 << 16
    made = cryptosystem.encrypt(key.public, [0] * 30_000, replayable_random(9))
    exponents = np.array([logarithm[c] for c in made])
    for byte in (exponents & 0xFF, exponents >> 8):
        assert stats.chisquare(np.bincount(byte, minlength=256)).pvalue > 1e-6


def test_encryption_draws_the_stated_number_of_bytes(key: PrivateKey) -> None:
    drawn: list[int] = []

    def random(size: int) -> bytes:
        drawn.append(size)
        return replayable_random(10)(size)

    full = cryptosystem.encrypt(key.public, [1, 2], random)
    short = cryptosystem.encrypt(key.public, [1, 2], random, short_exponent_assumption=True)
    assert drawn == [2 * 1024 // 8, 2 * 256 // 8]
    assert full != short
    assert cryptosystem.decrypt(key, short) == [1, 2]


# --- refusals -----------------------------------------------------------------------------------


def test_plaintexts_out_of_range_and_short_exponents_without_h_s_are_refused() -> None:
    for bad in (-1, 437, 438):
        with pytest.raises(UsageError):
            cryptosystem.encrypt(TINY.public, [0, bad], replayable_random(0))
        with pytest.raises(UsageError):
            cryptosystem.encrypt_as_key_holder(TINY, [0, bad], replayable_random(0))
    without = PublicKey(437)
    with pytest.raises(UsageError):
        cryptosystem.encrypt(without, [1], replayable_random(0), short_exponent_assumption=True)


def test_numbers_that_are_not_ciphertexts_are_refused(key: PrivateKey) -> None:
    n, p, q = key.public.n, key.p, key.q
    for bad in (0, -1, p, 5 * q, n, n**2, n**2 + 1):
        with pytest.raises(PeerError):
            cryptosystem.decrypt(key, [1, bad, 1])
        with pytest.raises(PeerError, match="column 1"):
            cryptosystem.multiply(key.public, [[1, 1], [1, bad], [1, 1]])
    with pytest.raises(PeerError, match="column 1"):
        cryptosystem.multiply(TINY.public, [[1, 2], [1]])
    with pytest.raises(UsageError):
        cryptosystem.multiply(TINY.public, [])


def test_ciphertext_bytes_have_a_fixed_length(key: PrivateKey) -> None:
    numbers = [1, key.public.n**2 - 1, 256]
    data = cryptosystem.ciphertexts_to_bytes(key.public, numbers)
    assert key.public.ciphertext_bytes == 512
    assert len(data) == 3 * 512
    assert cryptosystem.ciphertexts_from_bytes(key.public, data, 3) == numbers
    for wrong in (data[:-1], data + b"\0", data[512:]):
        with pytest.raises(PeerError):
            cryptosystem.ciphertexts_from_bytes(key.public, wrong, 3)
    assert PublicKey(437, 2).ciphertext_bytes == 4  # two bytes for each of n's 9 bits
