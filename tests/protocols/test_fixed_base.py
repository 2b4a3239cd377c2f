"""Oracle: Python's own pow, on any odd root, prime or not; with either arithmetic."""

from __future__ import annotations

import math

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from secagg.protocols.fixed_base import TABLE_BYTES, choose_window, fixed_base, split_digits
from secagg.protocols.integers import Integers
from secagg.protocols.residues import use_kernels

pytestmark = pytest.mark.usefixtures("arithmetic")


@given(
    root=st.integers(3, 2**80).map(lambda r: r | 1),
    base=st.integers(1, 2**170),
    bits=st.integers(1, 70),
    window=st.integers(1, 6),
    data=st.data(),
)
@settings(max_examples=150, deadline=None)
def test_split_form_powers_equal_plain_ones(
    root: int, base: int, bits: int, window: int, data: st.DataObject
) -> None:
    base %= root**2
    while math.gcd(base, root) != 1:
        base += 1
    exponents = data.draw(st.lists(st.integers(0, 2**bits - 1), max_size=4))
    logs = data.draw(
        st.lists(st.integers(0, root - 1), min_size=len(exponents), max_size=len(exponents))
    )
    table = fixed_base(base, root, bits, window, kernels=use_kernels(root**2))
    expected = [
        pow(base, a, root**2) * pow(1 + root, m, root**2) % root**2
        for a, m in zip(exponents, logs, strict=True)
    ]
    digits = split_digits(Integers.of(exponents, 9), bits, window)
    assert table.powers(digits, Integers.of(logs, 11)) == expected


@pytest.mark.parametrize("kernels", [False, True])
def test_small_jobs_get_small_tables(kernels: bool) -> None:
    jobs = (1, 100, 2000, 18_000, 10**9)
    widths = [choose_window(1024, 1024, powers, kernels=kernels) for powers in jobs]
    assert widths == sorted(widths)
    assert widths[0] <= (5 if kernels else 2)
    assert widths[1] <= 5
    assert widths[3] >= 9
    for key_bits in (2048, 3072, 16384):
        window = choose_window(key_bits // 2, key_bits, 10**9, kernels=kernels)
        entries = -(-key_bits // 2 // window) << window
        assert 2 * entries * key_bits // 8 <= TABLE_BYTES


@given(
    exponents=st.lists(st.integers(0, 2**80 - 1), max_size=5),
    bits=st.integers(1, 80),
    window=st.integers(1, 16),
)
def test_digits_hold_the_lowest_bits(exponents: list[int], bits: int, window: int) -> None:
    digits = split_digits(Integers.of(exponents, 10), bits, window)
    assert digits.shape == (-(-bits // window), len(exponents))
    assert (digits < 1 << window).all()
    for a, column in zip(exponents, digits.T.tolist(), strict=True):
        assert sum(d << window * i for i, d in enumerate(column)) == a % (1 << bits)
