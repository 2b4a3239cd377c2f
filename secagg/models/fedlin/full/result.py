"""The results of `fedlin_full`: posterior of mu and Sigma, tests, and each site's own posterior."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import combinations
from typing import Any

import numpy as np

from secagg.contracts import PublicFacts, Result, State
from secagg.models.common.posterior_summary import MAX_R_HAT, chains_agree, number
from secagg.models.fedlin.design import INTERCEPT
from secagg.models.fedlin.full.equal_sites import EqualSites
from secagg.models.fedlin.full.posterior import SharedDraws
from secagg.models.fedlin.full.prior_influence import prior_facts, told
from secagg.models.fedlin.full.settings import FullSettings
from secagg.models.fedlin.hypotheses.f_tests import agreement_rows, joint_test_notes, mean_rows
from secagg.models.fedlin.result import joined, own_summary, summary
from secagg.models.fedlin.shared_result import Shared, in_words

_MIN_EFFECTIVE = 100  # effective sample size, for the ends of 95 % intervals
_MIN_SHARE = 0.5  # of the points; below it, sites' designs differ much


def full_result(method: FullSettings, state: State, public: PublicFacts) -> Result:
    """Return the coordinator's result; see docs/methods/fedlin_full.md for its keys."""
    layout, scale, found = method.layout(public), state["scale"], summary(method, state, public)
    included = state["finished"]["included"].astype(int).tolist()
    for row, count in zip(found["across_sites"], included, strict=True):
        row["included"] = count
    shared = SharedDraws.read(state["draws"], layout.d)
    noise = float(state["noise"] * scale[0] ** 2)
    rows, correlations = _shared_rows(method, shared, noise, layout.terms)
    found |= {"level": method.level, "hierarchy": "full", "rounds": state["round"]}
    found = joined(found, convergence_facts(method, state))
    found["shared"] = in_words(rows, layout, state["centre"], scale) + correlations
    found["prior"] = prior_facts(method, shared)
    untold = sum(not row["told"] for row in correlations)
    if untold:
        found["notes"].append(
            f"Of {untold} of {len(correlations)} correlations of coefficients between sites, the "
            "posterior is mostly the prior, so the tables leave them out."
        )
    fitted = EqualSites.read(state)
    found["tests"] = mean_rows(layout.terms, fitted.sites, fitted.mean, fitted.wide)
    if not method.needs_noise:
        for row in found["shared"]:
            if row["component"].startswith("mu[") and row["component"] != f"mu[{INTERCEPT}]":
                row.update(ratios(row, method.link.effect, "estimate"))
        found |= {"family": method.family, "coefficient_unit": f"log {method.link.effect}"}
    elif method.variance == "pooled":
        known = method.noise_sd is not None
        agreement = agreement_rows(layout.terms, state["agreement"], noise, known=known)
        found["tests"] = agreement + found["tests"]
    if public.site_moments:
        found["tests"] = []
        found["notes"].append(
            "There are no tests, because they would not account for the noise of differential "
            "privacy."
        )
    else:
        found["notes"] += joint_test_notes(layout.terms, fitted.sites, found["tests"])
        found["notes"] += disagreements(found["tests"], rows, method.level)
    arrays = {
        "draws_mu": shared.mu,
        "draws_covariance": shared.Sigma,
        "draws_variance_ratio": shared.ratio,
        "centre": state["centre"],
        "scale": scale,
        "noise": np.array([noise]),
    }
    return Result(found, arrays)


def convergence_facts(method: FullSettings, state: State) -> dict[str, Any]:
    """Return whether rounds and chains converged, how the posterior was computed, and notes."""
    notes, effective, r_hat = list[str](), state.get("effective"), state["r_hat"]
    if not state["arrived"]:
        notes.append(
            f"The rounds ended before Sigma converged: in the last round it moved by "
            f"{state['distance']:.2g} of the estimates' variances. Take more method.rounds."
        )
    if not chains_agree(r_hat):
        notes.append(
            f"The chains of the shared parameters disagree: R-hat is {r_hat:.3f}, and should be "
            f"at most {MAX_R_HAT}."
        )
    how = "drawn as if all sites had equal designs"
    points = {}
    if effective is not None:
        how = f"drawn at {method.points} points (effective sample size {effective:.0f})"
        points = {"points": {"many": method.points, "effective": effective}}
        if effective < _MIN_EFFECTIVE:
            unequal = effective < _MIN_SHARE * method.points
            why = ": the sites' designs differ much" if unequal else ""
            notes.append(
                f"The effective sample size of {method.points} points is only {effective:.0f}"
                f"{why}, and should be at least {_MIN_EFFECTIVE}. Take more method.points."
            )
    told = {"distance": state["distance"], "largest_r_hat": r_hat, "shared_how": how}
    return {"converged": state["arrived"] and chains_agree(r_hat), **told, **points, "notes": notes}


