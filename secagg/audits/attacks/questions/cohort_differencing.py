"""A7: contributions of few sites, from the same job over changing cohorts.

So and others (2021, "Securing secure aggregation", section 3): if a site is missing in one of two
sums of the same job, the difference of the sums is its contribution. In general, write each cohort
as a vector with 1 for each of its sites. Sums of weights y_i times the released sums are sums over
sites, with weights in the row space of these vectors. The attack searches for a set S of fewer than
`min_sites` sites, the smallest ones first, and weights y with

    sum_i y_i 1[site in cohort i] = 0 for each site outside S, and not for all in S.             (1)

Sites that were in the same cohorts form a *block*. In every combination they have the same weight,
so only unions of whole blocks are searched. Gaussian elimination in fractions gives a basis of the
row space, in which each vector has a block of its own (a *pivot*) that is in no other vector. Only
the vectors of the pivots in S can be in a combination that is 0 outside S, so (1) has as many
unknowns as S has pivots. This is another computation than that of the rule
(`secagg.privacy.policy.differencing`), so that both do not have the same error. If there are too
many unions, the search ends, and the attack says up to which size it searched. The three cohorts of
(2) have three blocks, so the group at which they aim is always tried.

The view of the *coordinator*: it repeats the job, and each site is absent with a probability of
10 %, as if it dropped out, given that at least `min_sites` are there. The view of the *dishonest
coordinator*: it invites the cohorts. Let the K sites be in three disjoint blocks P, Q and R, each
two of which have at least k sites together (k: `min_sites`). Then

    (P + Q) + (Q + R) - (P + R) = 2 Q.                                                           (2)

Each two of the cohorts of (2) differ in the sites of two blocks, at least k, and no site is in all
three. So no site's own ledger shows the exposure, and all three sums are answered. Only the
coordinator's ledger has all cohorts, and a dishonest coordinator keeps none. Adding the three
conditions gives 2K >= 3k. The smallest possible Q has max(1, 2k - K) sites, with the other sites in
two halves: fewer than k sites from K >= 3k/2, and one site from K >= 2k - 1. With K < 3k/2, each
two cohorts of k sites or more have a site in common and differ in at most 2K - 2k < k sites, so
this site refuses the second one; the attack asks for all sites, and for all but one.

The attacker needs no records of its own. The attack uses the first sum of the method, whose message
does not depend on earlier sums. A group is counted as exposed if the computed sum of its
contributions is right up to the rounding of the contributions; with noise it is not. If sites draw
random numbers, an audit cannot compute their contributions again, so it cannot tell whether a group
that (1) exposes has the right sum: the number is then an upper bound, and the verdict inconclusive.

The control is the same sites with the same `min_sites`; they only forget their ledgers.

What the result does not show: that other schedules of cohorts fail; what sums over the same cohort
show.
"""

from __future__ import annotations

import heapq
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import replace
from fractions import Fraction
from typing import Any, ClassVar, NamedTuple

import numpy as np
from scipy.stats import binom

from secagg.audits.contract import Attack, Finding, Limit, Truth
from secagg.audits.site_statistics import draws_random_numbers, flat, replayed
from secagg.audits.views import View, Who
from secagg.core.arrays import Array

RELEASES = 12
"""Number of releases that the coordinator requests. Five sites are present in all of them with a
probability of 0.002."""
_ABSENT = 0.1
_MAX_GROUPS = 50_000  # a second or two, and 20 seconds for very many cohorts
_DECODING = 2.0**-50  # relative error of sums in float64, for some additions

Cohort = frozenset[str]


class Exposed(NamedTuple):
    """A group of sites, and what (1) gives: the weights of the releases, by position."""

    sites: tuple[str, ...]
    weights: tuple[Fraction, ...]


class Search(NamedTuple):
    """The smallest exposed group of sites that was found.

    searched: all groups of up to this many sites were searched; None if groups of every size were
    """

    exposed: Exposed | None
    searched: int | None = None


class Guess(NamedTuple):
    """cohorts, sums: of the answered releases; refused: number of the others."""

    cohorts: tuple[Cohort, ...]
    sums: tuple[Array, ...]
    refused: int
    search: Search


