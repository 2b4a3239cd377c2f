"""Which sites share masks with which, and how many shares open a secret.

Follows Bell, Bonawitz, Gascon, Lepoint and Raykova, *Secure single-server aggregation with
(poly)logarithmic overhead* (CCS 2020), section 3: the n sites are put on a ring in a uniformly
random order, and each is joined to the degree / 2 nearest on either side (a Harary graph). Two
joined sites share a pairwise mask. Each site splits its two secrets, the seed of its self mask and
the key of its pairwise masks, among its neighbours and itself: degree + 1 shares, any `threshold`
of which open the secret. With degree = n - 1 this is the complete graph of Bonawitz et al.,
*Practical secure aggregation for privacy-preserving machine learning* (CCS 2017).

Threat model: c = floor(colluding n) sites pool all they hold with a coordinator that may lie; d =
floor(dropping n) sites fall silent, before or after the ring is drawn. Three things must hold.

(a) Recovery. Every secret keeps `threshold` shareholders that answer. A site and its neighbours
    are degree + 1 consecutive places of the ring, so of these at most degree + 1 - threshold drop.

(b) Secrecy, even if the coordinator tells different sites different lists of survivors. It may
    have one of a site's two secrets opened (the self mask of a survivor, the pairwise key of a site
    that dropped), never both, which would lay its contribution bare. An honest shareholder answers
    for one of the two, a colluding one for both. With x colluding among the neighbours, both can be
    opened if and only if the other degree + 1 - x can be parted into two groups of at least
    threshold - x each. So never both, if and only if

        2 threshold > degree + 1 + x      (Bonawitz et al. 2017, section 6: n shareholders, x = c).

    It follows that x < threshold: colluding sites alone open nothing.

(c) Connection. The coordinator knows the pairwise masks of colluding and of dropped sites. All else
    it learns is the sum over the honest survivors, if the graph on them is connected, and otherwise
    a sum for each piece. To cut the ring takes two gaps, each of degree / 2 consecutive places or
    more without an honest survivor. Sites count as dropped when the coordinator says so, and it
    knows the ring by then, so it may place them: the colluding sites, who cannot, must not fill
    degree - d places of any two gaps. Bell et al. assume dropouts that know nothing of the ring,
    which asks for far fewer neighbours once n is in the thousands.

On the complete graph these are statements about n, c and d alone and hold for certain or not at
all. On a ring they hold but for a small probability over its order, bounded by a union (in (a) over
n places, in (b) over n - c honest sites, in (c) over the pairs of places where two gaps can start)
of hypergeometric probabilities, with exactly c and d sites, the worst case.

Who falls silent before the ring is drawn is not on it. Let a sites do so, a <= d. In (b) the worst
is a = d, which leaves the colluding sites the largest share of the ring. In (a) and (c) it is a =
0. Proof: let H(n, c, k) count the marked among k drawn from n places of which c are marked, and
look whether one given place is drawn. For (c), an unmarked one: H(n, c, k) is H(n-1, c, k) or
H(n-1, c, k-1), both at least H(n-1, c, k) - 1 in distribution, so P(H(n-1, c, k) >= x + 1) <=
P(H(n, c, k) >= x). For (a), a marked one: H(n, d, k) is H(n-1, d-1, k) or H(n-1, d-1, k-1) + 1,
both at least H(n-1, d-1, k) in distribution.

Not protected:

* The order of the ring must not depend on who colludes. Whoever can try out seeds (with new keys of
  colluding sites, or other sets of sites) and keep the best gains a factor of the number of tries
  in every probability here: against 2^40 tries ask for failure_log2 = -80. The complete graph has
  nothing to try.
* (b) keeps any single contribution closed, whatever lists are shown. It does not make honest sites
  agree: by mixed lists the coordinator may get the sum over a few honest sites, though each list
  named many, and (c) counts on one list as well. That is why `masked_site.agree` has each site sign
  one list, and no site answers for a list that fewer than least_survivors sites signed: any two
  sets of so many have an honest one in common.

Plans at failure_log2 = -40 (a test recomputes the rows; -inf: all three hold for certain):

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
COMPLETE_UP_TO = 32
"""Up to so many sites everybody is everybody's neighbour: what that costs is nothing there, its
conditions hold for certain, and more sites may drop out than a ring of few allows for."""


@dataclass(frozen=True)
class GraphPlan:
    """How a session's masks are laid out.

    sites: n, at least 2
    degree: neighbours of each site: n - 1 (complete graph), or even
    threshold: how many of the degree + 1 shares open a secret
    least_survivors: a sum over fewer sites is never finished
    failure_log2: the probability that (a), (b) or (c) fails is at most 2**failure_log2; -inf where
        it cannot happen, as on the complete graph
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
    """Return the plan of the smallest degree that fails with probability <= 2**failure_log2.

    It is the complete graph up to COMPLETE_UP_TO sites, and wherever no ring will do.

    sites: at least 2
    colluding, dropping: largest share of the sites that colludes, that drops out; in [0, 1)
    failure_log2: below 0

    On the complete graph the threshold is floor((n + c) / 2) + 1, the smallest with secrecy. For a
    third of colluding sites that is the familiar floor(2 n / 3) + 1: 2 of 2, 3 of 3, 3 of 4, 4 of
    5, 5 of 7, 7 of 10. It is not lowered for small n, where it would allow for a dropout only by
    letting one colluding site unmask another.

    Raises JobError if a setting is out of range, or if the two rates leave no threshold with both
    secrecy and recovery.
    """
    if sites < 2:
        raise JobError("sites", "masks need at least 2 sites")
    for name, rate in (("colluding", colluding), ("dropping", dropping)):
        if not 0 <= rate < 1:
            raise JobError(f"protocol.{name}", "is a share of the sites: at least 0 and below 1")
    if not failure_log2 < 0:
        raise JobError("protocol.failure_log2", "is the base 2 logarithm of a probability: below 0")
    c, d = _whole(colluding * sites), _whole(dropping * sites)
    complete = (sites + c) // 2 + 1
    if complete > sites - d:
        raise JobError(
            "protocol.colluding and protocol.dropping",
            f"of {sites} sites, {c} may collude and {d} drop out: then no threshold both keeps "
            "contributions secret and lets the sum be finished",
            "Lower one of the two.",
        )
    largest = sites - d - 2 if sites > COMPLETE_UP_TO else 0  # a ring even if d sites stay away
    for degree in range(2, largest + 1, 2):
        failures = _failures(sites, degree, c, d)
        best = int(np.argmin(failures))
        if failures[best] <= failure_log2:
            threshold = best + 1
            return GraphPlan(sites, degree, threshold, sites - d, float(failures[best]))
    return GraphPlan(sites, sites - 1, complete, complete, -np.inf)


