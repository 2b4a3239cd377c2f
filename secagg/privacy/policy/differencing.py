"""Differencing control: may this sum be released, given all earlier releases?

A release over a cohort reveals one linear combination of the sites' contributions: the cohort's 0/1
vector. Releases over several cohorts of one data set reveal every combination in the row space of
their vectors, over the rationals (`(a+b+c+d) - (a+b+c)` is d alone). This is the attack on changing
cohorts of So et al. 2021 (Multi-RoundSecAgg, section 3), and the differencing problem of official
statistics (Hundepool et al. 2012, section 3.4). `exposed` decides whether the row space contains a
non-zero vector, with any weights, that covers fewer than k sites.

Guarantee: if `exposed` returned None for each release of a data set in turn, then no linear
combination of all of them depends on between 1 and k - 1 sites. Hence t < k colluding sites that
subtract their own contributions get combinations of at least k - t other sites: subtracting changes
no weight outside the coalition.

==============================================  ==================================================
case                                            result
==============================================  ==================================================
the same cohort as an earlier release           None: it adds nothing
a cohort in the row space of earlier ones       None: it adds nothing
a first cohort of k sites or more               None
a cohort of fewer than k sites                  exposed: those sites
an earlier cohort less one site, or one more    exposed: that site (k at least 2)
disjoint cohorts of k sites each                None
cohorts that differ by k sites or more          None, unless a combination of several shows fewer
earlier releases already expose a group         any cohort that adds something is exposed
k of 1 or less                                  None: every group is large enough
too many groups to search                       exposed, without names: it cannot be ruled out
==============================================  ==================================================

The answer is exact: docs/math/differencing.md proves it.

Not protected: releases that are not in `earlier`. A site knows only the cohorts that it was part
of, so three or more cohorts without a common site can expose a group that no single site's ledger
shows; the coordinator's ledger shows all. Also not protected: anything that is not linear in the
contributions. Two assumptions can only cause more refusals: that each site contributed the same
every time, though the method or the records may have changed; and that noise does not help, since
noise that hides a record does not hide a site.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction

MAX_GROUPS = 1_000_000
"""The search (a second or two) stops if there are more groups of sites, and the answer is no."""

_MERSENNE = tuple((1 << exponent) - 1 for exponent in (61, 127, 521))

Row = list[int]


@dataclass(frozen=True)
class Exposure:
    """A group of sites that releases would expose, and how.

    shows: (site, weight) of each site in the combination; empty if the search was too large
    combination: (release, weight), by position in `earlier`; len(earlier) is the new one
    new: len(earlier)
    min_sites: the number of sites that every combination must cover
    """

    shows: tuple[tuple[str, int], ...]
    combination: tuple[tuple[int, int], ...]
    new: int
    min_sites: int

    @property
    def sites(self) -> tuple[str, ...]:
        """The names of the group, sorted."""
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
            f"{_written(releases)} = {_written(self.shows)}: {group}; every combination of "
            f"releases must cover {self.min_sites}"
            + (" (earlier releases already show it)" if known else "")
        )


def exposed(
    earlier: Sequence[frozenset[str]], new: frozenset[str], min_sites: int
) -> Exposure | None:
    """Return a smallest group that `new` together with `earlier` would expose, or None.

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
    """Group the sites by the cohorts that they are in (equal columns of the matrix)."""
    groups: dict[tuple[bool, ...], list[str]] = defaultdict(list)
    for site in sorted(frozenset().union(*cohorts)):
        groups[tuple(site in cohort for cohort in cohorts)].append(site)
    return list(groups.values())


def _prime_above_minors(order: int) -> int | None:
    """Return a prime that divides no non-zero minor of a 0/1 matrix up to this order.

    Hadamard's bound (n+1)^((n+1)/2) / 2^n < p, squared to stay in integers; it grows with n.
    """
    for prime in _MERSENNE:
        if pow(order + 1, order + 1) < pow(prime << order, 2):
            return prime
    return None


def _echelon(matrix: Sequence[Row], prime: int) -> tuple[list[int], dict[int, Row]]:
    """Return the positions of rows that are independent of earlier ones, and the reduced form.

    The reduced row echelon form is keyed by pivot column: each row is 1 at its own pivot and 0 at
    all other pivots.
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
    """Return the columns with the fewest sites, below `limit`, that support a row-space vector.

    A set of columns supports one if and only if its rows of the kernel are dependent. Sets grow in
    order of size. Each remaining row is kept reduced by the chosen ones, so it becomes zero when it
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
                break  # all later ones are at least as large
            pivot = next(at for at, entry in enumerate(row) if entry)
            unit = _scaled(row, pivot, prime)
            rest = [(k, _without(r, unit, pivot, prime)) for k, r in independent[i + 1 :]]
            grow([*chosen, j], heavier, rest)

    grow([], 0, sorted(enumerate(kernel), key=lambda column: sizes[column[0]]))
    return best


def _combination(rows: Sequence[Row], support: Sequence[int]) -> list[int]:
    """Return coprime weights of the (independent) rows whose combination is 0 outside `support`.

    They are unique up to sign: two different solutions could be combined to vanish on a group of
    the support, and then a lighter support would exist.
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
    # Coprime: the free weight is 1, so a common prime factor divides the least common multiple. The
    # weight whose denominator has its highest power then becomes a number without that factor.
    common = math.lcm(*(weight.denominator for weight in weights))
    return [int(weight * common) for weight in weights]


def _eliminated(row: list[Fraction], other: list[Fraction], pivot: int) -> list[Fraction]:
    factor = row[pivot]
    return [a - factor * b for a, b in zip(row, other, strict=True)] if factor else row


def _written(terms: Iterable[tuple[str, int]]) -> str:
    """Write a sum such as `2 a - b`."""
    text = ""
    for name, weight in terms:
        sign = "-" if weight < 0 else "+"
        lead = f" {sign} " if text else ("-" if weight < 0 else "")
        text += lead + (name if abs(weight) == 1 else f"{abs(weight)} {name}")
    return text
