"""A record, or the sum over a few, behind a combination of columns that is 0 for all others.

Suppose that cancer = breast + colon in all patients but one. With u = cancer - breast - colon, the
moments of all patients are then sums over this patient alone: sum u = r, sum u^2 = r^2, and
sum u x = r times the patient's row. More generally, x is the row of a record and w = b'x a
combination of its columns. Suppose that w is k in all but g of n records, and k + r in these g. Let
m be the mean of x, v = b'm the mean of w, C = sum (x - m)(x - m)', and S = b'Cb. The mean row of
the g records is then one of two points, and each has its own v - k:

    m +- C b root((n - g) / (n g S)),    if  v - k = +- root(g S / (n (n - g)))                  (1)

So if b is known, the moments show the record up to the sign, and k need not be known. If k is known
too (0 for a total and its parts), nothing else is unknown, and the g values of w need not be equal.
The mean row of these records, weighted by w - k, is

    m + C b / (n (v - k))                                                                        (2)

b cannot be computed from the moments alone: any b gives two points (1), and all of them are
possible records. (An eigenvector of C does not help: there C b is a multiple of b.) But relations
between columns often have simple coefficients, or somebody who knows the columns knows them. So the
attack tries each column, regresses each on one, two, three or all others, and rounds the slopes to
few digits. The few records hardly move the slopes, so rounding finds the relation. Of the
candidates, the attack keeps those whose point is within the bounds. A point (1) is *confirmed* if
each 0/1 variable has a possible mean of g records (0 or 1 if g = 1): a wrong candidate hits these
by chance only. If both points (1) qualify, the one with a whole-number k is confirmed. Both do, for
example, if exactly half of all records have the value 1.

The attack reports the fewest records that carry 99 % of sum (w - k)^2 of a candidate. This is also
1 if one value is far larger than all others. The rule `max_leverage` of a site's policy prevents
this for every combination, also for those that this attack does not try.

Not shown: relations with other coefficients; relations between five or more columns (three or more
if a job has many columns), unless the regression on all other columns finds them; combinations of
powers of a column (`fedlin_hm1` and others with `degree`), which their sums do not show directly.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import ClassVar

import numpy as np
from numpy.typing import NDArray

from secagg.audits.attacks.records.released_moments import MomentMatrix, of_moments, of_newton
from secagg.audits.attacks.records.simple_combinations import simple_combinations
from secagg.audits.contract import Attack, Finding, Limit, Truth
from secagg.audits.views import SeenRound, View
from secagg.contracts import PublicFacts, SiteRecords
from secagg.core.arrays import Array
from secagg.core.randomness import seeded_random
from secagg.jobs.data_sources import as_policy

_FEWEST = 5
_CARRIED = 0.99  # of the squares of the combination
_EXACT = 1e-6  # of numbers in [-1, 1]
_ROUNDING = 1e-11  # of the squares that cancel in S
_PLANTED = 60


@dataclass(frozen=True, eq=False)
class Candidate:
    """A combination a'x - k of variables as scaled, and the mean row of its few records.

    of: the sites; variables: positions of a and row
    records: how many records it is if they have equal values; 0 if that is unknown
    confirmed: whether each 0/1 variable of the row is a possible mean of so many records
    """

    of: tuple[str, ...]
    variables: tuple[int, ...]
    a: Array
    k: float
    row: Array
    records: int
    confirmed: bool


class NullCombination(Attack):
    """Compute (1) and (2) for combinations with simple coefficients."""

    name: ClassVar[str] = "null_combination"
    title: ClassVar[str] = "Records behind a combination of columns that is zero for all others"
    source: ClassVar[str] = "equations (1) and (2) of the module; leverage: Hoaglin and Welsch 1978"
    knows: ClassVar[str] = "that relations between columns have simple coefficients"
    metric: ClassVar[str] = "combination_records"
    meaning: ClassVar[str] = (
        "fewest records that a combination of columns depends on; all if none does on few"
    )

    def why_not(self, view: View) -> str:
        """Return why it does not apply."""
        if view.planned.public.clip is not None:
            return "sums with noise have no exact solution"
        return "" if _matrices(view) else "no sum has the moments of records"

    def limit(self, view: View) -> Limit:
        """Return the job's min_records, and at least 5."""
        rules = as_policy(view.planned.job.release)
        return Limit(max(rules.min_records or 0, _FEWEST), errors=True)

    def run(self, view: View, rng: np.random.Generator) -> list[Candidate]:
        """Return the candidates, the most nearly constant combinations first."""
        groups = round(self.limit(view).number)
        public = view.planned.public
        return [each for known in _matrices(view) for each in _candidates(known, public, groups)]

    def score(self, guess: list[Candidate], view: View, truth: Truth) -> Finding:
        """Return the fewest records; details: of that combination, and the error of its row."""
        sites = {**truth.sites, **view.own}
        total = min(
            sum(len(sites[site].values) for site in known.of) for known in _matrices(view)
        )  # fmt: skip
        best, least = dict[str, object](), (total, True, np.inf)
        for of, candidates in itertools.groupby(guess, key=lambda each: each.of):
            records = np.concatenate([sites[site].values for site in of])
            for each in candidates:
                x = records[:, list(each.variables)]
                u = x @ each.a - each.k
                few = _fewest(u**2, least[0])
                if few is None:
                    continue
                row = x[few].T @ u[few] / u[few].sum()
                found = len(few), not each.confirmed, float(np.max(np.abs(row - each.row)))
                if found < least:
                    least = found
                    best = {
                        "combination": _text(each, view.planned.public), "row_error": found[2],
                        "confirmed": each.confirmed, "sites": list(of),
                    }  # fmt: skip
        return Finding.exact(float(least[0]), float(total), candidates=len(guess), **best)

    def without_truth(self, guess: list[Candidate], view: View) -> Finding:
        """Return the fewest records of a confirmed candidate; all if there is none."""
        total = min(round(known.M[0, 0]) for known in _matrices(view))
        sure = [each for each in guess if each.confirmed]
        few = min((each.records for each in sure), default=total)
        texts = [_text(each, view.planned.public) for each in sure if each.records == few]
        failed = "" if sure else "no candidate is confirmed"
        return Finding.failure(failed, float(few), float(total), combinations=texts[:3])

    def control(self, plain: View) -> View:
        """Return the sum over random records, one of which alone departs from a relation."""
        known, public = _matrices(plain)[0], plain.planned.public
        values = _planted_records(known.variables, public)
        rows = SiteRecords(values, 0, np.zeros(values.shape[1]))
        seen = plain.rounds[0]
        total, _ = plain.planned.method.contribute(
            seen.stage, rows, seen.message, {}, public, seeded_random(bytes(32))
        )
        rounds = (SeenRound(seen.stage, seen.message, total, {"planted": total}),)
        return replace(plain, sites=("planted",), rounds=rounds, own={"planted": rows})


