"""How private releases are at most: a lower bound on epsilon from many of them, on two data sets.

Follows Nasr et al., *Tight auditing of differentially private machine learning* (2023; their audit
of Gaussian differential privacy): releases on D and on its neighbour D' are claimed to be hard to
tell apart, so one tries to. Jagielski, Ullman & Oprea, *Auditing differentially private machine
learning* (2020; its statistical lower bound), is the older way, printed beside it.

The test. A tenth of the releases chooses it, the others judge, so nothing is chosen by what it is
judged on. Releases are projected on Fisher's discriminant S^-1 (m' - m), which for Gaussian noise
of covariance S is the best of all tests, and one above the middle of the two means is said to be
from D'. Its advantage is A = P'(yes) - P(yes).

The bound. The claim is of mu-GDP (Dong, Roth & Su 2022, definition 2.6): no test does better than
the best one between N(0, 1) and N(mu, 1), whose advantage is 2 Phi(mu / 2) - 1. So

    mu >= 2 PhiInv((1 + A) / 2),                                                          (1)

whatever the noise's law: the reading takes from the claim the shape of the trade-off, and nothing
from the noise. The i-th release on D' is compared with the i-th on D. Of n such pairs, g gained a
yes and l lost one, each binomial, so that Clopper & Pearson's limits give

    A >= low(g) - high(l),                                                                (2)

each limit with a quarter of the stated error. The two releases of a pair need not be independent,
only the pairs: drawn with the same noise on both data sets, g and l are small and (2) is much
tighter than limits of P and P' would be. epsilon is that of (1) at the claim's delta.

The older bound makes no use of the claim's shape: for any event E, (epsilon, delta) says
P'(E) <= e^epsilon P(E) + delta, and the same with D and D' exchanged. E is a half-line of the same
projection; limits again have a quarter of the error each.

Threat model: an adversary who knows all records but one, may choose that one, and sees what the
rows given here hold. What colluding parties know has to be taken off, or added, before.

Not protected: a lower bound refutes a claim and cannot prove one. It is as good as the neighbours
and the view it is given. A linear test misses leaks that move no mean (float noise: see the tests
of the samplers). (1) measures how far the claim of GDP is from the truth; a mechanism that is
(epsilon, delta)-private in another shape may fail it.
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
_THRESHOLDS = 200  # of the older bound, at equally spaced ranks


@dataclass(frozen=True)
class EpsilonBound:
    """What many releases on two neighbouring data sets say of a claim.

    claimed, delta: the claim; runs: pairs of releases that judged
    error: how probable it is at most that, the claim being true, `refuted` is True
    mu, epsilon: as measured; each of mu_low and mu_high (epsilon_low, ...) is wrong with at most
        half that probability. mu_high is about the test that was made: a better one may be known
    threshold_low: the older bound of epsilon
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
        """Epsilon of the mu measured."""
        return gaussian_epsilon(self.mu, self.delta)

    @property
    def epsilon_low(self) -> float:
        """Lower bound of epsilon, by the GDP reading."""
        return gaussian_epsilon(self.mu_low, self.delta)

    @property
    def epsilon_high(self) -> float:
        """Upper end of epsilon's interval, for the test that was made."""
        return gaussian_epsilon(self.mu_high, self.delta)

    @property
    def refuted(self) -> bool:
        """Whether the claim cannot be true."""
        return max(self.epsilon_low, self.threshold_low) > self.claimed

    @property
    def verdict(self) -> str:
        """The finding, in words."""
        found = (
            f"epsilon is at least {self.epsilon_low:.3g} (threshold bound: "
            f"{self.threshold_low:.3g}), {self.claimed:.3g} is claimed, at delta {self.delta:.3g}; "
            f"{self.runs} pairs of releases, error below {self.error:.2g}"
        )
        return (
            f"The claim is refuted: {found}." if self.refuted else f"No evidence against: {found}."
        )


