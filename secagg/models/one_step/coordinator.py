"""The coordinator's rounds: what it asks, and what it makes of the noisy sums."""

from __future__ import annotations

import math

import numpy as np

from secagg.contracts import Body, Outcome, PublicFacts, State, Update
from secagg.contracts.noise import Placement
from secagg.core.arrays import Array, square
from secagg.models.common.pooled_moments import constant_column_error
from secagg.models.common.site_confounding import HIDDEN
from secagg.models.glm.newton import newton_direction
from secagg.models.one_step.columns import (
    CENTRES,
    FAMILIES,
    FIRST_SCORES,
    LENGTHS,
    MOMENTS,
    SCORES,
    Columns,
)
from secagg.models.one_step.estimate import (
    Centres,
    Estimate,
    First,
    Scores,
    combined,
    least_squares,
    moments_map,
    shrunk,
    standardising,
    step,
    transform,
    without_doubt,
)
from secagg.models.one_step.limits import Limits, longer
from secagg.models.one_step.releases import scores_weights
from secagg.models.one_step.starts import curvature, from_means, intercept

_LARGEST_VARIANCE = 50.0
_SLOPE, _INTERCEPT, _LEVEL = 1.0, 0.5, 10.0
"""Standard deviations of coefficients of standardised columns a priori, for the first estimate. In
linear regression, the first sum has centred all columns."""
_BIAS_OF_START, _BIAS_OF_STEP = 0.3, 0.1
"""d of `estimate.step`: of the start of other families, and of an estimate after a step."""
_SEEN, _FEW_CASES = 3.0, 10
"""Cases of the rarer outcome are too few to be told from the noise, or altogether."""
_CONSTANT = 1e-7  # the grid has steps of 2^-16
_LEAST_MEAN = 0.001  # and at least as large as its noise


def first_state(columns: Columns, public: PublicFacts) -> State:
    outcome = columns.variables[-1]
    return {
        "stage": CENTRES,
        "family": columns.family.name,
        "order": [*columns.budgets, ""],
        "names": list(columns.names),
        "outcome": outcome.name,
        "own_centres": columns.own_centres,
        "centre": columns.centre,
        "spread": columns.spread,
        "said": columns.said,
        "sds": {name: _deviations(public, name) for name in columns.budgets},
        "zero": outcome.midpoint,
        "half": outcome.half_range,
        "guess": outcome.typical_centre,
    }


def next_message(state: State) -> tuple[str, Body] | None:
    stage = state["stage"]
    if stage in ("", CENTRES):
        return (stage, {}) if stage else None
    if stage == MOMENTS:
        reach = Limits(state["record"], state["residual"]).moments
        return stage, {"T": moments_map(state["centre"], state["spread"], reach)}
    Z = standardising(state["centre"][:-1], state["spread"][:-1])
    T = np.ascontiguousarray(transform(_curvature(state), state["record"]) @ Z)
    if not FAMILIES[state["family"]].linear:
        scores: Body = {"T": T, "b": Z.T @ state["b"], "h": state["h"]}
        if not state["own_centres"]:
            return stage, scores
        along = np.asarray(state["spread"][:-1] * (_scatter(state) @ state["b"][1:]))
        variance = min(predictor_variance(state), _LARGEST_VARIANCE)
        return stage, scores | {"along": along, "variance": variance}
    scale = float(state["spread"][-1])
    b = scale * (Z.T @ state["b"])
    b[0] += state["centre"][-1]
    return stage, {"T": T, "b": b, "h": state["h"] * scale}


def following(state: State, total: Update, sites: int) -> State:
    """Return the state after a sum."""
    stage, order = state["stage"], state["order"]
    sd = state["sds"][stage][sites]
    state = {**state, "sites": sites, "stage": order[order.index(stage) + 1]}
    roots = np.sqrt(scores_weights())
    if stage == CENTRES:
        following_scores = next(name for name in order if name in (FIRST_SCORES, SCORES))
        return _after_centres(state, total, sd, _of_g(state, following_scores))
    if stage == MOMENTS:
        found, more = _after_moments(state, total, sd)
        state |= more
    elif stage == LENGTHS:
        f = longer(total["lengths"], sd, len(state["centre"]), _of_g(state, SCORES))
        record, h = (math.sqrt(f) * state[name] for name in ("record", "h"))
        return {**state, "record": record, "h": h, "longer": f}
    else:
        found = _stepped(state, total, (sd * roots[0], sd * roots[1], sd * roots[2]))
        state["bias"] = _BIAS_OF_STEP
        if state["stage"] == LENGTHS:
            state |= _limits(state, _of_g(state, SCORES))
        elif "doubt" in state and not state["stage"]:
            knowing = max(sites - state[HIDDEN], 1)
            V = square(state["doubt"], len(found.b))
            found = without_doubt(found, state["S"], V, knowing)
    return {**state, "b": found.b, "noise": found.noise, "sampling": found.sampling}


def _of_g(state: State, stage: str) -> float:
    """Return the standard deviation of the noise of a number of g in a sum of scores."""
    return math.sqrt(scores_weights()[0]) * float(state["sds"][stage][state["sites"]])


def _limits(state: State, of_g: float) -> State:
    linear = FAMILIES[state["family"]].linear
    limits = Limits.of(len(state["centre"]), state["records"], of_g, linear=linear)
    found: State = {"record": limits.record, "residual": limits.residual}
    if "residual_variance" in state:
        found["h"] = limits.residual * math.sqrt(state["residual_variance"])
    return found


