"""How precisely a sum shows one site, because most of its records are this site's.

A sum over sites of 2000, 12 and 12 records is nearly the sum of the first. No protocol changes
that, and the other sites' records hide it hardly. Output checkers know this as dominance: by the
p % rule, a total may be published only if nobody can estimate the largest contribution to within
p % of it, so what the others add must be at least p % of it (Hundepool et al. 2012, *Statistical
Disclosure Control*, section 4.2.2). Here the contributors are sites.

The attacker takes the mean of all records, m, for the mean of site k, m_k. The guess without the
run knows the sizes of all sites, which are often public, and takes the mean m_o of the other sites
for m_k. Both errors are of the same kind, and for every site and column

    m - m_k = (1 - n_k / n) (m_o - m_k)                                                          (1)

with n_k of n records. So the *relative error* of site k is 1 - n_k / n for every sum over records:
for means, for cross products, and for sums of gradients. 1 means that the sum does not help, and 0
that it is the site's own. The number is the smallest relative error of a site. The limit is p = 10:
it is a leak if a site has more than 90 % of the records.

If a method's sums are no sums over records (`secagg.audits.site_statistics` tests that sites can
exchange records), or have noise, the relative error is that of a linear Gaussian model, as in
`identified_share`: tr(V) / tr(P) of a site's means or covariances, whichever is smaller, with V and
P the variance of what the attacker does not know about them, after the run and before. Before it,
the attacker knows the distribution of all patients, so the mean of n_k records has the variance
1 / n_k, in units of the variance of one record. For one sum of moments this is 1 - n_k / n, too.
If contributions depend on random numbers of the sites (samplers), the attacker is assumed to know
them, so the number is a lower bound of the error.

The details have, for each site, its records, its relative error and its verdict; and, if the run
releases moments, the errors of its means and variances in standard deviations, next to those of the
guess. They are the truth of this run. (1) says that their ratio does not depend on it, for means.

A coalition subtracts its own records first, so n is the number of records of all others.

What the result does not show. If sites are alike, the guess is good, and so is the attacker's
estimate: that is knowledge about all patients. A relative error of 1 is no more than that.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any, ClassVar

import numpy as np

from secagg.audits.attacks.statistics.identified_share import (
    GROUPS,
    MOST_FLOPS,
    information,
    shares,
)
from secagg.audits.contract import Attack, Finding, Limit, Truth
from secagg.audits.site_statistics import (
    directions,
    draws_random_numbers,
    flat,
    reads_moments_only,
    reads_pooled_only,
    used_variables,
)
from secagg.audits.views import View, Who
from secagg.contracts import SiteRecords
from secagg.core.arrays import Array

_P = 0.1
_DRAWS = "a lower bound: the attacker is assumed to know the sites' random numbers"


class SiteAccuracy(Attack):
    """Compute the relative error of each site."""

    name: ClassVar[str] = "site_accuracy"
    title: ClassVar[str] = "How precisely the sums show a site that has most of the records"
    source: ClassVar[str] = "p % rule: Hundepool et al. (2012), section 4.2.2; the module's text"
    knows: ClassVar[str] = "how many records each site has"
    views: ClassVar[tuple[Who, ...]] = (Who.COORDINATOR, Who.COALITION)
    metric: ClassVar[str] = "site_error"
    meaning: ClassVar[str] = (
        "smallest error about a site's means or covariances, of that of a guess; 0: exact"
    )

    def why_not(self, view: View) -> str:
        """Return why it does not apply."""
        return view.why_no_sums_of_sites

    def limit(self, view: View) -> Limit:
        """Return p = 10 %."""
        return Limit(_P, errors=True)

    def run(self, view: View, rng: np.random.Generator) -> None:
        """Guess nothing: the attacker takes the sums for the site's own."""

    def score(self, guess: None, view: View, truth: Truth) -> Finding:
        """Return the smallest relative error; details: of each site."""
        sites = {s: truth.sites[s] for s in view.sites if s not in view.own}
        sites = {site: rows for site, rows in sites.items() if len(rows.values)}
        noisy = any(seen.stage in view.planned.public.noise for seen in view.rounds)
        errors = dict.fromkeys(sites, 0.0)
        if not view.in_clear:
            found = _relative_errors(view, sites, noisy=noisy)
            if isinstance(found, str):
                return Finding.impossible(found)
            errors = found
        draws = not view.in_clear and any(draws_random_numbers(view, r) for r in sites.values())
        limit = self.limit(view)
        details = {
            site: {
                "records": len(rows.values), "relative_error": errors[site],
                "leak": limit.exceeded_by(errors[site]), **_seen_errors(view, sites, site),
            }
            for site, rows in sites.items()
        }  # fmt: skip
        finding = Finding.exact(min(errors.values()), 1.0, by_site=details)
        return replace(finding, bound=_DRAWS if draws else "")

    def control(self, plain: View) -> View:
        """Return the run whose sums are the contributions of one site."""
        alone = plain.alone(next(site for site in plain.sites if site not in plain.own))
        rounds = tuple(replace(seen, parts={}) for seen in alone.rounds)
        return replace(alone, rounds=rounds, own={})


