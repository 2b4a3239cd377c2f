"""The sums of FedLin's HM2 at points, solved for every site's X'X and X'y.

The algebra, its source and what its results mean are in
`secagg.audits.attacks.fedlin.hm2_solved_sums`.

`hm2_points` is a coordinator that only looks, at a run with the setting `points`. `hm2_invented` is
a dishonest coordinator: it starts a session, and sends densities that are narrow around points of
its choice. An honest coordinator could have sent them over other sites. It uses no more rounds than
the job allows.

Both find X'X / sigma_k^2 and X'y / sigma_k^2, and so the least squares. Neither learns which site
is which, so errors are in the order of sites that fits best. The search may end in another minimum;
the attacker sees that.

Without the truth, a solution is confirmed if it explains all sums up to rounding (`misfit`), and if
the sums determine it: to first order, errors of the sums that are larger than their rounding change
X'X of the best site by no more than the number says, and by no more than 0.1 %. Where all tau are
large, sums hardly depend on X'X, and nothing is confirmed. Not shown: that no other solution is far
away and fits as well; in tests with known truth, none was.
"""

from __future__ import annotations

from math import ceil, log
from typing import ClassVar

import numpy as np

from secagg.audits.attacks.fedlin.fedlin_view import at_random, regression_of, stage_rounds
from secagg.audits.attacks.fedlin.hm2_solved_sums import (
    SOLVED,
    Moments,
    PointSums,
    query_sites,
    recover_moments,
    sums_at_points,
)
from secagg.audits.contract import Attack, Finding, Limit, Truth
from secagg.audits.site_errors import errors_by_site, mean_errors, order_of, relative_errors
from secagg.audits.views import View, Who
from secagg.contracts import Method
from secagg.models.fedlin.base import FedLinModel
from secagg.models.fedlin.hm2 import POINTS_STAGE, FedLinHm2
from secagg.models.numerics.natural_gaussian import Natural, symmetric

_NOT_SOLVED = "no search reached the sums; another one may"
_CONFIRMED = 1e-3
_MOST_UNKNOWNS = 27  # of an honest run; beyond, searches end in other minima, or take minutes
_MOST_INVENTED = 45  # likewise
_STARTS = 8
_SPREAD_POINTS = 24
_POINTS_PER_SITE = 6
_RAMP = 9.9  # factor of the precision in a round of `query_sites`, up to 1e10
_NEAR, _FAR, _NONE = -1.0, -10.0, -40.0  # log tau: from where X'X matters to where it is all


class SolvedSums(Attack):
    """What attacks share that solve such sums, of HM2 or of `fedlin_full`."""

    knows: ClassVar[str] = "the method's settings"
    metric: ClassVar[str] = "gram_error"
    meaning: ClassVar[str] = "smallest relative error of a site's X'X / sigma^2"

    most_unknowns: ClassVar[int] = _MOST_UNKNOWNS

    @staticmethod
    def suits(method: Method) -> str:
        """Return why it does not apply to a method."""
        return ""

    def why_not(self, view: View) -> str:
        """Return why it does not apply."""
        method = view.planned.method
        if not isinstance(method, FedLinModel) or self.suits(method):
            return self.suits(method) or "for FedLin"
        d = method.layout(view.planned.public).d
        unknown = len(view.sites) * d * (d + 3) // 2
        if unknown > self.most_unknowns:
            return f"the search has {unknown} unknowns; it is tried up to {self.most_unknowns}"
        return view.why_noise_hides or at_random(method)

    def limit(self, view: View) -> Limit:
        """Return the limit."""
        return Limit(0.1, errors=True)

    def score(self, guess: Moments, view: View, truth: Truth) -> Finding:
        """Return the error of the site that is recovered best, in the order that fits best."""
        sites = [regression_of(view, truth.sites[site]) for site in view.sites]
        true = np.array([each.gram / each.noise for each in sites])
        order = order_of(relative_errors(guess.A, true))
        errors = errors_by_site(view, guess.A, true, order)
        cross = np.array([each.cross / each.noise for each in sites])
        details = {
            "errors": errors,
            "cross_errors": errors_by_site(view, guess.c, cross, order),
            "misfit": guess.misfit,
        }
        failed = "" if guess.misfit < SOLVED else _NOT_SOLVED
        best = min(errors.values())
        return Finding.failure(failed, best, float(np.min(mean_errors(true))), **details)

    def without_truth(self, guess: Moments, view: View) -> Finding:
        """Return the bound on the error of the best site; see the module's text."""
        nan, inf, details = float("nan"), float("inf"), {"misfit": guess.misfit}
        if not guess.misfit < SOLVED:
            return Finding.failure(_NOT_SOLVED, inf, nan, **details)
        bound = float(np.min(guess.errors))
        if bound < _CONFIRMED:
            by = "the misfit of all sums; the number is a bound, to first order"
            return Finding.exact(bound, nan, **details, confirmed_by=by)
        failed = "the sums are explained, and other X'X explain them too"
        return Finding.failure(failed, inf, nan, **details, bound=bound)


