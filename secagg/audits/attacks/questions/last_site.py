"""A8: the contribution of the last site, if all other sites collude with the coordinator.

Colluding sites know their own contributions and subtract them from a sum. What remains is the sum
over the other sites. If one site remains, it is this site's contribution. A protocol cannot prevent
this, because the sum itself gives it: the theorems of secure aggregation say that colluding parties
learn nothing beyond the sum over the others (Bonawitz and others 2017, "Practical secure
aggregation for privacy-preserving machine learning", section 6). With two sites, one of them is
enough.

The attacker is the coordinator with 1, 2, ..., K - 1 of the K sites, the largest ones first. It
knows how many records each site has, which is often public. It guesses that each remaining site has
a part of what remains: an equal one, or one in proportion to its records, whichever is nearer to
the truth. So only the guess about a last site can be exact. Without the sum, it would guess the
mean of the colluding sites' contributions, or their sum in proportion to the records, whichever is
nearer. The relative error is the distance of the guess from the true contribution, in the first sum
of the method, divided by that of the guess without the sum (Frobenius norms, means over the
remaining sites). 1 means that the sum does not help. Without the sizes, small sites that differ
from a large colluding one in nothing but their size would look exposed.

With noise in the sum, the colluding sites also subtract their own noise, so that the noise of the
remaining sites is left: 1 / K of the variance for the last one. The transcript does not hold the
noise of single sites. So the remaining sites' noise is drawn anew, from the law of the plan: the
error has the same distribution as that of the real attackers.

The number is the smallest m such that m colluding sites have a relative error below 10 %; K if not
even K - 1 have, and 0 if the coordinator reads the contributions by itself. Fewer than K - 1 sites
can be enough if the remaining sites have similar contributions, which the others have not. It
is a leak if it is not larger than the number that the job allows for (`privacy.colluding`, by
default 1). Without noise no protocol can promise more than K - 2. The release rules promise less
than this run shows: a sum may cover as few as `min_sites` sites. Noise hides records, and with many
records it does not hide the contribution of a site.

What the result does not show: what more than one sum tells (`identified_share`), and what several
remaining sites' sum tells about each (`tracing`).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import ClassVar

import numpy as np

from secagg.audits.contract import Attack, Finding, Limit, Truth
from secagg.audits.site_statistics import draws_random_numbers, flat, replayed
from secagg.audits.views import SeenRound, View, Who
from secagg.contracts import Update
from secagg.core import ring
from secagg.core.arrays import Array
from secagg.core.randomness import RandomBytes, seeded_random
from secagg.privacy.sampling.sampler import sample_weighted
from secagg.sessions.fixed_point import add_noise, decode, encode

_EXPOSED = 0.1
_DRAWS = 10


class LastSite(Attack):
    """Subtract the colluding sites' own contributions."""

    name: ClassVar[str] = "last_site"
    title: ClassVar[str] = "Whether fewer than all other sites, if they collude, expose a site"
    source: ClassVar[str] = "Bonawitz and others (2017), section 6"
    knows: ClassVar[str] = "the records and noise of the colluding sites; how many others have"
    views: ClassVar[tuple[Who, ...]] = (Who.COALITION,)
    metric: ClassVar[str] = "colluding_needed"
    meaning: ClassVar[str] = "colluding sites that expose a site; the number of sites if none do"

    def colluding(self, sites: int) -> int:
        """Return all but one."""
        return max(sites - 1, 1)

    def why_not(self, view: View) -> str:
        """Return why it does not apply."""
        if not view.rounds:
            return "the run opened no sum of the method"
        if any(draws_random_numbers(_first(view), rows) for rows in view.own.values()):
            return "sites draw random numbers, so an audit cannot compute their contributions again"
        return view.why_noise_hides

    def limit(self, view: View) -> Limit:
        """Return one site more than the job allows to collude."""
        return Limit(view.planned.job.privacy.colluding + 1, errors=True)

    def run(self, view: View, rng: np.random.Generator) -> list[Array]:
        """Return what remains of the first sum without one, two, ... of the sites."""
        left, found = flat(view.rounds[0].total), []
        for rows in view.own.values():
            left = left - flat(replayed(_first(view), rows)[0])
            found.append(left)
        return found

    def score(self, guess: list[Array], view: View, truth: Truth) -> Finding:
        """Return the number of sites; details: the error for each number, with its range."""
        K, own = len(view.sites), list(view.own)
        contributions = {
            site: replayed(_first(view), view.own.get(site) or truth.sites[site])[0]
            for site in view.sites
        }
        numbers = {site: flat(each) for site, each in contributions.items()}
        every = {**truth.sites, **view.own}
        sizes = {site: len(every[site].values) for site in view.sites}
        seed = seeded_random(bytes(32))
        errors = dict[str, dict[str, float]]()
        for m, remains in enumerate(guess, start=1):
            others = [site for site in view.sites if site not in own[:m]]
            left, share = [remains], dict[str, float]()
            if view.rounds[0].stage in view.planned.public.noise:
                share = {"share_of_noise": len(others) / K}
                of_others = [contributions[site] for site in others]
                left = [_noised_sum(view, of_others, seed) for _ in range(_DRAWS)]
            of_own = np.sum([numbers[s] for s in own[:m]], axis=0)
            hidden = [numbers[s] for s in others]
            instead = min(
                _distance(of_own, hidden, [1 / m] * len(others)),
                _distance(of_own, hidden, _in_proportion(sizes, others, own[:m])),
            )
            of_draws = [
                min(
                    _distance(each, hidden, [1 / len(others)] * len(others)),
                    _distance(each, hidden, _in_proportion(sizes, others, others)),
                )
                / max(instead, np.finfo(float).tiny)
                for each in left
            ]
            errors[str(m)] = {
                "error": float(np.mean(of_draws)), "low": min(of_draws), "high": max(of_draws),
                **share,
            }  # fmt: skip
        needed, low, high = (
            0.0 if view.in_clear
            else float(next((m for m in errors if errors[m][name] < _EXPOSED), K))
            for name in ("error", "low", "high")
        )  # fmt: skip
        return Finding(
            value=needed, low=low, high=high, baseline=float(K), details={"errors": errors}
        )

    def control(self, plain: View) -> View:
        """Return the sum over two sites, one of which colludes."""
        first = plain.rounds[0]
        ally = next(iter(plain.own))
        pair = (ally, next(site for site in plain.sites if site != ally))
        total = {n: first.parts[pair[0]][n] + first.parts[pair[1]][n] for n in first.total}
        rounds = (SeenRound(first.stage, first.message, total, {}),)
        return replace(plain, sites=pair, rounds=rounds, own={ally: plain.own[ally]})


