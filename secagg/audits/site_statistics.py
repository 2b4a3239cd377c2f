"""How the sums of a run depend on the means and covariances of each site's records.

For a *statistic* of a site, such as the mean of a column, one can change the records so that this
statistic changes and no other mean or covariance does. The site's contributions to the recorded
messages are then computed again, by the method's own code. Differences give the derivative of every
sum with respect to every statistic of every site.

With m the means and S = U L U' the covariance matrix of a site's records x, the change along a
direction (c, E), E symmetric, is

    x -> m + (I + h B)' (x - m) + h c,    B = S^-1 E / 2,                                        (1)

which changes the means by h c and S by h E + O(h^2). Directions are in units that make all
statistics comparable: c = sqrt(L_i) U_i, and E = sqrt(L_i L_j) (U_i U_j' + U_j U_i') / 2 for i < j,
or L_i U_i U_i'. A change of 1 in these units is one standard deviation of a mean, and 100 % of a
variance. Directions in which the records do not vary are left out, and so are variables that the
job declares and does not analyse (`used_variables`).

Some methods read records only through means and covariances (and numbers of records). This is
tested (`reads_moments_only`): records are mixed by a random orthogonal matrix that keeps both, and
no contribution may change. For other methods (1) is one of many changes of the records.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace

import numpy as np

from secagg.audits.views import View
from secagg.contracts import SiteRecords, State, Update
from secagg.core.arrays import Array
from secagg.core.randomness import RandomBytes, seeded_random
from secagg.errors import SecaggError

_STEP = 1e-3
"""h of (1). Two central differences, of h and 2h, leave an error of h^4 = 1e-12 and, by rounding,
1e-16 / h = 1e-13, times numbers of the order of the derivatives."""
DERIVATIVE_ERROR = 1e-9
"""A bound of that error, relative to the largest derivative of a round."""
_VARIES = 1e-9  # of the largest eigenvalue
_SAME = 1e-9


class DrawsRandomNumbers(Exception):
    """A site's contribution depends on random numbers, so a change of it is no derivative."""


def _no_random(count: int) -> bytes:
    raise DrawsRandomNumbers


def replayed(view: View, rows: SiteRecords, random: RandomBytes = _no_random) -> list[Update]:
    """Return a site's contributions to the messages of a view.

    Raises `DrawsRandomNumbers` unless `random` is given.
    """
    method, public = view.planned.method, view.planned.public
    memory: State = {}
    found = []
    for seen in view.rounds:
        update, memory = method.contribute(seen.stage, rows, seen.message, memory, public, random)
        found.append(update)
    return found


def draws_random_numbers(view: View, rows: SiteRecords) -> bool:
    """Return whether the contributions of a site depend on random numbers."""
    try:
        replayed(view, rows)
    except DrawsRandomNumbers:
        return True
    return False


def reads_moments_only(view: View, rows: SiteRecords, rng: np.random.Generator) -> bool:
    """Return whether contributions depend on records only through means and covariances.

    They are computed from records that are mixed by a random orthogonal matrix which keeps the
    vector of ones.
    """
    n = len(rows.values)
    if n < 3:
        return False
    basis = np.linalg.qr(np.column_stack([np.ones(n), rng.normal(size=(n, n - 1))]))[0][:, 1:]
    turn = np.linalg.qr(rng.normal(size=(n - 1, n - 1)))[0]
    values = rows.values.mean(axis=0) + basis @ turn @ basis.T @ rows.values
    random = seeded_random(bytes(32))
    try:
        mixed = replayed(view, replace(rows, values=values), random)
    except SecaggError:
        return False  # for example values beyond the bounds, which a method of records refuses
    for one, other in zip(replayed(view, rows, seeded_random(bytes(32))), mixed, strict=True):
        for name, array in one.items():
            if np.max(np.abs(array - other[name])) > _SAME * (1 + np.max(np.abs(array))):
                return False
    return True


