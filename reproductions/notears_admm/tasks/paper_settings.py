"""All settings of the learners, from the paper and its sources.

The learners' defaults are for users and may change, so cells do not rely on them. Every setting
that can change a graph is set here or in the cell's own settings (penalty, sites).

From Ng and Zhang (AISTATS 2022): THRESHOLD (section 6), RHO, MLP_RHO, GAMMA1, GAMMA2, ROUNDS
(appendix B). Records keep their own units: the paper does not scale them, and does not force a zero
diagonal. From the programs of Zheng et al. (2018, 2020), which the paper follows without stating
these settings: TOLERANCE of h, HIDDEN, RIDGE. From Ng, Ghassami and Zhang (NeurIPS 2020): GOLEM's
penalties for equal variances. Our choices: ALPHA, the usual level of tests; BIC, the plain score.
"""

from __future__ import annotations

from secagg.models.notears_admm.coordinator import Schedule, Solver

THRESHOLD = 0.3
RHO, MLP_RHO = 1e-3, 0.1
GAMMA1, GAMMA2 = 1.75, 1.25
ROUNDS = 200

TOLERANCE = 1e-8
HIDDEN, RIDGE = 10, 0.01
START = 0  # seed of the networks' random start in all runs

GOLEM_PENALTY, GOLEM_DAG_PENALTY = 0.02, 5.0
ALPHA = 0.05
BIC = 1.0


def schedule(solver: Solver, rho: float) -> Schedule:
    """Return the schedule of appendix B, with both first penalties equal to rho."""
    return Schedule(solver, rho1=rho, rho2=rho, gamma1=GAMMA1, gamma2=GAMMA2, rounds=ROUNDS)
