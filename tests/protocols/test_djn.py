"""Oracles: phe for whole ciphertexts and both directions, Python's own pow, brute force.

Every test runs with either arithmetic (`arithmetic` in `tests/protocols/conftest.py`).
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable
from itertools import count

import numpy as np
import phe
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats

from secagg.core.randomness import RandomBytes, random_below, replayable_random
from secagg.errors import PeerError, UsageError
from secagg.protocols.paillier import cryptosystem
from secagg.protocols.paillier.fixed_base import fixed_base
from secagg.protocols.paillier.keys import (
    PrivateKey,
    PublicKey,
    check_private_key,
    generate_keypair,
)
from secagg.protocols.paillier.packing import Packing

pytestmark = pytest.mark.usefixtures("arithmetic")

# p = 19, q = 23, x = 2: n = 437, h = -4, h_s = (-4)^437 mod 437^2 = 3004, by 436 multiplications.
TINY = PrivateKey(PublicKey(437, 3004), 19, 23)


@pytest.fixture(scope="session")
def key() -> PrivateKey:
    return generate_keypair(2048, replayable_random(1))


@pytest.fixture(scope="session")
def foreign() -> tuple[phe.PaillierPublicKey, phe.PaillierPrivateKey, PrivateKey]:
    public, private = phe.generate_paillier_keypair(n_length=2048)
    return public, private, PrivateKey(PublicKey(public.n), private.p, private.q)


def constant_bytes(value: int) -> RandomBytes:
    return lambda n: value.to_bytes(n, "little")


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


def test_the_randomiser_is_one_that_phe_could_have_drawn(key: PrivateKey) -> None:
    # c = r^n (mod n), so r = c^(1/n mod lambda): with this r, phe must arrive at the same bits.
    n = key.public.n
    (c,) = cryptosystem.encrypt(key.public, [12345], replayable_random(3))
    r = pow(c % n, pow(n, -1, math.lcm(key.p - 1, key.q - 1)), n)
    assert phe.PaillierPublicKey(n).raw_encrypt(12345, r_value=r) == c


def test_imported_phe_keys_work_without_h_s(
    foreign: tuple[phe.PaillierPublicKey, phe.PaillierPrivateKey, PrivateKey],
) -> None:
    public, private, ours = foreign
    check_private_key(ours)
    plaintexts = [0, 7, public.n - 1]
    for encrypted in (
        cryptosystem.encrypt(ours.public, plaintexts, replayable_random(4)),
        cryptosystem.encrypt_as_key_holder(ours, plaintexts, replayable_random(4)),
    ):
        assert [private.raw_decrypt(c) for c in encrypted] == plaintexts
    phe_numbers = [public.encrypt(value, precision=2**-20) for value in (0.5, -3.25)]
    raw = cryptosystem.decrypt(ours, [number.ciphertext() for number in phe_numbers])
    decoded = [
        phe.EncodedNumber(public, value, number.exponent).decode()
        for value, number in zip(raw, phe_numbers, strict=True)
    ]
    assert decoded == [0.5, -3.25]


def test_same_r_gives_the_same_ciphertext_as_phe(
    foreign: tuple[phe.PaillierPublicKey, phe.PaillierPrivateKey, PrivateKey],
) -> None:
    public, _, ours = foreign
    r = random_below(public.n, replayable_random(5))
    (c,) = cryptosystem.encrypt(ours.public, [99], replayable_random(5))
    assert c == public.raw_encrypt(99, r_value=r)


def test_sums_agree_with_phes_addition(key: PrivateKey) -> None:
    public = phe.PaillierPublicKey(key.public.n)
    columns = [
        cryptosystem.encrypt_as_key_holder(key, [k, 10 * k], replayable_random(k))
        for k in (1, 2, 3)
    ]
    ours = cryptosystem.multiply(key.public, columns)
    for position, total in enumerate(ours):
        numbers = [phe.EncryptedNumber(public, column[position], 0) for column in columns]
        assert sum(numbers[1:], numbers[0]).ciphertext(be_secure=False) == total
    assert cryptosystem.decrypt(key, ours) == [6, 60]


# --- the arithmetic -----------------------------------------------------------------------------


def test_known_answer_of_the_tiny_key() -> None:
    # Exponents have ceil(9 / 2) = 5 bits: of the byte 0x55 the low five, 0x15 = 21.
    (c,) = cryptosystem.encrypt(TINY.public, [100], constant_bytes(0x55))
    assert c == (1 + 100 * 437) * 3004**21 % 437**2 == 44487
    assert cryptosystem.decrypt(TINY, [c]) == [100]


def test_every_plaintext_and_every_unit_of_a_tiny_key() -> None:
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
def test_key_holders_make_the_same_bits_and_sums_decrypt(
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


def test_key_holder_and_public_path_agree_at_full_size(key: PrivateKey) -> None:
    plaintexts = [0, 5, key.public.n - 1]
    ours = cryptosystem.encrypt(key.public, plaintexts, replayable_random(7))
    assert ours == cryptosystem.encrypt_as_key_holder(key, plaintexts, replayable_random(7))
    n, h_s, random = key.public.n, key.public.h_s, replayable_random(7)
    assert h_s is not None
    for m, c in zip(plaintexts, ours, strict=True):
        a = int.from_bytes(random(128), "little")
        assert c == (1 + m * n) * pow(h_s, a, n * n) % (n * n)


def test_without_h_s_the_key_holder_has_the_same_distribution() -> None:
    # Every r once: the key holder's randomisers are those of r^n, each as often.
    p, q = 19, 23
    n = p * q
    units = [r for r in range(n) if math.gcd(r, n) == 1]
    stream = b"".join(r.to_bytes(2, "little") for r in units)
    position = count(0, 2)

    def random(size: int) -> bytes:
        start = next(position)
        return stream[start : start + size]

    key = PrivateKey(PublicKey(n), p, q)
    made = cryptosystem.encrypt_as_key_holder(key, [0] * len(units), random)
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


def test_randomness_drawn_per_ciphertext(key: PrivateKey) -> None:
    drawn: list[int] = []

    def random(size: int) -> bytes:
        drawn.append(size)
        return replayable_random(10)(size)

    full = cryptosystem.encrypt(key.public, [1, 2], random)
    short = cryptosystem.encrypt(key.public, [1, 2], random, short_exponent_assumption=True)
    assert drawn == [2 * 1024 // 8, 2 * 256 // 8]
    assert full != short
    assert cryptosystem.decrypt(key, short) == [1, 2]


def test_short_exponents_need_h_s() -> None:
    with pytest.raises(UsageError):
        cryptosystem.encrypt(
            PublicKey(437), [1], replayable_random(0), short_exponent_assumption=True
        )


def test_tables_are_kept_with_the_key(key: PrivateKey) -> None:
    cryptosystem.encrypt_as_key_holder(key, [1], replayable_random(0))
    before = fixed_base.cache_info()
    cryptosystem.encrypt_as_key_holder(key, [2], replayable_random(1))
    after = fixed_base.cache_info()
    assert (after.misses, after.hits) == (before.misses, before.hits + 1)


# --- refusals -----------------------------------------------------------------------------------


@pytest.mark.parametrize("bad", [-1, 437, 438])
def test_plaintexts_out_of_range_are_refused(bad: int) -> None:
    with pytest.raises(UsageError):
        cryptosystem.encrypt(TINY.public, [0, bad], replayable_random(0))
    with pytest.raises(UsageError):
        cryptosystem.encrypt_as_key_holder(TINY, [0, bad], replayable_random(0))


@pytest.mark.parametrize(
    "bad",
    [
        lambda k: 0,
        lambda k: -1,
        lambda k: k.p,
        lambda k: 5 * k.q,
        lambda k: k.p * k.q,
        lambda k: k.public.n**2,
        lambda k: k.public.n**2 + 1,
    ],
)
def test_numbers_that_are_no_ciphertexts_are_refused(
    key: PrivateKey, bad: Callable[[PrivateKey], int]
) -> None:
    with pytest.raises(PeerError):
        cryptosystem.decrypt(key, [1, bad(key), 1])
    with pytest.raises(PeerError, match="column 1"):
        cryptosystem.multiply(key.public, [[1, 1], [1, bad(key)], [1, 1]])


def test_columns_must_match() -> None:
    with pytest.raises(PeerError, match="column 1"):
        cryptosystem.multiply(TINY.public, [[1, 2], [1]])
    with pytest.raises(UsageError):
        cryptosystem.multiply(TINY.public, [])


def test_bytes_have_a_fixed_length(key: PrivateKey) -> None:
    numbers = [1, key.public.n**2 - 1, 256]
    data = cryptosystem.ciphertexts_to_bytes(key.public, numbers)
    assert key.public.ciphertext_bytes == 512
    assert len(data) == 3 * 512
    assert cryptosystem.ciphertexts_from_bytes(key.public, data, 3) == numbers
    for wrong in (data[:-1], data + b"\0", data[512:], b""):
        with pytest.raises(PeerError):
            cryptosystem.ciphertexts_from_bytes(key.public, wrong, 3)
    assert PublicKey(437, 2).ciphertext_bytes == 4  # two bytes for each of n's 9 bits


# --- with packing -------------------------------------------------------------------------------


def test_packed_sums_are_exact(key: PrivateKey) -> None:
    sites, length = 5, 130
    packing = Packing.for_sites(32, sites, key.public.bits)
    values = np.random.default_rng(11).integers(0, 1 << 32, (sites, length), dtype=np.uint64)
    columns = [
        cryptosystem.encrypt_as_key_holder(key, packing.pack(row), replayable_random(20 + site))
        for site, row in enumerate(values)
    ]
    total = packing.unpack(
        cryptosystem.decrypt(key, cryptosystem.multiply(key.public, columns)), length
    )
    np.testing.assert_array_equal(total[:, 0], values.sum(axis=0))