def used_variables(view: View, rows: SiteRecords) -> list[int]:
    """Return the variables on which a site's contributions depend: those that a job analyses."""
    base, used = [flat(update) for update in replayed(view, rows)], []
    for j in range(rows.values.shape[1]):
        values = rows.values.copy()
        values[:, j] = values[:, j] * (1 - 2 * _STEP) + _STEP * np.linspace(-1, 1, len(values))
        other = [flat(update) for update in replayed(view, replace(rows, values=values))]
        if any(not np.array_equal(a, b) for a, b in zip(base, other, strict=True)):
            used.append(j)
    return used


def directions(rows: SiteRecords, used: Sequence[int]) -> list[tuple[Array, Array]]:
    """Return (c, E) of each statistic of the used variables, in comparable units."""
    p = len(used)
    L, U = np.linalg.eigh(_covariance(rows, used))
    varies = np.flatnonzero(np.maximum(L, 0.0) > _VARIES * np.max(L, initial=0.0))
    scaled = U[:, varies] * np.sqrt(L[varies])
    zero, none = np.zeros((p, p)), np.zeros(p)
    found = [(column, zero) for column in scaled.T]
    for i in range(len(varies)):
        for j in range(i + 1):
            E = np.outer(scaled[:, i], scaled[:, j])
            found.append((none, (E + E.T) / 2))
    return found


def changed(
    rows: SiteRecords, used: Sequence[int], direction: tuple[Array, Array], h: float
) -> SiteRecords:
    """Return the records after (1), in the used variables."""
    c, E = direction
    values, x = rows.values.copy(), rows.values[:, used]
    m = x.mean(axis=0)
    B = np.linalg.pinv(_covariance(rows, used), rcond=_VARIES, hermitian=True) @ E / 2
    values[:, used] = m + (x - m) @ (np.eye(len(m)) + h * B) + h * c
    return replace(rows, values=values)


def _covariance(rows: SiteRecords, used: Sequence[int]) -> Array:
    return np.cov(rows.values[:, used].T, bias=True).reshape(len(used), len(used))


def derivatives(view: View, rows: SiteRecords, used: Sequence[int]) -> Iterator[list[Array]]:
    """Yield for each statistic of a site the derivative of its contribution in each round."""
    for direction in directions(rows, used):
        one, two = (_central(view, rows, used, direction, step) for step in (_STEP, 2 * _STEP))
        yield [(4 * near - far) / 3 for near, far in zip(one, two, strict=True)]


def _central(
    view: View,
    rows: SiteRecords,
    used: Sequence[int],
    direction: tuple[Array, Array],
    step: float,
) -> list[Array]:
    ahead, behind = (
        replayed(view, changed(rows, used, direction, sign * step)) for sign in (1, -1)
    )
    return [(flat(up) - flat(down)) / (2 * step) for up, down in zip(ahead, behind, strict=True)]


def flat(update: Update) -> Array:
    """Return all numbers of a contribution, by field name."""
    return np.concatenate([update[name].ravel() for name in sorted(update)])


def resolutions(view: View, stage: str) -> Array:
    """Return the standard deviation of what is unknown in each number of a sum, as `flat`.

    K sites round to multiples of 2^-f, each with variance 2^-2f / 12. Noise adds its own variance.
    """
    plan, noise = view.planned.plans.of(stage), view.planned.public.noise.get(stage)
    K, found, at = len(view.sites), dict[str, Array](), 0
    for field in (each.field for each in plan.fields[:-1]):
        variance = np.full(field.size, K / 12 * 4.0**-field.fraction_bits)
        if noise is not None:
            weights = np.array(noise.weights[at : at + field.size] or (1.0,) * field.size)
            variance += weights * noise.sum_variance(K, noise.site_variance(noise.min_sites))
        found[field.name], at = np.sqrt(variance), at + field.size
    return flat(found)