def disagreements(
    tests: Sequence[dict[str, Any]], shared: Sequence[Shared], level: float
) -> list[str]:
    """Return a note on each mean whose interval holds 0 and whose test rejects 0, or conversely.

    shared: rows of `mu`. The test rejects if p is below 1 - level.
    """
    p_values, notes = {row["name"]: row["p"] for row in tests}, []
    for row in shared:
        p = p_values.get(f"the mean of {row.term} is 0")
        if row.kind != "mu" or p is None:
            continue
        holds = row.low <= 0 <= row.high
        if holds == (p < 1 - level):
            notes.append(
                f"The interval of the mean of {row.term} {'holds' if holds else 'excludes'} 0, and "
                f"its test has p = {p:.2g}. The interval depends on the prior of the standard "
                "deviations between sites. The test depends on it in the sites' weights only, and "
                "is exact for equal designs. With few sites, call such a result undecided."
            )
    return notes


def _shared_rows(
    method: FullSettings, shared: SharedDraws, noise: float, terms: tuple[str, ...]
) -> tuple[list[Shared], list[dict[str, Any]]]:
    """Return mu, variances between sites and the residual one; and correlations between sites."""
    values = shared.quantities()
    d, tail = len(terms), (1 - method.level) / 2
    low, median, high = np.quantile(values, [tail, 0.5, 1 - tail], axis=0).tolist()
    mean, sd = values.mean(axis=0).tolist(), values.std(axis=0, ddof=1).tolist()
    pairs = list(combinations(range(d), 2))
    rows = []
    kinds = [("mu", term) for term in terms] + [("log tau", term) for term in terms]
    for j, (kind, term) in enumerate(kinds):
        rows.append(Shared(kind, term, mean[j], median[j], low[j], high[j], sd[j]))
    if method.needs_noise and method.variance == "pooled" and method.noise_sd is None:
        at = float(np.log(noise))
        ends = (at + mean[-1], at + median[-1], at + low[-1], at + high[-1])
        rows.append(Shared("log sigma^2", "", *ends, sd[-1]))
    correlations = []
    for (i, k), j in zip(pairs, range(2 * d, 2 * d + len(pairs)), strict=True):
        correlations.append(
            {
                "name": f"correlation of {terms[i]} and {terms[k]} between sites",
                "estimate": median[j],
                "low": low[j],
                "high": high[j],
                "component": f"correlation[{terms[i]}, {terms[k]}]",
                "mean": mean[j],
                "sd": sd[j],
                "told": told(sd[j]),
            }
        )
    return rows, correlations


def ratios(row: Mapping[str, Any], effect: str, estimate: str) -> dict[str, float]:
    """Return odds or rate ratios for one unit, named as in the regressions' results."""
    ends = {"ratio": row[estimate], "low": row["low"], "high": row["high"]}
    return {f"{effect}_{name}": float(np.exp(value)) for name, value in ends.items()}


def full_site_result(method: FullSettings, memory: State, public: PublicFacts) -> Result | None:
    """Return a site's own posterior, which only that site sees."""
    result = own_summary(method, memory, public)
    if result is None:
        return None
    # the row has the mean with the smaller Monte Carlo error already, under the method's name
    once = ("mean", "mcse_mean")
    posterior = {k: v for k, v in memory["own"]["posterior"].items() if k not in once}
    for j, row in enumerate(result.summary["coefficients"]):
        row |= {name: number(values[j]) for name, values in posterior.items()}
        row |= {name: bool(row[name]) for name in ("included", "doubtful")}
        if not method.needs_noise and row["term"] != INTERCEPT:
            row.update(ratios(row, method.link.effect, method.short))
    result.summary["level"] = method.level
    return result
