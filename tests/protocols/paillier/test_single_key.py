import functools

import phe
import pytest
from contracts.secure_sum import SecureSumContract

from secagg.core.randomness import replayable_random
from secagg.errors import PeerError
from secagg.protocols.paillier.keys import generate_keypair
from secagg.protocols.paillier.single_key import Paillier, from_phe, run_ideal, to_phe


@functools.cache
def key_of_2048_bits():
    return generate_keypair(2048, replayable_random(2048))


class CachedKey(Paillier):
    """Deals one key, made once for all tests."""

    def draw_key(self, random):
        return key_of_2048_bits()


class TestPaillier(SecureSumContract):
    def make(self):
        return CachedKey(key_bits=2048)

    def ideal(self, contributions, shape):
        return run_ideal(contributions, shape, key_of_2048_bits(), replayable_random(1))


class TestShortExponents(TestPaillier):
    def make(self):
        return CachedKey(key_bits=2048, short_exponents=True)


def test_keys_are_exported_to_and_imported_from_phe():
    ours = key_of_2048_bits()
    theirs = to_phe(ours)
    assert theirs.decrypt(theirs.public_key.encrypt(41)) == 41
    back = from_phe(theirs)
    assert (back.p, back.q, back.public.n) in [
        (ours.p, ours.q, ours.public.n),
        (ours.q, ours.p, ours.public.n),
    ]
    _, short = phe.generate_paillier_keypair(n_length=1024)
    with pytest.raises(PeerError):
        from_phe(short)
