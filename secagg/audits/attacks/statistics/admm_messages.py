"""A1: one message of linear NOTEARS-ADMM gives a site's covariance matrix.

Ng and Zhang (AISTATS 2022), equation (10), in the notation of
`secagg.models.notears_admm.linear_site`. In the first round beta_k = 0, so the site's answer is
V = S (S + rho2 I)^-1 T with T = rho2 (J - W). For a static graph T is square, and

    A = V T^-1 = S (S + rho2 I)^-1,    S = rho2 A (I - A)^-1.                                    (1)

The attacker reads each site's frame as its contribution. Under `plain` it is one. Under `masked` it
is a vector of uniformly random numbers, and (1) gives nothing.
"""

from __future__ import annotations

from typing import ClassVar

import numpy as np

from secagg.audits.attacks.statistics.admm_view import (
    admm_rounds,
    covariance_of,
    is_static,
    relative_error,
)
from secagg.audits.contract import Attack, Finding, Limit, Truth
from secagg.audits.views import View
from secagg.core.arrays import Array


class AdmmMessages(Attack):
    """Solve (1) for each site."""

    name: ClassVar[str] = "admm_messages"
    title: ClassVar[str] = "One message of NOTEARS-ADMM, solved for the site's covariance matrix"
    source: ClassVar[str] = "Ng and Zhang (2022), equation (10)"
    knows: ClassVar[str] = "the method's settings"
    metric: ClassVar[str] = "covariance_error"
    meaning: ClassVar[str] = "smallest relative error of a site's covariance matrix"

    def why_not(self, view: View) -> str:
        """Return why it does not apply."""
        if not is_static(view):
            return "for notears_admm without lags"
        readable = view.rounds and view.rounds[-1].parts
        return "" if readable else "no frame to the coordinator holds numbers"

    def limit(self, view: View) -> Limit:
        """Return the limit."""
        return Limit(0.5, errors=True)

    def run(self, view: View, rng: np.random.Generator) -> dict[str, Array]:
        """Return S of each site."""
        found = {}
        for site in view.rounds[-1].parts:
            first = admm_rounds(view.alone(site))[0]
            if not np.all(np.isfinite(first.total)):
                found[site] = np.full_like(first.total, np.nan)
                continue
            T = first.rho2 * (np.eye(len(first.W)) - first.W)
            A = np.linalg.solve(T.T, first.total.T).T
            with np.errstate(all="ignore"):
                S = first.rho2 * A @ np.linalg.pinv(np.eye(len(A)) - A)
            found[site] = (S + S.T) / 2
        return found

    def score(self, guess: dict[str, Array], view: View, truth: Truth) -> Finding:
        """Return the error of the site that is recovered best."""
        true = {site: covariance_of(view, truth.sites[site]) for site in guess}
        errors = {site: relative_error(guess[site], true[site]) for site in guess}
        mean = np.mean(list(true.values()), axis=0)
        baseline = min(relative_error(mean, each) for each in true.values())
        return Finding.exact(min(errors.values()), baseline, errors=errors)

    def control(self, plain: View) -> View:
        """Return the view in clear."""
        return plain
