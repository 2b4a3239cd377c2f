"""The neighbour graph of masked sums: which sites share masks, and who holds shares of secrets.

Follows Bell, Bonawitz, Gascón, Lepoint and Raykova, *Secure single-server aggregation with
(poly)logarithmic overhead* (CCS 2020), section 3. The n sites are placed on a ring in uniformly
random order, and each is joined to the degree / 2 nearest sites on either side (a Harary graph).
Neighbours share a pairwise mask. Each site splits its two secrets, the seed of its self mask and
the key of its pairwise masks, among its neighbours and itself: degree + 1 shares, any `threshold`
of which recover the secret. With degree = n - 1 this is the complete graph of Bonawitz et al.,
*Practical secure aggregation for privacy-preserving machine learning* (CCS 2017).

Threat model: c = floor(colluding n) sites collude with a malicious coordinator; d = floor(dropping
n) sites drop out, before or after the ring is drawn. Three conditions must hold.

(a) Recovery: at least `threshold` holders of shares of each secret remain.
(b) Secrecy: nobody recovers both secrets of a site, whatever lists of survivors the coordinator
    shows: 2 threshold > degree + 1 + x where x of the neighbours collude.
(c) Connectivity: the honest survivors are one connected component, so that there is one sum.

On the complete graph they hold always or never; on a ring they fail with a small probability over
its order. docs/math/masked-graph.md proves the bound and lists plans.

Not protected:

* An order of the ring that depends on who colludes. An attacker that can try many seeds (with new
  keys of colluding sites, or other sets of sites) and keep the best one multiplies each probability
  here by the number of tries: against 2^40 tries, set failure_log2 = -80. The complete graph has no
  order to choose.
* Agreement. (b) protects each single contribution, whatever lists the coordinator shows. But with
  different lists it could obtain the sum over a few honest sites although each list names many; and
  (c) assumes a single list. Therefore each site signs one list (`site.agree`), and no site reveals
  shares for a list with fewer than least_survivors signatures: any two sets of that many sites have
  an honest site in common.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray
from scipy.special import gammaln

from secagg.core.randomness import RandomBytes, random_below, replayable_random
from secagg.errors import JobError

SEED_BYTES = 32
MAX_COMPLETE_SITES = 32
"""Up to this number of sites the graph is complete. That is cheap for few sites, the conditions
always hold, and more sites may drop out than on a small ring."""


@dataclass(frozen=True)
class GraphPlan:
    """The parameters of the neighbour graph and of secret sharing in a session.

    sites: n, at least 2
    degree: number of neighbours of each site: n - 1 (complete graph), or even
    threshold: how many of the degree + 1 shares recover a secret
    least_survivors: the smallest number of sites that a sum may cover
    failure_log2: the probability that (a), (b) or (c) fails is at most 2**failure_log2; -inf if
        that is impossible, as on the complete graph
    """

    sites: int
    degree: int
    threshold: int
    least_survivors: int
    failure_log2: float


def check_fractions(colluding: float, dropping: float) -> None:
    """Raise `JobError` unless both are in [0, 1)."""
    for name, rate in (("colluding", colluding), ("dropping", dropping)):
        if not 0 <= rate < 1:
            raise JobError(f"protocol.{name}", "must be a fraction of the sites, from 0 to below 1")


@lru_cache(maxsize=64)
def plan_graph(
    sites: int, colluding: float, dropping: float, failure_log2: float = -40.0
) -> GraphPlan:
    """Return the plan of smallest degree whose failure probability is at most 2**failure_log2.

    The graph is complete if there are at most MAX_COMPLETE_SITES sites or no ring is safe enough.

    sites: at least 2
    colluding, dropping: largest fraction of the sites that may collude, or drop out; in [0, 1)
    failure_log2: below 0

    On the complete graph the threshold is floor((n + c) / 2) + 1, the smallest with secrecy. If a
    third of the sites may collude, this is floor(2 n / 3) + 1: 2 of 2, 3 of 3, 3 of 4, 4 of 5, 5 of
    7, 7 of 10. A lower threshold for small n would allow for a dropout, but would let one colluding
    site unmask another.

    Raises `JobError` if a setting is out of range, or if no threshold gives both secrecy and
    recovery.
    """
    if sites < 2:
        raise JobError("sites", "at least 2 sites are required")
    check_fractions(colluding, dropping)
    if not failure_log2 < 0:
        raise JobError("protocol.failure_log2", "must be below 0 (log2 of a probability)")
    c, d = _floor(colluding * sites), _floor(dropping * sites)
    complete_threshold = (sites + c) // 2 + 1
    if complete_threshold > sites - d:
        raise JobError(
            "protocol.colluding and protocol.dropping",
            f"the sum cannot be both secret and recoverable if {c} of {sites} sites may collude "
            f"and {d} may drop out",
            "Lower one of the two.",
        )
    # The largest degree of a ring that exists even if d sites never appear.
    max_degree = sites - d - 2 if sites > MAX_COMPLETE_SITES else 0
    for degree in range(2, max_degree + 1, 2):
        failures = _failures(sites, degree, c, d)
        best = int(np.argmin(failures))
        if failures[best] <= failure_log2:
            threshold = best + 1
            return GraphPlan(sites, degree, threshold, sites - d, float(failures[best]))
    return GraphPlan(sites, sites - 1, complete_threshold, complete_threshold, -np.inf)


def neighbours(names: Sequence[str], degree: int, seed: bytes) -> dict[str, tuple[str, ...]]:
    """Return each site's neighbours, sorted by name.

    names: distinct; their order does not matter
    degree: len(names) - 1, or even and smaller
    seed: 32 bytes that determine the ring; need not be secret (but see "Not protected" above)

    All parties that know the seed compute the same graph. Raises `ValueError` for arguments out of
    range.
    """
    if len(seed) != SEED_BYTES:
        raise ValueError(f"the seed must have {SEED_BYTES} bytes")
    n = len(names)
    if len(set(names)) != n:
        raise ValueError("names must be distinct")
    if degree == n - 1:
        return {name: tuple(sorted(set(names) - {name})) for name in sorted(names)}
    if degree % 2 or not 2 <= degree < n - 1:
        raise ValueError("the degree must be even and at least 2, or that of the complete graph")
    # AES-256 in counter mode under the seed: public bytes that no party can steer.
    ring = _shuffled(sorted(names), replayable_random(int.from_bytes(seed, "little")))
    steps = [step for step in range(-(degree // 2), degree // 2 + 1) if step]
    graph = {
        name: tuple(sorted(ring[(place + step) % n] for step in steps))
        for place, name in enumerate(ring)
    }
    return dict(sorted(graph.items()))


def _shuffled(names: Sequence[str], random: RandomBytes) -> list[str]:
    """Return a uniform permutation (Fisher and Yates; Knuth, TAOCP 3.4.2, algorithm P)."""
    order = list(names)
    for last in range(len(order) - 1, 0, -1):
        other = random_below(last + 1, random)
        order[last], order[other] = order[other], order[last]
    return order


# --- probabilities as base 2 logarithms: sums of positive terms, no cancellation or underflow -----


def _floor(number: float) -> int:
    """Return the floor after correcting rounding errors (0.29 * 100 gives 29)."""
    return int(number + 1e-9)


def _failures(n: int, degree: int, c: int, d: int) -> NDArray[np.float64]:
    """Return log2 of the bound on failure of (a), (b) or (c), for threshold 1 .. degree + 1."""
    threshold = np.arange(1, degree + 2)
    recovery = np.log2(n) + _tails(n, d, degree + 1)[degree + 2 - threshold]
    # The smallest number of colluding neighbours that could recover both secrets.
    breaking = np.maximum(2 * threshold - degree - 1, 0)
    secrecy = np.log2(n - c) + _tails(n - d - 1, c, degree)[breaking]
    pairs = n * (n - degree - 1) / 2  # pairs of gaps, separated by at least one place on each side
    connection = np.log2(pairs) + _tails(n, c, degree)[max(degree - d, 0)]
    failure: NDArray[np.float64] = np.logaddexp2(np.logaddexp2(recovery, secrecy), connection)
    return failure


def _tails(population: int, marked: int, drawn: int) -> NDArray[np.float64]:
    """Return log2 P(at least x of the places drawn are marked), for x = 0 .. drawn + 1."""
    x = np.arange(drawn + 2)
    ways = _choose(marked, x) + _choose(population - marked, drawn - x)
    at_least = np.logaddexp2.accumulate(ways[::-1])[::-1]
    tails: NDArray[np.float64] = at_least - at_least[0]
    return tails


def _choose(n: int, k: NDArray[np.int64]) -> NDArray[np.float64]:
    """Return log2 of n choose k, accurate to 1e-8 for n up to 10^6 (rounding of gammaln)."""
    possible = (k >= 0) & (k <= n)
    logs = np.full(k.shape, -np.inf)
    k = k[possible]
    logs[possible] = (gammaln(n + 1) - gammaln(k + 1) - gammaln(n - k + 1)) / np.log(2)
    return logs
