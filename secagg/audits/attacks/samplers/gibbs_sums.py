"""A2 for samplers: what share of each site's cross products the sums of all rounds determine.

The sites of the sparse linear methods draw random numbers, so their sums have a distribution that
depends on the sites' X'X, X'y and y'y. Its Fisher information is bounded from below in
`secagg.audits.attacks.samplers.sampler_information`. As in `identified_share`, an attacker whose
knowledge of each statistic has variance 1 before the run knows them with V = (I + F)^-1 after it;
the identified share of a site is 1 - tr(V_k) / q over its q covariances, in the units of
`secagg.audits.site_statistics`. Contributions do not depend on the sites' means.

One sum of cross products within sites has one number for K unknowns: its share is 1/K. The excess
share is (s - 1/K) / (1 - 1/K), with s the mean share over sites, and 0 if s is below 1/K.

This is the auditor's number: it needs the truth. It is local, as that of `identified_share`; and it
is a lower bound, so a small number does not show that the sums hide the rest.
"""

from __future__ import annotations

from typing import ClassVar

import numpy as np
from scipy.stats import t as student

from secagg.audits.attacks.samplers.gibbs_view import NOT_SPARSE, sparse_method
from secagg.audits.attacks.samplers.sampler_information import Simulated, affordable, simulate
from secagg.audits.contract import Attack, Finding, Limit, Truth
from secagg.audits.views import View
from secagg.core.arrays import Array
from secagg.models.sparse_bayes.base import DRAWS

_SOME_ROUNDS = (1, 10)


class GibbsSums(Attack):
    """Compute the shares."""

    name: ClassVar[str] = "gibbs_sums"
    title: ClassVar[str] = "What share of each site's cross products a sampler's sums determine"
    source: ClassVar[str] = "Fisher information of the sums; sampler_information"
    knows: ClassVar[str] = "the method's settings; the derivatives are taken at the true records"
    metric: ClassVar[str] = "excess_share"
    meaning: ClassVar[str] = "identified beyond one sum of moments, at least; 1: everything"

    def why_not(self, view: View) -> str:
        """Return why it does not apply."""
        if sparse_method(view) is None:
            return NOT_SPARSE
        if why := view.why_noise_hides:
            return why
        if not any(seen.stage == DRAWS for seen in view.rounds):
            return "the run opened no sum of draws"
        return "" if affordable(view) else "too many coefficients to simulate"

    def limit(self, view: View) -> Limit:
        """Return the limit."""
        return Limit(0.05)

    def run(self, view: View, rng: np.random.Generator) -> None:
        """Guess nothing: the share is computed at the truth."""

    def score(self, guess: None, view: View, truth: Truth) -> Finding:
        """Return the excess share; details: shares of each site, and after fewer rounds."""
        views = [view.alone(site) for site in view.sites] if view.in_clear else [view]
        found = [simulate(each, truth.sites) for each in views]
        rounds = found[0].rounds
        folds = _shares(found, rounds)
        excess = np.array([_excess(fold) for fold in folds])
        width = float(student.ppf(0.975, len(excess) - 1) * excess.std(ddof=1) / len(excess) ** 0.5)
        value = _excess(folds.mean(axis=0))
        low, high = max(0.0, value - width), min(1.0, max(0.0, value + width))
        included = not self.limit(view).exceeded_by(low)
        return Finding(
            value=max(value, 0.0),
            low=low,
            high=high,
            baseline=0.0,
            details={
                "sites": dict(zip(view.sites, map(float, folds.mean(axis=0)), strict=True)),
                "mean_shares": {
                    str(r): {"cross products": float(np.mean(_shares(found, r)))}
                    for r in (*(r for r in _SOME_ROUNDS if r < rounds), rounds)
                },
                "one_sum_of_cross_products": 1 / len(view.sites),
                "simulated_rounds": found[0].simulated,
            },
            failed="an estimate from below: the sums may determine more",
            bound="the interval includes the limit" if included else "",
        )

    def control(self, plain: View) -> View:
        """Return the view in which one site's contributions are the sums."""
        return plain.alone(plain.sites[0])


def _shares(systems: list[Simulated], rounds: int) -> Array:
    """Return the shares of all sites after so many rounds, (folds, sites)."""
    return np.hstack([system.shares(rounds) for system in systems])


def _excess(shares: Array) -> float:
    """Return the excess over one sum; of a site that is seen alone, its share."""
    by_sum = 1 / len(shares) if len(shares) > 1 else 0.0
    return float((np.mean(shares) - by_sum) / (1 - by_sum))
