"""How a method's settings name variables: by column, or by one indicator of a column."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from secagg.contracts import Outcome, PublicFacts
from secagg.core.validation import did_you_mean
from secagg.errors import JobError


def choose(
    public: PublicFacts, names: Sequence[str] | None, where: str, other_than: str | None = None
) -> NDArray[np.int64]:
    """Return the positions of the named variables, in the order of the names; of all, if None.

    A name is a column (all its indicators, if it is categorical) or one variable `column=level`.
    Raises `JobError` for an unknown or repeated name, no name, or a name of `other_than`.
    """
    if names is None:
        return np.arange(len(public.variables))
    positions = public.positions
    excluded = set() if other_than is None else set(positions.get(other_than, ()))
    if not names:
        raise JobError(where, "is empty", f"Columns are {', '.join(public.columns)}.")
    chosen: dict[int, None] = {}  # a set that keeps the order
    for name in names:
        matches = positions.get(name, ())
        if not matches:
            known = {*public.columns, *(v.name for v in public.variables)}
            advice = f"{did_you_mean(name, known)} Columns are {', '.join(public.columns)}.".strip()
            raise JobError(where, f"no column {name!r}", advice)
        if not chosen.keys().isdisjoint(matches):
            raise JobError(where, f"{name!r} is named twice", "Name it once.")
        if not excluded.isdisjoint(matches):
            raise JobError(where, f"the outcome {name!r} is also a predictor", "Leave it out.")
        chosen |= dict.fromkeys(matches)
    return np.array(list(chosen), dtype=np.int64)


def halves(public: PublicFacts, chosen: NDArray[np.int64]) -> NDArray[np.float64]:
    """Return half the width of the public bounds of the variables at those positions."""
    return np.array([public.variables[i].half_range for i in chosen])


def outcome_index(
    public: PublicFacts, name: str, kind: Outcome = Outcome.BINARY, *, log: bool = True
) -> int:
    """Return the position of an outcome. Raises `JobError` if it is not of this kind.

    log: whether the column may be declared with transform = "log"
    """
    matches = choose(public, [name], "method.outcome")
    variable = public.variables[matches[0]]
    fits = {
        Outcome.NUMBER: not variable.indicator,
        Outcome.BINARY: variable.indicator,
        Outcome.COUNT: variable.count,
    }
    if len(matches) != 1 or not fits[kind]:
        what = f"column {name!r} is not {kind.value if kind is not Outcome.COUNT else 'a count'}"
        advice = f'Declare it with type = "{kind.value}".'
        if kind is Outcome.BINARY and not variable.indicator:
            advice = "Name a binary column, or use a linear regression."
        raise JobError("method.outcome", what, advice)
    if variable.log and not log:
        what = f'column {name!r} is declared with transform = "log"'
        raise JobError(
            "method.outcome", what, "Leave the transform out: this family has a log link."
        )
    return int(matches[0])
