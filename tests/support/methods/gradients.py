"""Rounds of `Gradient`: public facts, one site's integers, and the loop over all rounds."""

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray
from support.methods.playing import rows_of

from secagg.contracts import PublicFacts, RecordCount, Result, Stage, Variable
from secagg.contracts.noise import Clip, Noise
from secagg.core import ring
from secagg.core.randomness import system_random
from secagg.models.glm.gradient_descent import STAGE, Gradient
from secagg.sessions.fixed_point import decode, encode
from secagg.sessions.sum_plan import plan_sum

Array = NDArray[np.float64]

GRID = 16
FAMILIES = ("gaussian", "binomial")


def public_of(
    p: int, clip: float | None = None, noise: Noise | None = None, **changed: Any
) -> PublicFacts:
    """Predictors x0.. with middle 10 j and half-width 2 + j, then a binary outcome y."""
    variables = tuple(Variable(f"x{j}", f"x{j}", 10.0 * j, 2.0 + j) for j in range(p))
    facts: dict[str, Any] = {
        "variables": (*variables, Variable("y", "y", 0.5, 0.5, indicator=True)),
        "columns": (*(v.name for v in variables), "y"),
        "max_rows": 2000,
        "sites": ("a", "b", "c"),
        "clip": None if clip is None else Clip(clip, GRID),
        "noise": {} if noise is None else {STAGE: noise},
    }
    return PublicFacts(**facts | changed)


def method_of(p: int, family: Any = "gaussian", **settings: Any) -> Gradient:
    return Gradient("y", tuple(f"x{j}" for j in range(p)), family, **settings)


def stage_of(method: Gradient, public: PublicFacts) -> Stage:
    (stage,) = method.stages(public)
    return stage


def contribution(method: Gradient, public: PublicFacts, values: Array, beta: Array) -> list[int]:
    """Return the integers that a site would send, noise aside, after the codec."""
    update, _ = method.contribute(STAGE, rows_of(values), {"beta": beta}, {}, public, system_random)
    plan = plan_sum(stage_of(method, public).spec, len(public.sites))
    vector = encode(plan, update)
    *sent, clipped_gradient, clipped_size = ring.to_integers(vector)
    assert clipped_gradient == clipped_size == 0  # the declared bounds hold
    return sent


def fit(
    method: Gradient,
    public: PublicFacts,
    parts: Sequence[Array],
    draw: Callable[[tuple[int, ...]], Array] | None = None,
) -> Result:
    """Run all rounds over the sites' records; `draw(shape)` is added to each decoded sum."""
    spec = stage_of(method, public).spec
    plan = plan_sum(spec, len(parts))
    state = method.initial_state(public)
    while (asked := method.next_request(state)) is not None:
        stage, message = asked
        vectors = []
        for part in parts:
            update, memory = method.contribute(
                stage, rows_of(part), message, {}, public, system_random
            )
            assert memory == {}
            vectors.append(encode(plan, update))
        ring.add_in_place(vectors[0], vectors[1:])
        total, clipped = decode(plan, vectors[0])
        assert not clipped.any()
        if draw is not None:
            total = {name: values + draw(values.shape) for name, values in total.items()}
        state = method.aggregate(state, total, len(parts))
    return method.result(state, public, RecordCount(sum(map(len, parts)), 0.0))
