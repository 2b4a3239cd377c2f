from contracts.secure_sum import SecureSumContract

from secagg.protocols.plain import Plain, run_ideal


class TestPlain(SecureSumContract):
    def make(self):
        return Plain()

    def ideal(self, contributions, shape):
        return run_ideal(contributions, shape)
