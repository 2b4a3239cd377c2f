"""The sums of FedLin's HM1, solved for every site's own coefficients or regression.

The algebra, its source and what its results mean are in
`secagg.audits.attacks.fedlin.hm1_solved_sums`.

`hm1_sums` is a coordinator that only looks. It recovers the coefficients with which the run ends at
every site. It fails where the sites' histories are nearly linearly dependent: with more sites than
coefficients, digits are lost.

`hm1_invented` is a dishonest coordinator. It starts a session and sends messages of its choice,
which an honest coordinator could have sent over other sites. It recovers every site's least
squares. X'X and X'y are among the details. They are exact only if a round's steps do not converge,
and unknown to scale if each site has its own noise variance (`variance = "site"`).

Neither learns which site is which, so errors are in the order of sites that fits best.

Without the truth, the coordinator that only looks can confirm a solution: the sum of all sites'
final coefficients was used for their signs only. That a wrong solution explains d numbers up to a
relative misfit m has a probability of about 2^K (2 m)^d, times the number of pairs of rounds that
were tried. If that is small, the solution is right, and m is about the size of its error, which is
the number.
"""

from __future__ import annotations

from typing import ClassVar, NamedTuple

import numpy as np

from secagg.audits.attacks.fedlin.fedlin_view import at_random, regression_of, stage_rounds
from secagg.audits.attacks.fedlin.hm1_solved_sums import (
    LAGS,
    Recovered,
    cross_products,
    query_sites,
    recover_coefficients,
    recover_least_squares,
)
from secagg.audits.contract import Attack, Finding, Limit, Truth
from secagg.audits.site_errors import errors_by_site, mean_errors, order_of, relative_errors
from secagg.audits.site_statistics import replayed
from secagg.audits.views import View, Who
from secagg.core.arrays import Array
from secagg.models.fedlin.base import FINISH
from secagg.models.fedlin.hm1 import FedLinHm1

_UNEXPLAINED = "the solution does not explain the last sum"
_MOST_SITES = 12
"""The search for signs doubles with each site."""
_CONFIRMED = 1e-3
"""Largest misfit of a solution. A wrong one has it with probability of at most 2^K 0.002^d."""
_CHANCE = 1e-3
"""Largest probability that a wrong solution has this misfit."""
_INVENTED_SIZE = 1.0  # of the entries of M


class Hm1Sums(Attack):
    """Solve the sums of a run that follows the protocol."""

    name: ClassVar[str] = "hm1_sums"
    title: ClassVar[str] = "The sums of FedLin HM1, solved for every site's coefficients"
    source: ClassVar[str] = "docs/math/hm1-site-covariance.md, equation (5)"
    knows: ClassVar[str] = "the method's settings"
    metric: ClassVar[str] = "coefficient_error"
    meaning: ClassVar[str] = "smallest relative error of a site's coefficients"

    def why_not(self, view: View) -> str:
        """Return why it does not apply."""
        return _why_not(view)

    def limit(self, view: View) -> Limit:
        """Return the limit."""
        return Limit(0.1, errors=True)

    def run(self, view: View, rng: np.random.Generator) -> Recovered | None:
        """Return the coefficients of all sites, in any order."""
        method = _method(view)
        rounds = [(seen.message, seen.total) for seen in stage_rounds(view)]
        (last,) = stage_rounds(view, FINISH)
        return recover_coefficients(
            rounds, (last.message, last.total), method.alpha, len(view.sites)
        )

    def score(self, guess: Recovered | None, view: View, truth: Truth) -> Finding:
        """Return the error of the site that is recovered best, in the order that fits best."""
        true = np.array([replayed(view, truth.sites[s])[-1]["coefficients"] for s in view.sites])
        baseline = float(np.min(mean_errors(true)))
        if guess is None:
            return _nothing(baseline)
        order = order_of(relative_errors(guess.theta, true))
        errors = errors_by_site(view, guess.theta, true, order)
        return _found(baseline, guess, errors=errors)

    def without_truth(self, guess: Recovered | None, view: View) -> Finding:
        """Return the misfit of a confirmed solution; see the module's text."""
        nan, inf = float("nan"), float("inf")
        if guess is None:
            return _nothing(nan)
        K, d = guess.theta.shape
        tried = len(LAGS) * len(stage_rounds(view))
        chance = min(1.0, tried * 2.0**K * (2 * guess.misfit) ** d)
        details = {"misfit": guess.misfit, "chance_of_a_wrong_solution": chance}
        if not guess.misfit < _CONFIRMED:
            return Finding.failure(_UNEXPLAINED, inf, nan, **details)
        if chance > _CHANCE:
            failed = "a wrong solution may explain so few coefficients by chance"
            return Finding.failure(failed, inf, nan, **details)
        by = "the sum of final coefficients; the number is its relative misfit"
        return Finding.exact(guess.misfit, nan, **details, confirmed_by=by)

    def control(self, plain: View) -> View:
        """Return the view of one site's contributions, as if they were sums."""
        return plain.alone(plain.sites[0])


