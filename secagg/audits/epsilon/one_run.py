"""Estimate a lower bound on epsilon from one run, into which canaries were put at random.

Steinke, Nasr & Jagielski, *Privacy auditing with one (1) training run* (NeurIPS 2023), theorem 5.2.
Each of m canary records takes part in the run with probability 1/2, independently. An auditor sees
the releases. For some canaries, the auditor guesses whether they took part. If the run is (epsilon,
delta)-private under adding and removing records, then for v correct ones among r guesses, whatever
the auditor does,

    P(at least v correct) <= P(B >= v) + 2 m delta max_i P(v > B >= v - i) / i,           (1)

with B binomial of r trials and probability e^epsilon / (1 + e^epsilon). An epsilon at which the
right side is at most the stated error can be excluded, so it is below the run's true epsilon with
probability at least 1 - error.

Threat model: the auditor knows all canaries and all other records, and sees every release.

Not protected: a lower bound can refute a claim and cannot prove one. One run gives a weak bound:
if all m canaries are guessed rightly, about log(m / log(1 / error)). That is 2.6 for 100 canaries
and an error of 0.1 %. A larger claim cannot be refuted with so many canaries.
"""

from __future__ import annotations

import math

import numpy as np
from scipy.stats import binom

from secagg.errors import UsageError

_STEPS = 60  # of a bisection
_MAX_EPSILON = 100.0


def one_run_epsilon(
    correct: int, guesses: int, canaries: int, delta: float, error: float = 0.05
) -> float:
    """Return the largest epsilon that is excluded with this error; 0 if none is.

    correct: right guesses (v); guesses: r, at most `canaries` (m); delta: of the claim, at least 0
    error: probability of a bound above the true epsilon, above 0 and below 1
    Raises `UsageError` for numbers that do not fit.
    """
    if not 0 <= correct <= guesses <= canaries:
        what = f"{correct} correct of {guesses} guesses about {canaries} canaries is impossible"
        raise UsageError("canaries", what)
    if not (delta >= 0 and 0 < error < 1):
        raise UsageError("canaries", "delta must be at least 0, and error between 0 and 1")
    low, high = 0.0, _MAX_EPSILON
    if _probability(correct, guesses, canaries, low, delta) > error:
        return 0.0
    for _ in range(_STEPS):
        middle = (low + high) / 2
        excluded = _probability(correct, guesses, canaries, middle, delta) <= error
        low, high = (middle, high) if excluded else (low, middle)
    return low


def _probability(correct: int, guesses: int, canaries: int, epsilon: float, delta: float) -> float:
    """Return the right side of (1)."""
    right = 1 / (1 + math.exp(-epsilon))
    below = binom.pmf(np.arange(correct - 1, -1, -1), guesses, right)  # v - 1, v - 2, ...
    spread = np.cumsum(below) / np.arange(1, correct + 1)
    largest = float(np.max(spread, initial=0.0))
    tail = float(binom.sf(correct - 1, guesses, right))
    return min(1.0, tail + 2 * canaries * delta * largest)