def _matrices(view: View) -> list[MomentMatrix]:
    return [*of_moments(view), *of_newton(view)]


def _candidates(known: MomentMatrix, public: PublicFacts, groups: int) -> Iterator[Candidate]:
    """Yield the candidates of one matrix. groups: the number of records that is not few."""
    n, sums = known.M[0, 0], known.M[0, 1:]
    if n < 2:
        return
    m = sums / n
    C = known.M[1:, 1:] - n * np.outer(m, m)
    variables = [public.variables[j] for j in known.variables]
    half = np.array([v.half_range for v in variables])
    middle = np.array([v.midpoint for v in variables])
    at = [i for i, v in enumerate(variables) if v.indicator]
    high = np.array([v.max_abs for v in variables])
    low, gap = -middle[at] / half[at], 1 / half[at]
    for b in simple_combinations(C * np.outer(half, half)):
        a = b * half
        s2, squares = float(a @ C @ a), float(a**2 @ np.diagonal(C))
        if s2 <= _ROUNDING * squares:  # constant in all records
            continue
        mean, found = float(a @ m), list[tuple[int, float]]()  # records, and mean less k
        few = range(1, min(groups, int(n)))
        found += [(g, s * float(np.sqrt(g * s2 / (n * (n - g))))) for g in few for s in (1, -1)]
        own = mean + float(b @ middle)  # in the columns' own units, where k may be a whole number
        found += [(0, own - k) for k in {0.0, float(np.rint(own))}]
        of_b = list[Candidate]()
        for g, d in found:
            if abs(n * d) * float(np.max(high)) <= np.finfo(float).eps * s2:
                continue
            row = m + C @ a / (n * d)
            if np.any(np.abs(row) > high + _EXACT):
                continue
            ones = (row[at] - low) / gap
            whole = bool(at) and bool(np.all(np.abs(g * ones - np.rint(g * ones)) <= g * _EXACT))
            of_b.append(Candidate(known.of, known.variables, a, mean - d, row, g, g > 0 and whole))
        yield from _told_apart(of_b, float(b @ middle))


