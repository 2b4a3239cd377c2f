"""What to change where NOTEARS-ADMM did not converge, told by how far it came.

h and the consensus residual shrink as their penalties grow (equations (8) and (9) of Ng and Zhang,
AISTATS 2022). So which of the two is still large, and whether the penalties had reached their
limit, tells which setting was in the way. No setting is named that is in force.
"""

from __future__ import annotations

from secagg.contracts import State
from secagg.models.notears_admm.coordinator import CONSENSUS_TOLERANCE, H_TOLERANCE, Schedule

_UNITS = (
    "Columns that are large or of very different size are the usual cause: set method.standardise "
    "= true, or declare columns in other units or on a log scale."
)


def advice(state: State, schedule: Schedule, *, standardised: bool) -> str:
    """Return what helps; state: of a run that has ended without convergence."""
    if state["status"] == "diverged":
        return f"Numbers grew out of range. {_scale(standardised=standardised)}"
    cycles = state["h"] > H_TOLERANCE
    apart = state["residual"] > CONSENSUS_TOLERANCE
    if cycles and not apart:
        return (
            "The sites agreed on a graph before its cycles were gone: let the penalty of cycles "
            "grow faster (a larger method.gamma1) or that of disagreement slower (a smaller "
            "method.gamma2)."
        )
    large = "Cycles were left and sites still disagreed" if cycles else "Sites still disagreed"
    if state["status"] == "out of rounds":
        return (
            f"{large} when the rounds ran out, and penalties were still growing: allow more than "
            f"{schedule.rounds} (method.rounds)."
        )
    return (
        f"{large} when the penalties had reached their limit; more rounds change nothing. "
        f"{_scale(standardised=standardised)}"
    )


def _scale(*, standardised: bool) -> str:
    """Return what helps where the data and the penalties do not fit each other."""
    if not standardised:
        return _UNITS
    return (
        "Let the penalties grow more slowly (smaller method.gamma1 and method.gamma2), from "
        "smaller ones (method.rho1 and method.rho2), and allow more rounds (method.rounds)."
    )
