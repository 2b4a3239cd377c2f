"""How the sums of a run depend on the means and covariances of each site's records.

For a *statistic* of a site, such as the mean of a column, one can change the records so that this
statistic changes and no other mean or covariance does. The site's contributions to the recorded
messages are then computed again, by the method's own code. Differences give the derivative of every
sum with respect to every statistic of every site.

With m the means and S the covariance matrix of a site's records x, the change along a direction
(c, E), E symmetric, is

    x -> x + h G' S^-1 (x - m) + h c,    G + G' = E,                                            (1)

which changes the means by h c and S by h E + O(h^2). Columns with two values, such as indicators,
are kept as they are, so their own means and covariances are no unknowns: G is 0 in these columns,
E in the entries of these rows, and E / 2 in all others. Directions are in units that make all
statistics comparable. With U L U' the covariance matrix of the other columns,
c = sqrt(L_i) U_i, and E = sqrt(L_i L_j) (U_i U_j' + U_j U_i') / 2 for i < j, or L_i U_i U_i'; and
likewise between these columns and those with two values. A change of 1 in these units is one
standard deviation of a mean, and 100 % of a variance. Directions in which the records do not vary
are left out, and so are variables that the job declares and does not analyse (`used_variables`).

Some methods read records only through means and covariances (and numbers of records). This is
tested (`reads_moments_only`): records are mixed by a random reflection that keeps both, and
no contribution may change. For other methods, sums also change if records change and all means and
covariances stay (`record_derivatives`). Each record's change is in units of the same directions,
so 1 is a standard deviation of a record.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from secagg.audits.views import View
from secagg.contracts import Kind, SiteRecords, State, Update
from secagg.core.arrays import Array
from secagg.core.randomness import seeded_random
from secagg.errors import SecaggError

_STEP = 1e-3
"""h of (1). Two central differences, of h and 2h, leave an error of h^4 = 1e-12 and, by rounding,
1e-16 / h = 1e-13, times numbers of the order of the derivatives."""
DERIVATIVE_ERROR = 1e-9
"""A bound of that error, relative to the largest derivative of a round."""
_VARIES = 1e-9  # of the largest eigenvalue
_SAME = 1e-9  # of the largest number of an array
_STEPS = 4
"""Two numbers count as the same if they differ by at most so many fixed-point steps of their field.
An attacker sees no smaller difference, whatever the units of a method."""


def replayed(view: View, rows: SiteRecords, seed: int = 0) -> list[Update]:
    """Return a site's contributions to the messages of a view; seed: of its random numbers."""
    method, public = view.planned.method, view.planned.public
    memory: State = {}
    random, found = seeded_random(seed.to_bytes(32, "little")), []
    for seen in view.rounds:
        update, memory = method.contribute(seen.stage, rows, seen.message, memory, public, random)
        found.append(update)
    return found


def draws_random_numbers(view: View, rows: SiteRecords) -> bool:
    """Return whether the contributions of a site depend on random numbers."""
    one, other = ([flat(each) for each in replayed(view, rows, seed)] for seed in (0, 1))
    return any(not np.array_equal(a, b) for a, b in zip(one, other, strict=True))


def reads_moments_only(view: View, rows: SiteRecords, rng: np.random.Generator) -> bool:
    """Return whether contributions depend on records only through means and covariances.

    They are computed from records that are mixed by a random reflection which keeps the vector of
    ones.
    """
    n = len(rows.values)
    if n < 3:
        return False
    v = rng.normal(size=n)  # a reflection along a vector orthogonal to the ones keeps the means
    v -= v.mean()
    v /= np.linalg.norm(v)
    values = rows.values - 2 * np.outer(v, v @ rows.values)
    try:
        mixed = replayed(view, replace(rows, values=values))
    except SecaggError:
        return False  # for example values beyond the bounds, which a method of records refuses
    return all(
        same_numbers(view, seen.stage, one, other)
        for seen, one, other in zip(view.rounds, replayed(view, rows), mixed, strict=True)
    )


def same_numbers(
    view: View, stage: str, one: Update, other: Update, terms: Sequence[Update] = ()
) -> bool:
    """Return whether two contributions or sums differ by rounding only, as the stage encodes.

    Counts are not rounded.
    terms: whose sum the numbers are. A sum that is nearly 0 has the rounding errors of its terms
    """
    fields = (plan.field for plan in view.planned.plans.of(stage).fields)
    step = {f.name: 2.0**-f.fraction_bits * (f.kind is not Kind.COUNT) for f in fields}
    for name, array in one.items():
        size = sum(np.abs(term[name]) for term in terms) if terms else np.abs(array)
        allowed = max(_STEPS * step[name], _SAME * np.max(size, initial=0.0))
        if np.max(np.abs(array - other[name]), initial=0.0) > allowed:
            return False
    return True


