"""Logistic regression: a binary outcome with log odds eta.

With mu = 1 / (1 + exp(-eta)), the log-likelihood of a record is y eta - log(1 + exp(eta)), its
derivative y - mu, and the Fisher weight mu (1 - mu), which is at most 1/4. A record's
log-likelihood below -64 counts as -64. It is used only to decide whether a step is halved, and in a
reasonable fit no observed outcome has a probability as small as exp(-64) = 1.6e-28.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import ClassVar

import numpy as np
from scipy.special import expit

from secagg.contracts import Family, FisherLaw, Outcome, State, TermBounds
from secagg.contracts.noise import Placements
from secagg.core.arrays import Array
from secagg.models.glm.newton_regression import NewtonRegression


def _log_likelihood(y: Array, eta: Array) -> Array:
    return -np.logaddexp(0.0, np.where(y == 1, -eta, eta))


def _weight(eta: Array) -> Array:
    """Return mu (1 - mu), with expit(-eta) for 1 - mu, which loses all digits for large eta."""
    return np.asarray(expit(eta) * expit(-eta))


def _score_size(y: Array, eta: Array) -> Array:
    return np.asarray(expit(np.where(y == 1, -eta, eta)))


def _clipped(eta: Array, limit: Array) -> tuple[Array, Array]:
    p, q = expit(eta), expit(-eta)
    root = np.sqrt(p * q)
    one, zero = q / root, -p / root  # r of y = 1 and of y = 0
    c_one, c_zero = np.clip(one, -limit, limit), np.clip(zero, -limit, limit)
    return p * c_one + q * c_zero, p * c_one * one + q * c_zero * zero


BINOMIAL = Family(
    name="binomial",
    effect="odds",
    outcome=Outcome.BINARY,
    mean=expit,
    log_likelihood=_log_likelihood,
    score=lambda y, eta: y - expit(eta),
    score_size=_score_size,
    weight=_weight,
    bounds=lambda _: TermBounds(log_likelihood=64.0, score=1.0, weight=0.25),
    clipped=_clipped,
    # With log odds of variance g, the mean weight is about p (1 - p) / root(1 + pi g / 8)
    # (MacKay 1992). The latent logistic variable has a residual variance of pi^2 / 3.
    fisher=FisherLaw(
        largest=0.25,
        indicator=True,
        explained="the log odds' latent variance",
        signal=lambda share, _: share / (1 - share) * math.pi**2 / 3,
        at_zero=lambda variance: variance,
        attenuation=lambda signal: 1 / math.sqrt(1 + math.pi / 8 * signal),
    ),
)


@dataclass(frozen=True)
class Logistic(NewtonRegression):
    """Logistic regression of a binary column."""

    outcome: str
    """The outcome: a binary column."""

    name: ClassVar[str] = "logistic"
    title: ClassVar[str] = "Logistic regression"
    family: ClassVar[Family] = BINOMIAL
    placements: ClassVar[Placements] = Placements(
        (),
        "Newton steps build on exact sums.",
        'Use method one_step with family = "binomial": it fits the same regression with noise.',
    )

    def null_log_likelihood(self, state: State) -> float:
        """Return that of the outcome's frequency, which needs only the sums at beta = 0."""
        n, events = round(4 * float(state["null_hessian"][0, 0])), self._events(state)["events"]
        return float(sum(c * math.log(c / n) for c in (events, n - events) if c))
