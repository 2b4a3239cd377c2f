"""Oracle: Python's own pow, on any odd root, prime or not."""

from __future__ import annotations

import math

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from secagg.protocols.fixed_base import TABLE_BYTES, choose_window, fixed_base


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
        st.lists(st.integers(0, root**2), min_size=len(exponents), max_size=len(exponents))
    )
    as_bits = np.array([[a >> i & 1 for i in range(bits)] for a in exponents], dtype=np.uint8)
    table = fixed_base(base, root, bits, window)
    expected = [
        pow(base, a, root**2) * pow(1 + root, m, root**2) % root**2
        for a, m in zip(exponents, logs, strict=True)
    ]
    assert list(table.powers(as_bits.reshape(-1, bits), logs)) == expected


def test_small_jobs_get_small_tables() -> None:
    widths = [choose_window(1024, 1024, powers) for powers in (1, 100, 2000, 18_000, 10**9)]
    assert widths == sorted(widths)
    assert widths[0] <= 2
    assert widths[1] <= 5
    assert widths[3] >= 9
    for key_bits in (2048, 3072, 16384):
        window = choose_window(key_bits // 2, key_bits, 10**9)
        entries = -(-key_bits // 2 // window) << window
        assert 2 * entries * key_bits // 8 <= TABLE_BYTES