def neighbours(names: Sequence[str], degree: int, seed: bytes) -> dict[str, tuple[str, ...]]:
    """Return each site's neighbours; all sorted by name.

    names: distinct; their order does not matter
    degree: len(names) - 1, or even and smaller
    seed: 32 bytes that fix the ring, see "not protected" above; they need not be secret

    All parties that know the seed find the same graph. Raises ValueError for arguments out of
    range.
    """
    if len(seed) != SEED_BYTES:
        raise ValueError("a seed has 32 bytes")
    n = len(names)
    if len(set(names)) != n:
        raise ValueError("names are distinct")
    if degree == n - 1:
        return {name: tuple(sorted(set(names) - {name})) for name in sorted(names)}
    if degree % 2 or not 2 <= degree < n - 1:
        raise ValueError("a degree is even and at least 2, or that of the complete graph")
    # AES-256 in counter mode under the seed: public bytes that no party can bend to its wishes.
    ring = _shuffled(sorted(names), replayable_random(int.from_bytes(seed, "little")))
    steps = [step for step in range(-(degree // 2), degree // 2 + 1) if step]
    near = {
        name: tuple(sorted(ring[(place + step) % n] for step in steps))
        for place, name in enumerate(ring)
    }
    return dict(sorted(near.items()))


def _shuffled(names: Sequence[str], random: RandomBytes) -> list[str]:
    """Return a uniform permutation (Fisher and Yates; Knuth, TAOCP 3.4.2, algorithm P)."""
    order = list(names)
    for last in range(len(order) - 1, 0, -1):
        other = random_below(last + 1, random)
        order[last], order[other] = order[other], order[last]
    return order


# --- probabilities, as base 2 logarithms: sums of positive terms, so nothing cancels or underflows


def _whole(number: float) -> int:
    """Return the floor, taking 0.29 * 100 for the 29 that is meant."""
    return int(number + 1e-9)


def _failures(n: int, degree: int, c: int, d: int) -> NDArray[np.float64]:
    """Return log2 of the bound on failure of (a), (b) or (c), at threshold 1 .. degree + 1."""
    threshold = np.arange(1, degree + 2)
    recovery = np.log2(n) + _tails(n, d, degree + 1)[degree + 2 - threshold]
    fatal = np.maximum(2 * threshold - degree - 1, 0)  # colluding neighbours that open both secrets
    secrecy = np.log2(n - c) + _tails(n - d - 1, c, degree)[fatal]
    pairs = n * (n - degree - 1) / 2  # of gaps, with at least one place between on either side
    connection = np.log2(pairs) + _tails(n, c, degree)[max(degree - d, 0)]
    failure: NDArray[np.float64] = np.logaddexp2(np.logaddexp2(recovery, secrecy), connection)
    return failure


def _tails(population: int, marked: int, drawn: int) -> NDArray[np.float64]:
    """Return, at x = 0 .. drawn + 1, log2 P(at least x of those drawn are marked)."""
    x = np.arange(drawn + 2)
    ways = _choose(marked, x) + _choose(population - marked, drawn - x)
    at_least = np.logaddexp2.accumulate(ways[::-1])[::-1]
    tails: NDArray[np.float64] = at_least - at_least[0]
    return tails


def _choose(n: int, k: NDArray[np.int64]) -> NDArray[np.float64]:
    """Return log2 of n choose k, right to 1e-8 for n up to 10^6 (gammaln's last digit)."""
    possible = (k >= 0) & (k <= n)
    logs = np.full(k.shape, -np.inf)
    k = k[possible]
    logs[possible] = (gammaln(n + 1) - gammaln(k + 1) - gammaln(n - k + 1)) / np.log(2)
    return logs
