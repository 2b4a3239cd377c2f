import functools

from contracts.secure_sum import SecureSumContract
from support.ideal_sums import paillier_sum

from secagg.core.randomness import replayable_random
from secagg.protocols.paillier.keys import generate_keypair
from secagg.protocols.paillier.single_key import Paillier


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
        return paillier_sum(contributions, shape, key_of_2048_bits(), replayable_random(1))


class TestShortExponents(TestPaillier):
    def make(self):
        return CachedKey(key_bits=2048, short_exponents=True)
