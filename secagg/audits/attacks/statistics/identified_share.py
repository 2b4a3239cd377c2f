"""A2: what share of each site's means and covariances the opened sums determine.

Let y be all numbers of the opened sums, and x the statistics of all sites
(`secagg.audits.site_statistics`, with its units). Near the truth, y changes by J dx, and is known
up to its rounding and noise, of variance R. An attacker whose knowledge of x has variance 1 in each
direction before the run knows x with the covariance matrix

    V = (I + J' R^-1 J)^-1                                                                       (1)

after it (a linear Gaussian model). The *identified share* of a site's means is 1 - tr(V_k) / q,
with V_k the block of its q means; likewise for its covariances. It is 0 if the sums say nothing
about them, and 1 if they determine them. One sum of moments over K sites has one number for K
unknowns: over all sites and statistics, its mean share is 1/K. The *excess share* compares a run
with such a sum over the same sites, without noise: (s - r) / (1 - r), with s the mean share over
sites and r that of one sum of moments; of means or of covariances, whichever is larger.

If a method reads more of the records than means and covariances (`moments_only` in the details is
false), the share is that of an attacker who knows all else about the records, so it is too large.

What the result means. (1) is local: it says that no other solution is near, not that there is none
elsewhere, nor that a search finds it. The derivatives need the truth, so this is the auditor's
number and no attack; `admm_sums` and `hm1_sums` are attacks.

R also contains the error of the derivatives, which are finite differences: a number that hardly
depends on the records must not look informative. An attacker with exact derivatives may know more.

Not covered: sites whose contributions depend on random numbers of their own (samplers, batches,
random dropout of sites).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import ClassVar

import numpy as np

from secagg.audits.contract import Attack, Finding, Limit, Truth
from secagg.audits.site_statistics import (
    DERIVATIVE_ERROR,
    derivatives,
    directions,
    draws_random_numbers,
    reads_moments_only,
    resolutions,
    used_variables,
)
from secagg.audits.views import View
from secagg.core.arrays import Array

_SOME_ROUNDS = (1, 10)
GROUPS = ("means", "covariances")
_ROUNDING = 2.0**-40  # of a sum of moments to compare with


class IdentifiedShare(Attack):
    """Compute (1)."""

    name: ClassVar[str] = "identified_share"
    title: ClassVar[str] = "What share of each site's means and covariances the sums determine"
    source: ClassVar[str] = "Fisher information of the sums; equation (1) of the module"
    knows: ClassVar[str] = "the method's settings; the derivatives are taken at the true records"
    metric: ClassVar[str] = "excess_share"
    meaning: ClassVar[str] = "identified beyond one sum of moments; 1: everything"

    def why_not(self, view: View) -> str:
        """Return why it does not apply."""
        if any(stage.training for stage in view.planned.plans.stages.values()):
            return "sites train alone with noise"
        return "" if view.rounds else "the run opened no sum of the method"

    def limit(self, view: View) -> Limit:
        """Return the limit."""
        return Limit(0.05)

    def run(self, view: View, rng: np.random.Generator) -> None:
        """Guess nothing: the share is computed at the truth."""

    def score(self, guess: None, view: View, truth: Truth) -> Finding:
        """Return the excess share; details: shares of each site, and after fewer rounds."""
        if any(draws_random_numbers(view, truth.sites[site]) for site in view.sites):
            why = "sites draw random numbers, so the sums are no functions of their records"
            return Finding.impossible(why)
        used = sorted({j for site in view.sites for j in used_variables(view, truth.sites[site])})
        if not used:
            why = "the sums do not depend on the records' values"
            return Finding.impossible(why)
        J, R, groups = _information(view, truth, used)
        rng = np.random.default_rng(0)
        moments_only = all(reads_moments_only(view, truth.sites[s], rng) for s in view.sites)
        rounds = sorted({*(r for r in _SOME_ROUNDS if r < len(J)), len(J)})
        after = {r: _shares(J[:r], R[:r], groups, view.in_clear) for r in rounds}
        shares = {r: _means(each) for r, each in after.items()}
        reference = _means(_shares([_moments_derivatives(view, truth, used)], [np.ones(1)], groups))
        last = shares[len(J)]
        excess = max((last[name] - r) / (1 - r) for name, r in reference.items() if r < 1)
        return Finding.exact(
            max(excess, 0.0), 0.0, mean_shares={str(r): each for r, each in shares.items()},
            one_sum_of_moments=reference, sites=after[len(J)], moments_only=moments_only,
        )  # fmt: skip

    def control(self, plain: View) -> View:
        """Return the view in which each site's contribution is seen alone."""
        return plain


Groups = list[tuple[str, dict[str, slice]]]
"""By site, the columns of J of its means and of its covariances."""


def _information(
    view: View, truth: Truth, used: Sequence[int]
) -> tuple[list[Array], list[Array], Groups]:
    """Return by round J (numbers, statistics of all sites) and root R; and the columns of J."""
    blocks, groups, at = list[list[Array]](), Groups(), 0
    for site in view.sites:
        rows = truth.sites[site]
        by_statistic = list(derivatives(view, rows, used))
        blocks.append([np.array(each).T for each in zip(*by_statistic, strict=True)])
        means, all_ = sum(bool(c.any()) for c, _ in directions(rows, used)), len(by_statistic)
        columns = {"means": slice(at, at + means), "covariances": slice(at + means, at + all_)}
        groups.append((site, columns))
        at += all_
    J = [np.hstack([block[r] for block in blocks if block]) for r in range(len(view.rounds))]
    R = [
        np.hypot(resolutions(view, seen.stage), DERIVATIVE_ERROR * np.max(np.abs(each)))
        for each, seen in zip(J, view.rounds, strict=True)
    ]
    return J, R, groups


def _moments_derivatives(view: View, truth: Truth, used: Sequence[int]) -> Array:
    """Return J of one sum of moments, sum x and sum x x', nearly without rounding."""
    columns = []
    for site in view.sites:
        values = truth.sites[site].values[:, used]
        n, m = len(values), values.mean(axis=0) if len(values) else 0.0
        for c, E in directions(truth.sites[site], used):
            products = E + np.outer(c, m) + np.outer(m, c)
            columns.append(n * np.concatenate([c, products[np.triu_indices(len(c))]]))
    return np.array(columns).T / _ROUNDING


def _means(shares: Mapping[str, Mapping[str, float]]) -> dict[str, float]:
    """Return the mean shares over sites."""
    return {name: float(np.mean([each[name] for each in shares.values()])) for name in GROUPS}


def _shares(
    J: list[Array], R: list[Array], groups: Groups, in_clear: bool = False
) -> dict[str, dict[str, float]]:
    """Return each site's shares. In clear, each site's own contributions are seen."""
    whitened = np.vstack([each / root[:, None] for each, root in zip(J, R, strict=True)])
    found = {}
    for site, columns in groups:
        part, first = whitened, 0
        if in_clear:
            first = columns["means"].start
            part = whitened[:, first : columns["covariances"].stop]
        found[site] = {
            name: _share(part, slice(used.start - first, used.stop - first))
            for name, used in columns.items()
        }
    return found


def _share(whitened: Array, block: slice) -> float:
    """Return 1 - tr(V_k) / q. The singular values give V without forming J'J."""
    q = block.stop - block.start
    if not q:
        return 0.0
    _, s, V = np.linalg.svd(whitened, full_matrices=False)
    return float(np.sum((V[:, block] ** 2) * (s**2 / (1 + s**2))[:, None]) / q)
