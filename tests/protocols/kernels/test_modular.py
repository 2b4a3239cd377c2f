"""The kernels against Python integers and gmpy2: every operation, around their block lengths."""

import math
from collections.abc import Sequence

import numpy as np
import pytest
from gmpy2 import invert, mpz, powmod
from hypothesis import given, settings
from hypothesis import strategies as st

from secagg.protocols.kernels import modular
from secagg.protocols.kernels.lanes import (
    DIGIT_BITS,
    Modulus,
    Rows,
    constant,
    load,
    multiply_add,
    store,
)

pytestmark = pytest.mark.usefixtures("kernels")

# Digit counts of 4 to 12 end in a last block of every width; real sizes follow.
LENGTHS = [3, 64, 190, 230, 300, 340, 400, 450, 520, 560, 610, 1024, 1536, 2048]
ROOTS = [*LENGTHS, 4096]


def rows(values: Sequence[int], size: int) -> Rows:
    data = b"".join(int(value).to_bytes(size, "little") for value in values)
    return np.frombuffer(data, dtype=np.uint8).reshape(len(values), size)


def integers(array: Rows) -> list[int]:
    return [int.from_bytes(row.tobytes(), "little") for row in array]


def modulus_of(bits: int, seed: int = 0) -> int:
    """Return an odd number of this many bits; for even seeds, its top half is all ones."""
    rng = np.random.default_rng([bits, seed])
    value = int.from_bytes(rng.bytes(bits // 8 + 1), "little") % (1 << bits)
    top = (1 << bits) - (1 << bits // 2) if seed % 2 == 0 else 1 << (bits - 1)
    return value | top | 1


def samples(bound: int, count: int, seed: int = 1) -> list[int]:
    """Return numbers below the bound, including the extreme ones."""
    rng = np.random.default_rng(seed)
    size = bound.bit_length() // 8 + 9
    drawn = [int.from_bytes(rng.bytes(size), "little") % bound for _ in range(count)]
    extreme = [0, 1, bound - 1, bound // 2, (1 << bound.bit_length() - 1) - 1]
    return (extreme + drawn)[:count]


def size_of(modulus: int) -> int:
    return (modulus.bit_length() + 7) // 8


# --- conversion -----------------------------------------------------------------------------------


@given(
    size=st.integers(1, 60),
    count=st.integers(0, 20),
    extra=st.integers(0, 9),
    seed=st.integers(0, 2**32),
)
@settings(max_examples=100, deadline=None)
def test_load_and_store_keep_values(size: int, count: int, extra: int, seed: int) -> None:
    given_rows = np.frombuffer(
        np.random.default_rng(seed).bytes(size * count), dtype=np.uint8
    ).reshape(count, size)
    digits = -(-8 * size // DIGIT_BITS) + extra
    lanes = load(given_rows, digits)
    assert (lanes >> np.uint64(DIGIT_BITS) == 0).all()
    values = [
        sum(int(lanes[i // 8, j, i % 8]) << DIGIT_BITS * j for j in range(digits))
        for i in range(len(lanes) * 8)
    ]
    assert values == integers(given_rows) + [0] * (-count % 8)
    np.testing.assert_array_equal(store(lanes, count, size), given_rows)
    wider = store(lanes, count, size + 3)
    np.testing.assert_array_equal(wider[:, :size], given_rows)
    assert not wider[:, size:].any()


# --- Montgomery products --------------------------------------------------------------------------


@pytest.mark.parametrize("bits", [*ROOTS, 8304])
@pytest.mark.parametrize("seed", [0, 1])
def test_montgomery_products_are_correct(bits: int, seed: int) -> None:
    r = modulus_of(bits, seed)
    m = Modulus(r)
    a, b = samples(2 * r, 24, 1), samples(2 * r, 24, 2)[::-1]
    size = size_of(2 * r)
    product = m.multiply(load(rows(a, size), m.n), load(rows(b, size), m.n))
    inverse = invert(1 << DIGIT_BITS * m.n, r)
    almost = integers(store(product, 24, size + 1))
    assert all(x < 2 * r for x in almost)
    assert [x % r for x in almost] == [x * y * inverse % r for x, y in zip(a, b, strict=True)]
    reduced = integers(store(m.canonical(product), 24, size))
    assert reduced == [x % r for x in almost]


@pytest.mark.parametrize("bits", LENGTHS)
def test_multiples_of_the_modulus_are_reduced(bits: int) -> None:
    r = modulus_of(bits)
    m = Modulus(r)
    for times in (1, 3):
        values = [k * r + x for k in range(times + 1) for x in (0, 1, r // 2, r - 1)]
        reduced = m.canonical(load(rows(values, m.n * 7), m.n), times)
        assert integers(store(reduced, len(values), m.n * 7)) == [x % r for x in values]


@pytest.mark.parametrize("bits", LENGTHS)
def test_factors_of_any_length_are_multiplied_correctly(bits: int) -> None:
    r = modulus_of(bits)
    m = Modulus(r)
    for size in (1, size_of(r), 3 * size_of(r)):
        values = [*samples(1 << 8 * size, 7), *(x for x in (r, 5 * r) if x >> 8 * size == 0)]
        factor = modulus_of(70, 1)
        scaled = modular.scaled(rows(values, size), factor, r)
        assert integers(scaled) == [x * factor % r for x in values]
        digits = -(-8 * size // DIGIT_BITS)
        summed = multiply_add(
            load(rows(values, size), digits), constant(r, m.n), load(rows(values, size), digits),
            digits + m.n,
        )  # fmt: skip
        assert integers(store(summed, len(values), size + m.n * 7)) == [x * r + x for x in values]


@pytest.mark.parametrize("bits", ROOTS)
@pytest.mark.parametrize("columns", [1, 2, 10])
def test_modular_products_are_correct(bits: int, columns: int) -> None:
    modulus = modulus_of(bits) ** 2
    factors = [samples(modulus, 13, seed) for seed in range(columns)]
    got = modular.products([rows(column, size_of(modulus)) for column in factors], modulus)
    assert integers(got) == [math.prod(column) % modulus for column in zip(*factors, strict=True)]


def test_results_are_correct_over_many_blocks() -> None:
    r = modulus_of(100)
    values = samples(r, 1100)
    got = modular.products([rows(values, size_of(r))] * 2, r)
    assert integers(got) == [x * x % r for x in values]
    assert modular.products([rows([], 13)], r).shape == (0, 13)


@pytest.mark.parametrize("count", [1, 8, 9, 23, 24, 600])
def test_the_product_of_all_residues_keeps_common_factors(count: int) -> None:
    p, q = 1000003, 1000033
    values = [x for x in samples(p * q, 3 * count + 9) if math.gcd(x, p * q) == 1][:count]
    assert len(values) == count
    for factor in (1, p, q):
        for position in (0, count // 2, count - 1):
            changed = [*values]
            changed[position] *= factor
            product = math.prod(modular.residue_product(rows(changed, 8), p * q))
            assert math.gcd(product, p * q) == factor


@pytest.mark.parametrize("bits", LENGTHS)
def test_chinese_remaindering_is_correct(bits: int) -> None:
    m_1, m_2 = modulus_of(bits), modulus_of(bits, 1)
    while math.gcd(m_1, m_2) != 1:
        m_1 += 2
    for first, second in ((m_1, m_2), (m_2, m_1)):
        values = samples(first * second, 11)
        a, b = [x % first for x in values], [x % second for x in values]
        got = modular.chinese_remainders(
            rows(a, size_of(first)), rows(b, size_of(second)), first, second
        )
        assert integers(got) == values


# --- powers ---------------------------------------------------------------------------------------


def exponents(bits: int) -> list[int]:
    ones = (1 << bits) - 1
    return [0, 1, 2, 31, 32, 33, ones, 1 << bits, samples(1 << 300, 6)[-1]]


@pytest.mark.parametrize("bits", LENGTHS)
def test_modular_powers_are_correct(bits: int) -> None:
    r = modulus_of(bits)
    values = [*samples(r, 9), (1 << 2 * bits) - 1]
    array = rows(values, 2 * size_of(r))
    for exponent in exponents(80):
        expected = [int(powmod(x, exponent, r)) for x in values]
        assert integers(modular.powers(array, exponent, r)) == expected
        squared = [divmod(int(powmod(x, exponent, r * r)), r) for x in values]
        remainders, quotients = modular.split_powers(array, exponent, r)
        assert list(zip(integers(quotients), integers(remainders), strict=True)) == squared


@given(
    root=st.integers(3, 2**210).map(lambda r: r | 1),
    base=st.integers(1, 2**430),
    bits=st.integers(1, 70),
    window=st.integers(1, 9),
    count=st.integers(0, 20),
    factor=st.integers(1, 2**100),
    seed=st.integers(0, 2**32),
)
@settings(max_examples=60, deadline=None)
def test_fixed_base_powers_are_correct(
    root: int, base: int, bits: int, window: int, count: int, factor: int, seed: int
) -> None:
    while math.gcd(base, root) != 1:
        base += 1
    table = modular.FixedBaseTable(base % root**2, root, bits, window)
    exponents, logs = samples(1 << bits, count, seed), samples(root**2, count, seed)
    above = rows([a | seed << bits for a in exponents], 14)  # higher bits are ignored
    got = integers(table.begin(above, rows(logs, size_of(root**2)), factor)())
    for j, (exponent, power) in enumerate(zip(exponents, got, strict=True)):
        log = mpz(logs[j]) * factor
        assert power == powmod(base, exponent, root**2) * (1 + log * root) % root**2


def test_fixed_base_powers_need_one_exponent_for_each_value() -> None:
    table = modular.FixedBaseTable(3, 1000003, 70, 5)
    got = table.begin(rows([5, 250], 1), rows([7, 0], 1), 1)()
    assert integers(got) == [pow(3, 5) * (1 + 7 * 1000003) % 1000003**2, pow(3, 250, 1000003**2)]
    with pytest.raises(ValueError):
        table.begin(rows([5], 9), rows([7, 0], 1), 1)


@pytest.mark.parametrize("bits", [4144, 4152])
def test_roots_of_the_largest_supported_length_work(bits: int) -> None:
    """Pairs of 160 and 162 digits, whose ciphertexts fill the arrays of the C functions."""
    r = modulus_of(bits)
    size = size_of(r * r)
    values = samples(r**4, 2)
    exponent = samples(1 << 600, 6)[-1]
    remainders, quotients = modular.split_powers(rows(values, 2 * size), exponent, r)
    expected = [divmod(pow(x, exponent, r * r), r) for x in values]
    assert list(zip(integers(quotients), integers(remainders), strict=True)) == expected
    table = modular.FixedBaseTable(2, r, 9, 4)
    got = table.begin(rows([500, 0], 2), rows(values, 2 * size), 1)()
    powers = zip((500, 0), values, strict=True)
    assert integers(got) == [pow(2, a, r * r) * (1 + x * r) % (r * r) for a, x in powers]


# --- what is not supported ------------------------------------------------------------------------


def test_unsupported_moduli_are_refused() -> None:
    assert [Modulus.supports(m) for m in (1 << 100, 2**8305 + 1, 2**8304 - 1)] == [
        False, False, True
    ]  # fmt: skip


def test_rows_longer_than_the_arrays_in_c_are_refused() -> None:
    modulus = 2**8304 - 1
    assert integers(modular.scaled(rows([3], 2080), 5, modulus)) == [15]
    too_long = rows([3], 2081)
    for calculate in (
        lambda: modular.scaled(too_long, 5, modulus),
        lambda: modular.powers(too_long, 5, modulus),
        lambda: modular.split_powers(too_long, 5, modulus_of(4152)),
        lambda: modular.chinese_remainders(too_long, rows([3], 1), 3, 5),
        lambda: modular.residue_product(too_long, modulus),
        lambda: modular.FixedBaseTable(3, 5, 9, 4).begin(rows([3], 1), too_long, 1),
    ):
        with pytest.raises(ValueError):
            calculate()
