"""Example 4.1 of FedLin with the paper's 100 sites: expectation propagation against NUTS.

NUTS (`oracles/make_simulated_gold.py`) has all raw rows and no approximation. Ours has the sites'
cross products, and approximates each site's factor by a normal density. Beyond Monte Carlo errors,
that may move means by APART of a standard deviation, and change these by WIDER. Here it does by
some 0.01 each (two-dimensional quadrature, with theta_k as good as known).
"""

from typing import Any

import numpy as np
from numpy.typing import NDArray
from support.fedlin.ep_rounds import run
from support.fedlin.gold import SIMULATED
from support.fedlin.simulated_sites import MU, NOISE, TAU, hundred_sites

from secagg.models.fedlin.hierarchies.base import SufficientStatistics
from secagg.models.fedlin.hierarchies.normal import NormalHierarchy

Array = NDArray[np.float64]

MOST, APART, WIDER = 4.5, 0.03, 0.02
DRAWS = 4000


def compare(mean: Array, sd: Array, nuts: dict[str, Array], draws: float) -> None:
    """draws: ours, from which mean and sd are, or infinity"""
    of_mean, of_sd = nuts["mcse_mean"] / nuts["sd"], nuts["mcse_sd"] / nuts["sd"]
    score = np.abs(mean - nuts["mean"]) / nuts["sd"]
    assert np.all(score < APART + MOST * np.hypot(of_mean, draws**-0.5))
    assert np.all(np.abs(sd / nuts["sd"] - 1) < WIDER + MOST * np.hypot(of_sd, (2 * draws) ** -0.5))


def test_posteriors_of_the_papers_hundred_sites_agree_with_nuts() -> None:
    gold = SIMULATED["hundred sites"]
    assert gold["diverging"] == 0
    phi, theta = (_arrays(gold[name]) for name in ("phi", "theta"))
    assert max(phi["r_hat"], theta["r_hat"]) < 1.02  # else errors are not to be believed
    X, y = hundred_sites()
    hierarchy = NormalHierarchy()
    sites = [
        SufficientStatistics(A.T @ A, A.T @ b, float(b @ b), len(b), NOISE**2)
        for A, b in zip(X, y, strict=True)
    ]
    ended = run(hierarchy, sites, tolerance=0.005)
    assert ended.strained == 0
    mean, cov = ended.q.moments()
    sd = np.sqrt(np.diagonal(cov))
    compare(mean, sd, phi, np.inf)
    truth = np.concatenate([MU, np.log(TAU)])
    assert np.all(np.abs(mean - truth) < MOST * sd)
    for i, k in enumerate(gold["sites"]):
        cavity = ended.q - ended.factors[k]
        drawn = hierarchy.draw(sites[k], cavity, DRAWS, np.random.default_rng(k)).theta
        of_site = {name: value[i] for name, value in theta.items() if name != "r_hat"}
        compare(drawn.mean(axis=0), drawn.std(axis=0), of_site, DRAWS)


def _arrays(stored: dict[str, Any]) -> dict[str, Array]:
    return {name: np.array(value) for name, value in stored.items()}
