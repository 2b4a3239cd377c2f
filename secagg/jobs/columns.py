"""The declaration of a column: its kind, public bounds or levels, and guesses of typical values.

Bounds say which values are possible, so that no value has to be looked up in the data. Typical
values say which are likely. They are guesses, too: from earlier studies, never from the records.
With noise, some methods weigh records by them, and `secagg plan` predicts errors from them; no
guarantee depends on them.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from typing import Annotated, Any, Literal

from pydantic import (
    AfterValidator,
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    model_validator,
)

from secagg.core.validation import did_you_mean

_MAX_BOUND = 1e100
_MAX_COUNT = 10**9
_WHOLE_WITH_ZEROS = re.compile(r"[+-]?[0-9]+\.0+")


class Strict(BaseModel):
    """A table without unknown keys."""

    model_config = ConfigDict(extra="forbid", frozen=True)


class Continuous(Strict):
    """A real column. Values outside the public bounds are clipped, and the clipping is counted."""

    type: Literal["continuous"]
    """Says that the column is continuous."""
    low: float = Field(ge=-_MAX_BOUND, le=_MAX_BOUND, allow_inf_nan=False)
    """Public lower bound in the column's own units, before `transform`. Choose it without looking
    at the data."""
    high: float = Field(ge=-_MAX_BOUND, le=_MAX_BOUND, allow_inf_nan=False)
    """Public upper bound, above `low`. The two bounds must differ by enough that double precision
    can represent a million steps between them."""
    transform: Literal["none", "log"] = "none"
    """`"log"` takes the natural logarithm of each value after clipping. `low` must then be
    positive, and results are in log units."""
    typical: tuple[float, float] | None = None
    """With noise: a public guess, in the column's own units, of the range that has the middle two
    thirds of the values: mean less and plus one standard deviation. Methods that weigh records by
    it need no bounds that are close. If it is not set: the middle fifth of the bounds."""
    unit: str = ""
    """The unit that results and reports show. Computations do not use it."""

    @model_validator(mode="after")
    def _ordered(self) -> Continuous:
        if not self.low < self.high:
            raise ValueError(f"low ({self.low:g}) must be below high ({self.high:g})")
        if self.transform == "log" and self.low <= 0:
            raise ValueError(f"low ({self.low:g}) must be positive for transform = 'log'")
        _check_typical(self)
        return self


class Count(Strict):
    """A column of counts: 0, 1, 2 and so on."""

    type: Literal["count"]
    """Says that the column counts something, such as admissions. A cell that is negative or no
    whole number cannot be read."""
    high: int = Field(ge=1, le=_MAX_COUNT)
    """Public upper bound. Choose it without looking at the data: a larger count is replaced by it,
    and the replacement is counted."""
    typical: tuple[float, float] | None = None
    """With noise: a public guess, in the column's own units, of the range that has the middle two
    thirds of the values: mean less and plus one standard deviation. Methods that weigh records by
    it need no bounds that are close. If it is not set: the middle fifth of the bounds."""
    unit: str = ""
    """The unit that results and reports show. Computations do not use it."""

    @model_validator(mode="after")
    def _within(self) -> Count:
        _check_typical(self)
        return self

    @property
    def low(self) -> float:
        """The lower bound."""
        return 0.0

    @property
    def transform(self) -> Literal["none"]:
        """Counts are analysed as they are."""
        return "none"


def _check_typical(column: Continuous | Count) -> None:
    if column.typical is not None:
        low, high = column.typical
        if not low < high:
            raise ValueError(f"typical ({low:g}, {high:g}): the smaller value must come first")
        if not column.low <= low < high <= column.high:
            bounds = f"({column.low:g}, {column.high:g})"
            raise ValueError(
                f"typical ({low:g}, {high:g}) must be within the bounds {bounds}, in the same unit"
            )


Number = Continuous | Count
"""A column of numbers between public bounds. The other columns have levels."""


def without_zeros(text: str) -> str:
    """Return the text of a whole number without decimal zeros ('1.0' as '1'), else the text."""
    return text.partition(".")[0] if _WHOLE_WITH_ZEROS.fullmatch(text) else text


def _check_levels(levels: tuple[str, ...]) -> tuple[str, ...]:
    if len(set(map(without_zeros, levels))) != len(levels):
        raise ValueError("a level occurs twice (1 and 1.0 are the same level)")
    if any(level != level.strip() for level in levels):
        raise ValueError("a level begins or ends with a space; cells are read without such spaces")
    return levels


def _check_two(levels: Any) -> Any:
    if isinstance(levels, list | tuple) and len(levels) != 2:
        raise ValueError(
            f'a binary column has two levels, not {len(levels)}; with more, write "categorical"'
        )
    return levels


def _check_share(typical: Any) -> Any:
    share = isinstance(typical, int | float) and not isinstance(typical, bool)
    if typical is not None and not (share and 0 < typical < 1):
        raise ValueError(
            "must be a share between 0 and 1, such as 0.2: of the records with the second level"
        )
    return typical


class Binary(Strict):
    """A column with two levels; the second one counts as 1."""

    type: Literal["binary"]
    """Says that the column is binary."""
    levels: Annotated[
        tuple[str, str], BeforeValidator(_check_two), AfterValidator(_check_levels)
    ] = ("0", "1")
    """The two values of the column. The second one counts as 1."""
    typical: Annotated[float | None, BeforeValidator(_check_share)] = Field(
        default=None, gt=0, lt=1
    )
    """With noise: a public guess of the share of records with the second level. If it is not set: a
    half."""


class Categorical(Strict):
    """A column with declared levels. The first is the reference; each other is a 0/1 variable."""

    type: Literal["categorical"]
    """Says that the column is categorical."""
    levels: Annotated[tuple[str, ...], AfterValidator(_check_levels)] = Field(min_length=2)
    """The values of the column: at least two, all different. The first is the reference level."""


Column = Annotated[Continuous | Count | Binary | Categorical, Field(discriminator="type")]


def header_faults(header: Sequence[str], needed: Iterable[str]) -> dict[str, str]:
    """Return which needed columns a table's header lacks or repeats, each with what to do.

    The advice is "" if no other name is similar.
    """
    needed = tuple(needed)
    others = [name for name in header if name not in needed]
    faults = dict[str, str]()
    for column in needed:
        count = header.count(column)
        if count == 0:
            faults[f"column {column!r} is missing"] = did_you_mean(column, others)
        elif count > 1:
            faults[f"{count} columns are named {column!r}"] = "Rename all but the right one."
    return faults
