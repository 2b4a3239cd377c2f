"""HM2 on the exam scores beside a mixed model of all records: statsmodels' MixedLM, by REML.

benchmarks/methods/fedlin_tables.py prints both as tables.

MixedLM has HM2's model (coefficients that are normal over schools, independent of each other) and
no prior: its variances are where the likelihood of the records' residuals is largest. So estimates
are compared with means of posteriors, in units analysed (all columns standardised over all records,
where "independent" means the same in both).
"""

from dataclasses import dataclass
from functools import cache

import numpy as np
import pandas as pd
from numpy.typing import NDArray
from statsmodels.regression.mixed_linear_model import MixedLM, MixedLMParams, MixedLMResults
from support.fedlin.nuts_gold import GOLD, Compared

from reproductions.data import fedlin

Array = NDArray[np.float64]


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
