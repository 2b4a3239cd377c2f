"""A site of nonlinear NOTEARS-ADMM: problem (4) of Ng and Zhang (AISTATS 2022) for networks.

In round t a site receives W and rho2 and solves, with l the loss of its own records,

    B_k = argmin_B  l(B) + <beta_k, B - W> + rho2/2 |B - W|^2                                  (4)

for the difference D = B - W, starting from the last round's B. rho2 grows to 1e16, so computing D
by subtraction would lose every digit; the search is therefore over D itself. There is no closed
form: L-BFGS ends where the gradient of (4) is small but not zero. The site sends

    V_k = -grad l(B_k),

which is beta_k + rho2 (B_k - W) up to that gradient, and of the size of the data at any rho2. The
site then updates the multiplier with the difference that V_k implies (7):

    beta_k <- V_k + rho2 (W - W'),   W' the next W.
"""

from __future__ import annotations

import numpy as np

from secagg.contracts import State
from secagg.core.arrays import Array
from secagg.models.graphs.mlp import FlatObjective
from secagg.models.numerics.owlqn import Stopping, minimise_orthantwise

# The search for (4) ends at this relative decrease or largest slope: SciPy's defaults, as in the
# authors' program.
_DECREASE, _SLOPE = 2.2e-9, 1e-5


def begin_site(size: int) -> State:
    """Return a site's memory before the first round: no W yet, and rho2 = 0."""
    zero = np.zeros(size)
    return {"B": zero, "V": zero, "W": zero, "rho2": 0.0}


def answer(site: State, loss: FlatObjective, W: Array, rho2: float) -> tuple[Array, State]:
    """Return V_k and the memory after a round: (7) for the round before, then (4).

    loss: value and gradient of l; W: shape (size,), finite; rho2: above 0
    V_k may be inf or NaN if W is so large that l overflows.
    """
    beta = site["V"] + site["rho2"] * (site["W"] - W)  # 0 in the first round

    def problem(D: Array) -> tuple[float, Array]:
        value, gradient = loss(W + D)
        multiplied = beta + rho2 * D
        value += 0.5 * float((beta + multiplied) @ D)
        return value, gradient + multiplied

    start = site["B"] - W if site["rho2"] > 0 else np.zeros_like(W)
    stopping = Stopping(_DECREASE, _SLOPE, curvature=rho2)
    step = minimise_orthantwise(problem, start, np.zeros_like(W), stopping)
    B = W + step.x
    with np.errstate(all="ignore"):
        V = -loss(B)[1]
    return V, {"B": B, "V": V, "W": W, "rho2": rho2}
