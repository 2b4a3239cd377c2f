"""Records relative to typical ranges, for noise in moments (docs/math/clipped-moments.md).

A column's bounds say which values are possible, its typical range which are likely. Relative to the
bounds, a column with a standard deviation of a fifth of its half range pays for 25 times its
variance. So if a job states the typical ranges of all its columns, the variables of a method that
needs moments only are

    u = (x - m) / (4 s)                                                                       (1)

with the guesses m and s of mean and standard deviation, and the whole record z = (c / 4, u), c =
3/4, its constant included, is shortened to |z| <= R. So moments are those of records with the
weight min(1, R^2 / |z|^2), and linear equations among the columns of a record stay as they are. The
factor 4 keeps most values below 1, as methods expect. No guarantee depends on m and s: they are
part of the job, and R alone bounds a record's part.

The limit. For p variables, E |4 z|^2 = p + c^2 if the guesses are right, and

    R^2 = k^2 (p + c^2) / 16.                                                                 (2)

A slope of standardised columns has the noise k^2 p / S with S = root(2) n mu for n records. A short
limit saves noise and draws slopes towards 0, as records are shortened by all their columns, the
outcome included: by about b / k^2. The sum of both squares is least at

    k^2 = root(b S / p),   b = 0.01, from 1 to 3,                                             (3)

and both are then of the order 1 / root(n), as the sampling error. With few columns, the lengths of
records differ more, and slopes are drawn further. So k is at least the one for which the sum of
both squares is least if slopes explain a fifth and lose twice the share that those of normal
records lose (`secagg.models.moments.drawn_to_zero`). With many records that is too short for
others. k is computed from the job alone (`expected_records`, or what `release` requires at least).
benchmarks/noise/reach.py compares it with other k.

Categorical columns state no typical shares: all their levels are equally likely, as everywhere.
"""

from __future__ import annotations

import math
from dataclasses import replace
from functools import lru_cache
from typing import Final

import numpy as np
from scipy.special import gammaincinv

from secagg.contracts import LEAST_SPREAD_OF_LEVEL, MomentsOnly, Variable, facts_of
from secagg.contracts.noise import Adjacency, Placement
from secagg.jobs.columns import Categorical
from secagg.jobs.job import Job
from secagg.jobs.registry import make_method
from secagg.privacy.accounting.gaussian_dp import gaussian_mu

_SPREADS = 4.0
CONSTANT: Final = 0.75
_BIAS = 0.01
_SHORTEST, _LONGEST = 1.0, 3.0
_STEPS = 16  # of k: then (2) is exact in float64
_EXPLAINED, _HEAVIER = 0.2, 2.0
"""Share of the outcome's variance, and how many times as far as normal records others are drawn."""
_QUANTILES = (np.arange(400) + 0.5) / 400


def untypical(job: Job) -> tuple[str, ...]:
    """Return the columns without a typical range or share, by which records are then not weighed.

    All columns count, also those that no analysis uses: a site weighs its records once for all.
    """
    columns = job.columns.items()
    return tuple(n for n, c in columns if not isinstance(c, Categorical) and c.typical is None)


def reach(job: Job) -> float | None:
    """Return k of (3); None if records are relative to bounds."""
    privacy = job.privacy
    if (
        privacy.placement is Placement.NONE
        or privacy.record_norm is not None
        or all(isinstance(column, Categorical) for column in job.columns.values())
        or untypical(job)
    ):
        return None
    reads = facts_of(make_method(job.method)).reads
    once = privacy.placement is not Placement.ROUND
    if not (isinstance(reads, MomentsOnly) and (once or reads.released)):
        return None
    assert privacy.epsilon is not None and privacy.delta is not None
    moved = privacy.records_per_person
    mu = gaussian_mu(privacy.epsilon, privacy.delta) * math.sqrt(1 - privacy.count_share) / moved
    if privacy.adjacency is Adjacency.REPLACE or (privacy.person and not privacy.person_pinned):
        mu /= math.sqrt(2)
    sites = job.release.min_sites or 1
    records = float(max(privacy.expected_records or 0, sites * (job.release.min_records or 1)))
    if privacy.placement is Placement.SITE:  # each site has noise of its own
        records /= math.sqrt(sites)
    size = sum(
        len(column.levels) - 1 if isinstance(column, Categorical) else 1
        for column in job.columns.values()
    )
    S = math.sqrt(2) * records * mu
    k = max(math.sqrt(math.sqrt(_BIAS * S / size)), _of_normal(S, size))
    return math.floor(_STEPS * min(max(k, _SHORTEST), _LONGEST)) / _STEPS


@lru_cache
def _of_normal(S: float, variables: int) -> float:
    """Return the k for which noise and bias of a slope of normal records are least."""
    lengths = 2 * gammaincinv(variables / 2, _QUANTILES)  # of chi^2
    slope = math.sqrt(_EXPLAINED / max(variables - 1, 1))

    def error(k: float) -> float:
        squared_norm = k**2 * (variables + CONSTANT**2)
        w = np.minimum(1.0, squared_norm / (lengths + CONSTANT**2))
        share = 2 / squared_norm * np.sum(w**2 * lengths * (w < 1)) / np.sum(w * lengths)
        bias = _HEAVIER * slope * (1 - _EXPLAINED) * share
        return math.hypot(squared_norm / S, bias)

    return float(min(np.arange(_STEPS * _SHORTEST, _STEPS * _LONGEST + 1) / _STEPS, key=error))


def limit(k: float, variables: int) -> tuple[float, float]:
    """Return R^2 of (2), and the constant in z."""
    return (k / _SPREADS) ** 2 * (variables + CONSTANT**2), CONSTANT / _SPREADS


def relative(variable: Variable) -> Variable:
    """Return the variable (1)."""
    spread, half = variable.typical_spread, variable.half_range
    unit = half * spread
    if variable.indicator:
        unit = max(unit, LEAST_SPREAD_OF_LEVEL)
    return replace(
        variable,
        midpoint=variable.midpoint + half * variable.typical_centre,
        half_range=_SPREADS * unit,
        typical_centre=0.0,
        typical_spread=half * spread / (_SPREADS * unit),
        relative=True,
        farthest=half * (variable.max_abs + abs(variable.typical_centre)) / (_SPREADS * unit),
    )
