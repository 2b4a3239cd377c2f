"""Advice for a NOTEARS-ADMM run that did not converge.

h and the consensus residual shrink as their penalties grow (equations (8) and (9) of Ng and Zhang,
AISTATS 2022). So two facts point to the setting to change: which of the two is still large, and
whether the penalties had reached their limit. The advice never names a setting that is already in
force.
"""

from __future__ import annotations

from secagg.contracts import State
from secagg.models.notears_admm.coordinator import CONSENSUS_TOLERANCE, H_TOLERANCE, Schedule

_UNITS = (
    "Columns that are large or of very different size are the usual cause: set method.standardise "
    "= true, or declare columns in other units or on a log scale."
)


def advice(state: State, schedule: Schedule, *, standardised: bool) -> str:
    """Return advice; state: of a run that ended without convergence."""
    if state["status"] == "diverged":
        return f"The numbers left the range of floats. {_scale_advice(standardised=standardised)}"
    cycles = state["h"] > H_TOLERANCE
    disagreement = state["residual"] > CONSENSUS_TOLERANCE
    if cycles and not disagreement:
        return (
            "The sites agreed on a graph before its cycles were removed: let the penalty of cycles "
            "grow faster (a larger method.gamma1) or that of disagreement slower (a smaller "
            "method.gamma2)."
        )
    what = "Cycles remained and sites still disagreed" if cycles else "Sites still disagreed"
    if state["status"] == "out of rounds":
        return (
            f"{what} when the rounds ran out, and penalties were still growing: allow more than "
            f"{schedule.rounds} (method.rounds)."
        )
    return (
        f"{what} when the penalties had reached their limit; more rounds change nothing. "
        f"{_scale_advice(standardised=standardised)}"
    )


def _scale_advice(*, standardised: bool) -> str:
    """Return advice for data and penalties that do not fit each other."""
    if not standardised:
        return _UNITS
    return (
        "Let the penalties grow more slowly (smaller method.gamma1 and method.gamma2), from "
        "smaller ones (method.rho1 and method.rho2), and allow more rounds (method.rounds)."
    )
