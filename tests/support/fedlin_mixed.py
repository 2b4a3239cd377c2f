"""HM2 on the exam scores beside a mixed model of all records: statsmodels' MixedLM, by REML.

`PYTHONPATH=tests:. python -m support.fedlin_mixed` prints both as tables.

MixedLM has HM2's model (coefficients that are normal over schools, independent of each other) and
no prior: its variances are where the likelihood of the records' residuals is largest. So estimates
are compared with means of posteriors, in units analysed (all columns standardised over all records,
where "independent" means the same in both).
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache

import numpy as np
import pandas as pd
from numpy.typing import NDArray
from statsmodels.regression.mixed_linear_model import MixedLM, MixedLMParams, MixedLMResults
from support.fedlin_gold import GOLD, Compared, compared

from secagg.reproductions.data import fedlin

Array = NDArray[np.float64]

CASES = ("exams", "exams paper")
"""The same records; log tau ~ N(-3, 4), the method's own, and N(0, 1), the paper's."""


@dataclass(frozen=True)
class Mixed:
    """MixedLM's estimates.

    fixed, error: fixed effects and their standard errors (d,); variances: of coefficients between
    sites (d,); noise: its sd; sites: predicted coefficients (sites, 1 + slopes), in own units;
    likelihood: restricted, its logarithm; correlation: of the first two coefficients
    """

    fixed: Array
    error: Array
    variances: Array
    noise: float
    sites: Array
    likelihood: float
    correlation: float


@cache
def mixed(name: str = "exams", *, independent: bool = True) -> Mixed:
    """Fit all records of a case, with coefficients of a site independent of each other or not."""
    columns = GOLD["cases"][name]["columns"]
    tables = getattr(fedlin, GOLD["cases"][name]["data"])()
    every = pd.concat([table[columns].assign(site=site) for site, table in tables.items()])
    mean, sd = every[columns].mean().to_numpy(), every[columns].std(ddof=0).to_numpy()
    z = (every[columns].to_numpy() - mean) / sd
    X, d = np.column_stack([np.ones(len(z)), z[:, 1:]]), len(columns)
    free = MixedLMParams.from_components(fe_params=np.ones(d), cov_re=np.eye(d))
    model = MixedLM(z[:, 0], X, every["site"].to_numpy(), exog_re=X)
    fit: MixedLMResults = model.fit(reml=True, free=free if independent else None, method=["bfgs"])
    assert fit.converged
    own = np.array([fit.random_effects[site] for site in GOLD["cases"][name]["sites"]])
    theta = np.asarray(fit.fe_params) + own
    slopes = theta[:, 1:] * sd[0] / sd[1:]
    start = mean[0] + sd[0] * theta[:, 0] - slopes @ mean[1:]
    between = np.asarray(fit.cov_re)
    variances = np.diagonal(between)
    return Mixed(
        np.asarray(fit.fe_params),
        np.asarray(fit.bse_fe),
        variances,
        float(np.sqrt(fit.scale)),
        np.column_stack([start, slopes]),
        float(fit.llf),
        float(between[0, 1] / np.sqrt(variances[0] * variances[1])),
    )


def apart(found: Compared, other: Mixed) -> Array:
    """Return how far phi's means are from MixedLM's estimates, in posterior sds (2 d,)."""
    estimates = np.concatenate([other.fixed, np.log(other.variances)])
    result: Array = (found.phi.mean - estimates) / found.phi.sd
    return result


def sites_apart(found: Compared, other: Mixed) -> Array:
    """Return how far sites' own coefficients are apart, in posterior sds (sites, 1 + slopes)."""
    result: Array = (found.sites.mean - other.sites) / found.sites.sd
    return result


def main() -> None:
    """Print a table of what sites share, and one of sites' own."""
    hm2, other = {name: compared(name) for name in CASES}, mixed()
    terms = ["intercept", *GOLD["cases"]["exams"]["columns"][1:]]
    priors = [f"HM2, N({a:g}, {b**2:g})" for a, b in (GOLD["cases"][c]["prior"] for c in CASES)]
    print(f"| | MixedLM | {' | apart | '.join(priors)} | apart |\n|---|--:|{'--:|--:|' * 2}")
    for j, term in enumerate(terms):
        cells = [f"{other.fixed[j]:.3f} ({other.error[j]:.3f})"]
        for each in hm2.values():
            cells.append(f"{each.phi.mean[j]:.3f} ({each.phi.sd[j]:.3f})")
            cells.append(f"{apart(each, other)[j]:+.2f}")
        print(f"| mean of {term} | {' | '.join(cells)} |")
    for j, term in enumerate(terms, len(terms)):
        cells = [f"{other.variances[j - len(terms)] ** 0.5:.3f}"]
        for each in hm2.values():
            m, s = each.phi.mean[j], 1.645 * each.phi.sd[j]
            middle, low, high = np.exp(np.array([m, m - s, m + s]) / 2)
            cells += [f"{middle:.3f} ({low:.3f} to {high:.3f})", f"{apart(each, other)[j]:+.2f}"]
        print(f"| sd of {term} between schools | {' | '.join(cells)} |")
    noise = " | | ".join(f"{each.noise:.4f}" for each in hm2.values())
    print(f"| sd of the noise | {other.noise:.4f} | {noise} | |")
    for name, each in hm2.items():
        far = np.abs(sites_apart(each, other))
        told = (f"{t} {np.median(f):.2f}, {f.max():.2f}" for t, f in zip(terms, far.T, strict=True))
        print(f"\n{name}: schools' own, median and worst apart in posterior sds: {'; '.join(told)}")
    full = mixed(independent=False)
    gained = full.likelihood - other.likelihood
    print(f"\nwith a correlation: {full.correlation:.2f}, log likelihood {gained:+.1f}")


if __name__ == "__main__":
    main()