class Regressions(NamedTuple):
    """Least squares (K, d), and X'X (K, d, d), in any order; and the separation they are from."""

    least: Array
    gram: Array
    recovered: Recovered


class Hm1Invented(Attack):
    """Send messages that are made from invented sums, and solve the answers."""

    name: ClassVar[str] = "hm1_invented"
    title: ClassVar[str] = "Invented messages of FedLin HM1, solved for every site's regression"
    source: ClassVar[str] = "secagg.audits.attacks.fedlin.hm1_solved_sums"
    knows: ClassVar[str] = "the method's settings"
    views: ClassVar[tuple[Who, ...]] = (Who.DISHONEST,)
    metric: ClassVar[str] = "coefficient_error"
    meaning: ClassVar[str] = "smallest relative error of a site's least squares"

    def why_not(self, view: View) -> str:
        """Return why it does not apply."""
        return _why_not(view) or ("" if view.open_session else "no site is there to ask")

    def limit(self, view: View) -> Limit:
        """Return the limit."""
        return Limit(0.1, errors=True)

    def run(self, view: View, rng: np.random.Generator) -> Regressions | None:
        """Return the regressions of all sites, in any order."""
        assert view.open_session is not None
        method, public, K = _method(view), view.planned.public, len(view.sites)
        rounds, final = query_sites(method, public, view.open_session(), K, _INVENTED_SIZE)
        enough = 2 * method.layout(public).d + 1  # equations of P, twice
        found = recover_coefficients(rounds, final, method.alpha, K, enough)
        if found is None:
            return None
        least, P = recover_least_squares(found.separated, rounds, method.alpha)
        noise, a = float(rounds[0][0]["noise"][0]), found.separated.a
        gram = np.array([cross_products(P[k], a[k], noise, method) for k in range(K)])
        return Regressions(found.signs * least, gram, found)

    def score(self, guess: Regressions | None, view: View, truth: Truth) -> Finding:
        """Return the error of the site that is recovered best, in the order that fits best."""
        sites = [regression_of(view, truth.sites[site]) for site in view.sites]
        true = np.array([each.least for each in sites])
        baseline = float(np.min(mean_errors(true)))
        if guess is None:
            return _nothing(baseline)
        order = order_of(relative_errors(guess.least, true))
        errors = errors_by_site(view, guess.least, true, order)
        details = {"errors": errors}
        if _method(view).variance == "pooled":
            cross = np.einsum("kij,kj->ki", guess.gram, guess.least)
            gram_of, cross_of = (np.array([each[i] for each in sites]) for i in (0, 1))
            details["gram_errors"] = errors_by_site(view, guess.gram, gram_of, order)
            details["cross_errors"] = errors_by_site(view, cross, cross_of, order)
        return _found(baseline, guess.recovered, **details)


def _method(view: View) -> FedLinHm1:
    method = view.planned.method
    assert isinstance(method, FedLinHm1)
    return method


def _why_not(view: View) -> str:
    """Return why neither attack applies."""
    if not isinstance(view.planned.method, FedLinHm1):
        return "for fedlin_hm1"
    if len(view.sites) > _MOST_SITES:
        return f"the search for signs is tried for up to {_MOST_SITES} sites"
    return at_random(view.planned.method)


def _found(baseline: float, recovered: Recovered, **details: dict[str, float]) -> Finding:
    best, misfit = min(details["errors"].values()), recovered.misfit
    failed = "" if misfit < _CONFIRMED else _UNEXPLAINED
    return Finding.failure(failed, best, baseline, **details, misfit=misfit)


def _nothing(baseline: float) -> Finding:
    return Finding.failure("no two rounds separate the sites", float("inf"), baseline)
