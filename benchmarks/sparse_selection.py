"""How often sparse regression finds an effect, and how often one that does not exist: a table.

    python benchmarks/sparse_selection.py --replicates 200 --rounds 1500 --cache FILE

Each replicate has K sites of n records, ten predictors with correlations 0.3^|i - j|, noise of
variance 1, and two effects of a common size. The other eight common coefficients are 0. At each
site, every coefficient differs from the common one by N(0, spread^2). Effects are chosen by their
expected pooled t. Counted are effects whose t in least squares of all records, with an intercept
for each site, is above 5, and the null coefficients. A PIP above 0.5 is an inclusion. All
replicates are one stack of arrays, with one chain each. Their settings are the method's own.
"""

from __future__ import annotations

import argparse
import itertools
import json
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from secagg.models.sparse_bayes import spike_slab
from secagg.models.sparse_bayes.horseshoe import (
    NoisePrior,
    Regression,
    SiteDraw,
    draw_noise,
    marginal,
    sweep,
)
from secagg.models.sparse_bayes.regression import SparseRegression
from secagg.models.sparse_bayes.spike_slab import Common, SpikeSlab

Array = NDArray[np.float64]

Q, EFFECTS, CORRELATION, MIN_T, MIN_PIP = 10, 2, 0.3, 5.0, 0.5
SITES, RECORDS, SPREADS, EXPECTED_T = (3, 5, 10), (40, 100, 300), (0.0, 0.1), (6.0, 9.0)


def simulate(
    sites: int, n: int, t: float, spread: float, replicates: int, rng: np.random.Generator
) -> tuple[list[Regression], Array]:
    """Return each site's statistics in pooled deviations, and the pooled t (replicates, Q)."""
    places = np.arange(Q)
    correlation = CORRELATION ** np.abs(places[:, None] - places)
    unexplained = np.linalg.inv(correlation)[Q // 2, Q // 2]
    common = np.zeros(Q)
    common[[2, 6][:EFFECTS]] = t * np.sqrt(unexplained / (sites * n))
    root, grams = np.linalg.cholesky(correlation), []
    for _ in range(sites):
        X = rng.standard_normal((replicates, n, Q)) @ root.T
        theta = common + spread * rng.standard_normal((replicates, Q, 1))[..., 0]
        y = np.einsum("rnq,rq->rn", X, theta) + rng.standard_normal((replicates, n))
        z = np.concatenate([y[..., None], X], axis=-1)
        z -= z.mean(axis=1, keepdims=True)
        grams.append(np.swapaxes(z, 1, 2) @ z)
    total = np.sum(grams, axis=0)
    deviation = np.sqrt(np.diagonal(total, axis1=1, axis2=2) / (sites * n))
    scale = deviation[:, :, None] * deviation[:, None, :]
    total = total / scale
    inverse = np.linalg.inv(total[:, 1:, 1:])
    estimate = np.einsum("rij,rj->ri", inverse, total[:, 1:, 0])
    residual = total[:, 0, 0] - np.einsum("ri,ri->r", estimate, total[:, 1:, 0])
    variance = residual / (sites * n - sites - Q)
    se = np.sqrt(variance[:, None] * np.diagonal(inverse, axis1=1, axis2=2))
    each = [gram / scale for gram in grams]
    return [Regression(g[:, 1:, 1:], g[:, 1:, 0], g[:, 0, 0]) for g in each], estimate / se


def inclusion(
    data: list[Regression], n: int, prior: SpikeSlab, rounds: int, rng: np.random.Generator
) -> Array:
    """Return the PIPs (replicates, Q) of one chain a replicate; its first third is discarded."""
    shape, noise = data[0].cross.shape, NoisePrior()
    common = Common(
        rng.standard_normal(shape), np.full(shape, 0.1), np.ones(shape), np.ones(shape),
        np.round(rng.random(shape)), np.full(shape[0], 0.5), np.full(shape, 0.5),
    )  # fmt: skip
    ones = np.ones(shape)
    draws = [SiteDraw(common.theta, ones[:, 0], ones, ones) for _ in data]
    mean, kept = np.zeros(shape), 0
    for number in range(rounds):
        P, r, c = np.zeros((*shape, shape[-1])), np.zeros(shape), np.zeros(shape)
        for k, site in enumerate(data):
            variates = draw_noise(shape, n - 1, noise, rng)
            draws[k] = sweep(site, draws[k], common.theta, common.t, noise, variates)
            precision, slope = marginal(site, draws[k])
            P, r, c = P + precision, r + slope, c + common.t / (draws[k].v * draws[k].w)
        common = spike_slab.collapsed(common, P, r, c, len(data), prior, rng)
        if number >= rounds // 3:
            mean, kept = mean + common.inclusion, kept + 1
    return mean / kept


def cell(
    prior: SpikeSlab, sites: int, n: int, t: float, spread: float, replicates: int, rounds: int
) -> dict[str, int]:
    """Return numbers of effects with a t above 5, of those found, of nulls, and of those found."""
    rng = np.random.default_rng([sites, n, int(10 * t), int(100 * spread)])
    data, pooled_t = simulate(sites, n, t, spread, replicates, rng)
    found = inclusion(data, n, prior, rounds, rng) > MIN_PIP
    effects = np.zeros(found.shape, dtype=bool)
    effects[:, [2, 6][:EFFECTS]] = True
    strong = effects & (pooled_t > MIN_T)
    return {
        "strong": int(strong.sum()),
        "found": int((strong & found).sum()),
        "null": int((~effects).sum()),
        "false": int((~effects & found).sum()),
    }


def share(count: int, total: int) -> str:
    """Return a share in percent with its Monte Carlo error; with 0 of n, the error of 1 of n."""
    if not total:
        return "none"
    p = count / total
    within = min(max(p, 1 / total), 1 - 1 / total)
    return f"{100 * p:.1f} ± {100 * np.sqrt(within * (1 - within) / total):.1f}"


def main() -> None:
    """Print the table, one row a cell; the cache holds finished cells."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--replicates", type=int, default=200)
    parser.add_argument("--rounds", type=int, default=1500)
    parser.add_argument("--prior", choices=("calibrated", "paper"), default="calibrated")
    parser.add_argument("--cache", type=Path, required=True)
    parser.add_argument("--records", type=int, nargs="+", default=RECORDS)
    parser.add_argument("--expected-t", type=float, nargs="+", default=EXPECTED_T)
    given = parser.parse_args()
    done = json.loads(given.cache.read_text()) if given.cache.exists() else {}
    print("| true spread | expected t | sites | records per site | found, % | false, % |")
    method = SparseRegression(outcome="y", prior=given.prior)
    grid = itertools.product(SPREADS, given.expected_t, given.records, SITES)
    for spread, t, n, sites in grid:
        key = f"{given.prior} {spread} {t} {n} {sites} {given.replicates} {given.rounds}"
        if key not in done:
            prior = method.constants(sites * n)
            done[key] = cell(prior, sites, n, t, spread, given.replicates, given.rounds)
            given.cache.write_text(json.dumps(done))
        o = done[key]
        found, false = share(o["found"], o["strong"]), share(o["false"], o["null"])
        print(f"| {spread} | {t:g} | {sites} | {n} | {found} | {false} |", flush=True)


if __name__ == "__main__":
    main()