def _curvature(state: State) -> Array:
    """Return what J is in proportion to."""
    family, b = FAMILIES[state["family"]], state["b"]
    if family.linear:
        return np.asarray(state["S"])
    if state["own_centres"]:  # levels of sites are about that of all records
        level = intercept(family, math.sqrt(predictor_variance(state)), state["mean"])
        b = np.array([level, *b[1:]])
    return curvature(family, state["S"], b)


def _stepped(state: State, total: Update, sds: tuple[float, float, float]) -> Estimate:
    expected, records = _curvature(state), state["records"]
    T = transform(expected, state["record"])
    sums = Scores(
        dict(total), sds, T, state["h"], state["residual_variance"], records * T @ expected @ T.T,
        records * state["S_sd"] * float(expected[0, 0]),
    )  # fmt: skip
    size = len(state["b"])
    before = Estimate(state["b"], np.zeros((size, size)), state["noise"])
    made = step(sums, before, state["bias"], state["S"])
    return combined(before, made, state["bias"])


def predictor_variance(state: State) -> float:
    """Return the variance of the linear predictor."""
    slopes = state["b"][1:]
    return max(float(slopes @ _scatter(state) @ slopes), 0.0)


def _scatter(state: State) -> Array:
    S = state["S"]
    return np.asarray(S[1:, 1:] - np.outer(S[0, 1:], S[0, 1:]))


def _after_centres(state: State, total: Update, sd: float, of_g: float) -> State:
    guess, spread = state["centre"], state["spread"]
    first = Centres(guess, spread, state["own_centres"])
    centre, records = first.found(total["centres"], sd)
    more = {"records": records, **_limits(state | {"records": records}, of_g)}
    mean = state["zero"] + state["half"] * float(centre[-1])
    if state["own_centres"]:
        centre = np.zeros(len(centre))
        more["doubt"] = total["doubt"] / records
        more[HIDDEN] = round(float(total[HIDDEN][0]))
    return {**state, **more, "centre": centre, "mean": mean}


def _after_moments(state: State, total: Update, sd: float) -> tuple[Estimate, State]:
    size, family = len(state["centre"]), FAMILIES[state["family"]]
    if not sd:
        S = square(total["products"], size + 1)
        newton_direction(S[:-1, -1], S[:-1, :-1], state["names"])  # or an error names the columns
        mean, square_mean = S[0, -1] / S[0, 0], S[-1, -1] / S[0, 0]
        if square_mean - mean**2 <= _CONSTANT * square_mean:
            raise constant_column_error(state["outcome"])
    reach = Limits(state["record"], state["residual"]).moments
    first = least_squares(total["products"], sd, size + 1, reach)
    more: State = {"S": first.S, "S_sd": first.S_sd, "narrow": first.narrow(state["said"])}
    found, H, prior = first.estimate, first.H, np.full(size, _SLOPE)
    if family.linear:
        prior[0] = _INTERCEPT
        more |= {"residual_variance": first.residual**2, "bias": first.bias}
    else:
        unit = state["half"] * float(state["spread"][-1])
        more["mean"], sd_mean = _mean(state, first, unit)
        found = from_means(family, first, more["mean"], sd_mean, unit)
        rarer = more["mean"] if family.outcome is Outcome.COUNT else _rarer(more["mean"])
        more["rare"] = rarer <= max(_SEEN * sd_mean, _FEW_CASES / state["records"])
        weight = float(curvature(family, first.S, found.b)[0, 0])
        if state["own_centres"]:  # each site adds its own
            found.b[0] = -float(found.b[1:] @ first.S[0, 1:])
        H, prior[0] = np.eye(size), _LEVEL
        variance = max((unit * first.residual) ** 2 / weight, 1.0)
        if family.outcome is Outcome.BINARY:
            variance = 1.0
        more |= {"bias": _BIAS_OF_START, "residual_variance": variance}
        more["h"] = state["residual"] * math.sqrt(variance)
    if sd:
        found, more["bias"] = shrunk(found, prior, float(more["bias"]), H), 0.0
    if family.linear:  # residuals at the estimate from which the step is made
        more["h"] = state["residual"] * first.residual_at(found.b)
    return found, more


def _rarer(share: float) -> float:
    return min(share, 1 - share)


def _mean(state: State, first: First, unit: float) -> tuple[float, float]:
    """Return the outcome's mean and the standard deviation of its noise.

    unit: of the standardised outcome
    """
    away = float(first.estimate.b @ first.S[0])
    mean = float(state["mean"] + unit * away)
    sd = unit * first.S_sd * math.hypot(1.0, away)
    binary = FAMILIES[state["family"]].outcome is Outcome.BINARY
    low, high = min(max(sd, _LEAST_MEAN), 0.5), 1.0 if binary else math.inf
    return min(max(mean, low), high - low), sd


def _deviations(public: PublicFacts, stage: str) -> list[float]:
    """Return by number of sites the standard deviation of a number of weight 1 in a sum."""
    noise = public.noise.get(stage)
    if noise is None:
        return [0.0] * (1 + len(public.sites))
    least = 1 if noise.placement is Placement.SITE else noise.colluding + 1
    counts = (max(n, least) for n in range(1 + len(public.sites)))
    return [math.sqrt(noise.sum_variance(n, noise.site_variance(n))) for n in counts]