def _relative_errors(
    view: View, sites: Mapping[str, SiteRecords], *, noisy: bool
) -> dict[str, float] | str:
    """Return the relative error of each site, or why it cannot be computed."""
    rng, total = np.random.default_rng(0), sum(len(rows.values) for rows in sites.values())
    if not noisy and reads_pooled_only(view, sites, rng):
        return {site: 1 - len(rows.values) / total for site, rows in sites.items()}
    used = sorted({j for rows in sites.values() for j in used_variables(view, rows)})
    varying = {site: rows for site, rows in sites.items() if directions(rows, used)}
    if not varying:
        return "small changes of the records do not change the sums"
    if not all(reads_moments_only(view, r, rng) for r in varying.values() if len(r.values) > 2):
        return "sums that are no sums over records, or have noise, and read single records"
    unknowns = sum(len(directions(rows, used)) for rows in varying.values())
    numbers = sum(len(flat(seen.total)) for seen in view.rounds)
    if unknowns * numbers * min(unknowns, numbers) > MOST_FLOPS:
        return f"{numbers} numbers and {unknowns} unknowns are too many"
    J, R, groups = information(view, varying, used, moments_only=True)
    J = [each * _deviations(varying, groups) for each in J]  # in units of what is not known before
    known = shares(J, R, groups)
    return {site: 1 - max((known[site][g] for g in GROUPS if g in known[site]), default=0.0)
            for site in varying}  # fmt: skip


def _deviations(
    sites: Mapping[str, SiteRecords], groups: Mapping[str, Mapping[str, slice]]
) -> Array:
    """Return of each column of J the standard deviation of its statistic before the run."""
    found = np.ones(max(of["all"].stop for of in groups.values()))
    for site, of in groups.items():
        found[of["all"]] = len(sites[site].values) ** -0.5
    return found


def _seen_errors(view: View, sites: Mapping[str, SiteRecords], site: str) -> dict[str, Any]:
    """Return the errors of means and variances: of the pooled records' and of the other sites'.

    Root mean squares over the variables, of means in standard deviations of the pooled records, of
    variances relative to the pooled ones.
    """
    own = sites[site].values
    others = [rows.values for name, rows in sites.items() if name != site]
    if not others or len(own) < 2:
        return {}
    pooled, rest = np.concatenate([own, *others]), np.concatenate(others)
    variance = pooled.var(axis=0)
    varies = variance > 0

    def of(records: Array) -> dict[str, float]:
        means = (records.mean(axis=0) - own.mean(axis=0))[varies] / np.sqrt(variance[varies])
        variances = (records.var(axis=0) - own.var(axis=0))[varies] / variance[varies]
        return {"means": _rms(means), "variances": _rms(variances)}

    return {"error": of(pooled), "guess": of(rest)} if varies.any() else {}


def _rms(values: Array | Sequence[float]) -> float:
    return float(np.sqrt(np.mean(np.square(values))))
