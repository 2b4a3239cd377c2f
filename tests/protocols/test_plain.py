import numpy as np
import pytest
from contracts.secure_sum import SecureSumContract, numbers

from secagg.contracts import Context
from secagg.errors import PeerError
from secagg.protocols.plain import Plain, run_ideal


class TestPlain(SecureSumContract):
    def make(self):
        return Plain()

    def ideal(self, contributions, shape):
        return run_ideal(contributions, shape)

    def test_a_contribution_of_the_wrong_shape_is_refused(self):
        w = self.world(numbers(2, 2, 0))
        shape = w.plans.of("numbers").shape
        context = Context(w.session, 0, w.identities["coordinator"], w.roster, shape, w.random)
        with pytest.raises(PeerError):
            Plain().server("submit", {}, {"site_0": {"values": np.zeros(2)}}, context)
