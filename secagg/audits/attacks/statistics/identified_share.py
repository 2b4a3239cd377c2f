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
sites and r that of one sum of moments; of means or of covariances, whichever is larger. If r is 1,
the used columns vary at one site only, so every sum is about this site alone. The excess share is
then s itself.

There are two such sums. *Pooled*: sum x and sum xx'. *Within sites*: the scatter about each site's
own means, summed, as method moments has it with `centre = "site"`. It determines 1/K of the
covariances and no mean. A pooled sum determines more in all, but less than 1/K of the covariances,
because its products mix them with the means. So each sum would seem to exceed the other one. The
excess share is that over the sum for which it is smaller, in means and covariances alike.

If a method reads more of the records than means and covariances (`moments_only` in the details is
false), there are three cases.

1. The sums do not change if sites exchange records (`pooled` is true). Then they say nothing about
   who has which record, and the excess share is 0.
   Counts of cells, which small changes of the records do not change, are of this kind or the next.
2. The contributions are seen in clear, and a weighted sum of them does change if sites exchange
   records. They are the site's own statistics, and the number is 1.
3. Otherwise all other changes of the records are unknowns, too, with variance 1 each: x is then
   longer, and tr(V_k) is still over the means or covariances only.

What the result means. (1) is local: it says that no other solution is near, not that there is none
elsewhere, nor that a search finds it. With single records as unknowns, that is far from an attack;
the number is then an upper bound. The derivatives need the truth, so this is the auditor's
number and no attack; `admm_sums` and `hm1_sums` are attacks.

A coalition of the coordinator and some sites knows their records and their noise. So their
statistics are no unknowns, their noise is not in R, and the sum of moments to compare with is that
of the other sites. An attacker that sees contributions in clear sees each of them with the rounding
and the noise of one site: R is then that of one contribution.

R also contains the error of the derivatives, which are finite differences: a number that hardly
depends on the records must not look informative. An attacker with exact derivatives may know more.

If contributions depend on random numbers of the sites (samplers, batches, random participation),
the attacker is assumed to know them. The number is then an upper bound, too. `gibbs_sums` has an
estimate for samplers.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import ClassVar

import numpy as np

from secagg.audits.contract import Attack, Finding, Limit, Truth
from secagg.audits.site_statistics import (
    DERIVATIVE_ERROR,
    derivatives,
    directions,
    draws_random_numbers,
    flat,
    reads_moments_only,
    reads_pooled_only,
    record_derivatives,
    resolutions,
    used_variables,
)
from secagg.audits.views import View, Who
from secagg.contracts import SiteRecords
from secagg.core.arrays import Array

_SOME_ROUNDS = (1, 2, 3, 5, 10, 20, 30, 50, 100, 200, 500)
GROUPS = ("means", "covariances")
_MOST_WORK = 15_000  # values of records times rounds: minutes
_DRAWS = "an upper bound: the attacker is assumed to know the sites' random numbers"
_RECORDS = "an upper bound: the attacker is assumed to know all records nearly"
_ALL = 1 - 1e-9
MOST_FLOPS = 3e11
"""The most operations of the singular value decompositions: a minute."""
_ROUNDING = 2.0**-40  # of a sum of moments to compare with


class IdentifiedShare(Attack):
    """Compute (1)."""

    name: ClassVar[str] = "identified_share"
    title: ClassVar[str] = "What share of each site's means and covariances the sums determine"
    source: ClassVar[str] = "Fisher information of the sums; equation (1) of the module"
    knows: ClassVar[str] = "the method's settings; the derivatives are taken at the true records"
    views: ClassVar[tuple[Who, ...]] = (Who.COORDINATOR, Who.COALITION)
    from_sums_only: ClassVar[bool] = True
    metric: ClassVar[str] = "excess_share"
    meaning: ClassVar[str] = (
        "identified beyond one sum of moments, pooled or within sites; 1: everything"
    )

    def why_not(self, view: View) -> str:
        """Return why it does not apply."""
        return view.why_no_sums_of_sites

    def limit(self, view: View) -> Limit:
        """Return the limit."""
        return Limit(0.05)

    def run(self, view: View, rng: np.random.Generator) -> None:
        """Guess nothing: the share is computed at the truth."""

    def score(self, guess: None, view: View, truth: Truth) -> Finding:
        """Return the excess share; details: shares of each site, and after fewer rounds."""
        sites = [site for site in view.sites if site not in view.own]
        used = sorted({j for site in sites for j in used_variables(view, truth.sites[site])})
        rows = {site: truth.sites[site] for site in sites}
        rng = np.random.default_rng(0)
        still = not any(directions(each, used) for each in rows.values())
        stages = view.planned.plans.stages
        if still and not all(stages[seen.stage].counts_cells for seen in view.rounds):
            return Finding.impossible("small changes of the records do not change the sums")
        moments_only = not still and all(
            reads_moments_only(view, each, rng) for each in rows.values() if len(each.values) > 2
        )
        if not moments_only and reads_pooled_only(view, rows, rng, weighted=view.in_clear):
            return Finding.exact(0.0, 0.0, moments_only=False, pooled=True)
        if not moments_only and view.in_clear:
            return Finding.exact(1.0, 0.0, moments_only=False, pooled=False)
        values = sum(len(each.values) for each in rows.values()) * len(used)
        if not moments_only and values * len(view.rounds) > _MOST_WORK:
            return Finding.impossible(
                f"the method reads single records: {values} values in {len(view.rounds)} rounds "
                "are too many to compute"
            )
        unknowns = sum(len(directions(each, used)) for each in rows.values())
        numbers = sum(len(flat(seen.total)) for seen in view.rounds)
        if unknowns * numbers * min(unknowns, numbers) > MOST_FLOPS:
            return Finding.impossible(f"{numbers} numbers and {unknowns} unknowns are too many")
        J, R, groups = information(view, rows, used, moments_only=moments_only)
        rounds = sorted({*(r for r in _SOME_ROUNDS if r < len(J)), len(J)})
        after = {r: shares(J[:r], R[:r], groups, view.in_clear) for r in rounds}
        by_rounds = {r: _means(each) for r, each in after.items()}
        last = by_rounds[len(J)]
        references = [_means(shares(*_one_sum(rows, used, within=w))) for w in (False, True)]
        excess, reference = least_excess(last, references)
        excess = excess if excess > _ROUNDING else 0.0
        draws = any(draws_random_numbers(view, each) for each in rows.values())
        found = Finding.exact(
            excess, 0.0, mean_shares={str(r): each for r, each in by_rounds.items()},
            one_sum_of_moments=reference, sites=after[len(J)], moments_only=moments_only,
        )  # fmt: skip
        bounds = {_DRAWS: draws, _RECORDS: not moments_only}
        return replace(found, bound="; ".join(why for why, holds in bounds.items() if holds))


