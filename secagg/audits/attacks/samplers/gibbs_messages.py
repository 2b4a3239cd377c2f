"""A5: what single contributions to the sparse linear methods show of a site.

The site draws its own coefficients, error variance and spreads at random in every round (Kidd,
Wang, Xu and Ni, PSB 2023, section 2.2), and its contribution is computed from these draws.

* step `collapsed`: one contribution has the site's least squares exactly, because the draws cancel
  (`secagg.audits.attacks.samplers.gibbs_collapsed`). X'X, up to a factor, follows from the
  smallest draws of many rounds.
* step `paper`: a contribution shows the draws theta_k and lambda_k. X'X up to a factor and the
  least squares follow by maximum likelihood (`secagg.audits.attacks.samplers.gibbs_paper`).

The attacker reads each site's frame as its contribution. Under `plain` it is one. Under `masked` it
is a vector of uniformly random numbers.

Not shown: the scale of X'X at a site, and its residual sum of squares. For `sparse_markov` the
details have the X'X of the first regression only.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from secagg.audits.attacks.samplers import gibbs_collapsed, gibbs_paper
from secagg.audits.attacks.samplers.gibbs_view import (
    NOT_SPARSE,
    Series,
    least_squares,
    regressions,
    relative_error,
    site_regressions,
    sparse_method,
    to_scale,
)
from secagg.audits.contract import Attack, Finding, Limit, Truth
from secagg.audits.views import View
from secagg.core.arrays import Array
from secagg.models.sparse_bayes.base import DRAWS

_SOME_ROUNDS = (1, 10, 30, 100, 300, 1000)


@dataclass(frozen=True)
class Recovered:
    """By regression b, NaN where it was not found; and by numbers of rounds b and X'X of the first.

    X'X is up to a factor, and None where it was not found.
    """

    coefficients: list[Array]
    after: dict[int, tuple[Array, Array | None]]


class GibbsMessages(Attack):
    """Solve each site's contributions."""

    name: ClassVar[str] = "gibbs_messages"
    title: ClassVar[str] = "Contributions to sparse regressions, solved for the site's regression"
    source: ClassVar[str] = (
        "Kidd, Wang, Xu and Ni (2023), section 2.2; gibbs_collapsed, gibbs_paper"
    )
    knows: ClassVar[str] = "the method's settings"
    metric: ClassVar[str] = "least_squares_error"
    meaning: ClassVar[str] = "smallest relative error of a site's least squares"

    def why_not(self, view: View) -> str:
        """Return why it does not apply."""
        method = sparse_method(view)
        if method is None:
            return NOT_SPARSE
        if method.step == "paper" and method.sweeps > 1:
            return "with step paper, for one sweep in a round"
        return view.why_noise_hides or view.why_not_readable

    def limit(self, view: View) -> Limit:
        """Return the limit."""
        return Limit(0.1, errors=True)

    def run(self, view: View, rng: np.random.Generator) -> dict[str, Recovered]:
        """Return what is found of each site."""
        found = {}
        for site in view.readable_sites:
            each = list(regressions(view.alone(site)))
            rounds = len(each[0][0].theta)
            after = {
                r: _solve(view, [one.first(r) for one in each[0]], grams=True)
                for r in (*(r for r in _SOME_ROUNDS if r < rounds), rounds)
            }
            rest = [_solve(view, chains, grams=False)[0] for chains in each[1:]]
            found[site] = Recovered([after[rounds][0], *rest], after)
        return found

    def score(self, guess: dict[str, Recovered], view: View, truth: Truth) -> Finding:
        """Return the error of the site that is recovered best."""
        true = {site: site_regressions(view, truth.sites[site]) for site in guess}
        own = {site: [least_squares(one) for one in each] for site, each in true.items()}
        pooled = [
            np.linalg.pinv(sum(one.gram for one in each)) @ sum(one.cross for one in each)
            for each in zip(*true.values(), strict=True)
        ]
        errors = {
            site: max(map(relative_error, guess[site].coefficients, own[site])) for site in guess
        }
        baseline = min(max(map(relative_error, pooled, own[site])) for site in guess)
        after = [
            [rounds, *(float(np.median(each)) for each in zip(*(
                _errors(guess[site].after[rounds], own[site][0], true[site][0].gram)
                for site in guess
            ), strict=True))]
            for rounds in next(iter(guess.values())).after
        ]  # fmt: skip
        mean = to_scale(np.asarray(sum(each[0].gram for each in true.values())))
        grams = {site: relative_error(mean, to_scale(each[0].gram)) for site, each in true.items()}
        return Finding.exact(
            min(errors.values()), baseline, errors=errors,
            rounds_and_median_errors_of_least_squares_and_gram=after,
            gram_baseline=float(np.median(list(grams.values()))),
        )  # fmt: skip


def _solve(view: View, chains: Sequence[Series], *, grams: bool) -> tuple[Array, Array | None]:
    """Return b, and X'X up to a factor. grams: whether X'X is wanted"""
    method = sparse_method(view)
    assert method is not None
    nothing = np.full(chains[0].theta.shape[1], np.nan)
    if not all(np.all(np.isfinite(v)) for one in chains for v in one.sent.values()):
        return nothing, None
    try:
        if method.step == "paper":
            records = next(s.message["records"] for s in view.rounds if s.stage == DRAWS)
            A, b = gibbs_paper.solve_draws(chains, records / len(view.sites))
            return b, A
        b = gibbs_collapsed.least_squares(chains)
        step = view.planned.plans.of(DRAWS).fields[0].field.fraction_bits
        gram = gibbs_collapsed.cross_products(chains, method.sweeps, 2.0**-step) if grams else None
    except np.linalg.LinAlgError:  # of numbers that are no contributions
        return nothing, None
    return b, gram


def _errors(found: tuple[Array, Array | None], b: Array, gram: Array) -> tuple[float, float]:
    own = float("inf") if found[1] is None else relative_error(to_scale(found[1]), to_scale(gram))
    return relative_error(found[0], b), own
