"""A2 for NOTEARS-ADMM: the sums of all rounds, solved for every site's covariance matrix.

The search and what its result means are in `secagg.audits.attacks.statistics.admm_solved_sums`.

Without the truth, the attacker confirms a solution in two steps. It explains all sums up to the
rounding of the contributions (`misfit`). And the sums determine it: to first order, errors of the
sums that are larger than their rounding change the matrix of the best site by no more than the
number says, and by no more than 0.1 %. With few rounds, other matrices explain the sums nearly, or
fully, and none are confirmed. Not shown: that no other solution is far away and fits as well; in
tests with known truth, none was.
"""

from __future__ import annotations

from typing import ClassVar

import numpy as np

from secagg.audits.attacks.statistics.admm_solved_sums import (
    SOLVED,
    Recovered,
    predicted_sums,
    recover_covariances,
    upper_triangles,
)
from secagg.audits.attacks.statistics.admm_view import (
    admm_rounds,
    covariance_of,
    response_rounding,
    why_not_admm,
)
from secagg.audits.contract import Attack, Finding, Limit, Truth
from secagg.audits.site_errors import errors_by_site, mean_errors, order_of, relative_errors
from secagg.audits.site_statistics import error_bounds
from secagg.audits.views import View

_NOT_SOLVED = "no search reached the sums; another one may"
_ROUNDINGS = 100
"""A misfit may be rounding if it is at most this many times the expected rounding error."""
_CONFIRMED = 1e-3
_MOST_UNKNOWNS = 40  # beyond, searches end in other minima, or take minutes


class AdmmSums(Attack):
    """Solve the sums of all rounds."""

    name: ClassVar[str] = "admm_sums"
    title: ClassVar[str] = "The sums of NOTEARS-ADMM, solved for every site's covariance matrix"
    source: ClassVar[str] = "secagg.audits.attacks.statistics.admm_solved_sums"
    knows: ClassVar[str] = "the method's settings"
    from_sums_only: ClassVar[bool] = True
    metric: ClassVar[str] = "covariance_error"
    meaning: ClassVar[str] = "smallest relative error of a site's covariance matrix"

    def why_not(self, view: View) -> str:
        """Return why it does not apply."""
        if why := why_not_admm(view):
            return why
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
        failed = "" if guess.misfit < SOLVED else _NOT_SOLVED
        return Finding.failure(failed, min(own.values()), baseline, errors=own, misfit=guess.misfit)

    def without_truth(self, guess: Recovered, view: View) -> Finding:
        """Return the bound on the error of the best site; see the module's text."""
        nan, inf = float("nan"), float("inf")
        if not guess.misfit < min(SOLVED, _ROUNDINGS * response_rounding(view)):
            return Finding.failure(_NOT_SOLVED, inf, nan, misfit=guess.misfit)
        J = predicted_sums(upper_triangles(guess.covariances), admm_rounds(view))[1]
        bounds = error_bounds(J, float(np.sqrt(2 * SOLVED))).reshape(len(guess.covariances), -1)
        sizes = np.max(np.abs(guess.covariances), axis=(1, 2))
        bound = float(np.min(np.max(bounds, axis=1) / sizes))
        if bound < _CONFIRMED:
            by = "the misfit of all sums; the number is a bound, to first order"
            return Finding.exact(bound, nan, misfit=guess.misfit, confirmed_by=by)
        why = "the sums are explained, and other matrices explain them too"
        return Finding.failure(why, inf, nan, misfit=guess.misfit, bound=bound)

    def control(self, plain: View) -> View:
        """Return the view of one site's contributions, as if they were sums."""
        return plain.alone(plain.sites[0])
