"""Every setting of the learners that the paper and its sources have, written out.

Learners have defaults for their users, which may change. Cells rely on none: all settings that can
change a graph are given here, or are among a cell's own (penalty, sites).

Of Ng and Zhang (AISTATS 2022): THRESHOLD (section 6), RHO, MLP_RHO, GAMMA1, GAMMA2, ROUNDS
(appendix B). Records stay in their own units: the paper scales none, and has no zero diagonal.
Not stated there, and taken from the programs of Zheng et al. (2018, 2020), which it follows:
TOLERANCE of h, HIDDEN, RIDGE. Of Ng, Ghassami and Zhang (NeurIPS 2020): GOLEM's penalties for equal
variances. Of nobody: ALPHA, the usual level of tests; BIC, the score itself, not a multiple.
"""

from __future__ import annotations

from secagg.models.notears_admm.coordinator import Schedule, Variant

THRESHOLD = 0.3
RHO, MLP_RHO = 1e-3, 0.1
GAMMA1, GAMMA2 = 1.75, 1.25
ROUNDS = 200

TOLERANCE = 1e-8
HIDDEN, RIDGE = 10, 0.01
START = 0  # seed of the networks' random start, the same in all runs

GOLEM_PENALTY, GOLEM_DAG_PENALTY = 0.02, 5.0
ALPHA = 0.05
BIC = 1.0


def schedule(variant: Variant, rho: float) -> Schedule:
    """Return appendix B's schedule, whose first penalties are both rho."""
    return Schedule(variant, rho1=rho, rho2=rho, gamma1=GAMMA1, gamma2=GAMMA2, rounds=ROUNDS)