def _of_hm2(method: Method) -> str:
    suits = isinstance(method, FedLinHm2) and method.prior == "normal"
    return "" if suits else 'for fedlin_hm2 with the prior "normal"'


class Hm2Points(SolvedSums):
    """Solve the sums at the points of a run that follows the protocol."""

    source: ClassVar[str] = "docs/math/hm2-shared-posterior.md"
    name: ClassVar[str] = "hm2_points"
    title: ClassVar[str] = "The sums of FedLin HM2 at its points, solved for every site's X'X"
    suits = staticmethod(_of_hm2)

    def why_not(self, view: View) -> str:
        """Return why it does not apply."""
        why = super().why_not(view)
        return why or ("" if stage_rounds(view, POINTS_STAGE) else "for runs with points")

    def run(self, view: View, rng: np.random.Generator) -> Moments:
        """Return the moments of all sites, in any order."""
        (seen,) = stage_rounds(view, POINTS_STAGE)
        r = seen.message["r"]
        q = Natural(r, symmetric(seen.message["Q"], len(r)))
        sums = _thinned(sums_at_points(q, seen.total))
        return recover_moments(sums, len(view.sites), _STARTS)

    def control(self, plain: View) -> View:
        """Return the view of one site's contributions, as if they were sums."""
        return plain.alone(plain.sites[0])


def _thinned(sums: PointSums) -> PointSums:
    """Return the sums with the smallest tau, where X'X matters most, and as many others."""
    order = np.argsort(np.sum(np.log(sums.tau), axis=1))
    spread = np.linspace(0, len(order) - 1, _SPREAD_POINTS).astype(int)
    kept = np.union1d(order[:_SPREAD_POINTS], order[spread])
    return PointSums(sums.tau[kept], sums.precision[kept], sums.shift[kept])


class Hm2Invented(SolvedSums):
    """Send densities that are narrow around chosen points, and solve the answers."""

    source: ClassVar[str] = "docs/math/hm2-shared-posterior.md"
    name: ClassVar[str] = "hm2_invented"
    title: ClassVar[str] = "Invented messages of FedLin HM2, solved for every site's X'X"
    views: ClassVar[tuple[Who, ...]] = (Who.DISHONEST,)
    suits = staticmethod(_of_hm2)
    most_unknowns: ClassVar[int] = _MOST_INVENTED

    def why_not(self, view: View) -> str:
        """Return why it does not apply."""
        if why := super().why_not(view):
            return why
        method = view.planned.method
        assert isinstance(method, FedLinHm2)
        if method.damping < 1:
            return "it is tried without damping"
        if _points(method, len(view.sites)) <= len(view.sites):
            return "the job has too few rounds for as many points as sites"
        return "" if view.open_session else "no site is there to ask"

    def run(self, view: View, rng: np.random.Generator) -> Moments:
        """Return the moments of all sites, in any order."""
        method, public, K = view.planned.method, view.planned.public, len(view.sites)
        assert isinstance(method, FedLinHm2) and view.open_session is not None
        d = method.layout(public).d
        points = [*rng.uniform(_FAR, _NEAR, (_points(method, K) - 1, d)), np.full(d, _NONE)]
        sums, took = query_sites(method, public, view.open_session(), K, points)
        assert took <= method.rounds
        return recover_moments(sums, K, _STARTS)


def _points(method: FedLinHm2, sites: int) -> int:
    """Return the number of points: there is a round for each, after those that narrow q."""
    narrowing = ceil(log(1e10 * method.log_tau_sd**2) / log(_RAMP))
    narrowing = max(narrowing, ceil(log(1e5 * method.mu_sd**2) / log(_RAMP)))
    return min(_POINTS_PER_SITE * sites, method.rounds - narrowing)
