"""Ballot: sums of local graphs in which a single site's coefficient or vote stands alone.

Each site learns a graph from its own records, and the sum over K sites has one number for each
edge (Ng and Zhang, AISTATS 2022, section 6; `secagg.models.local_graphs.method`).

`vote`: the sum is a count. A count of 1 is the vote of one site. A count of K is the vote of every
site, and also says which edge each site has. This is certain.

`average`: the sum of weights shows no count. Many edges are spurious: a site has one with a small
probability a, and its weight is what exceeds the penalty, nearly exponential with mean e. Among
spurious edges with the sum x, one site is more likely than two sites with weights of the same sign
if K a f(x) > K (K - 1) / 2 a^2 (f * f)(x), for exponential f if

    |x| < 4 e / ((K - 1) a)                                                                      (1)

with (f * f)(x) ~ |x| / (2 e) f(x). a is estimated from the share of sums that are not 0, which is
1 - (1 - a)^K, and e from the lower quartile of |x|, the median if half of the sums are spurious.
Sums that satisfy (1) are named as one site's own. This is a guess; the details count its errors.

A coordinator that writes a second job over the same records can ask for the `vote` with
`threshold = 0`: the count of an edge is then the number of sites whose weight is not 0. Sums with a
count of 1 are one site's own with certainty (view: dishonest coordinator).

Not shown: whose coefficient it is.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np
from numpy.typing import NDArray

from secagg.audits.contract import Attack, Finding, Limit, Truth
from secagg.audits.views import View, Who
from secagg.core.arrays import Array
from secagg.core.randomness import seeded_random
from secagg.models.local_graphs.learners import EDGES
from secagg.models.local_graphs.method import STAGE, LocalGraphs


@dataclass(frozen=True)
class Named:
    """Which sums (cause, effect) are said to be one site's own; the code of a refusal, if any."""

    single: NDArray[np.bool_]
    refused: str = ""


class SingleEstimates(Attack):
    """Name the sums that are one site's own."""

    name: ClassVar[str] = "single_estimates"
    title: ClassVar[str] = "Sums of local graphs that are a single site's coefficient or vote"
    source: ClassVar[str] = "Ng and Zhang (2022), section 6; equation (1) of the module"
    knows: ClassVar[str] = "the number of sites; a dishonest one writes a second job"
    views: ClassVar[tuple[Who, ...]] = (Who.COORDINATOR, Who.DISHONEST)
    metric: ClassVar[str] = "single_site_sums"
    meaning: ClassVar[str] = "number of sums rightly named as one site's own"

    def why_not(self, view: View) -> str:
        """Return why it does not apply."""
        method = view.planned.method
        if not isinstance(method, LocalGraphs) or not view.rounds:
            return "for local_graphs"
        if view.who is not Who.DISHONEST:
            return ""
        if method.combine != "average" or not method.learner.startswith("notears"):
            return "a second job is needed for averages only"
        return "" if view.ask is not None else "no sites to ask"

    def limit(self, view: View) -> Limit:
        """Return the limit."""
        return Limit(0)

    def run(self, view: View, rng: np.random.Generator) -> Named:
        """Return which sums are named."""
        method = view.planned.method
        assert isinstance(method, LocalGraphs)
        total = _edges(view)
        if method.combine == "vote":
            return Named(np.rint(total) == 1)
        if view.who is not Who.DISHONEST:
            return Named(_likely_single(total, len(view.sites)))
        assert view.ask is not None
        answer = view.ask({"method.combine": "vote", "method.threshold": 0.0})
        votes = [update[EDGES] for stage, update in answer.sums if stage == STAGE]
        if not votes:
            return Named(
                np.zeros_like(total, dtype=bool), ", ".join(sorted({*answer.refused.values()}))
            )
        return Named(np.rint(votes[0]) == 1)

    def score(self, guess: Named, view: View, truth: Truth) -> Finding:
        """Return the number of sums that are rightly named; the guess names as many at random."""
        method, public = view.planned.method, view.planned.public
        random, stage = seeded_random(bytes(32)), view.rounds[0]
        own = np.array([
            method.contribute(stage.stage, truth.sites[site], stage.message, {}, public, random)[0][
                EDGES
            ]
            for site in view.sites
        ])  # fmt: skip
        having = np.sum(own != 0, axis=0)
        single, some = having == 1, int(np.sum(having > 0))
        right = int(np.sum(guess.single & single))
        named = int(np.sum(guess.single))
        by_chance = named * float(np.sum(single)) / max(some, 1)
        return Finding.exact(
            float(right), by_chance, named=named, one_site=int(np.sum(single)), not_zero=some,
            unanimous=int(np.sum(having == len(view.sites))), refused=guess.refused,
        )  # fmt: skip

    def control(self, plain: View) -> View:
        """Return the sums of one site alone; or, with a second job, the run in clear."""
        return plain if plain.who is Who.DISHONEST else plain.alone(plain.sites[0])


def _edges(view: View) -> Array:
    return np.asarray(next(seen.total[EDGES] for seen in view.rounds if EDGES in seen.total))


def _likely_single(total: Array, sites: int) -> NDArray[np.bool_]:
    """Return the sums that satisfy (1)."""
    p, size = len(total), np.abs(total)
    present = size > 0
    if sites == 1 or not np.any(present):
        return present
    share = min(float(np.sum(present)) / max(p * (p - 1), 1), 1 - 1e-6)
    a = 1 - (1 - share) ** (1 / sites)
    e = float(np.quantile(size[present], 0.25)) / np.log(2)
    return np.asarray(present & (size < 4 * e / ((sites - 1) * a)))
