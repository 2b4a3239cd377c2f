"""The neighbour graph of masked sums: which sites share masks, and who holds shares of secrets.

Follows Bell, Bonawitz, Gascón, Lepoint and Raykova, *Secure single-server aggregation with
(poly)logarithmic overhead* (CCS 2020), section 3. The n sites are placed on a ring in uniformly
random order. Each site is joined to the degree / 2 nearest sites on either side (a Harary graph).
Neighbours share a pairwise mask. Each site has two secrets: the seed of its self mask and the key
of its pairwise masks. It splits each secret into degree + 1 shares, for its neighbours and itself.
Any `threshold` of the shares recover the secret. With degree = n - 1 this is the complete graph of
Bonawitz et al., *Practical secure aggregation for privacy-preserving machine learning* (CCS 2017).

Threat model: c = floor(colluding n) sites collude with a malicious coordinator, and
d = floor(dropping n) sites drop out, before or after the ring is drawn. Survivors are the sites
that do not drop out. Three conditions must hold.

(a) Recovery: at least `threshold` holders of shares of each secret remain.
(b) Secrecy: nobody recovers both secrets of a site, whatever lists of survivors the coordinator
    shows to the sites. If x of the site's neighbours collude, this requires
    2 threshold > degree + 1 + x.
(c) Connectivity: the graph of the honest survivors is connected, so that only their joint sum can
    be computed.

n is the number of sites that the *job* names, also in a session that leaves some of them out,
because the c sites that collude may all be in this session. So the session's threshold, degree and
least number of survivors are those of the plan for n. A session over fewer sites than this least
number is refused.

On the complete graph, the conditions always hold or never hold. On a ring, they fail with a small
probability, because its order is random. docs/math/masked-graph.md proves the bound and lists
plans.

Not protected:

* A ring whose order depends on which sites collude. An attacker may try many seeds, with new keys
  of colluding sites or other sets of sites, and keep the best seed. Each probability of failure is
  then multiplied by the number of tries. Against 2^40 tries, set failure_log2 = -80. The complete
  graph has no order that could be chosen.
* Different lists of survivors. By (b), each single contribution is protected even then. But (c)
  assumes a single list. With different lists, the coordinator could obtain the sum over a few
  honest sites, although each list names many sites. Therefore each site signs one list
  (`site.agree`), and no site reveals shares for a list with fewer than least_survivors signatures.
  Any two sets of so many sites have an honest site in common.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray
from scipy.special import gammaln

from secagg.core.randomness import RandomBytes, random_below, replayable_random
from secagg.errors import JobError

SEED_BYTES = 32
MAX_COMPLETE_SITES = 32
"""Up to this number of sites the graph is complete. For few sites, a complete graph costs little,
the conditions always hold, and more sites may drop out than on a small ring."""


@dataclass(frozen=True)
class GraphPlan:
    """The parameters of the neighbour graph and of secret sharing in a session.

    sites: n, at least 2
    degree: number of neighbours of each site: n - 1 (complete graph), or even
    threshold: how many of the degree + 1 shares recover a secret
    least_survivors: the smallest number of sites that a sum may cover
    failure_log2: the probability that (a), (b) or (c) fails is at most 2**failure_log2. On the
        complete graph they never fail, and this number is -inf
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
    """Return the plan with the smallest degree for which (a), (b) and (c) are likely enough.

    The graph is complete if there are at most MAX_COMPLETE_SITES sites or no ring is safe enough.

    colluding: largest fraction of the sites that may collude; in [0, 1)
    dropping: largest fraction of the sites that may drop out; in [0, 1)
    failure_log2: the probability that a condition fails is at most 2**failure_log2; below 0

    On the complete graph the threshold is floor((n + c) / 2) + 1, the smallest number with which
    secrecy holds. If a third of the sites may collude, the threshold is 2 of 2 sites, 3 of 3, 3 of
    4, 4 of 5, 5 of 7, and 7 of 10. For small n, a lower threshold would allow a site to drop out,
    but then a single colluding site could help to unmask another site.

    sites: that the job names, whoever is present
    Raises `JobError` if a setting is out of range, if no threshold gives both secrecy and recovery,
    or if fewer than two sites do not collude.
    """
    if sites < 2:
        raise JobError("sites", "at least 2 sites are required")
    check_fractions(colluding, dropping)
    if sites - _floor(colluding * sites) < 2:
        what = f"only one of {sites} sites would not collude, and a sum shows its contribution"
        raise JobError("protocol.colluding", what, "Lower it.")
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


