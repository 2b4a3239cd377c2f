"""Example 4.1 of FedLin with the paper's 100 sites: expectation propagation against NUTS.

NUTS (`oracles/hierarchical_nuts.py`) has all raw rows and no approximation. Ours has the sites'
cross products, and approximates each site's factor by a normal density: that, beside Monte Carlo
errors, may take means off by APART of a standard deviation, and these by WIDER. Here it does by
some 0.01 each (two-dimensional quadrature, with theta_k as good as known).
"""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from support.checkout import ROOT
from support.ep_rounds import run

from secagg.models.common.posterior_summary import summarise
from secagg.models.fedlin.hierarchies.base import SufficientStatistics
from secagg.models.fedlin.hierarchies.normal import NormalHierarchy

Array = NDArray[np.float64]

K, N, NOISE = 100, 100, 0.1
MU, TAU = np.array([1.0, 3.0, 0.5, 2.0]), np.array([1.17, 2.35, 2.52, 0.67])
MOST, APART, WIDER = 4.5, 0.03, 0.02
COMPARED = (0, 33, 66, 99)  # sites whose own posteriors are drawn
DRAWS = 4000


def compare(mean: Array, sd: Array, draws: Array, many: float) -> None:
    """draws (draws, chains, ...): NUTS's; many: ours, from which mean and sd are, or infinity."""
    theirs, squares = summarise(draws), summarise((draws - draws.mean(axis=(0, 1))) ** 2)
    assert np.max(theirs.r_hat) < 1.02  # else errors are not to be believed
    # NUTS's draws alternate about the mean: of squares there are fewer effective ones.
    of_sd = squares.mcse_mean / (2 * theirs.sd**2)
    score = np.abs(mean - theirs.mean) / theirs.sd
    assert np.all(score < APART + MOST * np.hypot(theirs.mcse_mean / theirs.sd, many**-0.5))
    assert np.all(np.abs(sd / theirs.sd - 1) < WIDER + MOST * np.hypot(of_sd, (2 * many) ** -0.5))


def test_the_papers_hundred_sites(tmp_path: Path) -> None:
    rng = np.random.default_rng(1)
    X = rng.standard_normal((K, N, 4))
    theta = MU + np.sqrt(TAU) * rng.standard_normal((K, 4))
    y = np.einsum("knd,kd->kn", X, theta) + NOISE * rng.standard_normal((K, N))
    chains = {"seed": 1, "chains": 2, "warmup": 300, "draws": 1000}
    np.savez(tmp_path / "in.npz", allow_pickle=False, X=X, y=y, noise=NOISE, **chains)
    program = ROOT / "tests" / "oracles" / "hierarchical_nuts.py"
    command = [sys.executable, str(program), str(tmp_path / "in.npz"), str(tmp_path / "out.npz")]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    out = np.load(tmp_path / "out.npz")
    assert not out["diverging"].any()

    hierarchy = NormalHierarchy()
    sites = [
        SufficientStatistics(A.T @ A, A.T @ b, float(b @ b), N, NOISE**2)
        for A, b in zip(X, y, strict=True)
    ]
    ended = run(hierarchy, sites, tolerance=0.005)
    assert ended.strained == 0
    mean, cov = ended.q.moments()
    sd = np.sqrt(np.diagonal(cov))
    compare(mean, sd, np.swapaxes(out["phi"], 0, 1), np.inf)
    truth = np.concatenate([MU, np.log(TAU)])
    assert np.all(np.abs(mean - truth) < MOST * sd)
    for k in COMPARED:
        cavity = ended.q - ended.factors[k]
        drawn = hierarchy.draw(sites[k], cavity, DRAWS, np.random.default_rng(k)).theta
        theirs = np.swapaxes(out["theta"][:, :, k], 0, 1)
        compare(drawn.mean(axis=0), drawn.std(axis=0), theirs, DRAWS)
