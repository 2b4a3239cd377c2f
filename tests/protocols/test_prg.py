import numpy as np
import pytest
from cryptography.hazmat.primitives.ciphers import Cipher, algorithms, modes
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from scipy import stats

from secagg.core import ring
from secagg.protocols import prg

SEED = bytes(range(32))
START = (2).to_bytes(16, "big")

pytestmark = pytest.mark.usefixtures("kernels_or_none")  # the stream is the same


all_rings = pytest.mark.parametrize("bits", ring.RING_BITS)


def masked(seed: bytes, length: int, bits: int) -> list[int]:
    vector = ring.zeros(length, bits)
    prg.apply_masks(vector, [seed], [])
    return ring.to_integers(vector)


def expanded(seed: bytes, length: int, bits: int) -> list[int]:
    """Return the mask by the library's counter mode."""
    stream = Cipher(algorithms.AES256(seed), modes.CTR(START)).encryptor().update
    return ring.to_integers(ring.from_bytes(stream(bytes(length * bits // 8)), bits))


def reduced(values: list[int], bits: int) -> list[int]:
    half = 1 << (bits - 1)
    return [(value + half) % (1 << bits) - half for value in values]


@all_rings
@pytest.mark.parametrize(
    "length", [0, 1, 3, *(n + off for n in (1 << 13, 1 << 15) for off in (-1, 0, 1)), 100_000]
)
def test_masks_are_aes_256_in_counter_mode(bits, length):
    """In one piece and from a counter of two, whatever the size of the blocks."""
    assert masked(SEED, length, bits) == expanded(SEED, length, bits)


def test_masks_have_known_answers():
    """Test case 14 of McGrew and Viega, "The Galois/Counter Mode of Operation" (2004), appendix B:
    a block of zeros under a key and a nonce of zeros. And the key of SP 800-38A, F.5.5, without a
    mode of operation: the cipher of the counters 2 and 3.
    """
    vector = ring.zeros(2, 64)
    prg.apply_masks(vector, [bytes(32)], [])
    assert ring.to_bytes(vector).hex() == "cea7403d4d606b6e074ec5d3baf39d18"
    key = bytes.fromhex("603deb1015ca71be2b73aef0857d77811f352c073b6108d72d9810a30914dff4")
    cipher = Cipher(algorithms.AES256(key), modes.ECB()).encryptor()
    vector = ring.zeros(8, 32)
    prg.apply_masks(vector, [key], [])
    assert ring.to_bytes(vector) == cipher.update(START + (3).to_bytes(16, "big"))


@settings(
    max_examples=40,
    deadline=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture],  # one setting for all examples
)
@given(
    st.sampled_from(ring.RING_BITS),
    st.lists(st.binary(min_size=32, max_size=32), max_size=4),
    st.lists(st.binary(min_size=32, max_size=32), max_size=4),
    st.integers(0, 40),
    st.data(),
)
def test_masks_agree_with_integer_arithmetic(bits, add, subtract, length, data):
    edges = st.sampled_from([0, -1, 2 ** (bits - 1) - 1, -(2 ** (bits - 1))])
    start = data.draw(st.lists(edges, min_size=length, max_size=length))
    vector = ring.from_integers(start, bits).copy()
    prg.apply_masks(vector, add, subtract)
    totals = start
    for sign, seeds in ((1, add), (-1, subtract)):
        for seed in seeds:
            pairs = zip(totals, expanded(seed, length, bits), strict=True)
            totals = [total + sign * mask for total, mask in pairs]
    assert ring.to_integers(vector) == reduced(totals, bits)


@all_rings
def test_many_masks_in_one_pass_equal_single_masks(bits):
    """Over several blocks, the last of which is not full; and the opposite removes them."""
    seeds = [bytes([i]) * 32 for i in range(10)]
    start = ring.from_bytes(np.random.default_rng(1).bytes(40_001 * bits // 8), bits)
    together, singly = start.copy(), start.copy()
    prg.apply_masks(together, seeds[:6], seeds[6:])
    for i, seed in enumerate(seeds):
        prg.apply_masks(singly, *(([seed], []) if i < 6 else ([], [seed])))
    np.testing.assert_array_equal(together, singly)
    prg.apply_masks(together, seeds[6:], seeds[:6])
    np.testing.assert_array_equal(together, start)


@all_rings
def test_masked_values_look_uniform(bits):
    """Bytes of a masked constant vector: chi-squared over 256 values, false alarm 1 in 10^6."""
    vector = ring.from_integers([12345] * 50_000, bits).copy()
    prg.apply_masks(vector, [], [SEED])
    counts = np.bincount(np.frombuffer(ring.to_bytes(vector), dtype=np.uint8), minlength=256)
    assert stats.chisquare(counts).pvalue > 1e-6


@pytest.mark.parametrize("length", [0, 16, 31, 33])
def test_seeds_of_another_length_are_refused(length):
    """Before the vector is changed."""
    vector = ring.zeros(3, 64)
    for add, subtract in (([SEED, bytes(length)], []), ([SEED], [bytes(length)])):
        with pytest.raises(ValueError):
            prg.apply_masks(vector, add, subtract)
    assert not vector.any()


def test_arrays_that_are_not_vectors_or_not_writable_in_place_are_refused():
    arrays = [np.zeros((8, 1), kind) for kind in ("i8", "u2", "f8", ">u8", ">u4")]
    for bits in ring.RING_BITS:
        vector = ring.zeros(20, bits)
        arrays += [ring.from_bytes(bytes(3 * bits), bits), vector[::2], vector[::-1]]
    for array in arrays:
        with pytest.raises(ValueError):
            prg.apply_masks(array, [SEED], [])
        assert not array.any()


@all_rings
def test_hundreds_of_masks_are_applied_correctly(bits):
    """More than the kernel expands at once (32), and more than 255 carries."""
    seeds = [i.to_bytes(32, "little") for i in range(300)]
    vector = ring.zeros(70, bits)
    prg.apply_masks(vector, seeds[:270], seeds[270:])
    streams = [expanded(seed, 70, bits) for seed in seeds]
    totals = [sum(c[:270]) - sum(c[270:]) for c in zip(*streams, strict=True)]
    assert ring.to_integers(vector) == reduced(totals, bits)


@all_rings
def test_masking_a_slice_changes_nothing_outside_it(bits):
    """The kernel works on whole registers; it must not write beyond the vector's end."""
    for length in range(70):
        vector = ring.zeros(length + 20, bits)
        prg.apply_masks(vector[10 : 10 + length], [SEED], [])
        assert ring.to_integers(vector) == [0] * 10 + expanded(SEED, length, bits) + [0] * 10


def test_a_stream_that_would_repeat_its_counter_is_refused(monkeypatch):
    """GCM's limit, 2^32 - 2 blocks; lowered here, because such a vector has 64 GiB."""
    assert 2**32 - prg._MAX_BYTES // 16 == 2  # the counter blocks that GCM uses itself
    monkeypatch.setattr(prg, "_MAX_BYTES", 64)
    prg.apply_masks(ring.zeros(8, 64), [SEED], [])
    with pytest.raises(ValueError):
        prg.apply_masks(ring.zeros(9, 64), [SEED], [])