class Graph(Mapping[str, tuple[str, ...]]):
    """Each site's neighbours, sorted by name.

    They are found when they are asked for, because a site needs only its own.
    """

    def __init__(self, ring: Sequence[str], steps: Sequence[int]) -> None:
        """ring: the sites in their order; steps: from a site to its neighbours on the ring."""
        self._ring, self._steps = ring, steps
        self._places = {
            ring[place]: place for place in sorted(range(len(ring)), key=ring.__getitem__)
        }

    def __getitem__(self, name: str) -> tuple[str, ...]:
        ring, place = self._ring, self._places[name]
        return tuple(sorted(ring[(place + step) % len(ring)] for step in self._steps))

    def __iter__(self) -> Iterator[str]:
        return iter(self._places)

    def __len__(self) -> int:
        return len(self._ring)


def neighbours(names: Sequence[str], degree: int, seed: bytes) -> Graph:
    """Return each site's neighbours.

    names: different names; their order does not matter
    degree: len(names) - 1, or an even smaller number
    seed: 32 bytes that determine the ring. They need not be secret, but see "Not protected" above

    All parties that know the seed compute the same graph. Raises `ValueError` for arguments out of
    range.
    """
    if len(seed) != SEED_BYTES:
        raise ValueError(f"the seed must have {SEED_BYTES} bytes")
    n = len(names)
    if len(set(names)) != n:
        raise ValueError("names must be distinct")
    if degree == n - 1:
        return Graph(sorted(names), range(1, n))
    if degree % 2 or not 2 <= degree < n - 1:
        raise ValueError("the degree must be even and at least 2, or that of the complete graph")
    # AES-256 in counter mode with the seed as key. The bytes are public, and no party chooses them.
    ring = _shuffled(sorted(names), replayable_random(int.from_bytes(seed, "little")))
    return Graph(ring, [step for step in range(-(degree // 2), degree // 2 + 1) if step])


def _shuffled(names: Sequence[str], random: RandomBytes) -> list[str]:
    """Return the names in uniformly random order (Fisher and Yates; Knuth, TAOCP 3.4.2, P)."""
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
    """Bound the probability that (a), (b) or (c) fails, for thresholds from 1 to degree + 1.

    Return log2 of the bounds.
    """
    threshold = np.arange(1, degree + 2)
    recovery = np.log2(n) + _tails(n, d, degree + 1)[degree + 2 - threshold]
    # The smallest number of colluding neighbours that could recover both secrets.
    breaking = np.maximum(2 * threshold - degree - 1, 0)
    secrecy = np.log2(n - c) + _tails(n - d - 1, c, degree)[breaking]
    pairs = n * (n - degree - 1) / 2  # pairs of gaps with at least one place between, on each side
    connection = np.log2(pairs) + _tails(n, c, degree)[max(degree - d, 0)]
    failure: NDArray[np.float64] = np.logaddexp2(np.logaddexp2(recovery, secrecy), connection)
    return failure


def _tails(population: int, marked: int, drawn: int) -> NDArray[np.float64]:
    """Return log2 of the probability that at least x drawn places are marked, x = 0 .. drawn + 1.

    `drawn` places are drawn without replacement from `population` places, `marked` of them marked.
    """
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
