"""A2 for NOTEARS-ADMM: the sums of all rounds, solved for every site's covariance matrix.

The search and what its result means are in `secagg.audits.attacks.statistics.admm_covariance`.
"""

from __future__ import annotations

from dataclasses import replace
from typing import ClassVar

import numpy as np

from secagg.audits.attacks.statistics.admm_covariance import SOLVED, Recovered, recover_covariances
from secagg.audits.attacks.statistics.admm_view import (
    admm_rounds,
    covariance_of,
    is_static,
)
from secagg.audits.contract import Attack, Finding, Limit, Truth
from secagg.audits.site_errors import errors_by_site, mean_errors, order_of, relative_errors
from secagg.audits.views import View

_MOST_UNKNOWNS = 40  # beyond, searches end in other minima, or take minutes


class AdmmSums(Attack):
    """Solve the sums of all rounds."""

    name: ClassVar[str] = "admm_sums"
    title: ClassVar[str] = "The sums of NOTEARS-ADMM, solved for every site's covariance matrix"
    source: ClassVar[str] = "secagg.audits.attacks.statistics.admm_covariance"
    knows: ClassVar[str] = "the method's settings"
    metric: ClassVar[str] = "covariance_error"
    meaning: ClassVar[str] = "smallest relative error of a site's covariance matrix"

    def why_not(self, view: View) -> str:
        """Return why it does not apply."""
        if not is_static(view):
            return "for notears_admm without lags"
        d = len(admm_rounds(view)[0].W)
        unknown = len(view.sites) * d * (d + 1) // 2
        if unknown > _MOST_UNKNOWNS:
            return f"the search has {unknown} unknowns; it is tried up to {_MOST_UNKNOWNS}"
        return ""

    def limit(self, view: View) -> Limit:
        """Return the limit."""
        return Limit(0.1, errors=True)

    def run(self, view: View, rng: np.random.Generator) -> Recovered:
        """Return the matrices of all sites, in any order, and how well they explain the sums."""
        return recover_covariances(admm_rounds(view), len(view.sites), rng)

    def score(self, guess: Recovered, view: View, truth: Truth) -> Finding:
        """Return the error of the site that is recovered best, in the order that fits best."""
        true = np.array([covariance_of(view, truth.sites[site]) for site in view.sites])
        order = order_of(relative_errors(guess.covariances, true))
        own = errors_by_site(view, guess.covariances, true, order)
        baseline = float(np.min(mean_errors(true)))
        found = Finding.exact(min(own.values()), baseline, errors=own, misfit=guess.misfit)
        if guess.misfit < SOLVED:
            return found
        return replace(found, failed="no search reached the sums; another one may")

    def control(self, plain: View) -> View:
        """Return the view of one site's contributions, as if they were sums."""
        return plain.alone(plain.sites[0])
