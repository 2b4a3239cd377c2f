"""How often sparse regression finds an effect, and how often one that does not exist: a table.

    python -m benchmarks.methods.sparse_selection --seed 2 --cache FILE

Each replicate has K sites of n records, ten predictors with correlations 0.3^|i - j|, noise of
variance 1, and two effects of a common size. The other eight common coefficients are 0. At each
site, every coefficient differs from the common one by N(0, spread^2). Effects have a given expected
t: pooled, or that of random effects with the true spread. A PIP above 0.5 is an inclusion. Counted
are the null coefficients, all effects, and the effects for which a t is above 5 in the records:

* pooled: least squares of all records, with an intercept for each site;
* random effects: the sites' own estimates b_k with variances v_k, combined with weights
  1 / (v_k + tau^2), with tau^2 of DerSimonian and Laird (1986, equation 8);
* the same with the true spread in place of the estimated tau.

All replicates are one stack of arrays, with two chains each. Replicates whose R-hat is above 1.1,
at which the method says `converged: false`, are run again with four times the rounds, twice at
most. Settings are the method's own. Finished cells are kept in FILE, so the run can be resumed.
"""

from __future__ import annotations

import argparse
import itertools
import json
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
from arviz_stats.base.array import array_stats
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

Q, EFFECTS, CORRELATION, MIN_T, MIN_PIP = 10, (2, 6), 0.3, 5.0, 0.5
CHAINS, THIN, MAX_R_HAT, ATTEMPTS, LONGER = 2, 5, 1.1, 3, 4
SITES, RECORDS = (3, 5, 10), (100, 300, 1000)
KINDS = ("pooled", "random", "known")
COUNTED = (*KINDS, "all", "null")


