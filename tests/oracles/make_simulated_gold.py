"""Write simulated_gold.json: posteriors given simulated records, by numpyro's NUTS, from raw rows.

    PYTHONPATH=tests:. python tests/oracles/make_simulated_gold.py [NAME ...]

In an environment with numpyro; ten minutes of one core, so that the summary is stored. Names:

sparse regression: the paper's model with half-Cauchy distributions as they are, the indicators
    summed out, and an intercept for each site whose prior is flat. All constants of the prior are
    1, but for c0 = RATIO. For the sake of mixing theta_k is not centred, and theta is. In place of
    an intercept stands the level at the mean of the site's predictors, whose prior is as flat.
    About one in a hundred transitions diverges, in the funnels that half-Cauchy tails make of
    lambda and tau (at a target acceptance of 0.99, too). With theta_k integrated out none did,
    steps were ten times as slow, and the means the same within error.
hundred sites: example 4.1 of Yue, Al Kontar and Estrada Gomez (2022). The sampler moves
    (theta_k - b_k) / e_k, with b_k and e_k least squares and its errors, so that all coordinates
    are of a similar size.

Each quantity has its mean, its sd and their Monte Carlo errors. R-hat is the largest of all.
"""

import importlib.metadata
import json
import os
import re
import sys
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
from jax.scipy.special import expit
from numpyro.infer import MCMC, NUTS, init_to_value
from support.fedlin.simulated_sites import NOISE, four_sites, hundred_sites

from secagg.models.common.posterior_summary import summarise

PATH = Path(__file__).with_name("simulated_gold.json")
CHAINS = {"chains": 4, "warmup": 1000, "draws": 2500, "seed": 1}
RATIO = 0.01
COMPARED = [0, 33, 66, 99]  # of the hundred sites, those whose coefficients are stored
DIGITS = 6


def sample(name: str, law: dist.Distribution) -> jax.Array:
    return jnp.asarray(numpyro.sample(name, law))


def sparse_model(X: jax.Array, y: jax.Array, site: jax.Array, means: jax.Array) -> None:
    """means: (sites, p), of the rows of X at each site"""
    sites, p = means.shape
    rho = sample("rho", dist.Beta(1.0, 1.0))
    eta = sample("eta", dist.InverseGamma(1.0, 1.0))
    spreads = jnp.sqrt(eta * jnp.array([RATIO, 1.0]))
    mixture = dist.MixtureSameFamily(
        dist.Categorical(probs=jnp.stack([1 - rho, rho])), dist.Normal(0.0, spreads)
    )
    theta = sample("theta", mixture.expand([p]))
    spike, slab = (dist.Normal(0.0, spread).log_prob(theta) for spread in spreads)
    numpyro.deterministic("inclusion", expit(jnp.log(rho) - jnp.log1p(-rho) + slab - spike))
    tau = sample("tau", dist.HalfCauchy(1.0).expand([p]))
    numpyro.deterministic("log_tau", jnp.log(tau))
    share = sample("lambda", dist.HalfCauchy(1.0).expand([sites, p]))
    theta_k = theta + tau * share * sample("away", dist.Normal(0.0, 1.0).expand([sites, p]))
    numpyro.deterministic("theta_k", theta_k)
    s = sample("s", dist.InverseGamma(1.0, 1.0).expand([sites]))
    numpyro.deterministic("log_s", jnp.log(s))
    level = sample("level", dist.ImproperUniform(dist.constraints.real, (), (sites,)))
    mean = level[site] + jnp.sum((X - means[site]) * theta_k[site], axis=1)
    numpyro.sample("y", dist.Normal(mean, jnp.sqrt(s[site])), obs=y)


def hierarchical_model(X: jax.Array, y: jax.Array, b: jax.Array, e: jax.Array) -> None:
    d = X.shape[2]
    mu = sample("mu", dist.Normal(0.0, 1.0).expand([d]))
    tau = sample("tau", dist.LogNormal(0.0, 1.0).expand([d]))
    numpyro.deterministic("phi", jnp.concatenate([mu, jnp.log(tau)]))
    flat = dist.ImproperUniform(dist.constraints.real, (), b.shape)
    theta = b + e * sample("standard", flat)
    numpyro.deterministic("theta", theta[jnp.array(COMPARED)])
    numpyro.factor("prior of theta", dist.Normal(mu, jnp.sqrt(tau)).log_prob(theta).sum())
    numpyro.sample("y", dist.Normal(jnp.einsum("knd,kd->kn", X, theta), NOISE), obs=y)