def bound_epsilon(
    releases: Floats, on_neighbour: Floats, claimed: float, delta: float, error: float = 2.0**-20
) -> EpsilonBound:
    """Return what releases on a data set and on its neighbour say of a claim of (epsilon, delta).

    releases, on_neighbour: shape (runs, numbers), finite, one release a row as its adversary sees
        it; rows are independent of one another, but a row may depend on the other array's same row
    claimed: epsilon, 0 to inf; delta: above 0 and below 1; error: above 0 and below 1
    Raises `UsageError` for anything else, or fewer than 100 runs.
    """
    _check(releases, on_neighbour, claimed, delta, error)
    fit = len(releases) // 10
    direction = _discriminant(releases[:fit], on_neighbour[:fit])
    before, after = releases @ direction, on_neighbour @ direction
    middle = (before[:fit].mean() + after[:fit].mean()) / 2
    said, said_after = before[fit:] > middle, after[fit:] > middle
    n, part = len(said), error / 4
    gained, lost = int(np.sum(said_after & ~said)), int(np.sum(said & ~said_after))
    chosen = _best_event(before[:fit], after[:fit], n, delta, part)
    return EpsilonBound(
        claimed=claimed,
        delta=delta,
        runs=n,
        error=error,
        mu=_mu_of((gained - lost) / n),
        mu_low=_mu_of(float(_low(gained, n, part) - _high(lost, n, part))),
        mu_high=_mu_of(float(_high(gained, n, part) - _low(lost, n, part))),
        threshold_low=_judge_event(chosen, before[fit:], after[fit:], delta, part),
    )


def _mu_of(advantage: float) -> float:
    """Return equation (1); 0 for a test that is no better than a guess."""
    return max(0.0, 2 * float(special.ndtri((1 + min(advantage, 1.0)) / 2)))


def _discriminant(first: Floats, second: Floats) -> Floats:
    """Return S^-1 (m' - m), S the mean of the two covariances.

    A number without noise would make S singular: it gets a variance of 10^-12 of the mean one, so
    that it outweighs all others if it tells anything.
    """
    apart = second.mean(axis=0) - first.mean(axis=0)
    centred = np.vstack([first - first.mean(axis=0), second - second.mean(axis=0)])
    covariance = centred.T @ centred / len(centred)
    least = 1e-12 * float(np.trace(covariance)) / len(apart) or 1.0
    return np.asarray(np.linalg.solve(covariance + least * np.eye(len(apart)), apart))


# --- the older bound --------------------------------------------------------------------------


@dataclass(frozen=True)
class _Event:
    """Scores above `threshold`, or, on the other side, up to it."""

    threshold: float
    above: bool


def _best_event(before: Floats, after: Floats, n: int, delta: float, part: float) -> _Event:
    """Return the event that would bound epsilon best, if n runs were as those given."""
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
    least = np.maximum(_low(likely, n, part) - delta, 0)
    with np.errstate(divide="ignore"):
        return np.maximum(np.log(least / _high(rare, n, part)), 0.0)


# --- Clopper and Pearson's limits -------------------------------------------------------------


def _low(k: Any, n: int, part: float) -> Any:
    """Return the limit that a rate of which k of n were seen is below with probability `part`."""
    k = np.asarray(k, dtype=np.float64)
    return np.where(k > 0, special.betaincinv(np.maximum(k, 1e-9), n - k + 1, part), 0.0)


def _high(k: Any, n: int, part: float) -> Any:
    """Return the limit that a rate of which k of n were seen is above with probability `part`."""
    k = np.asarray(k, dtype=np.float64)
    return np.where(k < n, special.betainccinv(k + 1, np.maximum(n - k, 1e-9), part), 1.0)


def _check(first: Floats, second: Floats, claimed: float, delta: float, error: float) -> None:
    if first.ndim != 2 or first.shape != second.shape or first.shape[0] < MIN_RUNS:
        raise UsageError(
            "releases",
            f"shapes {first.shape} and {second.shape} are not {MIN_RUNS} pairs of rows",
        )
    if not (np.isfinite(first).all() and np.isfinite(second).all()):
        raise UsageError("releases", "a number is not finite")
    if not (claimed >= 0 and 0 < delta < 1 and 0 < error < 1):
        raise UsageError("claim", f"epsilon {claimed}, delta {delta}, error {error} claim nothing")
