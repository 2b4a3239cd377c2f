"""Means, standard deviations and probabilities of columns given others, from a fitted model.

If all neighbours of a target are given, its network's output is the answer, without error. Else the
columns that are not given are drawn (`secagg.models.neural.ngm.fitted.sampling`), and the answer
averages the target's conditional moments over draws of its neighbours (Rao and Blackwell; Gelfand
and Smith, JASA 1990), which has a smaller error than averaging draws of the target itself:

    mean = E m1,   sd^2 = E m2 - mean^2,   m1, m2: conditional means of the value and its square
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from secagg.core.arrays import Array
from secagg.models.common.posterior_summary import summarise
from secagg.models.neural.ngm.fitted.conditionals import Conditional
from secagg.models.neural.ngm.fitted.sampling import Effort, start, sweep, unknown_for

_MAX_STATES = 20_000
"""Number of states that advance together when many records are predicted; bounds the memory."""


@dataclass(frozen=True, eq=False)
class Answer:
    """What the model says of one column; arrays have one entry for each record.

    mean, sd: of a continuous column, in its own unit, with Monte Carlo standard errors
    probabilities: of a column with levels, shape (records, levels), with errors
    r_hat, ess: the worst of the quantities shown, if a single record was asked for by `query` and
        its neighbours were drawn; else None
    outputs: of the network, for the drawn neighbours; shape (variables of the column, draws)
    """

    number: int
    mean: Array | None = None
    mean_error: Array | None = None
    sd: Array | None = None
    sd_error: Array | None = None
    probabilities: Array | None = None
    probabilities_error: Array | None = None
    r_hat: float | None = None
    ess: float | None = None
    outputs: Array | None = None


def query(
    conditionals: Sequence[Conditional],
    given: Array,
    targets: Sequence[int],
    effort: Effort,
    rng: np.random.Generator,
    shifted: Mapping[int, Array] | None = None,
) -> list[Answer]:
    """Return the answers for one record.

    conditionals: of all columns, in order
    shifted: as for `secagg.models.neural.ngm.fitted.sampling.sweep`
    given: the known values, shape (columns,); NaN for all others, also for the targets
    """
    model, known = conditionals[0].model, ~np.isnan(given)
    answers = {}
    drawn = [t for t in targets if not np.all(known[model.graph[t]])]
    for target in set(targets) - set(drawn):
        exact = model.states_of(given[None])
        outputs = conditionals[target].outputs(exact)
        answers[target] = _answer(conditionals[target], outputs[:, None, :])
    if drawn:
        columns = unknown_for(model, known, drawn)
        series: dict[int, list[Array]] = {t: [] for t in drawn}
        rows = np.repeat(given[None], effort.chains, axis=0)
        chosen = [conditionals[c] for c in columns]
        for outputs_of in _sweeps(chosen, rows, effort, rng, shifted=shifted):
            for target in drawn:
                series[target].append(outputs_of[target])
        for target, found in series.items():
            answers[target] = _answer(conditionals[target], np.stack(found, axis=1))
    return [answers[t] for t in targets]


def _sweeps(
    conditionals: Sequence[Conditional],
    values: Array,
    effort: Effort,
    rng: np.random.Generator,
    free: Mapping[int, NDArray[np.bool_]] | None = None,
    shifted: Mapping[int, Array] | None = None,
) -> Iterator[dict[int, Array]]:
    """Yield the outputs of every sweep after the warm-up."""
    states = conditionals[0].model.states_of(values)
    start(conditionals, states, rng, free)
    for number in range(effort.warm_up + effort.sweeps):
        outputs = sweep(conditionals, states, rng, free, shifted)
        if number >= effort.warm_up:
            yield outputs


def _answer(conditional: Conditional, outputs: Array) -> Answer:
    """Return the answer from outputs of shape (variables of the column, draws, chains)."""
    shape, flat = outputs.shape[1:], outputs.reshape(len(outputs), -1)
    if conditional.levels:
        shares = np.exp(conditional.log_probabilities(flat)).T.reshape(*shape, -1)
        mean, error, r_hat, ess = _averaged(shares)
        return Answer(
            conditional.number, probabilities=mean[None], probabilities_error=error[None],
            r_hat=r_hat, ess=ess, outputs=flat,
        )  # fmt: skip
    first, second = (moment.reshape(shape) for moment in conditional.moments(flat))
    average = first.mean()
    # To first order, the error of the variance E m2 - (E m1)^2 is that of this average.
    (mean, spread), (mean_error, spread_error), r_hat, ess = _averaged(
        np.stack([first, (second - average**2) - 2 * average * (first - average)], axis=-1)
    )
    sd = np.sqrt(max(spread, 0.0))
    sd_error = spread_error / (2 * sd) if sd > 0 else 0.0
    return Answer(
        conditional.number, np.array([mean]), np.array([mean_error]), np.array([sd]),
        np.array([sd_error]), r_hat=r_hat, ess=ess, outputs=flat,
    )  # fmt: skip


def _averaged(series: Array) -> tuple[Array, Array, float | None, float | None]:
    """Return means of series (draws, chains, k), their errors, the largest R-hat, smallest ESS."""
    if series.shape[:2] == (1, 1):
        return series[0, 0], np.zeros(series.shape[2]), None, None
    found = summarise(series)
    r_hat, ess = np.nanmax(found.r_hat, initial=1.0), np.nanmin(found.ess_bulk, initial=np.inf)
    return found.mean, found.mcse_mean, float(r_hat), float(min(ess, series[..., 0].size))


def predict(
    conditionals: Sequence[Conditional],
    values: Array,
    targets: Sequence[int],
    effort: Effort,
    rng: np.random.Generator,
) -> list[Answer]:
    """Return the answers for many records, each given its own known values.

    values: shape (records, columns); NaN if unknown. The targets' own values are not used.
    Errors are those between chains, which are independent.
    """
    values = values.copy()
    values[:, list(targets)] = np.nan
    model, known = conditionals[0].model, ~np.isnan(values)
    around = model.graph[list(targets)].any(axis=0)
    exact = np.all(known[:, around], axis=1)
    moments = {t: np.zeros((2, len(values), max(model.levels[t], 2))) for t in targets}
    if np.any(exact):
        states = model.states_of(values[exact])
        for t in targets:
            moments[t][0, exact] = moments_of(conditionals[t], conditionals[t].outputs(states))
    rest = np.flatnonzero(~exact)
    size = max(_MAX_STATES // effort.chains, 1)
    for begin in range(0, len(rest), size):
        rows = rest[begin : begin + size]
        for t, found in _integrated(conditionals, values[rows], targets, effort, rng).items():
            moments[t][:, rows] = found
    return [_of_moments(conditionals[t], *moments[t]) for t in targets]


def _integrated(
    conditionals: Sequence[Conditional],
    values: Array,
    targets: Sequence[int],
    effort: Effort,
    rng: np.random.Generator,
) -> dict[int, Array]:
    """Return for each target the averages and errors of its moments, (2, records, moments)."""
    known = ~np.isnan(values)
    columns = unknown_for(conditionals[0].model, np.all(known, axis=0), targets)
    repeated = np.repeat(values, effort.chains, axis=0)
    free = {int(c): np.isnan(repeated[:, c]) for c in columns}
    sums: dict[int, Array] = dict.fromkeys(targets, np.zeros(()))
    for outputs in _sweeps([conditionals[c] for c in columns], repeated, effort, rng, free):
        for t in targets:
            sums[t] = sums[t] + moments_of(conditionals[t], outputs[t])
    found = {}
    for t in targets:
        of_chains = sums[t].reshape(len(values), effort.chains, -1) / effort.sweeps
        mean = of_chains.mean(axis=1)
        if not conditionals[t].levels:  # the second is the error of the variance, as in `_answer`
            of_chains[..., 1] -= 2 * mean[:, None, 0] * of_chains[..., 0]
        error = of_chains.std(axis=1, ddof=1) / np.sqrt(effort.chains)
        found[t] = np.stack([mean, error])
    return found


def moments_of(conditional: Conditional, outputs: Array) -> Array:
    """Return the mean and mean square, or the probabilities; shape (states, moments)."""
    if conditional.levels:
        return np.exp(conditional.log_probabilities(outputs)).T
    return np.stack(conditional.moments(outputs), axis=1)


def _of_moments(conditional: Conditional, averages: Array, errors: Array) -> Answer:
    if conditional.levels:
        return Answer(conditional.number, probabilities=averages, probabilities_error=errors)
    mean = averages[:, 0]
    sd = np.sqrt(np.maximum(averages[:, 1] - mean**2, 0.0))
    sd_error = np.where(sd > 0, errors[:, 1] / (2 * np.where(sd > 0, sd, 1.0)), 0.0)
    return Answer(conditional.number, mean, errors[:, 0], sd, sd_error)
