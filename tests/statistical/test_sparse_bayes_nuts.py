"""Federated sparse regression against another sampler: numpyro's NUTS on the model as stated.

NUTS (`oracles/sparse_nuts.py`) has raw rows, half-Cauchy distributions as they are and an intercept
for each site; ours has cross products of centred columns, auxiliary variables and one record less.
Both estimate the same posterior, each with a Monte Carlo error: two estimates may be apart by some
of the two errors together, and no more. No other tolerance is used. Our sums over sites are of
fixed-point integers, as in a run.

About one in a hundred of NUTS's transitions diverges, in the funnels that half-Cauchy tails make of
lambda and tau (at a target acceptance of 0.99, too). Of NUTS with theta_k integrated out of the
rows' density none did, its steps were ten times as slow, and its means the same within error.
"""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Literal

import numpy as np
from numpy.typing import NDArray
from support.checkout import ROOT
from support.playing import play, rows_of

from secagg.contracts import PublicFacts, State, Variable
from secagg.core.randomness import seeded_random
from secagg.models.common.posterior_summary import Posterior, summarise
from secagg.models.sparse_bayes.base import recorded_draws
from secagg.models.sparse_bayes.regression import SparseRegression

Array = NDArray[np.float64]

# Of some 140 comparisons, one of 1000 runs has a larger difference by chance.
MOST = 4.5
HALF = 16.0  # columns are carried in these units
NAMES = ("y", "a", "b", "c", "d", "e")
SITES = tuple(f"s{k}" for k in range(4))
PUBLIC = PublicFacts(tuple(Variable(name, name, 0.0, HALF) for name in NAMES), NAMES, 50, SITES)


def simulated() -> list[Array]:
    """Outcome and five predictors at four sites, of which the last deviates in one coefficient."""
    rng, parts = np.random.default_rng(5), []
    for k, n in enumerate((22, 14, 18, 10)):
        X = rng.standard_normal((n, 5))
        X[:, 1] += 0.5 * X[:, 0]
        effects = np.array([0.8, 0.25, 1.0 if k == 3 else 0.0, 0.0, -0.3])
        y = X @ effects + (0.7 + 0.2 * k) * rng.standard_normal(n)
        parts.append(np.column_stack([y, X]) + 3 * rng.standard_normal(6))
    return parts


def ours(method: SparseRegression) -> dict[str, Array]:
    """Return draws (draws, chains, ...) of what is common, and of what sites keep."""
    rows = [rows_of(part / HALF) for part in simulated()]
    randoms = [seeded_random(bytes([k]) * 32) for k in range(1, len(rows) + 1)]
    own: dict[str, list[Array]] = {"theta_k": [], "s": []}

    def keep(state: State, memories: list[State]) -> None:
        if state["round"] > method.discarded:
            own["theta_k"].append(np.stack([m["theta"][:, 0] for m in memories], axis=1))
            own["s"].append(np.stack([m["s"][:, 0] for m in memories], axis=1))

    played = play(method, rows, PUBLIC, randoms, after=keep, together=True)
    kept = {name: draws[:, :, 0] for name, draws in recorded_draws(played.state).items()}
    return {
        "theta": kept["theta"],
        "inclusion": kept["inclusion"],
        "log_tau": np.log(kept["t"]) / 2,
        "theta_k": np.array(own["theta_k"]),
        "log_s": np.log(own["s"]),
    }


def found_of(draws: dict[str, Array]) -> dict[str, Posterior]:
    return {name: summarise(values) for name, values in draws.items()}


def nuts(folder: Path) -> dict[str, Posterior]:
    parts = simulated()
    within = np.sqrt(sum(part.var(axis=0) * len(part) for part in parts) / sum(map(len, parts)))
    z = np.concatenate(parts) / within
    site = np.repeat(np.arange(len(parts)), [len(part) for part in parts])
    settings = {"chains": 2, "warmup": 600, "draws": 1000, "seed": 1, "ratio": 0.01}
    np.savez(folder / "in.npz", X=z[:, 1:], y=z[:, 0], site=site, **settings)
    program = ROOT / "tests" / "oracles" / "sparse_nuts.py"
    command = [sys.executable, str(program), str(folder / "in.npz"), str(folder / "out.npz")]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    out = np.load(folder / "out.npz")
    draws = {name: np.swapaxes(out[name], 0, 1) for name in ("theta", "inclusion", "log_tau")}
    draws["theta_k"] = np.swapaxes(out["theta_k"], 0, 1)
    draws["log_s"] = np.log(np.swapaxes(out["s"], 0, 1))
    print(f"\ndivergences: {out['diverging'].sum(axis=1)}, steps {out['steps'].mean():.0f}")
    assert out["diverging"].mean() < 0.05
    return found_of(draws)


def scores(a: dict[str, Posterior], b: dict[str, Posterior]) -> dict[str, Array]:
    """Return differences in Monte Carlo errors, of means, sds and of PIPs (means of P_j)."""
    found = {}
    for name, x in a.items():
        y = b[name]
        found[name] = (x.mean - y.mean) / np.hypot(x.mcse_mean, y.mcse_mean)
        if name != "inclusion":
            found[f"sd of {name}"] = (x.sd - y.sd) / np.hypot(x.mcse_sd, y.mcse_sd)
    return found


def test_nuts_finds_the_same_posterior(tmp_path: Path) -> None:
    """By both steps; with another prior (one eta for each coefficient) it does not."""
    theirs = nuts(tmp_path)
    steps: tuple[Literal["collapsed", "paper"], ...] = ("collapsed", "paper")
    for step in steps:
        method = SparseRegression(outcome="y", step=step, rounds=1500, warmup=500, chains=32)
        found = found_of(ours(method))
        for name, score in scores(found, theirs).items():
            print(step, name, np.round(score, 1).tolist())
            assert np.max(np.abs(score)) < MOST, (step, name)
        for each in (found, theirs):  # else errors are not to be believed
            assert max(np.max(posterior.r_hat) for posterior in each.values()) < 1.05
    other = found_of(ours(SparseRegression(outcome="y", rounds=1000, chains=32, own_eta=True)))
    assert np.max(np.abs(scores(other, theirs)["inclusion"])) > MOST