@dataclass(frozen=True, kw_only=True)
class Design:
    """K sites of n records, and effects of the expected t, of the kind "pooled" or "known"."""

    sites: int
    n: int
    spread: float = 0.0
    t: float = 6.0
    kind: str = "pooled"
    replicates: int = 200
    seed: int = 0

    @property
    def effect(self) -> float:
        """The effects' size, in standard deviations of the noise."""
        places = np.arange(Q)
        correlation = CORRELATION ** np.abs(places[:, None] - places)
        unexplained = np.linalg.inv(correlation)[Q // 2, Q // 2]
        variance = unexplained / (self.sites * self.n)
        if self.kind == "known":
            variance += self.spread**2 / self.sites
        return float(self.t * np.sqrt(variance))


def simulate(design: Design, rng: np.random.Generator) -> tuple[list[Regression], dict[str, Array]]:
    """Return each site's statistics in pooled deviations, and t by kind (replicates, Q)."""
    sites, n, replicates = design.sites, design.n, design.replicates
    places = np.arange(Q)
    root = np.linalg.cholesky(CORRELATION ** np.abs(places[:, None] - places))
    common, grams = np.zeros(Q), []
    common[list(EFFECTS)] = design.effect
    for _ in range(sites):
        X = rng.standard_normal((replicates, n, Q)) @ root.T
        theta = common + design.spread * rng.standard_normal((replicates, Q))
        y = np.einsum("rnq,rq->rn", X, theta) + rng.standard_normal((replicates, n))
        z = np.concatenate([y[..., None], X], axis=-1)
        z -= z.mean(axis=1, keepdims=True)
        grams.append(np.swapaxes(z, 1, 2) @ z)
    total = np.sum(grams, axis=0)
    deviation = np.sqrt(np.diagonal(total, axis1=1, axis2=2) / (sites * n))
    scale = deviation[:, :, None] * deviation[:, None, :]
    each = [gram / scale for gram in grams]
    estimate, variance = least_squares(total / scale, sites * n - sites - Q)
    own = [least_squares(gram, n - 1 - Q) for gram in each]
    b, v = np.array([pair[0] for pair in own]), np.array([pair[1] for pair in own])
    tau2 = (design.spread * deviation[:, 1:] / deviation[:, :1]) ** 2
    t = {
        "pooled": estimate / np.sqrt(variance),
        "random": random_effects_t(b, v, between_sites(b, v)),
        "known": random_effects_t(b, v, tau2),
    }
    return [Regression(g[:, 1:, 1:], g[:, 1:, 0], g[:, 0, 0]) for g in each], t


def least_squares(gram: Array, dof: int) -> tuple[Array, Array]:
    """Return estimates and their variances; gram: (..., 1 + Q, 1 + Q), the outcome first."""
    inverse = np.linalg.inv(gram[:, 1:, 1:])
    estimate = np.einsum("rij,rj->ri", inverse, gram[:, 1:, 0])
    residual = gram[:, 0, 0] - np.einsum("ri,ri->r", estimate, gram[:, 1:, 0])
    return estimate, (residual / dof)[:, None] * np.diagonal(inverse, axis1=1, axis2=2)


def between_sites(b: Array, v: Array) -> Array:
    """Return DerSimonian and Laird's tau^2 of estimates b with variances v; sites come first."""
    w = 1 / v
    mean = np.sum(w * b, axis=0) / np.sum(w, axis=0)
    excess = np.sum(w * (b - mean) ** 2, axis=0) - (len(b) - 1)
    tau2 = excess / (np.sum(w, axis=0) - np.sum(w * w, axis=0) / np.sum(w, axis=0))
    return np.asarray(np.maximum(tau2, 0))


def random_effects_t(b: Array, v: Array, tau2: Array) -> Array:
    """Return the combined estimate divided by its standard error, for a given tau^2."""
    w = 1 / (v + tau2)
    return np.asarray(np.sum(w * b, axis=0) / np.sqrt(np.sum(w, axis=0)))


def inclusion(
    data: list[Regression], n: int, prior: SpikeSlab, rounds: int, rng: np.random.Generator
) -> tuple[Array, Array]:
    """Return the PIPs (replicates, Q) and the largest R-hat of each replicate.

    The first third of the rounds is discarded.
    """
    shape, noise = (CHAINS, *data[0].cross.shape), NoisePrior()
    chained = [
        Regression(*(np.broadcast_to(x, (CHAINS, *x.shape)) for x in (d.gram, d.cross, d.square)))
        for d in data
    ]
    common = Common(
        rng.standard_normal(shape), np.full(shape, 0.1), np.ones(shape), np.ones(shape),
        np.round(rng.random(shape)), np.full(shape[:-1], 0.5), np.full(shape, 0.5),
    )  # fmt: skip
    ones = np.ones(shape)
    draws = [SiteDraw(common.theta, ones[..., 0], ones, ones) for _ in data]
    mean, kept, thetas, pips = np.zeros(shape), 0, [], []
    for number in range(rounds):
        P, r, c = np.zeros((*shape, Q)), np.zeros(shape), np.zeros(shape)
        for k, site in enumerate(chained):
            variates = draw_noise(shape, n - 1, noise, rng)
            draws[k] = sweep(site, draws[k], common.theta, common.t, noise, variates)
            precision, slope = marginal(site, draws[k])
            P, r, c = P + precision, r + slope, c + common.t / (draws[k].v * draws[k].w)
        common = spike_slab.collapsed(common, P, r, c, len(data), prior, rng)
        if number >= rounds // 3:
            mean, kept = mean + common.inclusion, kept + 1
            if number % (THIN * rounds // 1000 or 1) == 0:
                thetas.append(common.theta)
                pips.append(common.inclusion)
    rhat = getattr(array_stats, "rhat")  # noqa: B009  # the library has no types
    with np.errstate(invalid="ignore"):  # PIPs that are all equal
        r_hats = [
            rhat(np.array(each), chain_axis=1, draw_axis=0, method="rank")
            for each in (thetas, pips)
        ]
    worst = np.nanmax(np.concatenate(r_hats, axis=-1), axis=-1)
    return mean.mean(axis=0) / kept, worst


def selected(
    data: list[Regression], n: int, prior: SpikeSlab, rounds: int, rng: np.random.Generator
) -> tuple[Array, Array]:
    """Return PIPs and R-hats as `inclusion` does, of longer chains where R-hat asks for them."""
    pips, r_hat = inclusion(data, n, prior, rounds, rng)
    for _ in range(1, ATTEMPTS):
        (again,) = np.nonzero(r_hat > MAX_R_HAT)
        if not len(again):
            break
        rounds *= LONGER
        part = [Regression(d.gram[again], d.cross[again], d.square[again]) for d in data]
        pips[again], r_hat[again] = inclusion(part, n, prior, rounds, rng)
    return pips, r_hat


def cell(prior: SpikeSlab, design: Design, rounds: int) -> dict[str, Any]:
    """Return for each kind of t the share of strong effects that are found, with its error.

    "all" counts all effects, "null" the null coefficients. Each entry is (share, error, number).
    """
    facts = [design.sites, design.n, round(10 * design.t), round(100 * design.spread)]
    rng = np.random.default_rng([design.seed, *facts, KINDS.index(design.kind)])
    data, t = simulate(design, rng)
    pips, r_hat = selected(data, design.n, prior, rounds, rng)
    effects = np.zeros(Q, dtype=bool)
    effects[list(EFFECTS)] = True
    counted = {kind: effects & (t[kind] > MIN_T) for kind in KINDS}
    counted["all"] = np.broadcast_to(effects, pips.shape)
    counted["null"] = np.broadcast_to(~effects, pips.shape)
    shares = {name: share(which, pips > MIN_PIP) for name, which in counted.items()}
    return {**shares, "stuck": int(np.sum(r_hat > MAX_R_HAT))}


def share(counted: Array, found: Array) -> tuple[float, float, int]:
    """Return the share of the counted that is found, its Monte Carlo error, and how many there are.

    The error is that of a ratio of means over replicates (rows), whose effects are not independent.
    If all or none are found, it is that of one exception.
    """
    total = int(counted.sum())
    if not total:
        return float("nan"), float("nan"), 0
    p = float((counted & found).sum() / total)
    several = max(total, 2)
    least = np.sqrt((several - 1) / several**3)
    away = (counted & found).sum(axis=1) - p * counted.sum(axis=1)
    rows = len(counted)
    return p, max(float(least), float(np.sqrt(rows / (rows - 1) * np.sum(away**2)) / total)), total


def in_percent(entry: Sequence[float]) -> str:
    """Return a share as text: percent, error, and of how many."""
    p, error, total = entry
    return f"{100 * p:.1f} ± {100 * error:.1f} (of {total:.0f})" if total else "none"


def designs(given: argparse.Namespace) -> Iterator[Design]:
    """Yield the cells: equal effects, then a spread, with effects for each of two kinds of t."""
    cases = [(0.0, "pooled"), (0.1, "pooled"), (0.1, "known")]
    for (spread, kind), n, sites in itertools.product(cases, given.records, given.sites):
        for t in given.expected_t:
            yield Design(
                sites=sites, n=n, spread=spread, t=t, kind=kind,
                replicates=given.replicates, seed=given.seed,
            )  # fmt: skip


def main() -> None:
    """Print the table, one row a cell; the cache holds finished cells."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--replicates", type=int, default=200)
    parser.add_argument("--rounds", type=int, default=1500)
    parser.add_argument("--prior", choices=("calibrated", "paper"), default="calibrated")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--cache", type=Path, required=True)
    parser.add_argument("--records", type=int, nargs="+", default=RECORDS)
    parser.add_argument("--sites", type=int, nargs="+", default=SITES)
    parser.add_argument("--slab-scale", type=float, default=1.0)
    parser.add_argument("--expected-t", type=float, nargs="+", default=[6.0])
    given = parser.parse_args()
    done = json.loads(given.cache.read_text()) if given.cache.exists() else {}
    print("| spread | expected t | sites | records |", " | ".join(COUNTED), "| R-hat > 1.1 |")
    method = SparseRegression(outcome="y", prior=given.prior, slab_scale=given.slab_scale)
    for design in designs(given):
        key = f"{given.prior} {given.slab_scale} {given.rounds} {asdict(design)}"
        if key not in done:
            prior = method.constants(design.sites * design.n)
            done[key] = cell(prior, design, given.rounds)
            given.cache.write_text(json.dumps(done))
        o = done[key]
        row = [design.spread, f"{design.kind} {design.t:g}", design.sites, design.n]
        row += [in_percent(o[name]) for name in COUNTED] + [o["stuck"]]
        print("|", " | ".join(map(str, row)), "|", flush=True)


if __name__ == "__main__":
    main()
