"""Estimate a lower bound on epsilon from many releases on two neighbouring data sets.

The method is that of Nasr et al., *Tight auditing of differentially private machine learning*
(2023), for Gaussian differential privacy. A guarantee claims that releases on D and on its
neighbour D' are hard to tell apart; the audit tries to tell them apart. The older statistical bound
of Jagielski, Ullman & Oprea, *Auditing differentially private machine learning* (2020), is computed
too.

The test. A tenth of the releases chooses the test, and the other releases judge it, so the choice
cannot overfit. The test projects releases on Fisher's discriminant S^-1 (m' - m), which is the best
of all tests for Gaussian noise of covariance S. A release above the midpoint of the two means is
attributed to D'. The advantage of the test is A = P'(yes) - P(yes).

The bound. The claim is mu-GDP (Dong, Roth & Su 2022, definition 2.6): no test does better than the
best test between N(0, 1) and N(mu, 1), whose advantage is 2 Phi(mu / 2) - 1. So

    mu >= 2 PhiInv((1 + A) / 2),                                                          (1)

for noise of any law: (1) uses the shape of the claimed trade-off only. The audit compares the i-th
release on D' with the i-th on D. In n such pairs, g gain a yes and l lose one; both are binomial,
so Clopper & Pearson's limits give

    A >= low(g) - high(l),                                                                (2)

each limit with a quarter of the stated error. The pairs must be independent of one another, but the
two releases of a pair need not be. If both use the same noise, then g and l are small, and (2) is
much tighter than limits of P and P' are. Equation (1) gives epsilon at the claim's delta.

The older bound does not use the shape of the claim. For any event E, (epsilon, delta) means
P'(E) <= e^epsilon P(E) + delta, and the same with D and D' exchanged. E is a half-line of the same
projection; each limit again has a quarter of the error.

Threat model: the adversary knows all records but one, may choose that one, and sees the rows given
here. Subtract or add what colluding parties know before.

Not protected: a lower bound can refute a claim and cannot prove one. It is only as good as the
neighbours and the view that it is given. A linear test misses leaks that do not move a mean (noise
of floating-point numbers: see the tests of the samplers). (1) measures how far the claim of GDP is
from the truth; a mechanism that is (epsilon, delta)-private with another trade-off may fail it.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy import special

from secagg.errors import UsageError
from secagg.privacy.accounting.gaussian_dp import gaussian_epsilon

Floats = NDArray[np.float64]

MIN_RUNS = 100
_THRESHOLDS = 200  # candidates of the older bound, at equally spaced ranks


@dataclass(frozen=True)
class EpsilonBound:
    """The result of an audit.

    claimed, delta: the claim; runs: pairs of releases that judged the test
    error: largest probability that `refuted` is True although the claim holds
    mu, epsilon: estimates; each of mu_low and mu_high (epsilon_low, ...) is wrong with at most half
        that probability. mu_high holds for the test that was used: a better test may exist
    threshold_low: the older lower bound of epsilon
    """

    claimed: float
    delta: float
    runs: int
    error: float
    mu: float
    mu_low: float
    mu_high: float
    threshold_low: float

    @property
    def epsilon(self) -> float:
        """Epsilon of the estimated mu."""
        return gaussian_epsilon(self.mu, self.delta)

    @property
    def epsilon_low(self) -> float:
        """Lower bound of epsilon, from equations (1) and (2)."""
        return gaussian_epsilon(self.mu_low, self.delta)

    @property
    def epsilon_high(self) -> float:
        """Upper end of epsilon's interval, for the test that was used."""
        return gaussian_epsilon(self.mu_high, self.delta)

    @property
    def refuted(self) -> bool:
        """Whether the audit refutes the claim."""
        return max(self.epsilon_low, self.threshold_low) > self.claimed

    @property
    def verdict(self) -> str:
        """The result in one sentence."""
        return (
            f"{'The claim is refuted' if self.refuted else 'No evidence against the claim'}: "
            f"epsilon is at least {self.epsilon_low:.3g} (threshold bound: "
            f"{self.threshold_low:.3g}), {self.claimed:.3g} is claimed, at delta {self.delta:.3g}; "
            f"{self.runs} pairs of releases, error below {self.error:.2g}."
        )


