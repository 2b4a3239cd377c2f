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

(a) Recovery. At least `threshold` holders of shares of each secret remain. A site and its
    neighbours are degree + 1 consecutive places of the ring, so at most degree + 1 - threshold of
    these sites may drop out.

(b) Secrecy, even if the coordinator shows different lists of survivors to different sites. It may
    recover one of a site's two secrets (the self mask of a survivor, the pairwise key of a site
    that dropped out), but never both: together they reveal the contribution. An honest shareholder
    gives its share of one of the two, a colluding one its shares of both. If x of the neighbours
    collude, both secrets can be recovered if and only if the other degree + 1 - x shareholders can
    be divided into two groups of at least threshold - x each. This is impossible if and only if

        2 threshold > degree + 1 + x      (Bonawitz et al. 2017, section 6: n shareholders, x = c).

    It follows that x < threshold: colluding sites alone recover no secret.

(c) Connectivity. The coordinator knows the pairwise masks of colluding and of dropped sites. Apart
    from these it learns one sum for each connected component of the honest survivors; there must be
    only one component. The ring is cut only by two gaps, each of at least degree / 2 consecutive
    places without an honest survivor. The coordinator decides which sites count as dropped when it
    already knows the ring, so it can choose the places of d sites. It cannot choose the places of
    the colluding sites, so these must not fill degree - d places of any two gaps. (Bell et al.
    assume dropouts that do not depend on the ring, and need far fewer neighbours for thousands of
    sites.)

On the complete graph these conditions depend on n, c and d only, so they hold always or never. On a
ring they fail with a small probability over its order. The bound is a union bound, in (a) over n
places, in (b) over n - c honest sites, in (c) over the pairs of places where two gaps can start.
Each term is a hypergeometric probability with exactly c and d sites, which is the worst case.

Sites that drop out before the ring is drawn are not on it. Let a <= d be their number. In (b) the
worst case is a = d, because the colluding sites are then the largest share of the ring. In (a) and
(c) it is a = 0. Proof: let H(n, c, k) be the number of marked places among k drawn from n places, c
of them marked, and condition on whether one given place is drawn. For (c), take an unmarked place:
H(n, c, k) is H(n-1, c, k) or H(n-1, c, k-1), both at least H(n-1, c, k) - 1 in distribution, so
P(H(n-1, c, k) >= x + 1) <= P(H(n, c, k) >= x). For (a), take a marked place: H(n, d, k) is
H(n-1, d-1, k) or H(n-1, d-1, k-1) + 1, both at least H(n-1, d-1, k) in distribution.

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

Plans at failure_log2 = -40 (a test recomputes the rows; -inf: all three always hold):

======  =========  ========  ======  =========  ===============  ============
sites   colluding  dropping  degree  threshold  least_survivors  failure_log2
======  =========  ========  ======  =========  ===============  ============
2       1/3        0.1       1       2          2                -inf
3       1/3        0.1       2       3          3                -inf
4       1/3        0.1       3       3          3                -inf
5       1/3        0.1       4       4          4                -inf
7       1/3        0.1       6       5          5                -inf
10      1/3        0.1       9       7          7                -inf
20      1/3        0.1       19      14         14               -inf
32      1/3        0.1       31      22         22               -inf
33      1/3        0.1       18      16         30               -inf
50      1/3        0.1       26      22         45               -inf
100     1/3        0.1       54      45         90               -inf
300     1/3        0.1       144     115        270              -44.31
1000    1/3        0.1       296     231        900              -40.26
3000    1/3        0.1       592     461        2700             -40.86
10000   1/3        0.1       1752    1308       9000             -40.44
50      0.1        0.1       16      12         45               -inf
100     0.1        0.1       30      21         90               -inf
300     0.1        0.1       82      56         270              -40.76
1000    0.1        0.1       150     102        900              -41.41
10000   0.1        0.1       1220    743        9000             -40.02
100     1/3        0.25      99      67         67               -inf
1000    1/3        0.25      999     667        667              -inf
======  =========  ========  ======  =========  ===============  ============
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


@lru_cache(maxsize=64)
def plan_graph(
    sites: int, colluding: float, dropping: float, failure_log2: float = -40.0
) -> GraphPlan:
    """Return the plan of smallest degree whose failure probability is at most 2**failure_log2.

    The graph is complete for up to MAX_COMPLETE_SITES sites, and if no ring meets the conditions.

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
    for name, rate in (("colluding", colluding), ("dropping", dropping)):
        if not 0 <= rate < 1:
            raise JobError(f"protocol.{name}", "must be a fraction of the sites, from 0 to below 1")
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
