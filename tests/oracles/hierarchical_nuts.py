"""FedLin's example 4.1 by numpyro's NUTS, from raw rows: python hierarchical_nuts.py IN OUT

A program, not a module of the tests: see `sparse_nuts.py`.

IN: an .npz of X (sites, n, d), y (sites, n), noise (its sd), seed, chains, warmup, draws.
OUT: an .npz of phi (chains, draws, 2 d), theta (chains, draws, sites, d), diverging.

The model is the paper's. Where the sampler moves is not theta_k itself but (theta_k - b_k) / e_k,
with b_k and e_k least squares and its errors, so that all coordinates are of a like size.
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
from numpyro.infer import MCMC, NUTS, init_to_value


def model(X: jax.Array, y: jax.Array, noise: float, b: jax.Array, e: jax.Array) -> None:
    d = X.shape[2]
    mu = sample("mu", dist.Normal(0.0, 1.0).expand([d]))
    tau = sample("tau", dist.LogNormal(0.0, 1.0).expand([d]))
    flat = dist.ImproperUniform(dist.constraints.real, (), b.shape)
    theta = b + e * sample("standard", flat)
    numpyro.deterministic("theta", theta)
    numpyro.factor("prior of theta", dist.Normal(mu, jnp.sqrt(tau)).log_prob(theta).sum())
    mean = jnp.einsum("knd,kd->kn", X, theta)
    numpyro.sample("y", dist.Normal(mean, noise), obs=y)


def sample(name: str, law: dist.Distribution) -> jax.Array:
    return jnp.asarray(numpyro.sample(name, law))


def main(source: str, target: str) -> None:
    with np.load(source) as file:
        given = dict(file)
    X, y, noise = given["X"], given["y"], float(given["noise"])
    gram = np.einsum("knd,kne->kde", X, X)
    b = np.linalg.solve(gram, np.einsum("knd,kn->kd", X, y)[:, :, None])[:, :, 0]
    e = noise * np.sqrt(np.diagonal(np.linalg.inv(gram), axis1=1, axis2=2))
    start = {"mu": b.mean(axis=0), "tau": b.var(axis=0), "standard": np.zeros(b.shape)}
    sampler = MCMC(
        NUTS(model, init_strategy=init_to_value(values=start)),
        num_warmup=int(given["warmup"]),
        num_samples=int(given["draws"]),
        num_chains=int(given["chains"]),
        chain_method="sequential",
        progress_bar=False,
    )
    sampler.run(
        jax.random.PRNGKey(int(given["seed"])),
        *(jnp.array(values) for values in (X, y)),
        noise,
        jnp.array(b),
        jnp.array(e),
        extra_fields=("diverging",),
    )
    draws = sampler.get_samples(group_by_chain=True)
    found = {
        "phi": np.concatenate([draws["mu"], np.log(draws["tau"])], axis=2),
        "theta": np.asarray(draws["theta"]),
        "diverging": np.asarray(sampler.get_extra_fields(group_by_chain=True)["diverging"]),
    }
    np.savez(target, allow_pickle=False, **found)


if __name__ == "__main__":
    numpyro.enable_x64()
    main(*sys.argv[1:])
