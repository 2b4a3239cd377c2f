"""Differencing control: decide whether a sum may be released, given all earlier releases.

A cohort is the set of sites whose contributions a sum covers. By subtracting sums over different
cohorts, someone can compute the contribution of a few sites: (a+b+c+d) - (a+b+c) is d alone. This
is the attack on changing cohorts of So et al. 2021 (Multi-RoundSecAgg, section 3), and the
differencing problem of official statistics (Hundepool et al. 2012, section 3.4).

Write each cohort as a vector with 1 for each site in it and 0 for the other sites. All released
sums together reveal exactly the linear combinations of contributions in the row space of these
vectors, over the rational numbers. `exposed` decides whether the row space contains a non-zero
vector that covers fewer than k sites, where k is the smallest allowed number of sites.

Guarantee: suppose that `exposed` returned None for each release of a data set in turn. Then every
linear combination of all these releases is either zero or depends on at least k sites. If t < k
sites collude and subtract their own contributions, they get combinations of at least k - t other
sites, because the subtraction does not change the weights of other sites.

==============================================  ==================================================
case                                            result
==============================================  ==================================================
the same cohort as an earlier release           None: it reveals no new combination
a cohort in the row space of earlier ones       None: it reveals no new combination
a first cohort of k sites or more               None
a cohort of fewer than k sites                  exposed: those sites
an earlier cohort less one site, or one more    exposed: that site (k at least 2)
disjoint cohorts of k sites each                None
cohorts that differ by k sites or more          None, unless several together expose fewer sites
earlier releases already expose a group         every cohort with a new combination: exposed
k of 1 or less                                  None: every group is large enough
too many groups to search                       exposed, without names, to be on the safe side
==============================================  ==================================================

Except in the last case, the answer is exact: docs/math/differencing.md has the proof.

Not protected:

* Releases that are not in `earlier`. A site knows only the cohorts that it was part of. Three
  cohorts without a common site can expose a group, and then no single site's ledger shows this.
  Among 3k/2 or more sites, three such cohorts can expose a group of fewer than k; among 2k - 1 or
  more, one site (docs/math/differencing.md). The coordinator's ledger contains all cohorts. Sums of
  one job that names its sites cannot do this: see `named_sites`.
* Computations that are not linear in the contributions.

Two assumptions can only cause more refusals. The first is that each site contributed the same
numbers every time, although the method or the records may have changed. The second is that noise
does not help, because noise that hides a record does not hide a site.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction

MAX_GROUPS = 1_000_000
"""Largest number of sets of sites to search, which takes a second or two. If there are more, the
release is refused."""

_MERSENNE = tuple((1 << exponent) - 1 for exponent in (61, 127, 521))

Row = list[int]


@dataclass(frozen=True)
class Exposure:
    """A linear combination of releases that would expose a group of sites.

    shows: (site, weight) of each exposed site; empty if the search was too large
    combination: (release, weight) of each release in the combination. A release is given by its
        position in `earlier`; the new release has the position len(earlier)
    new: len(earlier)
    min_sites: the number of sites that every combination must cover
    """

    shows: tuple[tuple[str, int], ...]
    combination: tuple[tuple[int, int], ...]
    new: int
    min_sites: int

    @property
    def sites(self) -> tuple[str, ...]:
        return tuple(site for site, _ in self.shows)

    def line(self) -> str:
        """Return the reason for a refusal, in one line. Releases are numbered from 1."""
        if not self.shows:
            return (
                f"there are too many different cohorts in {self.new} earlier releases to rule out "
                f"that they would expose fewer than {self.min_sites} sites"
            )
        releases = (
            ("this release" if i == self.new else f"release {i + 1}", weight)
            for i, weight in sorted(self.combination, key=lambda term: term[1] < 0)
        )
        group = "one site" if len(self.shows) == 1 else f"only {len(self.shows)} sites"
        known = self.new not in dict(self.combination)
        return (
            f"{_as_sum(releases)} = {_as_sum(self.shows)}: {group}; every combination of "
            f"releases must cover {self.min_sites}"
            + (" (earlier releases already show it)" if known else "")
        )


def exposed(
    earlier: Sequence[frozenset[str]], new: frozenset[str], min_sites: int
) -> Exposure | None:
    """Return the smallest group of sites that `new` together with `earlier` would expose, or None.

    earlier: cohorts of all releases of the data set so far, in any order, repeats allowed
    new: the cohort of the requested sum
    min_sites: k, the smallest number of sites that a combination may cover
    """
    if min_sites <= 1 or new in earlier:
        return None
    cohorts = list(dict.fromkeys([*earlier, new]))
    groups = _groups(cohorts)  # in any combination, all sites of a group have the same weight
    matrix = [[int(group[0] in cohort) for group in groups] for cohort in cohorts]
    too_large = Exposure((), (), len(earlier), min_sites)
    prime = _prime_above_minors(min(len(cohorts), len(groups)))
    if prime is None:
        return too_large
    basis, echelon = _echelon(matrix, prime)
    if len(cohorts) - 1 not in basis:
        return None
    sizes = [len(group) for group in groups]
    if _count_lighter(sizes, min_sites) > MAX_GROUPS:
        return too_large
    kernel = _kernel(echelon, len(groups), prime)
    support = _lightest_support(kernel, sizes, min_sites, prime)
    if support is None:
        return None
    rows = [matrix[i] for i in basis]
    weights = _combination(rows, support)
    shown = {j: sum(w * row[j] for w, row in zip(weights, rows, strict=True)) for j in support}
    shows = sorted((site, weight) for j, weight in shown.items() for site in groups[j])
    sign = 1 if shows[0][1] > 0 else -1
    first = [*earlier, new].index
    return Exposure(
        tuple((site, sign * weight) for site, weight in shows),
        tuple(
            sorted((first(cohorts[i]), sign * w) for i, w in zip(basis, weights, strict=True) if w)
        ),
        len(earlier),
        min_sites,
    )


def _groups(cohorts: Sequence[frozenset[str]]) -> list[list[str]]:
    """Group the sites that are in exactly the same cohorts (equal columns of the matrix)."""
    groups: dict[tuple[bool, ...], list[str]] = defaultdict(list)
    for site in sorted(frozenset().union(*cohorts)):
        groups[tuple(site in cohort for cohort in cohorts)].append(site)
    return list(groups.values())


def _prime_above_minors(order: int) -> int | None:
    """Return a prime that divides no non-zero minor of a 0/1 matrix up to this order.

    By Hadamard's bound, a minor of order n is at most (n+1)^((n+1)/2) / 2^n, which must be below
    the prime. The comparison uses squares, which are integers. The bound grows with n.
    """
    for prime in _MERSENNE:
        if pow(order + 1, order + 1) < pow(prime << order, 2):
            return prime
    return None


def _echelon(matrix: Sequence[Row], prime: int) -> tuple[list[int], dict[int, Row]]:
    """Return the positions of rows that are independent of the rows before, and the echelon form.

    The reduced row echelon form is a dictionary from pivot column to row. Each row is 1 at its own
    pivot and 0 at all other pivots.
    """
    basis: list[int] = []
    echelon: dict[int, Row] = {}
    for position, original in enumerate(matrix):
        row = original
        for pivot, other in echelon.items():
            row = _without(row, other, pivot, prime)
        at = next((j for j, entry in enumerate(row) if entry), None)
        if at is not None:
            basis.append(position)
            row = _scaled(row, at, prime)
            echelon = {p: _without(other, row, at, prime) for p, other in echelon.items()}
            echelon[at] = row
    return basis, echelon


def _kernel(echelon: Mapping[int, Row], width: int, prime: int) -> list[Row]:
    """Return, for each of `width` columns, its row of a basis of the kernel.

    A vector v is in the row space if and only if v @ kernel = 0.
    """
    free = [j for j in range(width) if j not in echelon]
    return [
        [-echelon[j][f] % prime for f in free] if j in echelon else [int(f == j) for f in free]
        for j in range(width)
    ]


def _scaled(row: Row, at: int, prime: int) -> Row:
    inverse = pow(row[at], -1, prime)
    return [entry * inverse % prime for entry in row]


def _without(row: Row, other: Row, pivot: int, prime: int) -> Row:
    """Subtract a multiple of `other`, which is 1 at `pivot`, so that `row` is 0 there."""
    factor = row[pivot]
    if not factor:
        return row
    return [(a - factor * b) % prime for a, b in zip(row, other, strict=True)]


def _count_lighter(sizes: Sequence[int], limit: int) -> int:
    """Return how many sets of groups have fewer than `limit` sites together."""
    ways = [1] + [0] * (limit - 1)
    for size in sizes:
        for total in range(limit - 1, size - 1, -1):
            ways[total] += ways[total - size]
    return sum(ways)


def _lightest_support(
    kernel: Sequence[Row], sizes: Sequence[int], limit: int, prime: int
) -> list[int] | None:
    """Return the set of columns with the fewest sites that supports a vector of the row space.

    Return None if every such set has `limit` sites or more. A set of columns supports a vector if
    and only if the kernel's rows for these columns are linearly dependent. Sets are searched in
    order of size. Each remaining row is reduced by the chosen rows, so a row becomes zero if it
    depends on them.
    """
    best: list[int] | None = None

    def grow(chosen: list[int], weight: int, remaining: list[tuple[int, Row]]) -> None:
        nonlocal best, limit
        for j, row in remaining:
            if weight + sizes[j] < limit and not any(row):
                best, limit = [*chosen, j], weight + sizes[j]
        independent = [(j, row) for j, row in remaining if any(row)]
        for i, (j, row) in enumerate(independent[:-1]):
            heavier = weight + sizes[j]
            if heavier + sizes[independent[i + 1][0]] >= limit:
                break  # all later sets are at least as large
            pivot = next(at for at, entry in enumerate(row) if entry)
            unit = _scaled(row, pivot, prime)
            rest = [(k, _without(r, unit, pivot, prime)) for k, r in independent[i + 1 :]]
            grow([*chosen, j], heavier, rest)

    grow([], 0, sorted(enumerate(kernel), key=lambda column: sizes[column[0]]))
    return best


def _combination(rows: Sequence[Row], support: Sequence[int]) -> list[int]:
    """Return coprime integer weights of the rows whose combination is 0 outside `support`.

    rows: linearly independent
    The weights are unique up to sign. Two different solutions could be combined to be zero for one
    more group, and then a support with fewer sites would exist.
    """
    outside = [j for j in range(len(rows[0])) if j not in support]
    solved: list[tuple[int, list[Fraction]]] = []  # (pivot, equation), in reduced echelon form
    for j in outside:
        equation = [Fraction(row[j]) for row in rows]
        for pivot, other in solved:
            equation = _eliminated(equation, other, pivot)
        at = next((i for i, entry in enumerate(equation) if entry), None)
        if at is None:
            continue
        equation = [entry / equation[at] for entry in equation]
        solved = [(p, _eliminated(other, equation, at)) for p, other in solved]
        solved.append((at, equation))
    free = next(i for i in range(len(rows)) if i not in dict(solved))
    weights = [Fraction(int(i == free)) for i in range(len(rows))]
    for pivot, equation in solved:
        weights[pivot] = -equation[free]
    # The results are coprime. The free weight is 1, so a common prime factor would divide the least
    # common multiple. But consider the weight whose denominator has the highest power of this
    # prime: after multiplication it no longer has this factor.
    common = math.lcm(*(weight.denominator for weight in weights))
    return [int(weight * common) for weight in weights]


def _eliminated(row: list[Fraction], other: list[Fraction], pivot: int) -> list[Fraction]:
    factor = row[pivot]
    return [a - factor * b for a, b in zip(row, other, strict=True)] if factor else row


def _as_sum(terms: Iterable[tuple[str, int]]) -> str:
    """Write a sum such as `2 a - b`."""
    text = ""
    for name, weight in terms:
        sign = "-" if weight < 0 else "+"
        prefix = f" {sign} " if text else ("-" if weight < 0 else "")
        text += prefix + (name if abs(weight) == 1 else f"{abs(weight)} {name}")
    return text
