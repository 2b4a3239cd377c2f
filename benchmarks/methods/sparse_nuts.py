"""The cost of sampling the same model by numpyro's NUTS with all records in one place.

The spike and slab's g are summed out, variances are half-Cauchy and inverse-gamma as in
`secagg.models.sparse_bayes.horseshoe` and `secagg.models.sparse_bayes.spike_slab`, site means have
flat priors (records are centred, and each site's likelihood has one record less). Coefficients and
slab are not centred, as one would write such a model for NUTS.
"""

from __future__ import annotations

import os
import time
from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float64]

RATIO = 0.01
_FEW = 2  # draws


def nuts(sites: Mapping[str, Array], draws: int, chains: int, seed: int) -> tuple[float, Any, int]:
    """Return processor seconds, draws (draws, chains, q) of theta, PIP, tau squared; divergences.

    Each run compiles the model again, so the time of a run with a few draws is subtracted.
    """
    os.environ["XLA_FLAGS"] = "--xla_cpu_multi_thread_eigen=false intra_op_parallelism_threads=1"
    import jax  # noqa: PLC0415  # not installed with the other peers
    import jax.numpy as jnp  # noqa: PLC0415
    import numpyro  # noqa: PLC0415
    from numpyro import distributions as dist  # noqa: PLC0415
    from numpyro.infer import MCMC, NUTS  # noqa: PLC0415

    jax.config.update("jax_enable_x64", True)
    centred = [rows - rows.mean(axis=0) for rows in sites.values()]
    pooled = np.sqrt(sum(np.sum(z * z, axis=0) for z in centred) / sum(map(len, centred)))
    parts = [z / pooled for z in centred]
    gram = jnp.array([z.T @ z for z in parts])
    counts = jnp.array([len(z) - 1.0 for z in parts])
    q = gram.shape[1] - 1

    def model() -> None:
        rho = numpyro.sample("rho", dist.Beta(1.0, 1.0))
        eta = numpyro.sample("eta", dist.InverseGamma(1.0, 1.0))
        theta = numpyro.sample("theta", dist.Normal(0, 10).expand([q]).mask(False))
        slab = dist.Normal(0, jnp.sqrt(eta)).log_prob(theta) + jnp.log(rho)
        spike = dist.Normal(0, jnp.sqrt(RATIO * eta)).log_prob(theta) + jnp.log1p(-rho)
        numpyro.factor("mixture", jnp.sum(jnp.logaddexp(slab, spike)))
        numpyro.deterministic("pip", jax.nn.sigmoid(slab - spike))
        tau = numpyro.sample("tau", dist.HalfCauchy(1.0).expand([q]))
        lam = numpyro.sample("lambda", dist.HalfCauchy(1.0).expand([len(parts), q]))
        raw = numpyro.sample("raw", dist.Normal(0, 1).expand([len(parts), q]))
        s = numpyro.sample("s", dist.InverseGamma(1.0, 1.0).expand([len(parts)]))
        b = jnp.concatenate([jnp.ones((len(parts), 1)), -(theta + raw * lam * tau)], axis=1)
        left = jnp.einsum("ki,kij,kj->k", b, gram, b)
        numpyro.factor("records", jnp.sum(-counts * jnp.log(s) / 2 - left / (2 * s)))

    def run(many: int) -> tuple[float, MCMC]:
        mcmc = MCMC(
            NUTS(model, target_accept_prob=0.95), num_warmup=many, num_samples=many,
            num_chains=chains, chain_method="vectorized", progress_bar=False,
        )  # fmt: skip
        began = time.process_time()
        mcmc.run(jax.random.PRNGKey(seed), extra_fields=("diverging",))
        jax.block_until_ready(mcmc.get_samples())
        return time.process_time() - began, mcmc

    run(_FEW)  # what is compiled only once
    compiling, _ = run(_FEW)
    seconds, mcmc = run(draws)
    seconds -= compiling
    found = mcmc.get_samples(group_by_chain=True)
    by_draw = {name: np.swapaxes(np.asarray(values), 0, 1) for name, values in found.items()}
    wanted = by_draw["theta"], by_draw["pip"], by_draw["tau"] ** 2
    return seconds, wanted, int(mcmc.get_extra_fields()["diverging"].sum())
