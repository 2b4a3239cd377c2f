"""A1: one message of linear NOTEARS-ADMM gives a site's covariance matrix.

Ng and Zhang (AISTATS 2022), equation (10), in the notation of
`secagg.models.notears_admm.linear_site`. A site's answer is V = S (S + rho2 I)^-1 T with
T = rho2 (J - W) + beta. For a static graph T is square, and

    A = V T^-1 = S (S + rho2 I)^-1,    S = rho2 A (I - A)^-1.                                    (1)

beta is 0 in the first round, and later follows from the messages before (equation 7). V is rounded
to a step q, which moves S by up to

    q rho2 |(I - A)^-1|^2 |T^-1|                                                                 (2)

in operator norms. The first rho2 is small, so the error is about 10^-7; the attack uses the round
with the smallest (2), where it is about 10^-11.

The attacker reads each site's frame as its contribution. Under `plain` it is one. Under `masked` it
is a vector of uniformly random numbers, and (1) gives nothing.
"""

from __future__ import annotations

from typing import ClassVar

import numpy as np

from secagg.audits.attacks.statistics.admm_view import (
    admm_rounds,
    covariance_of,
    why_not_admm,
)
from secagg.audits.contract import Attack, Finding, Limit, Truth
from secagg.audits.site_errors import mean_errors, relative_errors
from secagg.audits.views import View
from secagg.core.arrays import Array


class AdmmMessages(Attack):
    """Solve (1) for each site."""

    name: ClassVar[str] = "admm_messages"
    title: ClassVar[str] = "One message of NOTEARS-ADMM, solved for the site's covariance matrix"
    source: ClassVar[str] = "Ng and Zhang (2022), equation (10)"
    knows: ClassVar[str] = "the method's settings"
    from_sums_only: ClassVar[bool] = True
    metric: ClassVar[str] = "covariance_error"
    meaning: ClassVar[str] = "smallest relative error of a site's covariance matrix"

    def why_not(self, view: View) -> str:
        """Return why it does not apply."""
        return why_not_admm(view) or view.why_not_readable

    def limit(self, view: View) -> Limit:
        """Return the limit."""
        return Limit(0.5, errors=True)

    def run(self, view: View, rng: np.random.Generator) -> dict[str, Array]:
        """Return S of each site."""
        return {site: _solved(view.alone(site)) for site in view.readable_sites}

    def score(self, guess: dict[str, Array], view: View, truth: Truth) -> Finding:
        """Return the error of the site that is recovered best."""
        true = np.array([covariance_of(view, truth.sites[site]) for site in guess])
        found = relative_errors(np.array(list(guess.values())), true)
        errors = {site: float(found[i, i]) for i, site in enumerate(guess)}
        baseline = float(np.min(mean_errors(true)))
        return Finding.exact(min(errors.values()), baseline, errors=errors)


def _solved(alone: View) -> Array:
    """Return S of a site, by (1) from the round with the smallest (2)."""
    rounds = admm_rounds(alone)
    eye, beta, best = np.eye(len(rounds[0].W)), np.zeros_like(rounds[0].W), np.inf
    S = np.full_like(eye, np.nan)
    for t, (W, rho2, V) in enumerate(rounds):
        if not np.all(np.isfinite(V)):  # the frame does not hold a contribution
            break
        T = rho2 * (eye - W) + beta
        with np.errstate(all="ignore"):
            A = V @ np.linalg.pinv(T)
            rest = np.linalg.pinv(eye - A)
            size = np.linalg.norm(rest, 2) ** 2 * np.linalg.norm(np.linalg.pinv(T), 2)
            error = float(rho2 * size)
        if error < best:
            best, found = error, rho2 * A @ rest
            S = (found + found.T) / 2
        if t + 1 < len(rounds):
            beta = V + rho2 * (W - rounds[t + 1].W)
    return S