def _told_apart(of_b: list[Candidate], shift: float) -> Iterator[Candidate]:
    """Yield candidates with the same slopes. Of two confirmed ones, at most one stays so.

    Either point of (1) may be the record. If both are confirmed, only one with a whole k stays so.

    shift: k in the columns' own units, less k
    """
    for each in of_b:
        rivals = [e for e in of_b if e.confirmed and e.records == each.records]
        if len(rivals) > 1:
            rivals = [e for e in rivals if abs(e.k + shift - round(e.k + shift)) <= _EXACT]
        yield replace(each, confirmed=each.confirmed and rivals == [each])


def _fewest(squares: Array, most: int) -> NDArray[np.intp] | None:
    """Return the fewest records that carry 99 % of the squares; None if more than `most` do."""
    most, total = min(most, len(squares)), float(squares.sum())
    largest = np.argpartition(-squares, most - 1)[:most]
    if not total > 0 or squares[largest].sum() < _CARRIED * total:
        return None
    largest = largest[np.argsort(-squares[largest], kind="stable")]
    return largest[: int(np.searchsorted(np.cumsum(squares[largest]), _CARRIED * total)) + 1]


def _planted_records(used: tuple[int, ...], public: PublicFacts) -> Array:
    """Return records whose last used variable is a function of another one, but for one record."""
    rng, variables = np.random.default_rng(0), public.variables
    values = np.empty((_PLANTED, len(variables)))
    for j, v in enumerate(variables):
        ones = (rng.integers(0, 2, _PLANTED).astype(np.float64) - v.midpoint) / v.half_range
        values[:, j] = ones if v.indicator else rng.uniform(-1, 1, _PLANTED)
    order = sorted(used, key=lambda j: (not variables[j].indicator, variables[j].half_range))
    one, other = variables[order[0]], variables[order[-1]]
    ratio = one.half_range / other.half_range  # one unit more is one unit more
    ratio *= 10.0 ** np.floor(-np.log10(ratio))  # above 0.1, and at most 1
    if len(order) == 1:
        values[:, order[0]] = values[1, order[0]]
    else:
        values[:, order[-1]] = values[:, order[0]] * ratio
        if other.indicator:
            values[:, order[-1]] = values[:, order[0]]
    column = values[:, order[-1]]
    if other.indicator:
        low = -other.midpoint / other.half_range
        column[0] = low if column[0] > low else low + 1 / other.half_range
    else:
        column[0] += -0.3 if column[0] > 0 else 0.3
    return values


def _text(each: Candidate, public: PublicFacts) -> str:
    """Return the combination, in the columns' own units."""
    variables = [public.variables[j] for j in each.variables]
    parts = [(a / v.half_range, v.name) for a, v in zip(each.a, variables, strict=True) if a]
    return " ".join(f"{b:+.4g} {name}" for b, name in parts)