class CohortDifferencing(Attack):
    """Solve (1)."""

    name: ClassVar[str] = "cohort_differencing"
    title: ClassVar[str] = "Contributions of few sites, from one job over changing cohorts"
    source: ClassVar[str] = "So and others (2021), section 3; equations (1) and (2) of the module"
    knows: ClassVar[str] = "which sites took part in each release"
    views: ClassVar[tuple[Who, ...]] = (Who.COORDINATOR, Who.DISHONEST)
    metric: ClassVar[str] = "exposed_sites"
    meaning: ClassVar[str] = "sites in the smallest group whose contributions were computed"

    def __init__(self) -> None:
        """Begin with the weakest rule; `run` replaces it by that of the audited job."""
        self._min_sites = 2  # of the last run, for the control: its own job has weaker rules

    def why_not(self, view: View) -> str:
        """Return why it does not apply."""
        if view.ask is None:
            return "the sites cannot be asked"
        if not view.rounds:
            return "the run opened no sum of the method"
        if len(view.sites) <= view.planned.public.min_sites:
            return "each sum needs all sites, so there is one cohort only"
        return view.why_noise_hides

    def limit(self, view: View) -> Limit:
        """Return the limit."""
        return Limit(0)

    def run(self, view: View, rng: np.random.Generator) -> Guess:
        """Ask until a group is exposed."""
        assert view.ask is not None
        k, stage = view.planned.public.min_sites, view.rounds[0].stage
        cohorts, sums, refused, search = list[Cohort](), list[Array](), 0, Search(None)
        self._min_sites = k
        schedule = (
            chosen(view.sites, k)
            if view.who is Who.DISHONEST
            else (with_dropouts(view.sites, k, rng) for _ in range(RELEASES))
        )
        for cohort in schedule:
            answer = view.ask({}, absent=set(view.sites) - cohort)
            found = [flat(total) for name, total in answer.sums if name == stage]
            if not found:
                refused += 1
                continue
            cohorts.append(Cohort(answer.sites))
            sums.append(found[0])
            search = smallest_group(cohorts, k)
            if search.exposed is not None:
                break
        return Guess(tuple(cohorts), tuple(sums), refused, search)

    def score(self, guess: Guess, view: View, truth: Truth) -> Finding:
        """Return the number of sites of the group, if its contributions are right."""
        details: dict[str, Any] = {"answered": len(guess.cohorts), "refused": guess.refused}
        exposed, searched = guess.search
        if exposed is None:
            failed = f"groups of more than {searched} sites were not searched"
            return Finding.failure("" if searched is None else failed, 0.0, 0.0, **details)
        first, sites = view.rounds[0], exposed.sites
        once = replace(view, rounds=view.rounds[:1])
        details |= {
            "releases_until_exposed": len(guess.cohorts) + guess.refused,
            "sites": list(sites),
        }
        if any(draws_random_numbers(once, truth.sites[s]) for s in sites):
            n, why = float(len(sites)), "sites draw random numbers: no contribution to compare with"
            return replace(Finding.exact(n, 0.0, **details), bound=why)
        own = {s: flat(replayed(once, truth.sites[s])[0]) for s in sites}
        weights = [float(y) for y in exposed.weights]
        computed = np.einsum("i,ij->j", weights, np.array(guess.sums))
        of_site = {s: sum(y for y, c in zip(weights, guess.cohorts, strict=True) if s in c)
                   for s in sites}  # fmt: skip
        true = np.sum([of_site[s] * own[s] for s in sites], axis=0)
        error = np.abs(computed - true)
        right = bool((error <= _rounding(view, first.stage, guess, weights)).all())
        details["relative_error"] = float(np.linalg.norm(error) / np.linalg.norm(true))
        return Finding.exact(float(len(sites)) if right else 0.0, 0.0, **details)

    def control(self, plain: View) -> View:
        """Return the view of sites that forget; all cohorts have the audited job's `min_sites`."""
        public = replace(plain.planned.public, min_sites=self._min_sites)
        return replace(plain, planned=replace(plain.planned, public=public))


def with_dropouts(sites: Sequence[str], min_sites: int, rng: np.random.Generator) -> Cohort:
    """Return a cohort of at least `min_sites` sites, each absent with a probability of 10 %.

    To draw again until enough are there may take forever. So if the first draw leaves too few, the
    number of absent sites is drawn from the binomial law up to the largest number that is allowed,
    and then which ones. Both together have the law of draws until enough are there.
    """
    present = rng.random(len(sites)) >= _ABSENT
    if present.sum() >= min_sites:
        return Cohort(s for s, here in zip(sites, present, strict=True) if here)
    log = binom.logpmf(np.arange(len(sites) - min_sites + 1), len(sites), _ABSENT)
    weights = np.exp(log - log.max())
    absent = int(rng.choice(len(weights), p=weights / weights.sum()))
    return Cohort(sites[i] for i in map(int, rng.permutation(len(sites))[absent:]))


def chosen(sites: Sequence[str], min_sites: int) -> Iterator[Cohort]:
    """Yield the cohorts of (2); of few sites, all, and all but one."""
    everyone, K, k = Cohort(sites), len(sites), min_sites
    if 3 * k <= 2 * K:
        smallest = max(1, 2 * k - K)
        half = smallest + (K - smallest) // 2
        Q, P, R = map(Cohort, (sites[:smallest], sites[smallest:half], sites[half:]))
        yield from (P | Q, Q | R, P | R)
    else:
        yield from (everyone, everyone - {sites[0]})


