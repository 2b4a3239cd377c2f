"""Laws of integer noise, computed apart from the samplers, and p-values that hold for any sample.

Every p-value is of an exact law or of a proved inequality, never of a limit law: P(p <= a) <= a if
the draws are independent and of the stated law. So a file of tests may state how often it raises a
false alarm, over all seeds, and Bonferroni adds up its parts whatever they have to do with each
other. Probabilities are summed in float64, relative error below 2^-40; a count of n = 10^6 moves
by 10^-6 for that, which no p-value here can see.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from fractions import Fraction

import numpy as np
from numpy.typing import NDArray
from scipy import special, stats

Draws = NDArray[np.int64]
PValues = NDArray[np.float64]


@dataclass(frozen=True)
class Law:
    """P(x) of -reach..reach; what lies beyond has probability below 2^-60.

    proxy: E exp(a X) <= exp(a^2 proxy / 2) for all a, or None where that does not hold. For the
        discrete Gaussian it is sigma^2: E exp(a X) = exp(a^2 sigma^2 / 2) times the sum of
        exp(-(x - a sigma^2)^2 / 2 sigma^2) over that of exp(-x^2 / 2 sigma^2), which is <= 1.
    """

    probabilities: PValues
    proxy: float | None

    @property
    def reach(self) -> int:
        return len(self.probabilities) // 2


def gaussian(variance: int | Fraction) -> Law:
    reach = max(3, round(9.2 * float(variance) ** 0.5))
    weights = np.exp(-(np.arange(-reach, reach + 1.0) ** 2) / (2 * float(variance)))
    return Law(weights / weights.sum(), float(variance))


def laplace(scale: int | Fraction) -> Law:
    reach = round(45 * float(scale))
    weights = np.exp(-np.abs(np.arange(-reach, reach + 1.0)) / float(scale))
    return Law(weights / weights.sum(), None)


# --- p-values -----------------------------------------------------------------------------------


def two_sided(counts: object, trials: int, rate: object) -> PValues:
    """P-values of counts under the binomial law, exact."""
    counts, rate = np.atleast_1d(np.asarray(counts)), np.asarray(rate)
    low, high = stats.binom.cdf(counts, trials, rate), stats.binom.sf(counts - 1, trials, rate)
    return np.minimum(1.0, 2 * np.minimum(low, high))


def likelihood_ratio(counts: NDArray[np.int64], rates: PValues) -> PValues:
    """Counts of k cells against their rates: what Pearson's chi-square approximates, n KL.

    P(n KL >= a) <= exp(-a) (e a / (k - 1))^(k - 1) for a > k - 1 (Agrawal 2020, "Finite-sample
    concentration of the multinomial in relative entropy", IEEE Trans. Inf. Theory, theorem 1.2).
    """
    statistic = special.rel_entr(counts, counts.sum() * rates).sum()
    freedom = len(counts) - 1
    if statistic <= freedom:
        return np.array([1.0])
    return np.exp([freedom * (1 + np.log(statistic / freedom)) - statistic])


def furthest(counts: NDArray[np.int64], rates: PValues) -> PValues:
    """Kolmogorov and Smirnov's distance; P(distance >= a) <= 2 exp(-2 n a^2) (Massart 1990)."""
    n = counts.sum()
    distance = np.abs(np.cumsum(counts) / n - np.cumsum(rates)).max()
    return np.minimum(1.0, [2 * np.exp(-2 * n * distance**2)])


def sub_gaussian(total: float, proxy: float) -> float:
    """P(|sum| >= total) <= 2 exp(-total^2 / (2 proxy))."""
    return min(1.0, 2 * float(np.exp(-(total**2) / (2 * proxy))))


def neighbours(draws: Draws, proxy: float) -> PValues:
    """Draws 1 and 2 apart do not go up and down together, and all of them have mean zero.

    Given every other draw (pair), the sum of products is a sub-Gaussian combination of the rest.
    """
    x = draws / proxy**0.5
    found = [sub_gaussian(float(x.sum()), len(x))]
    for apart in (1, 2):
        for start in range(2 * apart):
            first, second = x[start :: 2 * apart], x[start + apart :: 2 * apart]
            first = first[: len(second)]
            found.append(sub_gaussian(float(first @ second), float(first @ first)))
    return np.array(found)


# --- all of them ----------------------------------------------------------------------------------


def compare(draws: Draws, law: Law) -> dict[str, PValues]:
    """P-values of draws against a law that is narrow enough to be written down."""
    reach, rates, n = law.reach, law.probabilities, len(draws)
    beyond = np.abs(draws) > reach
    counts = np.bincount(draws[~beyond] + reach, minlength=2 * reach + 1)
    # Cells of fewer than one expected draw are put together: the outermost, left and right.
    often = np.flatnonzero(rates * n >= 1)
    left, right = int(often[0]), int(often[-1])
    merged = [np.r_[a[: left + 1].sum(), a[left + 1 : right], a[right:].sum()]
              for a in (counts, rates)]  # fmt: skip
    sizes, of_size = (
        np.bincount(np.abs(draws[~beyond])),
        np.r_[rates[reach], 2 * rates[reach + 1 :]],
    )
    up_to = np.minimum(1.0, np.cumsum(of_size))
    # Pairs of neighbours that are both small: dependence that signs hide.
    small = np.abs(draws) <= (c := int(np.searchsorted(up_to, 0.5)))
    found = {
        "reach": np.array([0.0 if beyond.any() else 1.0]),  # 2^-60 n is no false alarm
        "cells": two_sided(merged[0], n, merged[1]),
        "chi-square": likelihood_ratio(*merged),
        "distance": furthest(*merged),
        "width": two_sided(np.cumsum(sizes), n, up_to[: len(sizes)]),
        "signs": two_sided((draws > 0).sum(), int((draws != 0).sum()), 0.5),
        "pairs": np.r_[
            two_sided((small[: n // 2 * 2 : 2] & small[1::2]).sum(), n // 2, up_to[c] ** 2),
            two_sided((draws[: n // 2 * 2 : 2] == draws[1::2]).sum(), n // 2, (rates**2).sum()),
        ],
    }
    if law.proxy is not None:
        found["neighbours"] = neighbours(draws, law.proxy)
    return found


def compare_wide(draws: Draws, variance: int) -> dict[str, PValues]:
    """P-values of draws against a Gaussian with sigma >= 2^20: too wide to be written down.

    Up to c + 1/2, c an integer, the law is the normal one to 0.05 / sigma^2 <= 2^-44 (the error of
    the midpoint rule); residues modulo m <= 2^16 are uniform to 2 exp(-2 pi^2 2^8).
    """
    sigma, n = float(variance) ** 0.5, len(draws)
    edges = np.floor(np.linspace(-4, 4, 257) * sigma) + 0.5
    rates = np.diff(special.ndtr(np.r_[-np.inf, edges / sigma, np.inf]))
    counts = np.bincount(np.searchsorted(edges, draws), minlength=len(rates))
    widths = np.floor(np.array([0.25, 0.5, 1, 1.5, 2, 3, 4]) * sigma)
    inside = np.searchsorted(np.sort(np.abs(draws)), widths, side="right")
    found = {
        "chi-square": likelihood_ratio(counts, rates),
        "distance": furthest(counts, rates),
        "width": two_sided(inside, n, special.erf((widths + 0.5) / sigma / 2**0.5)),
        "signs": two_sided((draws > 0).sum(), int((draws != 0).sum()), 0.5),
        "neighbours": neighbours(draws, float(variance)),
        "repeats": repeats(draws[: 2**17], sigma),
    }
    low = (draws & 0xFFFF).astype(np.uint16)
    pairs = low[: n // 2 * 2 : 2] ^ low[1::2]
    found["bits"] = _bits(low)
    found["bits of neighbours"] = _bits(pairs)
    for modulus in (3, 5, 7, 256, 1000):
        residues = np.bincount(draws % modulus, minlength=modulus)
        found[f"modulo {modulus}"] = likelihood_ratio(residues, np.full(modulus, 1 / modulus))
    return found


def _bits(words: NDArray[np.uint16]) -> PValues:
    """Each bit is set in half of the words."""
    ones = [int(((words >> np.uint16(place)) & np.uint16(1)).sum()) for place in range(16)]
    return two_sided(ones, len(words), 0.5)


def repeats(draws: Draws, sigma: float) -> PValues:
    """No four draws in a row come twice. P <= pairs * (largest probability)^4, a union bound.

    (Also where the two rows overlap: each of the four draws is new, given those before it.)
    """
    rows = np.lib.stride_tricks.sliding_window_view(draws, 4)
    repeated = len(np.unique(rows, axis=0)) < len(rows)
    return np.array([len(rows) ** 2 / 2 * (0.4 / sigma) ** 4 if repeated else 1.0])


def alarms(share: float, p_values: Mapping[str, PValues]) -> set[str]:
    """Return the checks whose smallest p-value is too small, by Bonferroni; P(any) <= share."""
    tests = sum(len(values) for values in p_values.values())
    return {name for name, values in p_values.items() if values.min() * tests < share}