def sparse_regression() -> dict[str, Any]:
    parts = four_sites()
    within = np.sqrt(sum(part.var(axis=0) * len(part) for part in parts) / sum(map(len, parts)))
    z = np.concatenate(parts) / within
    site = np.repeat(np.arange(len(parts)), [len(part) for part in parts])
    means = np.array([z[site == k].mean(axis=0) for k in range(len(parts))])
    start = init_to_value(values={"level": means[:, 0]})
    kernel = NUTS(sparse_model, dense_mass=True, target_accept_prob=0.95, init_strategy=start)
    names = ("theta", "inclusion", "log_tau", "theta_k", "log_s")
    return sampled(kernel, names, z[:, 1:], z[:, 0], site, means[:, 1:])


def example_4_1() -> dict[str, Any]:
    X, y = hundred_sites()
    gram = np.einsum("knd,kne->kde", X, X)
    b = np.linalg.solve(gram, np.einsum("knd,kn->kd", X, y)[:, :, None])[:, :, 0]
    e = NOISE * np.sqrt(np.diagonal(np.linalg.inv(gram), axis1=1, axis2=2))
    start = {"mu": b.mean(axis=0), "tau": b.var(axis=0), "standard": np.zeros(b.shape)}
    kernel = NUTS(hierarchical_model, init_strategy=init_to_value(values=start))
    return sampled(kernel, ("phi", "theta"), X, y, b, e) | {"sites": COMPARED}


def sampled(kernel: NUTS, names: tuple[str, ...], *data: np.ndarray) -> dict[str, Any]:
    sampler = MCMC(
        kernel,
        num_warmup=CHAINS["warmup"],
        num_samples=CHAINS["draws"],
        num_chains=CHAINS["chains"],
        chain_method="sequential",
        progress_bar=False,
    )
    key = jax.random.PRNGKey(CHAINS["seed"])
    sampler.run(key, *map(jnp.array, data), extra_fields=("diverging",))
    draws = sampler.get_samples(group_by_chain=True)
    diverging = np.mean(sampler.get_extra_fields(group_by_chain=True)["diverging"])
    return {name: summary(np.swapaxes(draws[name], 0, 1)) for name in names} | {
        "diverging": float(diverging)
    }


def summary(draws: np.ndarray) -> dict[str, Any]:
    """draws (draws, chains, ...). An sd's error is half that of the squares about the mean, by sd:

    NUTS's draws alternate about the mean, and of squares there are fewer effective ones.
    """
    found = summarise(draws)
    squares = summarise((draws - draws.mean(axis=(0, 1))) ** 2)
    return {
        "mean": rounded(found.mean),
        "sd": rounded(found.sd),
        "mcse_mean": rounded(found.mcse_mean),
        "mcse_sd": rounded(squares.mcse_mean / (2 * found.sd)),
        "r_hat": float(np.max(found.r_hat)),
    }


def rounded(values: Any) -> Any:
    if np.ndim(values):
        return [rounded(value) for value in values]
    return float(f"{values:.{DIGITS}g}")


MAKE = {"sparse regression": sparse_regression, "hundred sites": example_4_1}


def main(names: list[str]) -> None:
    stored = json.loads(PATH.read_text())["posteriors"] if PATH.exists() else {}
    for name in names or MAKE:
        stored[name] = MAKE[name]()
        packages = ("numpyro", "jax", "numpy")
        whole = {
            "versions": {each: importlib.metadata.version(each) for each in packages},
            "settings": CHAINS,
            "posteriors": stored,
        }
        text = json.dumps(whole, indent=1)
        PATH.write_text(re.sub(r"\[[^][{}]*\]", lambda f: re.sub(r"\s+", " ", f[0]), text) + "\n")


if __name__ == "__main__":
    numpyro.enable_x64()
    main(sys.argv[1:])
