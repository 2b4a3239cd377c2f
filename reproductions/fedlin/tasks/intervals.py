"""Cells of FedLin's figure 4: 90 % intervals of HM2, of one device and of what devices share.

Yue, Al Kontar and Estrada Gomez (2022), section 5.2. The paper draws one run; a cell is one run,
and its numbers are means over seeds. "device" is theta_1 in case I of table 2, with the lasso.
"shared" has 100 devices with 100 records and theta_k ~ N(mu, diag(tau)). The paper does not state
the noise of "shared"; as elsewhere in the section it is 0.05, a standard deviation.

The exact posterior of mu_j and log tau_j is computed by quadrature: devices' least squares have
errors of about 0.005 between coefficients of standard deviation 1, so they are taken for
independent, and the noise for known. Given tau_j, mu_j is then normal.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from scipy.special import ndtr

from reproductions.fedlin.tasks import hm2_selection
from reproductions.fedlin.tasks.centralised import least_squares
from reproductions.fedlin.tasks.hm2_selection import LEVEL
from reproductions.fedlin.tasks.runs import HM2, regressions
from reproductions.fedlin.tasks.simulated_cases import simulate
from secagg.contracts import Array
from secagg.experiments.runner.types import CONVERGED, Settings

MU, TAU = np.array([1.0, 3.0, 0.5, 2.0]), np.array([1.17, 2.35, 2.52, 0.67])
DEVICES, RECORDS, NOISE = 100, 100, 0.05
_TAILS = np.array([(1 - LEVEL) / 2, (1 + LEVEL) / 2])


def compute(settings: Settings) -> dict[str, dict[str, float]]:
    """Return the numbers of "METHOD COMPONENT", components from 1. Settings: what, seed."""
    seed = int(settings["seed"])
    return device(seed) if settings["what"] == "device" else shared(seed)


def device(seed: int) -> dict[str, dict[str, float]]:
    """Return those of theta_1: of HM2 and of Student's intervals."""
    drawn = hm2_selection.draw("I", NOISE, seed)
    method = {**HM2, "prior": "lasso", "level": LEVEL}
    result, own = regressions(method, drawn.X, drawn.y, seed)
    rows = own[min(own)].summary["coefficients"][1:]
    low, high, middle = (np.array([row[key] for row in rows]) for key in ("low", "high", "hm2"))
    ended = float(result.summary.get("converged", True))
    least, reach = hm2_selection.student(drawn.X[0], drawn.y[0])
    truth = drawn.theta[:, 0]
    return _numbers("hm2", truth, middle, low, high, ended) | _numbers(
        "least", truth, least, least - reach, least + reach, 1.0
    )


def draw_shared(seed: int) -> tuple[list[Array], list[Array]]:
    """Return X and y of each device."""
    rng = np.random.default_rng([40, seed])
    theta = MU[:, None] + np.sqrt(TAU)[:, None] * rng.standard_normal((len(MU), DEVICES))
    drawn = simulate(theta, (RECORDS,) * DEVICES, NOISE, (), rng)
    return drawn.X, drawn.y


def shared(seed: int) -> dict[str, dict[str, float]]:
    """Return those of mu and log tau: of HM2 and of the exact posterior."""
    X, y = draw_shared(seed)
    result, _ = regressions({**HM2, "prior": "normal", "level": LEVEL}, X, y, seed)
    truth, rows = np.concatenate([MU, np.log(TAU)]), result.summary["shared"]
    means = [row for row in rows if row["component"].startswith("mu[")]
    spreads = [row for row in rows if row["component"].startswith("log tau[")]
    found = []
    for key in ("estimate", "low", "high"):
        sds = np.array([row[key] for row in spreads])  # the result has roots of tau
        found.append(np.concatenate([[row[key] for row in means], 2 * np.log(sds)]))
    ended = float(result.summary["converged"])
    middle, low, high = exact(X, y)
    return _numbers("hm2", truth, *found, ended) | _numbers("exact", truth, middle, low, high, 1.0)


def exact(X: list[Array], y: list[Array]) -> tuple[Array, Array, Array]:
    """Return median and ends of the intervals of mu (d,), then of log tau (d,)."""
    b = least_squares(X, y)  # (d, K)
    C = NOISE**2 * np.array([np.diagonal(np.linalg.inv(x.T @ x)) for x in X]).T
    log_tau = np.linspace(-3.0, 4.0, 2801)[:, None]
    shares = np.array([_TAILS[0], 0.5, _TAILS[1]])
    of_mu, of_tau = [], []
    for own, error in zip(b, C, strict=True):
        V = np.exp(log_tau) + error
        P = np.sum(1 / V, axis=1) + 1  # mu ~ N(0, 1)
        m = np.sum(own / V, axis=1) / P
        log = -(np.log(V).sum(axis=1) + np.log(P) + np.sum(own**2 / V, axis=1) - P * m**2) / 2
        log -= log_tau[:, 0] ** 2 / 2  # log tau ~ N(0, 1)
        weights = np.exp(log - log.max())
        weights /= weights.sum()
        of_tau.append(np.interp(shares, np.cumsum(weights), log_tau[:, 0]))
        centre, sd = weights @ m, np.sqrt(weights @ (1 / P + m**2) - (weights @ m) ** 2)
        mu = np.linspace(centre - 8 * sd, centre + 8 * sd, 801)
        below = weights @ ndtr((mu - m[:, None]) * np.sqrt(P)[:, None])
        of_mu.append(np.interp(shares, below, mu))
    low, middle, high = np.concatenate([of_mu, of_tau]).T
    return middle, low, high


def _numbers(method: str, truth: Array, *found: Any) -> dict[str, dict[str, float]]:
    middle, low, high, ended = found
    return {
        f"{method} {j + 1}": {
            "covered": float(low[j] < truth[j] < high[j]),
            "off": float(abs(middle[j] - truth[j])),
            "width": float(high[j] - low[j]),
            CONVERGED: ended,
        }
        for j in range(len(truth))
    }
