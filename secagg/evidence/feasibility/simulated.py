"""The error of a regression under noise, predicted by running it on simulated records.

Before data is read, records are simulated from what the job says of its columns: typical ranges
and shares, and the assumptions of `secagg.privacy.expected_error` (equal correlations, equal
slopes, the explained share). The method's own functions run on them twice, with noise of the
planned variance and without. Nothing else is simulated: no protocol, no encoding, no grid of the
noise, whose effects are far smaller.

The error is the root mean square difference of the slopes, in standard deviations of the columns,
over runs and slopes, divided by the root mean square slope. So it is relative to the coefficients
without noise, as that of `secagg.privacy.expected_error`, and the same limits apply. Random numbers
have a fixed seed: the same job gives the same figure (rounded to two digits), which `verify`
computes again. Its Monte Carlo error is about a tenth of it.

Not covered: columns whose values are skewed or whose effects are not linear; wrong guesses, but for
`error_if_narrow`.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np

from secagg.contracts import (
    FisherLaw,
    Outcome,
    PublicFacts,
    RecordCount,
    Regression,
    Result,
    SiteRecords,
    State,
    Update,
)
from secagg.contracts.noise import Noise
from secagg.core.arrays import Array
from secagg.privacy.accounting.gaussian_dp import gaussian_epsilon, gaussian_mu
from secagg.privacy.expected_error import (
    GREEN_ERROR,
    MAX_EPSILON,
    USABLE_ERROR,
    Assumptions,
    Verdict,
    percent,
    two_digits,
)
from secagg.sessions.planned_job import Planned
from secagg.sessions.rounds import COHORT

_RUNS = 6
_MOST_NUMBERS = 1_000_000  # records times the square of the number of columns
_WIDEST = 64.0
_LEAST_RECORDS = 20
_SEARCH = 7  # halvings of the logarithm of the noise's factor
_SEED = 20


def simulated_feasibility(planned: Planned, records: int) -> dict[str, Any]:
    """Return the verdict, as `secagg.privacy.expected_error.Feasibility.to_dict`, and `widened`.

    records: the public guess of their number; widened: intervals' length relative to that without
    noise
    """
    error, widened = _error(planned, records)
    narrow, _ = _error(planned, records, spread=0.5)
    epsilon = planned.job.privacy.epsilon
    delta = planned.job.privacy.delta
    assert epsilon is not None and delta is not None
    low, high = 1 / _WIDEST, _WIDEST  # factors of the noise
    for _ in range(_SEARCH):
        middle = math.sqrt(low * high)
        usable = _error(planned, records, noise=middle, runs=2)[0] <= USABLE_ERROR
        low, high = (middle, high) if usable else (low, middle)
    enough = low > 1.01 / _WIDEST  # otherwise no factor that was tried is
    least_epsilon = gaussian_epsilon(gaussian_mu(epsilon, delta) / low, delta) if enough else None
    least_records = math.ceil(max(records, _LEAST_RECORDS) / low) if enough else None
    verdict = Verdict.RED
    if error <= USABLE_ERROR:
        verdict = Verdict.GREEN if error <= GREEN_ERROR else Verdict.AMBER
    words = f"{verdict.value}: expected coefficient error "
    words += f"{percent(error) if error <= 1 else 'above 100 %'} (relative to the coefficients "
    words += f"without noise), intervals {max(widened, 1.0):.1f} times as long as without noise; "
    if least_epsilon is None or least_records is None or least_epsilon > MAX_EPSILON:
        words += "not usable at any epsilon: it needs more records"
    else:
        words += f"at most {percent(USABLE_ERROR)} needs epsilon {two_digits(least_epsilon)}"
        if verdict is Verdict.RED:
            words += f", or {two_digits(least_records)} records"
    return {
        "verdict": verdict.value, "error": error, "error_if_narrow": narrow, "left": None,
        "ratio": None, "least_epsilon": least_epsilon, "least_records": least_records,
        "least_rounds": None, "words": words, "widened": widened,
    }  # fmt: skip


def _error(
    planned: Planned, records: int, *, spread: float = 1.0, noise: float = 1.0, runs: int = 0
) -> tuple[float, float]:
    """Return the relative error of the slopes, and how much longer intervals are.

    spread: factor of the columns' true standard deviations; noise: of that of all noise
    """
    rng = np.random.default_rng(_SEED)
    public, regression = planned.public, planned.facts.regression
    assert regression is not None
    most = _MOST_NUMBERS // len(public.variables) ** 2
    chosen = min(max(records, _LEAST_RECORDS), max(most, _LEAST_RECORDS))
    noise *= min(1.0, chosen / records)  # fewer records with as much less noise
    noised = replace(public, noise={s: _times(n, noise) for s, n in public.noise.items()})
    exact = replace(public, noise={})
    squares, sizes, lengths = [], [], []
    for _ in range(runs or _RUNS):
        sites = _records(planned, regression, chosen, spread, rng)
        with_noise, without = (
            _slopes(public, run_on(planned, p, sites, rng)) for p in (noised, exact)
        )
        squares.append((with_noise[0] - without[0]) ** 2)
        sizes.append(without[0] ** 2)
        lengths.append(np.median(with_noise[1] / without[1]))
    error = math.sqrt(float(np.mean(squares)) / float(np.mean(sizes)))
    return float(f"{error:.2g}"), float(f"{np.mean(lengths):.2g}")


def _times(noise: Noise, factor: float) -> Noise:
    return replace(noise, variance=max(1, round(noise.variance * factor**2)))


def _records(
    planned: Planned, regression: Regression, count: int, spread: float, rng: np.random.Generator
) -> list[SiteRecords]:
    """Return simulated records, scaled; of one site, or of all if sites train alone."""
    assumed, public = Assumptions(count, 1, 1, 1.0), planned.public
    shared = rng.normal(size=(count, 1))
    rho = assumed.correlation
    latent = math.sqrt(rho) * shared + math.sqrt(1 - rho) * rng.normal(
        size=(count, len(public.variables))
    )
    values = np.column_stack([
        _column(public, j, latent[:, j], spread) for j in range(len(public.variables))
    ])  # fmt: skip
    outcome = public.positions[planned.method.outcome][0]  # type: ignore[attr-defined]
    exposure = getattr(planned.method, "exposure", None)
    apart = {outcome, *(public.positions[exposure] if exposure else ())}
    others = [j for j in range(len(public.variables)) if j not in apart]
    predictor = latent[:, others].sum(axis=1)
    predictor /= predictor.std()
    law = regression.family.fisher or FisherLaw()
    variable = public.variables[outcome]
    if regression.family.linear:
        mixed = math.sqrt(assumed.explained) * predictor
        mixed += math.sqrt(1 - assumed.explained) * rng.normal(size=count)
        values[:, outcome] = _column(public, outcome, mixed, spread)
    elif regression.family.outcome is Outcome.COUNT:
        mean = max(variable.midpoint + variable.half_range * variable.typical_centre, 1e-3)
        # of log means, so that they explain this share of the counts' variance
        signal = min(assumed.explained / (1 - assumed.explained) / mean, 1.0)
        eta = math.log(mean) - signal / 2 + math.sqrt(signal) * predictor
        counts = rng.poisson(regression.family.mean(eta))
        values[:, outcome] = np.clip((counts - variable.midpoint) / variable.half_range, -1, 1)
    else:
        share = 0.5 + variable.half_range * variable.typical_centre
        eta = (
            math.log(share / (1 - share))
            + math.sqrt(law.signal(assumed.explained, assumed.outcome_variance)) * predictor
        )
        ones = rng.random(count) < 1 / (1 + np.exp(-eta))
        values[:, outcome] = (ones - variable.midpoint) / variable.half_range
    alone = any(stage.training for stage in planned.plans.stages.values())
    parts = np.array_split(values, len(public.sites) if alone else 1)
    return [SiteRecords(part, 0, np.zeros(len(public.columns))) for part in parts]


def _column(public: PublicFacts, j: int, latent: Array, spread: float) -> Array:
    variable = public.variables[j]
    if not variable.indicator:
        found = variable.typical_centre + spread * variable.typical_spread * latent
        return np.asarray(np.clip(found, -1.0, 1.0))
    share = 0.5 + variable.half_range * variable.typical_centre
    ones = latent > np.quantile(latent, 1 - share)
    return np.asarray((ones - variable.midpoint) / variable.half_range)


def run_on(
    planned: Planned, public: PublicFacts, sites: list[SiteRecords], rng: np.random.Generator
) -> Result:
    """Run the method on these sites' records with normal noise in place of the discrete.

    public: the plan's, or with another noise. Sites of which only one is given count as all.
    """
    method, count = planned.method, len(public.sites)
    stages = {stage.name: stage for stage in method.stages(public)}
    memories: list[State] = [{} for _ in sites]
    state = method.initial_state(public)
    while (asked := method.next_request(state)) is not None:
        name, message = asked
        noise, updates = public.noise.get(name), list[Update]()
        alone = stages[name].training is not None and noise is not None
        for i, rows in enumerate(sites):
            ask = method.contribute if not alone or noise is None else _train(planned, noise, rng)
            update, memories[i] = ask(name, rows, message, memories[i], public, rng.bytes)
            updates.append(update)
        total = {field: np.sum([u[field] for u in updates], axis=0) for field in updates[0]}
        if noise is not None and not alone:
            total = _noised(total, noise, count, rng)
        state = method.aggregate(state, total, count)
    records = {"records": np.array([float(sum(len(rows.values) for rows in sites))])}
    counting, variance = public.noise.get(COHORT), 0.0
    if counting is not None:
        records = _noised(records, counting, count, rng)
        variance = counting.sum_variance(count, counting.site_variance(count))
    return method.result(state, public, RecordCount(float(records["records"][0]), variance))


def _slopes(public: PublicFacts, result: Result) -> tuple[Array, Array]:
    """Return slopes and their standard errors, in typical standard deviations of the columns."""
    units = {v.name: v.half_range * v.typical_spread for v in public.variables}
    terms = [term for term in result.summary["terms"] if term["term"] in units]
    scale = np.array([units[term["term"]] for term in terms])
    return (
        scale * np.array([term["estimate"] for term in terms]),
        scale * np.array([term["std_error"] for term in terms]),
    )


def _train(
    planned: Planned, noise: Noise, rng: np.random.Generator
) -> Callable[..., tuple[Update, State]]:
    """Return the training of a site, with noise that is rounded to its grid."""
    train, sd = planned.facts.train, math.sqrt(noise.variance)
    assert train is not None
    return partial(
        train, noise=lambda numbers: np.rint(sd * rng.normal(size=numbers)).astype(np.int64)
    )


def _noised(total: Update, noise: Noise, sites: int, rng: np.random.Generator) -> Update:
    sd = math.sqrt(noise.sum_variance(sites, noise.site_variance(sites)))
    size = sum(value.size for value in total.values())
    draws = sd * np.sqrt(noise.weights or np.ones(size)) * rng.normal(size=size)
    ends = np.cumsum([value.size for value in total.values()])
    parts = np.split(draws, ends[:-1])
    return {field: value + part for (field, value), part in zip(total.items(), parts, strict=True)}
