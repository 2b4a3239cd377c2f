"""Oracle: Python's pow, for any odd root, prime or not; with either arithmetic."""

import itertools
import math

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from secagg.protocols.paillier import fixed_base
from secagg.protocols.paillier.fixed_base import TABLE_BYTES, FixedBase, choose_window, make_table
from secagg.protocols.paillier.integers import Integers
from secagg.protocols.paillier.residues import use_kernels

pytestmark = pytest.mark.usefixtures("arithmetic")


@given(
    root=st.integers(3, 2**80).map(lambda r: r | 1),
    base=st.integers(1, 2**170),
    bits=st.integers(1, 70),
    window=st.integers(1, 6),
    factor=st.integers(1, 2**90),
    data=st.data(),
)
@settings(max_examples=150, deadline=None)
def test_fixed_base_powers_are_correct(
    root: int, base: int, bits: int, window: int, factor: int, data: st.DataObject
) -> None:
    base %= root**2
    while math.gcd(base, root) != 1:
        base += 1
    exponents = data.draw(st.lists(st.integers(0, 2**bits - 1), max_size=4))
    plaintexts = data.draw(
        st.lists(st.integers(0, 2**88 - 1), min_size=len(exponents), max_size=len(exponents))
    )
    table = make_table(base, root, bits, window, kernels=use_kernels(root**2))
    expected = [
        pow(base, a, root**2) * pow(1 + factor * root, m, root**2) % root**2
        for a, m in zip(exponents, plaintexts, strict=True)
    ]
    # Bits beyond the table's length are ignored.
    longer = Integers.of([a | 0x5A << 72 for a in exponents], 10)
    assert table.begin(longer, Integers.of(plaintexts, 11), factor)() == expected


@pytest.mark.parametrize("kernels", [False, True])
def test_small_jobs_use_small_tables(kernels: bool) -> None:
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


@pytest.mark.parametrize("expected", [0, 10**4])
def test_a_table_grows_with_use_and_the_powers_stay_correct(
    monkeypatch: pytest.MonkeyPatch, expected: int
) -> None:
    made: list[int] = []

    def make(base: int, root: int, bits: int, window: int, *, kernels: bool) -> fixed_base.Table:
        made.append(window)
        return make_table(base, root, bits, window, kernels=kernels)

    monkeypatch.setattr(fixed_base, "make_table", make)
    base, bits, roots = 5, 64, (2**89 - 1, 2**61 - 1)
    kernels = use_kernels(roots[0] ** 2)
    unit = FixedBase(base, roots, bits, kernels=kernels)
    for count in (3, 0, 20, 300, 3000, 1, 1, 1, 1):
        exponents = [(7**50 * k + 3**40) % 2**64 for k in range(count)]
        plaintexts = Integers.of(range(2**150, 2**150 + count), 19)
        powers = unit.powers(Integers.of(exponents, 8), plaintexts, expected)
        for root, found in zip(roots, powers, strict=True):
            assert found == [
                pow(base, a, root**2) * (1 + m * math.prod(roots)) % root**2
                for a, m in zip(exponents, plaintexts, strict=True)
            ]
    assert made[::2] == made[1::2]
    made = made[::2]
    assert made[0] == choose_window(bits, 89, max(3, expected), kernels=kernels)
    assert all(wider >= window + fixed_base.STEP for window, wider in itertools.pairwise(made))
    final = choose_window(bits, 89, 3326, kernels=kernels)
    assert made[-1] > final - fixed_base.STEP
    assert len(made) == 1 if expected else len(made) > 1