Groups = dict[str, dict[str, slice]]
"""By site, the columns of J of its means, of its covariances, and of all its unknowns."""


def information(
    view: View, sites: Mapping[str, SiteRecords], used: Sequence[int], *, moments_only: bool
) -> tuple[list[Array], list[Array], Groups]:
    """Return by round J (numbers, unknowns of all sites) and root R; and the columns of J."""
    blocks, groups, at = list[list[Array]](), Groups(), 0
    for site, rows in sites.items():
        by_statistic = list(derivatives(view, rows, used))
        means = sum(bool(c.any()) for c, _ in directions(rows, used))
        own = [np.array(each).T for each in zip(*by_statistic, strict=True)]
        ends = at, at + means, at + len(by_statistic)
        if own and not moments_only:
            others = record_derivatives(view, rows, used)
            own = [np.hstack(both) for both in zip(own, others, strict=True)]
        at += own[0].shape[1] if own else 0
        names = {
            "means": slice(*ends[:2]),
            "covariances": slice(*ends[1:]),
            "all": slice(ends[0], at),
        }
        groups[site] = names
        blocks.append(own)
    J = [np.hstack([block[r] for block in blocks if block]) for r in range(len(view.rounds))]
    seen_together = 1 if view.in_clear else len(sites)
    R = [
        np.hypot(
            resolutions(view, seen.stage, seen_together), DERIVATIVE_ERROR * np.max(np.abs(each))
        )
        for each, seen in zip(J, view.rounds, strict=True)
    ]
    return J, R, groups


def _one_sum(
    sites: Mapping[str, SiteRecords], used: Sequence[int], *, within: bool
) -> tuple[list[Array], list[Array], Groups]:
    """Return J, root R and the columns for one sum of moments, sum x and sum x x'.

    within: about each site's own means, so the means of the sites are 0 and stay 0
    """
    columns, groups = list[Array](), Groups()
    for site, rows in sites.items():
        values, start = rows.values[:, used], len(columns)
        n, m = len(values), values.mean(axis=0) if len(values) else 0.0
        all_ = directions(rows, used)
        for c, E in all_:
            moved = np.zeros_like(c) if within else c
            products = E + np.outer(moved, m) + np.outer(m, moved)
            columns.append(n * np.concatenate([moved, products[np.triu_indices(len(c))]]))
        middle = start + sum(bool(c.any()) for c, _ in all_)
        groups[site] = {
            "means": slice(start, middle), "covariances": slice(middle, len(columns)),
            "all": slice(start, len(columns)),
        }  # fmt: skip
    J = np.array(columns).T
    return [J], [np.full(len(J), _ROUNDING)], groups


Shares = Mapping[str, float]
"""Of the means and of the covariances."""


def least_excess(found: Shares, references: Sequence[Shares]) -> tuple[float, Shares]:
    """Return the excess of shares over the reference for which it is least, and this reference."""
    compared = [
        (max(_excess(found[name], each[name]) for name in GROUPS), each) for each in references
    ]
    return min(compared, key=lambda excess_and_reference: excess_and_reference[0])


def _excess(share: float, reference: float) -> float:
    """Return the share beyond that of one sum; if that is everything, the share itself."""
    return (share - reference) / (1 - reference) if reference < _ALL else share


def _means(shares: Mapping[str, Shares]) -> dict[str, float]:
    """Return the mean shares over sites that have such statistics."""
    found = {}
    for name in GROUPS:
        values = [each[name] for each in shares.values() if name in each]
        found[name] = float(np.mean(values)) if values else 0.0
    return found


def shares(
    J: list[Array], R: list[Array], groups: Groups, in_clear: bool = False
) -> dict[str, dict[str, float]]:
    """Return each site's shares. In clear, each site's own contributions are seen."""
    whitened = np.vstack([each / root[:, None] for each, root in zip(J, R, strict=True)])
    found, together = {}, None if in_clear else _reduced_variances(whitened)
    for site, columns in groups.items():
        seen = columns["all"]
        known = _reduced_variances(whitened[:, seen]) if together is None else together[seen]
        parts = {
            name: known[columns[name].start - seen.start : columns[name].stop - seen.start]
            for name in GROUPS
        }
        found[site] = {name: float(np.mean(part)) for name, part in parts.items() if len(part)}
    return found


def _reduced_variances(whitened: Array) -> Array:
    """Return 1 - V_ii of each unknown. The singular values give V without forming J'J."""
    _, s, V = np.linalg.svd(whitened, full_matrices=False)
    return np.asarray(np.sum(V**2 * (s**2 / (1 + s**2))[:, None], axis=0))
