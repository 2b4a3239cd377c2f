"""Federated sparse regression against another sampler: numpyro's NUTS on the model as stated.

NUTS (`oracles/make_simulated_gold.py`) has raw rows, half-Cauchy distributions as they are and an
intercept for each site. Ours has cross products of centred columns, auxiliary variables and one
record less. Both estimate the same posterior, each with a Monte Carlo error. A difference may be a
few times the two errors together; no other tolerance is used. Our sums over sites are of
fixed-point integers, as in a run.
"""

from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray
from support.fedlin.gold import SIMULATED
from support.fedlin.simulated_sites import four_sites
from support.methods.playing import play, rows_of

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


def ours(method: SparseRegression) -> dict[str, Array]:
    """Return draws (draws, chains, ...) of what is common, and of what sites keep."""
    rows = [rows_of(part / HALF) for part in four_sites()]
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


def scores(ours: dict[str, Posterior], nuts: dict[str, Any]) -> dict[str, Array]:
    """Return differences in Monte Carlo errors, of means, sds and of PIPs (means of P_j)."""
    found = {}
    for name, a in ours.items():
        b = {key: np.array(value) for key, value in nuts[name].items()}
        found[name] = (a.mean - b["mean"]) / np.hypot(a.mcse_mean, b["mcse_mean"])
        if name != "inclusion":
            found[f"sd of {name}"] = (a.sd - b["sd"]) / np.hypot(a.mcse_sd, b["mcse_sd"])
    return found


def test_the_posterior_agrees_with_nuts() -> None:
    """By both steps; with another prior (one eta for each coefficient) it does not."""
    nuts = SIMULATED["sparse regression"]
    assert nuts["diverging"] < 0.05
    steps: tuple[Literal["collapsed", "paper"], ...] = ("collapsed", "paper")
    for step in steps:
        method = SparseRegression(
            outcome="y", prior="paper", step=step, rounds=1500, warmup=500, chains=32
        )
        found = found_of(ours(method))
        for name, score in scores(found, nuts).items():
            print(step, name, np.round(score, 1).tolist())
            assert np.max(np.abs(score)) < MOST, (step, name)
        # else errors are not to be believed
        assert max(np.max(posterior.r_hat) for posterior in found.values()) < 1.05
        assert max(nuts[name]["r_hat"] for name in found) < 1.05
    other = found_of(
        ours(SparseRegression(outcome="y", prior="paper", rounds=1000, chains=32, own_eta=True))
    )
    assert np.max(np.abs(scores(other, nuts)["inclusion"])) > MOST
