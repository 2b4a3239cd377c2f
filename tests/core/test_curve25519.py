"""The check of public keys, against points that are computed from the curve's equation."""

import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey, X25519PublicKey
from support.protocols.small_order import ZERO, bad_seal_keys, bad_verify_keys, small_order, times

from secagg.core.curve25519 import _is_ed25519_key, _is_x25519_key, is_seal_key, is_verify_key

VERIFY = Ed25519PrivateKey.from_private_bytes(bytes(range(32))).public_key().public_bytes_raw()
SEAL = X25519PrivateKey.from_private_bytes(bytes(range(32))).public_key().public_bytes_raw()


def test_the_keys_that_parties_draw_are_valid() -> None:
    for n in range(60):
        seed = n.to_bytes(1, "little") * 32
        signer, opener = Ed25519PrivateKey, X25519PrivateKey
        assert is_verify_key(signer.from_private_bytes(seed).public_key().public_bytes_raw())
        assert is_seal_key(opener.from_private_bytes(seed).public_key().public_bytes_raw())
    assert is_seal_key((9).to_bytes(32, "little"))  # RFC 7748: the base point


def test_there_are_8_points_of_small_order() -> None:
    orders = [min(n for n in (1, 2, 4, 8) if times(n, each) == ZERO) for each in small_order()]
    assert sorted(orders) == [1, 2, 4, 4, 8, 8, 8, 8]


@pytest.mark.parametrize("name", bad_verify_keys(VERIFY))
def test_a_degenerate_signing_key_is_refused(name: str) -> None:
    assert not is_verify_key(bad_verify_keys(VERIFY)[name])


@pytest.mark.parametrize("name", bad_seal_keys(SEAL))
def test_a_degenerate_opening_key_is_refused(name: str) -> None:
    assert not is_seal_key(bad_seal_keys(SEAL)[name])


def test_low_order_keys_are_those_with_which_the_library_agrees_on_no_secret() -> None:
    own, refused = X25519PrivateKey.from_private_bytes(bytes(range(1, 33))), []
    for name, key in bad_seal_keys(SEAL).items():
        if len(key) == 32:
            try:
                own.exchange(X25519PublicKey.from_public_bytes(key))
            except ValueError:
                refused.append(name)
    assert len(refused) >= 12
    assert all(("order" in name and "mixed" not in name) or "2 p" in name for name in refused)


def test_a_long_key_is_refused_and_not_kept() -> None:
    before = [check.cache_info().currsize for check in (_is_ed25519_key, _is_x25519_key)]
    for size in (0, 31, 33, 1 << 20):
        assert not is_verify_key(bytes([7]) * size) and not is_seal_key(bytes([7]) * size)
    assert before == [check.cache_info().currsize for check in (_is_ed25519_key, _is_x25519_key)]
