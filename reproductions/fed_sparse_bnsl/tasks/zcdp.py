"""Zero-concentrated differential privacy (zCDP) of the comparison, and its conversion.

Bun and Steinke, "Concentrated differential privacy: simplifications, extensions, and lower bounds"
(TCC 2016): a mechanism is rho-zCDP if the Renyi divergence of order a between its outputs on
neighbouring data is at most rho a, for every a > 1.

* Composition adds up rho (lemma 1.7).
* The Gaussian mechanism with sensitivity D and standard deviation s has rho = D^2 / (2 s^2)
  (proposition 1.6), and no smaller one: rho = mu^2 / 2 for mu = D / s.
* rho-zCDP implies (epsilon, delta) for epsilon = rho + 2 root(rho log(1 / delta)) (proposition
  1.3), equation (1) below.
* The exponential mechanism, with probabilities proportional to exp(e u / (2 D)) for a score u of
  sensitivity D, has the bounded range e, and is therefore e^2 / 8-zCDP (Cesar and Rogers,
  "Bounding, concentrating, and truncating: unifying privacy loss composition for data analytics",
  ALT 2021). Bun and Steinke's e^2 / 2 for any e-private mechanism is four times as much.

The comparison gives all methods the same rho, and states epsilon by (1) for all of them. (1) is not
tight. A method whose noise is Gaussian satisfies a smaller epsilon, `gaussian_epsilon`, which is
what secagg's own accountant states for the same noise.
"""

from __future__ import annotations

import math

from scipy.optimize import brentq
from scipy.special import log_ndtr


def epsilon_of(rho: float, delta: float) -> float:
    """Return epsilon of rho-zCDP at `delta`, by (1). rho: at least 0; delta: between 0 and 1."""
    return rho + 2 * math.sqrt(rho * math.log(1 / delta))


def rho_of(epsilon: float, delta: float) -> float:
    """Return rho at which (1) is `epsilon`: root(rho) = root(log(1/delta) + epsilon) - root(...).

    epsilon: above 0; delta: between 0 and 1
    """
    log = math.log(1 / delta)
    return (math.sqrt(log + epsilon) - math.sqrt(log)) ** 2


def gaussian_epsilon(rho: float, delta: float) -> float:
    """Return the exact epsilon of a Gaussian mechanism that has this rho.

    delta(epsilon) = Phi(mu/2 - epsilon/mu) - e^epsilon Phi(-mu/2 - epsilon/mu), mu = root(2 rho)
    (Balle and Wang, ICML 2018, theorem 8). It is at most `epsilon_of`.
    """
    mu = math.sqrt(2 * rho)

    def excess(epsilon: float) -> float:
        first = math.exp(float(log_ndtr(mu / 2 - epsilon / mu)))
        second = math.exp(epsilon + float(log_ndtr(-mu / 2 - epsilon / mu)))
        return first - second - delta

    if excess(0.0) <= 0:
        return 0.0
    return float(brentq(excess, 0.0, epsilon_of(rho, delta), xtol=1e-12, rtol=1e-12))