def reads_pooled_only(
    view: View,
    sites: Mapping[str, SiteRecords],
    rng: np.random.Generator,
    *,
    weighted: bool = False,
) -> bool:
    """Return whether the sums depend only on all records together, and not on who has which.

    Records are exchanged between the sites at random; each site keeps its number of records.
    weighted: compare sums with the weights 1, 2, ..., which an attacker can compute if it sees each
        contribution
    """
    together = np.concatenate([rows.values for rows in sites.values()])
    constants = np.concatenate([rows.constants for rows in sites.values()])
    order, at, exchanged = rng.permutation(len(together)), 0, {}
    for site, rows in sites.items():
        drawn = order[at : at + len(rows.values)]
        own = constants[drawn] if len(constants) else constants
        exchanged[site] = replace(rows, values=together[drawn], constants=own)
        at += len(rows.values)
    by_site = [_by_round(view, rows, weighted=weighted) for rows in (sites, exchanged)]
    return all(
        same_numbers(view, seen.stage, _total(one), _total(other), one)
        for seen, one, other in zip(view.rounds, *by_site, strict=True)
    )


def _by_round(
    view: View, sites: Mapping[str, SiteRecords], *, weighted: bool
) -> list[list[Update]]:
    """Return by round the contributions of all sites, times 1, 2, ... if they are weighted."""
    found = [
        [
            {name: numbers * (i if weighted else 1) for name, numbers in update.items()}
            for update in replayed(view, rows)
        ]
        for i, rows in enumerate(sites.values(), start=1)
    ]
    return [list(parts) for parts in zip(*found, strict=True)]


def _total(parts: Sequence[Update]) -> Update:
    return {name: np.sum([part[name] for part in parts], axis=0) for name in parts[0]}


def used_variables(view: View, rows: SiteRecords) -> list[int]:
    """Return the variables on which a site's contributions depend: those that a job analyses."""
    base, used = [flat(update) for update in replayed(view, rows)], []
    for j in range(rows.values.shape[1]):
        values = rows.values.copy()
        if _two_valued(rows, [j])[0]:
            values[:, j] = np.roll(values[:, j], 1)
        else:
            values[:, j] = values[:, j] * (1 - 2 * _STEP) + _STEP * np.linspace(-1, 1, len(values))
        other = [flat(update) for update in replayed(view, replace(rows, values=values))]
        if any(not np.array_equal(a, b) for a, b in zip(base, other, strict=True)):
            used.append(j)
    return used


def directions(rows: SiteRecords, used: Sequence[int]) -> list[tuple[Array, Array]]:
    """Return (c, E) of each statistic of the used variables, in comparable units."""
    p, S, two = len(used), _covariance(rows, used), _two_valued(rows, used)
    free, kept = (_scaled(S, np.flatnonzero(which)) for which in (~two, two))
    zero, none = np.zeros((p, p)), np.zeros(p)
    found = [(column, zero) for column in free]
    for i, column in enumerate(free):
        for other in (*free[: i + 1], *kept):
            E = np.outer(column, other)
            found.append((none, (E + E.T) / 2))
    return found


def _scaled(S: Array, columns: NDArray[np.intp]) -> list[Array]:
    """Return sqrt(L_i) U_i of these columns, as vectors over all columns."""
    L, U = np.linalg.eigh(S[np.ix_(columns, columns)])
    varies = np.flatnonzero(np.maximum(L, 0.0) > _VARIES * np.max(L, initial=0.0))
    found = np.zeros((len(varies), len(S)))
    found[:, columns] = (U[:, varies] * np.sqrt(L[varies])).T
    return list(found)


def _two_valued(rows: SiteRecords, used: Sequence[int]) -> NDArray[np.bool_]:
    return np.array([len(np.unique(rows.values[:, j])) <= 2 for j in used], dtype=bool)