def smallest_group(cohorts: Sequence[Cohort], limit: int) -> Search:
    """Return the smallest group of fewer than `limit` sites that (1) exposes.

    Groups are searched by size, as long as there are not too many.
    """
    members = dict[tuple[bool, ...], list[str]]()
    for site in sorted(frozenset().union(*cohorts)):
        members.setdefault(tuple(site in c for c in cohorts), []).append(site)
    blocks = sorted(members, key=lambda block: len(members[block]))
    names, R = [members[block] for block in blocks], len(cohorts)
    rows = [
        [Fraction(block[i]) for block in blocks] + [Fraction(i == j) for j in range(R)]
        for i in range(R)
    ]
    rows, pivots = reduced(rows, len(blocks))
    basis = dict(zip(pivots, rows, strict=False))  # by pivot: a vector, and its weights of cohorts
    for tried, (size, group) in enumerate(unions([len(each) for each in names])):
        if size >= limit:
            break
        if tried == _MAX_GROUPS:
            return Search(None, size - 1)
        if weights := _exposing(basis, group, len(blocks)):
            return Search(Exposed(tuple(sorted(s for j in group for s in names[j])), weights))
    return Search(None)


def unions(sizes: Sequence[int]) -> Iterator[tuple[int, tuple[int, ...]]]:
    """Yield (total size, blocks) of each union of blocks, the smallest ones first.

    sizes: of the blocks, in increasing order. Each union follows from one other: the last block is
    moved to the next one, or the next one is added.
    """
    left: list[tuple[int, tuple[int, ...]]] = [(sizes[0], (0,))] if sizes else []
    while left:
        size, group = heapq.heappop(left)
        yield size, group
        last = group[-1]
        if last + 1 < len(sizes):
            more = sizes[last + 1]
            heapq.heappush(left, (size + more, (*group, last + 1)))
            heapq.heappush(left, (size + more - sizes[last], (*group[:-1], last + 1)))


def _exposing(
    basis: Mapping[int, Sequence[Fraction]], group: Collection[int], blocks: int
) -> tuple[Fraction, ...]:
    """Return weights of the cohorts that are 0 outside a group of blocks and not in it, or ()."""
    vectors = [basis[j] for j in group if j in basis]
    outside = [j for j in range(blocks) if j not in basis and j not in group]
    found = null_space([[v[j] for v in vectors] for j in outside], len(vectors))
    if not found:
        return ()
    return tuple(
        sum((x * v[i] for x, v in zip(found[0], vectors, strict=True)), Fraction(0))
        for i in range(blocks, len(vectors[0]))
    )


def reduced(
    rows: Sequence[Sequence[Fraction]], columns: int
) -> tuple[list[list[Fraction]], list[int]]:
    """Return the reduced row echelon form in the first columns, and the pivots of its rows."""
    left, pivots = [list(row) for row in rows], list[int]()
    for j in range(columns):
        at = next((i for i in range(len(pivots), len(left)) if left[i][j]), None)
        if at is None:
            continue
        top = len(pivots)
        left[top], left[at] = left[at], left[top]
        left[top] = [entry / left[top][j] for entry in left[top]]
        for i, row in enumerate(left):
            if i != top and row[j]:
                left[i] = [a - row[j] * b for a, b in zip(row, left[top], strict=True)]
        pivots.append(j)
    return left, pivots


def null_space(equations: Sequence[Sequence[Fraction]], unknowns: int) -> list[list[Fraction]]:
    """Return a basis of the solutions of homogeneous equations."""
    rows, pivots = reduced(equations, unknowns)
    basis = []
    for free in (j for j in range(unknowns) if j not in pivots):
        y = [Fraction(j == free) for j in range(unknowns)]
        for i, pivot in enumerate(pivots):
            y[pivot] = -rows[i][free]
        basis.append(y)
    return basis


def _rounding(view: View, stage: str, guess: Guess, weights: Sequence[float]) -> Array:
    """Return the largest error of the combination by rounding, of each number as `flat`.

    Each site of a sum rounds to a multiple of 2^-f, and decoding rounds to float64.
    """
    fields = {p.field.name: p.field for p in view.planned.plans.of(stage).fields[:-1]}
    half = {name: np.full(f.size, 2.0 ** -(f.fraction_bits + 1)) for name, f in fields.items()}
    rounded = sum(abs(y) * len(c) for y, c in zip(weights, guess.cohorts, strict=True))
    decoded = np.abs(np.array(weights)) @ np.abs(np.array(guess.sums))
    return np.asarray(rounded * flat(half) + _DECODING * decoded)
