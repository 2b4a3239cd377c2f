"""Checks of settings that several methods share."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from secagg.contracts import PublicFacts
from secagg.core.arrays import Array
from secagg.errors import JobError, UsageError

_MIN_HALF_WIDTH = 1e-20  # in the column's own units: products of a few of these do not underflow


def check_numbers(
    settings: object, minimums: Mapping[str, float], *, below: float = np.inf
) -> None:
    """Raise `JobError` for a setting below its minimum, not finite, or not below a limit."""
    for name, low in minimums.items():
        try:
            require_number(name, getattr(settings, name), low=low, below=below)
        except UsageError as error:
            raise JobError(f"method.{name}", error.what) from None


def check_halves(half: Array, names: Sequence[str]) -> None:
    """Raise `JobError` for public bounds that are too narrow to compute with."""
    if np.any(half < _MIN_HALF_WIDTH):
        narrow = names[int(np.argmin(half))]
        raise JobError(
            f"columns.{narrow}",
            f"bounds are narrower than {2 * _MIN_HALF_WIDTH:g}",
            "Declare the column in other units.",
        )


def no_record_norm(public: PublicFacts, why: str) -> None:
    """Refuse a limit of records' norms that shortens records without less noise: `JobError`.

    why: the method needs none, as a clause
    """
    assert public.clip is not None
    if public.clip.squared_norm < sum(v.max_abs**2 for v in public.variables) * (1 - 1e-12):
        raise JobError("privacy.record_norm", f"has no use here: {why}", "Remove it.")


def require_number(name: str, value: float, *, low: float, below: float = np.inf) -> None:
    """Raise `UsageError` unless low <= value < below. NaN is refused too.

    low: the smallest normal number if the value must be above 0
    """
    if not low <= value < below:
        lower = "above 0" if 0 < low <= np.finfo(float).tiny else f"at least {low:g}"
        upper = " and finite" if below == np.inf else f" and below {below:g}"
        raise UsageError("analysis", f"{name} is {value}; it must be {lower}{upper}")