def changed(
    rows: SiteRecords, used: Sequence[int], direction: tuple[Array, Array], h: float
) -> SiteRecords:
    """Return the records after (1), in the used variables."""
    c, E = direction
    values, x, two = rows.values.copy(), rows.values[:, used], _two_valued(rows, used)
    G = np.where(two[:, None], E, E / 2)
    G[:, two] = 0.0
    inverse = np.linalg.pinv(_covariance(rows, used), rcond=_VARIES, hermitian=True)
    values[:, used] = x + h * ((x - x.mean(axis=0)) @ inverse @ G + c)
    return replace(rows, values=values)


def _covariance(rows: SiteRecords, used: Sequence[int]) -> Array:
    return np.cov(rows.values[:, used].T, bias=True).reshape(len(used), len(used))


def derivatives(view: View, rows: SiteRecords, used: Sequence[int]) -> Iterator[list[Array]]:
    """Yield for each statistic of a site the derivative of its contribution in each round."""
    for direction in directions(rows, used):
        yield _differences(view, functools.partial(changed, rows, used, direction))


def record_derivatives(view: View, rows: SiteRecords, used: Sequence[int]) -> list[Array]:
    """Return by round (numbers, changes) for changes of records that keep all statistics.

    One change for each record and direction in which records vary, projected on the others.
    """
    x, S, two = rows.values[:, used], _covariance(rows, used), _two_valued(rows, used)
    basis, n = _scaled(S, np.flatnonzero(~two)), len(x)
    centred, upper = x - x.mean(axis=0), np.triu_indices(len(used))
    found, statistics = list[list[Array]](), list[Array]()
    for i in range(n):
        for b in basis:
            E = np.outer(b, centred[i])
            changes = np.concatenate([b, (E + E.T)[upper]])
            statistics.append(np.asarray(changes, dtype=np.float64))

            def moved(h: float, i: int = i, b: Array = b) -> SiteRecords:
                values = rows.values.copy()
                values[i, used] += h * b
                return replace(rows, values=values)

            found.append(_differences(view, moved))
    C = np.array(statistics).T
    inverse = np.asarray(np.linalg.pinv(C), dtype=np.float64)
    J = [np.array(each).T for each in zip(*found, strict=True)]
    return [each - each @ inverse @ C for each in J]


def _differences(view: View, at: Callable[[float], SiteRecords]) -> list[Array]:
    """Return by round the derivative of the contribution of the records at h, for h = 0."""

    def central(h: float) -> list[Array]:
        ahead, behind = (replayed(view, at(sign * h)) for sign in (1, -1))
        return [(flat(up) - flat(down)) / (2 * h) for up, down in zip(ahead, behind, strict=True)]

    one, two = central(_STEP), central(2 * _STEP)
    return [(4 * near - far) / 3 for near, far in zip(one, two, strict=True)]


def error_bounds(J: Array, distance: float, changes: Array | None = None) -> Array:
    """Return how far a solution of equations can be from the truth, to first order.

    J: derivatives of the numbers (numbers, unknowns); distance: norm of the numbers' errors
    changes: (unknowns, quantities) derivatives of other quantities, instead of the unknowns
    Infinite if the numbers do not determine the unknowns: then another solution fits, too.
    """
    G = np.eye(J.shape[1]) if changes is None else changes
    _, s, V = np.linalg.svd(J, full_matrices=False)
    if len(s) < J.shape[1] or not s[-1] > max(J.shape) * np.finfo(float).eps * s[0]:
        return np.full(G.shape[1], np.inf)
    return np.asarray(distance * np.linalg.norm((V / s[:, None]) @ G, axis=0))


def flat(update: Update) -> Array:
    """Return all numbers of a contribution, by field name."""
    return np.concatenate([update[name].ravel() for name in sorted(update)])


def resolutions(view: View, stage: str, K: int) -> Array:
    """Return the standard deviation of what is unknown in each number of a sum, as `flat`.

    K: number of sites whose contributions the attacker does not know. Each rounds to multiples of
    2^-f, with variance 2^-2f / 12, and adds its share of the noise: the variance that the plan
    gives to a site in a sum over all sites of the view (`secagg.sessions.site_steps`).
    """
    plan, noise = view.planned.plans.of(stage), view.planned.public.noise.get(stage)
    found, at = dict[str, Array](), 0
    for field in (each.field for each in plan.fields[:-1]):
        variance = np.full(field.size, K / 12 * 4.0**-field.fraction_bits)
        if noise is not None:
            weights = np.array(noise.weights[at : at + field.size] or (1.0,) * field.size)
            variance += weights * noise.sum_variance(K, noise.site_variance(len(view.sites)))
        found[field.name], at = np.sqrt(variance), at + field.size
    return flat(found)
