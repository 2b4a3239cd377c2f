import numpy as np
import pytest
from cryptography.hazmat.primitives.ciphers import Cipher, algorithms, modes
from scipy import stats

from secagg import ring
from secagg.protocols import prg

SEED = bytes(range(32))


@pytest.mark.parametrize("bits", [64, 128])
@pytest.mark.parametrize("length", [0, 1, 3, (1 << 14) - 1, 1 << 14, (1 << 14) + 5, 100_000])
def test_is_aes_256_in_counter_mode(bits, length):
    """In one piece and from a counter of zero, whatever the blocks it is made in."""
    vector = ring.zeros(length, bits)
    prg.add_in_place(vector, SEED)
    cipher = Cipher(algorithms.AES256(SEED), modes.CTR(bytes(16))).encryptor()
    assert ring.to_bytes(vector) == cipher.update(bytes(length * bits // 8))


def test_nist_key_stream():
    """SP 800-38A, F.5.5: the first key-stream block for its key and counter is AES(counter)."""
    key = bytes.fromhex("603deb1015ca71be2b73aef0857d77811f352c073b6108d72d9810a30914dff4")
    cipher = Cipher(algorithms.AES256(key), modes.ECB()).encryptor()
    vector = ring.zeros(2, 64)
    prg.add_in_place(vector, key)
    assert ring.to_bytes(vector) == cipher.update(bytes(16))


@pytest.mark.parametrize("bits", [64, 128])
def test_subtracting_undoes_adding(bits):
    vector = ring.from_integers(range(-500, 500), bits)
    changed = vector.copy()
    prg.add_in_place(changed, SEED)
    assert not np.array_equal(changed, vector)
    prg.subtract_in_place(changed, SEED)
    np.testing.assert_array_equal(changed, vector)


def test_a_remainder_looks_uniform():
    """Bytes of a masked constant vector: chi-squared over 256 values, false alarm 1 in 10^6."""
    vector = ring.from_integers([12345] * 50_000, 64).copy()
    prg.subtract_in_place(vector, SEED)
    counts = np.bincount(np.frombuffer(ring.to_bytes(vector), dtype=np.uint8), minlength=256)
    assert stats.chisquare(counts).pvalue > 1e-6


def test_short_seed_is_refused():
    with pytest.raises(ValueError, match="32 bytes"):
        prg.add_in_place(ring.zeros(1, 64), bytes(31))
