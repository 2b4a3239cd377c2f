"""A fitted neural graphical model: what its parameters say of each column given its neighbours.

Only numpy is needed, so a result can be used where torch is not installed. The outputs are those of
`secagg.models.neural.ngm.masked_network`, equation (1).

A network that reads a column's own value (`network = "paper"`) has no conditional distributions, so
only masked networks can be used here.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from secagg.contracts import PublicFacts, Variable
from secagg.core.arrays import Array
from secagg.models.neural.ngm.fitted.column_networks import (
    ColumnNetwork,
    check_arrays,
    column_networks,
    malformed,
)
from secagg.models.neural.ngm.fitted.residuals import Residuals
from secagg.models.neural.ngm.layout import NgmLayout
from secagg.models.neural.ngm.record_losses import MIN_VARIANCE


@dataclass(frozen=True, eq=False)
class States:
    """Values of all columns, as networks read them; changed in place by a sampler.

    z: the standardised variables, shape (variables, states); NaN if missing
    level: the number of the level, shape (columns, states); 0 for a continuous column
    """

    z: Array
    level: NDArray[np.intp]


@dataclass(frozen=True, eq=False)
class FittedNgm:
    """The networks of all columns, and the units of their variables.

    `values`, shape (states, columns), has the unit of the analysis (the logarithm, if the job takes
    it) and the numbers of levels from 0.

    variables: those of the layout, in order
    graph: shape (columns, columns), symmetric, without diagonal
    centre, scale: a variable u, scaled by the public bounds, is read as z = (u - centre) * scale
    sd: the residual standard deviation of each continuous column, in units of z; shape (continuous
        columns,), or (continuous columns, states) if it differs between states
    """

    layout: NgmLayout
    variables: tuple[Variable, ...]
    graph: NDArray[np.bool_]
    centre: Array
    scale: Array
    networks: tuple[ColumnNetwork, ...]
    sd: Array
    residuals: Residuals | None = None

    @classmethod
    def of(cls, layout: NgmLayout, public: PublicFacts, arrays: Mapping[str, NDArray[Any]]) -> Self:
        """Return the model of a result's arrays. Raises `UsageError` if one is missing or wrong.

        public: as for the job whose result it is
        """
        d, p = layout.d, layout.variables
        continuous = len(layout.continuous)
        shapes = {"graph": (d, d), "centre": (p,), "scale": (p,), "log_sd": (continuous,)}
        check_arrays(arrays, shapes)
        graph = arrays["graph"] != 0
        if np.any(graph != graph.T) or np.any(np.diag(graph)):
            raise malformed("'graph' is not symmetric and without loops")
        residuals = None
        if "residuals" in arrays:
            residuals = Residuals.of(arrays["residuals"], continuous)
        networks = column_networks(layout, graph, arrays)
        variables = tuple(public.variables[i] for i in layout.chosen)
        sd = np.sqrt(np.exp(2 * arrays["log_sd"]) + MIN_VARIANCE)
        centre, scale = arrays["centre"], arrays["scale"]
        return cls(layout, variables, graph, centre, scale, networks, sd, residuals)

    @cached_property
    def inverse_scale(self) -> Array:
        """1 / scale; 0 for a variable that was constant, whose value is `centre`."""
        safe = np.where(self.scale > 0, self.scale, 1.0)
        return np.where(self.scale > 0, 1 / safe, 0.0)

    @cached_property
    def low(self) -> Array:
        """The smallest z that the public bounds allow, shape (variables,)."""
        return (-1 - self.centre) * self.scale

    @cached_property
    def high(self) -> Array:
        """The largest z that the public bounds allow."""
        return (1 - self.centre) * self.scale

    @cached_property
    def slopes(self) -> Array:
        """The change of a value, in the unit of the analysis, for a change of z by 1."""
        return np.array([v.half_range for v in self.variables]) * self.inverse_scale

    @cached_property
    def origins(self) -> Array:
        """The value, in the unit of the analysis, at z = 0."""
        return np.array([v.midpoint + v.half_range * c for v, c in zip(
            self.variables, self.centre, strict=True
        )])  # fmt: skip

    @cached_property
    def levels(self) -> tuple[int, ...]:
        """The number of levels of each column; 0 for a continuous one."""
        return tuple(len(c.positions) + 1 if c.indicator else 0 for c in self.layout.columns)

    @cached_property
    def z_of_levels(self) -> tuple[Array, ...]:
        """For each column with levels, its z: shape (variables of the column, levels)."""
        found = []
        for column, levels in zip(self.layout.columns, self.levels, strict=True):
            at = list(column.positions)
            indicators = np.eye(levels)[1:] if levels else np.zeros((1, 0))
            midpoint = np.array([self.variables[p].midpoint for p in at])[:, None]
            half = np.array([self.variables[p].half_range for p in at])[:, None]
            u = (indicators - midpoint) / half
            found.append((u - self.centre[at, None]) * self.scale[at, None])
        return tuple(found)

    @cached_property
    def number_among_continuous(self) -> dict[int, int]:
        """The position of each continuous column among the continuous ones."""
        chosen = [c for c, levels in enumerate(self.levels) if not levels]
        return {column: i for i, column in enumerate(chosen)}

    @cached_property
    def known_shares(self) -> tuple[int, ...]:
        """The columns with levels whose shares in the pooled records are known.

        They follow from the pooled means, so none is known without `standardise`.
        """
        standardised = bool(np.any(self.centre != 0))  # a single centre may be 0
        return tuple(c for c, n in enumerate(self.levels) if n and standardised)

    @cached_property
    def marginals(self) -> tuple[Array, ...]:
        """For each column with levels, their shares in the pooled records; equal if unknown."""
        found = []
        for number, levels in enumerate(self.levels):
            at = list(self.layout.columns[number].positions)
            shares = np.full(max(levels - 1, 0), 1 / max(levels, 1))
            if number in self.known_shares:
                shares = np.clip(self.origins[at], 0, 1)
            found.append(np.array([max(1 - shares.sum(), 0.0), *shares]) / max(1, shares.sum()))
        return tuple(found)

    def outputs(self, z: Array) -> Array:
        """Return equation (1) for all columns, shape (variables, states)."""
        found = np.empty_like(z)
        for column, network in zip(self.layout.columns, self.networks, strict=True):
            found[list(column.positions)] = network(z)
        return found

    def states_of(self, values: Array) -> States:
        """Return the states of `values`, clipped to the public bounds; NaN is a missing value."""
        z = np.full((self.layout.variables, len(values)), np.nan)
        level = np.zeros((self.layout.d, len(values)), dtype=np.intp)
        for number, column in enumerate(self.layout.columns):
            cells, at = values[:, number], list(column.positions)
            if self.levels[number]:
                known = ~np.isnan(cells)
                level[number, known] = cells[known].astype(np.intp)
                z[np.array(at)[:, None], np.flatnonzero(known)] = self.z_of_levels[number][
                    :, level[number, known]
                ]
            else:
                variable, v = self.variables[at[0]], at[0]
                u = np.clip((cells - variable.midpoint) / variable.half_range, -1, 1)
                z[v] = (u - self.centre[v]) * self.scale[v]
        return States(z, level)

    def values_of(self, states: States) -> Array:
        found = states.level.T.astype(np.float64)
        for number in self.number_among_continuous:
            v = self.layout.columns[number].positions[0]
            found[:, number] = self.origins[v] + self.slopes[v] * states.z[v]
        return found