def bound_epsilon(
    releases: Floats, on_neighbour: Floats, claimed: float, delta: float, error: float = 2.0**-20
) -> EpsilonBound:
    """Audit a claim of (epsilon, delta) with releases on a data set and on its neighbour.

    releases, on_neighbour: shape (runs, numbers), finite, one release a row as the adversary sees
        it; rows are independent, but a row may depend on the same row of the other array
    claimed: epsilon, 0 to inf; delta: above 0 and below 1; error: above 0 and below 1
    Raises `UsageError` for anything else, or fewer than 100 runs.
    """
    _check(releases, on_neighbour, claimed, delta, error)
    fit = len(releases) // 10
    direction = _discriminant(releases[:fit], on_neighbour[:fit])
    before, after = releases @ direction, on_neighbour @ direction
    midpoint = (before[:fit].mean() + after[:fit].mean()) / 2
    yes, yes_after = before[fit:] > midpoint, after[fit:] > midpoint
    n, part = len(yes), error / 4
    gained, lost = int(np.sum(yes_after & ~yes)), int(np.sum(yes & ~yes_after))
    event = _best_event(before[:fit], after[:fit], n, delta, part)
    return EpsilonBound(
        claimed=claimed,
        delta=delta,
        runs=n,
        error=error,
        mu=_mu_of((gained - lost) / n),
        mu_low=_mu_of(float(_low(gained, n, part) - _high(lost, n, part))),
        mu_high=_mu_of(float(_high(gained, n, part) - _low(lost, n, part))),
        threshold_low=_judge_event(event, before[fit:], after[fit:], delta, part),
    )


def _mu_of(advantage: float) -> float:
    """Return the right side of (1); 0 for a test that is no better than guessing."""
    return max(0.0, 2 * float(special.ndtri((1 + min(advantage, 1.0)) / 2)))


def _discriminant(first: Floats, second: Floats) -> Floats:
    """Return S^-1 (m' - m), S the mean of the two covariances.

    A number without noise would make S singular. Every number gets an additional variance of 10^-12
    of the mean variance, so an exact number outweighs all others if it differs at all.
    """
    difference = second.mean(axis=0) - first.mean(axis=0)
    centred = np.vstack([first - first.mean(axis=0), second - second.mean(axis=0)])
    covariance = centred.T @ centred / len(centred)
    min_variance = 1e-12 * float(np.trace(covariance)) / len(difference) or 1.0
    regular = covariance + min_variance * np.eye(len(difference))
    return np.asarray(np.linalg.solve(regular, difference))


# --- the older bound --------------------------------------------------------------------------


@dataclass(frozen=True)
class _Event:
    """Scores above `threshold`, or scores up to it."""

    threshold: float
    above: bool


def _best_event(before: Floats, after: Floats, n: int, delta: float, part: float) -> _Event:
    """Return the event that bounds epsilon best if n runs have the rates of these ones."""
    ranks = np.linspace(0, 1, _THRESHOLDS)
    thresholds = np.quantile(np.concatenate([before, after]), ranks)
    below, below_after = (
        np.searchsorted(np.sort(scores), thresholds, side="right") / len(scores)
        for scores in (before, after)
    )
    above = _threshold_bound((1 - below_after) * n, (1 - below) * n, n, delta, part)
    under = _threshold_bound(below * n, below_after * n, n, delta, part)
    if above.max() >= under.max():
        return _Event(float(thresholds[above.argmax()]), above=True)
    return _Event(float(thresholds[under.argmax()]), above=False)


def _judge_event(event: _Event, before: Floats, after: Floats, delta: float, part: float) -> float:
    yes, yes_after = (int(np.sum(scores > event.threshold)) for scores in (before, after))
    n = len(before)
    likely, rare = (yes_after, yes) if event.above else (n - yes, n - yes_after)
    return float(_threshold_bound(likely, rare, n, delta, part))


def _threshold_bound(likely: Any, rare: Any, n: int, delta: float, part: float) -> Any:
    """Return log((P(E) - delta) / P'(E)), at the limits of both; at least 0."""
    excess = np.maximum(_low(likely, n, part) - delta, 0)
    with np.errstate(divide="ignore"):
        return np.maximum(np.log(excess / _high(rare, n, part)), 0.0)


# --- Clopper and Pearson's limits -------------------------------------------------------------


def _low(k: Any, n: int, part: float) -> Any:
    """Return the lower limit of a rate seen k times in n; it is wrong with probability `part`."""
    k = np.asarray(k, dtype=np.float64)
    return np.where(k > 0, special.betaincinv(np.maximum(k, 1e-9), n - k + 1, part), 0.0)


def _high(k: Any, n: int, part: float) -> Any:
    """Return the upper limit of a rate seen k times in n; it is wrong with probability `part`."""
    k = np.asarray(k, dtype=np.float64)
    return np.where(k < n, special.betainccinv(k + 1, np.maximum(n - k, 1e-9), part), 1.0)


def _check(first: Floats, second: Floats, claimed: float, delta: float, error: float) -> None:
    if first.ndim != 2 or first.shape != second.shape or first.shape[0] < MIN_RUNS:
        raise UsageError(
            "releases",
            f"shapes {first.shape} and {second.shape} are not at least {MIN_RUNS} pairs of rows",
        )
    if not (np.isfinite(first).all() and np.isfinite(second).all()):
        raise UsageError("releases", "contain a number that is not finite")
    if not (claimed >= 0 and 0 < delta < 1 and 0 < error < 1):
        raise UsageError(
            "claim", f"epsilon {claimed}, delta {delta} or error {error} is out of range"
        )
