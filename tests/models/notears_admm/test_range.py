"""The fixed-point steps of a round's answers, for the linear and the nonlinear method."""

import pytest

from secagg.models.notears_admm.range import FRACTION_BITS, bits_for


@pytest.mark.parametrize("units", [1e-6, 0.3, 1.0, 64.0, 3e9])
@pytest.mark.parametrize("rho2", [1e-12, 1e-3, 0.1, 1.0, 1e16])
def test_one_rounding_step_changes_first_weights_by_a_millionth(units: float, rho2: float) -> None:
    """The sites' steps are `units` 2^-bits each, and (5) divides their sum by K rho2."""
    bits = bits_for(units, rho2)
    moved = units * 2.0**-bits / rho2
    assert moved < 1e-6
    if bits > FRACTION_BITS:  # and no finer than that takes: rings hold so many bits
        assert moved > 0.4e-6
    assert bits >= FRACTION_BITS
    assert bits_for(1.0, 1e-3) == FRACTION_BITS
