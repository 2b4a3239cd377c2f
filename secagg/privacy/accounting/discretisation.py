"""What delta pays for noise that is a sum of discrete Gaussians, yet accounted as a Gaussian.

An integer query plus N(0, s^2), rounded to an integer, is a function of the Gaussian mechanism and
so keeps its (epsilon, delta) exactly. What a run adds instead is a sum of discrete Gaussians, one
share from each honest site. The two laws are close, and how close is bounded here, number by
number, in total variation:

1. Rounded against discrete Gaussian of the same s. With phi the density of N(0, s^2), the rounded
   one has at k the integral of phi over [k - 1/2, k + 1/2]; it differs from phi(k) by the integral
   of K phi'', K(x) = (1/2 - |x - k|)^2 / 2 (midpoint rule, Peano's kernel; integral 1/24). In each
   unit cell |phi''| is at most its mean there plus its variation there, so over all k

       sum |rounded(k) - phi(k)| <= (int |phi''| + int |phi'''|) / 24
                                  = (4 f(1) / s^2 + (2 f(0) + 8 f(sqrt 3)) / s^3) / 24

   with f the density of N(0, 1) (phi'' turns at 0 and at +-sqrt(3) s; the variation of phi'' is
   2 f(0) + 8 f(sqrt 3) over s^3). Total variation is half of the sum: 0.0234 / s^2 from s = 10 on.
2. phi(k) sums to Z = 1 + 2 sum_j exp(-2 pi^2 s^2 j^2) (Poisson's summation), so the discrete
   Gaussian phi(k) / Z is off by (Z - 1) / 2 more.
3. A sum of n shares of standard deviation s / sqrt(n) against one discrete Gaussian: the ratio of
   their probabilities is within e^tau and e^-tau, with

       tau = 10 sum_{k=1}^{n-1} exp(-2 pi^2 (s^2 / n) k / (k + 1))

   (Kairouz, Liu & Steinke 2021, on sums of discrete Gaussians; shares of at least 1/2), so they are
   within (e^tau - 1) / 2.
4. Each draw is as far from its discrete Gaussian as the sampler says: n times `sampler_error`.

Independent numbers add up their distances. If every law of a mechanism is within eta of one that is
(epsilon, delta)-private, then

    P(S) <= Q(S) + eta <= e^eps Q'(S) + delta + eta <= e^eps (P'(S) + eta) + delta + eta,

so it is (epsilon, delta + (1 + e^epsilon) eta)-private. That last part is the remainder; whoever
promises an epsilon (`calibration`, and caps in `budget`) adds up the distances and pays for it.

Not protected: noise that is missing, drawn by those who look on, or not integer before it is added.
"""

from __future__ import annotations

import math

from secagg.errors import UsageError

_MIN_VARIANCE = 0.5


def distance(sigma: float, shares: int = 1, sampler_error: float = 0.0) -> float:
    """Return a bound of the total variation between one number's noise and a rounded Gaussian.

    sigma: standard deviation, in integer steps, of what all `shares` together add to it
    sampler_error: total variation distance between one draw and its discrete Gaussian
    Raises `UsageError` if a share's standard deviation is below 1/2 of a step.
    """
    share = sigma / math.sqrt(shares)
    if not share >= _MIN_VARIANCE:
        raise UsageError(
            "noise", f"a share of {share:.3g} steps is too narrow", "Use a finer grid."
        )
    return rounded_distance(sigma) + summed_distance(share, shares) + shares * sampler_error


def rounded_distance(sigma: float) -> float:
    """Return a bound of the total variation between discrete and rounded Gaussian (1, 2)."""
    density = [math.exp(-x * x / 2) / math.sqrt(2 * math.pi) for x in (0.0, 1.0, math.sqrt(3))]
    bent = 4 * density[1] / sigma**2 + (2 * density[0] + 8 * density[2]) / sigma**3
    first = math.exp(-2 * math.pi**2 * sigma**2)  # the j-th term of Z is at most first^j
    return bent / 48 + first / (1 - first)


def summed_distance(share: float, shares: int) -> float:
    """Return a bound of the total variation between summed and single discrete Gaussian (3)."""
    exponents = (-2 * math.pi**2 * share**2 * k / (k + 1) for k in range(1, shares))
    tau = 10 * math.fsum(math.exp(exponent) for exponent in exponents)
    return math.expm1(tau) / 2 if tau < 1 else 1.0
