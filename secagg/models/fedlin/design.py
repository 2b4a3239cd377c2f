"""The linear regression that every FedLin method fits: columns, intercept, powers and units.

Yue, Al Kontar and Estrada Gomez (2022), sections 3 to 6: y_k = X_k' theta_k + noise at each site,
with a polynomial of one column in section 6.2. Each column is stored as u = (x - midpoint) /
half_range and analysed as z = (u - centre) scale:

    own units   z = x, whatever the public bounds are (the paper's simulations)
    pooled      centre and scale are the mean and the inverse standard deviation of all records; if
                each site has its own intercept, of the deviations from the sites' means

In a polynomial, the predictor enters as powers of (u + 1) / 2, which is between 0 and 1 over the
public bounds. Then only the outcome is scaled.

intercept   "site": each site subtracts its own means. This integrates out the site's own intercept
            under a flat prior, and no sum contains the sites' means.
            "modelled": a column of ones, whose coefficient has a prior like all other coefficients
            "none": the regression passes through the origin, in own units
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, NamedTuple

import numpy as np
from numpy.typing import NDArray

from secagg.contracts import PublicFacts
from secagg.core.arrays import Array
from secagg.errors import JobError
from secagg.models.common.checks import check_halves
from secagg.models.common.variables import choose

Intercept = Literal["site", "modelled", "none"]
Scale = Literal["pooled", "own"]

INTERCEPT = "intercept"
_MAX_DEGREE = 12  # higher powers of a column in [0, 1] are nearly collinear
_ROUNDING = 4 * float(np.finfo(np.float64).eps)


class Level(NamedTuple):
    """A site's own means of the columns of X (d,) and of y; zeros if it subtracts no means."""

    x: Array
    y: float | Array


@dataclass(frozen=True)
class Layout:
    """The columns of the regression and its terms.

    columns: positions of the outcome, then of the predictors
    half_range, midpoint: of their bounds; largest: |u|, by the bounds
    terms: the coefficients' names
    """

    columns: NDArray[np.int64]
    names: tuple[str, ...]
    half_range: Array
    midpoint: Array
    terms: tuple[str, ...]
    degree: int
    intercept: Intercept
    largest: Array

    @classmethod
    def of(
        cls,
        public: PublicFacts,
        outcome: str,
        predictors: tuple[str, ...] | None,
        intercept: Intercept,
        degree: int,
    ) -> Layout:
        """Return the layout. Raises `JobError` for columns that do not exist or do not fit.

        No predictor may have the name of the intercept: results identify terms by name.
        """
        first = choose(public, [outcome], "method.outcome")
        if len(first) != 1:
            raise JobError("method.outcome", f"{outcome!r} has more than one variable")
        if predictors is None:
            column = public.variables[first[0]].column  # its other indicators determine the outcome
            others = [i for i, v in enumerate(public.variables) if v.column != column]
            rest = np.array(others, dtype=np.int64)
        else:
            rest = choose(public, predictors, "method.predictors", outcome)
        if not len(rest):
            raise JobError("columns", "there is only the outcome", "Declare predictors.")
        chosen = np.concatenate([first, rest])
        variables = [public.variables[i] for i in chosen]
        names = tuple(v.name for v in variables)
        if INTERCEPT in names[1:]:
            raise JobError("columns", f"{INTERCEPT!r} names the intercept", "Rename the column.")
        if not 1 <= degree <= _MAX_DEGREE:
            raise JobError("method.degree", f"must be from 1 to {_MAX_DEGREE}")
        if degree > 1 and len(rest) > 1:
            what = f"is {degree}, and there are {len(rest)} predictors"
            raise JobError("method.degree", what, "A polynomial is of one column.")
        half = np.array([v.half_range for v in variables])
        check_halves(half, names)
        powers = [names[1], *(f"{names[1]}^{k}" for k in range(2, degree + 1))]
        terms = powers if degree > 1 else list(names[1:])
        terms = [INTERCEPT, *terms] if intercept == "modelled" else terms
        middle = np.array([v.midpoint for v in variables])
        largest = np.array([max(v.max_abs, 1.0) for v in variables])
        return cls(chosen, names, half, middle, tuple(terms), degree, intercept, largest)

    @property
    def d(self) -> int:
        """Number of coefficients."""
        return len(self.terms)

    @property
    def own_units(self) -> tuple[Array, Array]:
        """Return centre and scale for which z = x; not used for the column of a polynomial."""
        return -self.midpoint / self.half_range, self.half_range

    @property
    def scaled(self) -> int:
        """Number of columns with a scale: the outcome and, without a polynomial, the predictors."""
        return 1 if self.degree > 1 else len(self.columns)

    def design(self, values: Array, centre: Array, scale: Array) -> tuple[Array, Array]:
        """Return X (n, d) and y (n,) in the units analysed.

        values: the chosen columns as stored, u above, (n, 1 + predictors); centre, scale: of these
        """
        z = (values - centre) * scale
        X = self.powers(values[:, 1]) if self.degree > 1 else z[:, 1:]
        if self.intercept == "modelled":
            X = np.column_stack([np.ones(len(z)), X])
        return X, z[:, 0]

    def rounding(self, centre: Array, scale: Array) -> Array:
        """Return a bound on the rounding error in each column of X, for bounds far from 0 (d,)."""
        wide = 1 + np.abs(self.midpoint[1:]) / self.half_range[1:]
        if self.degree > 1:
            off = wide * np.arange(1, self.degree + 1)
        else:
            off = (wide + np.abs(centre[1:])) * scale[1:]
        exact = np.zeros(self.d - len(off))  # the column of ones
        return _ROUNDING * np.concatenate([exact, off])

    def powers(self, u: Array) -> Array:
        """Return a polynomial's terms (n, degree) of its column as stored."""
        return ((u + 1) / 2)[:, None] ** np.arange(1, self.degree + 1)

    def level(self, X: Array, y: Array) -> Level:
        """Return the means that a site subtracts, from its own records."""
        if self.intercept != "site" or not len(y):
            return Level(np.zeros(self.d), 0.0)
        return Level(X.mean(axis=0), float(y.mean()))

    def slope_units(self, scale: Array) -> Array:
        """Return the factors that convert slopes to the columns' own units, all above 0."""
        unit = self.half_range[0] / scale[0]
        if self.degree > 1:
            return np.full(self.degree, unit)
        units: Array = unit * scale[1:] / self.half_range[1:]
        return units

    def in_own_units(self, theta: Array, centre: Array, scale: Array, level: Level) -> Array:
        """Return intercept and slopes (..., 1 + slopes) in the columns' own units.

        theta: (..., d). The slopes of a polynomial are of powers of (u + 1) / 2.
        """
        slopes, constant = theta, level.y - theta @ level.x
        if self.intercept == "modelled":
            slopes, constant = theta[..., 1:], constant + theta[..., 0]
        if self.degree == 1:
            origin = scale[1:] * (centre[1:] + self.midpoint[1:] / self.half_range[1:])
            constant = constant - slopes @ origin
        unit = self.half_range[0] / scale[0]
        start = self.midpoint[0] + self.half_range[0] * centre[0] + unit * constant
        return np.concatenate([start[..., None], slopes * self.slope_units(scale)], axis=-1)