def _first(view: View) -> View:
    return replace(view, rounds=view.rounds[:1])


def _in_proportion(
    sizes: Mapping[str, int], sites: Sequence[str], known: Sequence[str]
) -> list[float]:
    """Return each site's records, divided by those of the sites with a known sum."""
    records = max(sum(sizes[site] for site in known), 1)
    return [sizes[site] / records for site in sites]


def _distance(total: Array, contributions: Sequence[Array], parts: Sequence[float]) -> float:
    """Return the mean distance of contributions from parts of a sum."""
    pairs = zip(contributions, parts, strict=True)
    return float(np.mean([np.linalg.norm(part * total - each) for each, part in pairs]))


def _noised_sum(view: View, contributions: Sequence[Update], random: RandomBytes) -> Array:
    """Return the sum of contributions, to which each site adds new noise by the plan's law."""
    stage = view.rounds[0].stage
    plan, noise, vectors = view.planned.plans.of(stage), view.planned.public.noise[stage], []
    for contribution in contributions:
        vector = encode(plan, contribution)
        variance = noise.site_variance(len(view.sites))
        add_noise(plan, vector, sample_weighted(variance, noise.weights, plan.noised, random))
        vectors.append(vector)
    return flat(decode(plan, ring.total(vectors, plan.length, plan.ring_bits))[0])
