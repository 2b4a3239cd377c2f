"""Checks of settings that several methods share."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from secagg.core.arrays import Array
from secagg.errors import JobError, UsageError

_MIN_HALF_WIDTH = 1e-20  # bounds in own units: products of a few such numbers are still numbers


def check_numbers(settings: object, least: Mapping[str, float]) -> None:
    """Raise `JobError` for a setting below its least value, or not finite."""
    for name, low in least.items():
        try:
            require_number(name, getattr(settings, name), low=low)
        except UsageError as error:
            raise JobError(f"method.{name}", error.what) from None


def check_halves(half: Array, names: Sequence[str]) -> None:
    """Raise `JobError` for public bounds that are absurdly narrow."""
    if np.any(half < _MIN_HALF_WIDTH):
        narrow = names[int(np.argmin(half))]
        raise JobError(
            f"columns.{narrow}",
            f"bounds are narrower than {2 * _MIN_HALF_WIDTH:g}",
            "Declare the column in other units.",
        )


def require_number(name: str, value: float, *, low: float, below: float = np.inf) -> None:
    """Raise `UsageError` unless low <= value < below (which also refuses NaN).

    low: the least normal number where 0 itself is refused
    """
    if not low <= value < below:
        least = "above 0" if 0 < low <= np.finfo(float).tiny else f"at least {low:g}"
        limit = " and finite" if below == np.inf else f" and below {below:g}"
        raise UsageError("analysis", f"{name} is {value}; it must be {least}{limit}")
