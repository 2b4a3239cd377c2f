"""The coordinator's rounds: what it asks, and what it makes of the noisy sums."""

from __future__ import annotations

import math

import numpy as np

from secagg.contracts import Body, PublicFacts, State, Update
from secagg.contracts.noise import Placement
from secagg.core.arrays import Array
from secagg.models.glm.newton import newton_direction
from secagg.models.one_step.columns import CENTRES, LENGTHS, MOMENTS, SCORES, Columns
from secagg.models.one_step.estimate import (
    Centres,
    Estimate,
    Scores,
    least_squares,
    log_odds,
    moments_map,
    shrunk,
    standardising,
    step,
    transform,
)
from secagg.models.one_step.limits import Limits, binary_limit, longer
from secagg.models.one_step.releases import scores_weights, square

_LARGEST_VARIANCE = 50.0
_SLOPE, _INTERCEPT, _LOG_ODDS = 1.0, 0.5, 10.0
"""Standard deviations of coefficients of standardised columns a priori, for the first estimate. In
linear regression, the first sum has centred all columns."""
_BIAS_OF_START, _BIAS_OF_STEP = 0.3, 0.1
"""d of `estimate.step`: of the start for log odds, and of an estimate after a step."""


def first_state(columns: Columns, public: PublicFacts) -> State:
    outcome = columns.variables[-1]
    return {
        "stage": CENTRES,
        "family": columns.family.name,
        "order": [*columns.budgets, ""],
        "names": list(columns.names),
        "own_centres": columns.own_centres,
        "centre": columns.centre,
        "spread": columns.spread,
        "sds": {name: _deviations(public, name) for name in columns.budgets},
        "zero": outcome.midpoint,
        "half": outcome.half_range,
    }


def next_message(state: State) -> tuple[str, Body] | None:
    stage = state["stage"]
    if stage in ("", CENTRES):
        return (stage, {}) if stage else None
    if stage == MOMENTS:
        reach = Limits(state["record"], state["residual"]).moments
        return stage, {"T": moments_map(state["centre"], state["spread"], reach)}
    Z = standardising(state["centre"][:-1], state["spread"][:-1])
    T = np.ascontiguousarray(transform(state["S"], state["record"]) @ Z)
    if state["family"] == "binomial":
        along = np.asarray(state["spread"][:-1] * (_scatter(state) @ state["b"][1:]))
        variance = min(predictor_variance(state), _LARGEST_VARIANCE)
        return stage, {"T": T, "b": Z.T @ state["b"], "along": along, "variance": variance}
    scale = float(state["spread"][-1])
    b = scale * (Z.T @ state["b"])
    b[0] += state["centre"][-1]
    return stage, {"T": T, "b": b, "h": state["h"] * scale}


def following(state: State, total: Update, sites: int) -> State:
    """Return the state after a sum."""
    stage, family = state["stage"], state["family"]
    order = state["order"]
    sd = state["sds"][stage][sites]
    state = {**state, "sites": sites, "stage": order[order.index(stage) + 1]}
    size, binary = len(state["centre"]), family == "binomial"
    roots = np.sqrt(scores_weights(binary=binary))
    if stage == CENTRES:
        return _after_centres(state, total, sd, float(roots[0]) * state["sds"][SCORES][sites])
    if stage == MOMENTS:
        found, more = _after_moments(state, total, sd)
        state |= more
    elif stage == LENGTHS:
        of_g = float(roots[0]) * state["sds"][SCORES][sites]
        f = longer(total["lengths"], sd, size, of_g)
        return {**state, "record": state["record"] * math.sqrt(f), "h": state["h"] * math.sqrt(f)}
    else:
        T, usual = transform(state["S"], state["record"]), None
        if not binary:
            usual = state["records"] * T @ state["S"] @ T.T
        sums = Scores(
            dict(total), (sd * roots[0], sd * roots[1], sd * roots[2]), T, state["h"],
            state["residual_variance"], usual, state["records"] * state["S_sd"],
        )  # fmt: skip
        before = Estimate(state["b"], np.zeros((size, size)), state["noise"])
        made, joint = step(sums, before, state["bias"], state["S"])
        state["bias"] = _BIAS_OF_STEP
        found = made if state["stage"] else joint
    if binary and state["stage"]:
        of_g = float(roots[0]) * state["sds"][state["stage"]][sites]
        state["record"] = binary_limit(size, state["records"], of_g, state["variance"])
    return {**state, "b": found.b, "noise": found.noise, "sampling": found.sampling}


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
    limits = Limits.of(len(centre), records, of_g)
    more = {"records": records, "record": limits.record, "residual": limits.residual}
    share = state["zero"] + state["half"] * float(centre[-1])
    if state["own_centres"]:
        centre = np.zeros(len(centre))
    elif state["family"] == "binomial":
        centre[-1] = guess[-1]
    return {**state, **more, "centre": centre, "share": share}


def _after_moments(state: State, total: Update, sd: float) -> tuple[Estimate, State]:
    size = len(state["centre"])
    if not sd:
        S = square(total["products"], size + 1)
        newton_direction(S[:-1, -1], S[:-1, :-1], state["names"])  # or an error names the columns
    reach = Limits(state["record"], state["residual"]).moments
    first = least_squares(total["products"], sd, size + 1, reach)
    more: State = {"S": first.S, "S_sd": first.S_sd, "narrow": first.narrow()}
    found, H, prior = first.estimate, first.H, np.full(size, _SLOPE)
    if state["family"] == "binomial":
        unit = state["half"] * float(state["spread"][-1])
        found = log_odds(first, state["share"], unit, centred=state["own_centres"])
        H, prior[0] = np.eye(size), _LOG_ODDS
        more |= {"h": 1.0, "residual_variance": 1.0, "bias": _BIAS_OF_START}
        more["variance"] = (unit * first.residual) ** 2
    else:
        prior[0] = _INTERCEPT
        more |= {"residual_variance": first.residual**2, "bias": first.bias}
    if sd:
        found, more["bias"] = shrunk(found, prior, float(more["bias"]), H), 0.0
    if state["family"] == "gaussian":  # residuals at the estimate from which the step is made
        more["h"] = state["residual"] * first.residual_at(found.b)
    return found, more


def _deviations(public: PublicFacts, stage: str) -> list[float]:
    """Return by number of sites the standard deviation of a number of weight 1 in a sum."""
    noise = public.noise.get(stage)
    if noise is None:
        return [0.0] * (1 + len(public.sites))
    least = 1 if noise.placement is Placement.SITE else noise.colluding + 1
    counts = (max(n, least) for n in range(1 + len(public.sites)))
    return [math.sqrt(noise.sum_variance(n, noise.site_variance(n))) for n in counts]
