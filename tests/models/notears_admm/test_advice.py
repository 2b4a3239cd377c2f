"""Advice on a graph that did not converge: it depends on the cause."""

import re

import pytest

from secagg.models.notears_admm.advice import advice
from secagg.models.notears_admm.coordinator import Schedule

RAN_OUT, AT_LIMIT, DIVERGED = "out of rounds", "penalty limit reached", "diverged"
CYCLES, NO_CYCLES, FAR, NEAR = 1.1, 1e-6, 0.5, 1e-8
SLOWER = ["gamma1", "gamma2", "rho1", "rho2", "rounds"]


@pytest.mark.parametrize(
    ("status", "h", "residual", "standardised", "named"),
    [
        (RAN_OUT, CYCLES, FAR, True, ["rounds"]),
        (RAN_OUT, NO_CYCLES, FAR, False, ["rounds"]),
        (RAN_OUT, CYCLES, NEAR, True, ["gamma1", "gamma2"]),
        (AT_LIMIT, CYCLES, NEAR, False, ["gamma1", "gamma2"]),
        (AT_LIMIT, CYCLES, FAR, True, SLOWER),
        (AT_LIMIT, CYCLES, FAR, False, ["standardise"]),
        (DIVERGED, CYCLES, FAR, True, SLOWER),
        (DIVERGED, NO_CYCLES, NEAR, False, ["standardise"]),
    ],
)
def test_advice_names_the_expected_settings(
    status: str, h: float, residual: float, standardised: bool, named: list[str]
) -> None:
    state = {"status": status, "h": h, "residual": residual}
    text = advice(state, Schedule(), standardised=standardised)
    assert re.findall(r"method\.(\w+)", text) == named
    assert ("Cycles remained" in text) == (residual == FAR and h == CYCLES and status != DIVERGED)
