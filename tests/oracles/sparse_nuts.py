"""Federated sparse regression by numpyro's NUTS, from raw rows: python sparse_nuts.py IN OUT

A program, not a module of the tests: jax starts threads, and processes that have threads must not
fork, as other tests do.

IN: an .npz of X (n, p), y (n,), site (n,), each an integer, and settings: chains, warmup, draws,
    seed, ratio (c0). All other constants of the prior are 1.
OUT: an .npz of draws, (chains, draws, ...) each: theta, inclusion, log_tau, theta_k, s,
    level; diverging (chains, draws); steps, of the integrator.

The model is the paper's with half-Cauchy distributions as they are, the indicators summed out, and
an intercept for each site whose prior is flat. For the sake of mixing, theta_k is not centred, and
theta is; and in place of an intercept stands the level at the mean of the site's predictors, whose
prior is as flat.
"""

from __future__ import annotations

import os
import sys

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

RECORDED = ("theta", "inclusion", "log_tau", "theta_k", "s", "level")


def model(X: jax.Array, y: jax.Array, site: jax.Array, means: jax.Array, ratio: float) -> None:
    """means: (sites, p), of the rows of X at each site"""
    sites, p = means.shape
    rho = sample("rho", dist.Beta(1.0, 1.0))
    eta = sample("eta", dist.InverseGamma(1.0, 1.0))
    spreads = jnp.sqrt(eta * jnp.array([ratio, 1.0]))
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
    level = sample("level", dist.ImproperUniform(dist.constraints.real, (), (sites,)))
    mean = level[site] + jnp.sum((X - means[site]) * theta_k[site], axis=1)
    numpyro.sample("y", dist.Normal(mean, jnp.sqrt(s[site])), obs=y)


def sample(name: str, law: dist.Distribution) -> jax.Array:
    return jnp.asarray(numpyro.sample(name, law))


def main(source: str, target: str) -> None:
    with np.load(source) as file:
        given = dict(file)
    X, y, site = (given[name] for name in ("X", "y", "site"))
    means, levels = (
        jnp.array([values[site == k].mean(axis=0) for k in range(site.max() + 1)])
        for values in (X, y)
    )
    start = init_to_value(values={"level": levels})
    kernel = NUTS(model, dense_mass=True, target_accept_prob=0.95, init_strategy=start)
    sampler = MCMC(
        kernel,
        num_warmup=int(given["warmup"]),
        num_samples=int(given["draws"]),
        num_chains=int(given["chains"]),
        chain_method="sequential",
        progress_bar=False,
    )
    sampler.run(
        jax.random.PRNGKey(int(given["seed"])),
        *(jnp.array(values) for values in (X, y, site)),
        means,
        float(given["ratio"]),
        extra_fields=("diverging", "num_steps"),
    )
    draws = sampler.get_samples(group_by_chain=True)
    extra = sampler.get_extra_fields(group_by_chain=True)
    found = {name: np.asarray(draws[name], dtype=np.float64) for name in RECORDED}
    found |= {"diverging": np.asarray(extra["diverging"]), "steps": np.asarray(extra["num_steps"])}
    np.savez(target, allow_pickle=False, **found)


if __name__ == "__main__":
    numpyro.enable_x64()
    main(*sys.argv[1:])
