"""What is known about a graph before its records are read: tiers, forbidden and required edges.

A tier is a set of columns that are fixed or measured at one time: sex and age before weight, weight
before a diagnosis. No edge leads from a later tier to an earlier one. Columns without a tier may
have edges to and from all others. The knowledge is the user's, and no method tests it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from secagg.contracts import PublicFacts, State
from secagg.core.validation import did_you_mean
from secagg.errors import JobError
from secagg.models.graphs.acyclicity import is_acyclic

Edges = tuple[tuple[str, str], ...]
"""Pairs (cause, effect) of names."""


def adjacency(edges: Edges, names: Sequence[str]) -> NDArray[np.bool_]:
    """Return the edges as a matrix, [i, j] for i -> j, in the order of `names`."""
    matrix = np.zeros((len(names), len(names)), dtype=np.bool_)
    for cause, effect in edges:
        matrix[names.index(cause), names.index(effect)] = True
    return matrix


@dataclass(frozen=True, eq=False)
class Knowledge:
    """Edges that a graph over `names` cannot have, and must have.

    forbidden, required: bool, (p, p), [i, j] for i -> j; no edge is in both, and the required ones
        form a DAG
    summary: the keys of the job, for the result; without columns that are not in the graph
    """

    names: tuple[str, ...]
    forbidden: NDArray[np.bool_]
    required: NDArray[np.bool_]
    summary: Mapping[str, Any]

    def select(self, names: Sequence[str]) -> Knowledge:
        """Return the knowledge about these variables, in this order."""
        place = np.ix_(*[[self.names.index(name) for name in names]] * 2)
        return Knowledge(tuple(names), self.forbidden[place], self.required[place], self.summary)

    def note(self) -> str:
        """Return a sentence for the result."""
        parts = []
        if lags := self.summary.get("lags"):
            steps = " < ".join(f"({', '.join(lag)})" for lag in reversed(lags))
            parts.append(f"steps {steps} < all other columns")
        if tiers := self.summary.get("tiers"):
            parts.append("tiers " + " < ".join(f"({', '.join(tier)})" for tier in tiers))
        for key in ("forbidden", "required"):
            if edges := self.summary.get(key):
                listed = ", ".join(f"{cause} -> {effect}" for cause, effect in edges)
                parts.append(f"{key} {listed}")
        return f"Knowledge of the job, not found in the records: {'; '.join(parts)}."

    def against(self, truth: NDArray[np.bool_]) -> str:
        """Return a sentence on true edges, (p, p), that the knowledge contradicts; "" if none."""
        p = len(self.names)
        both = {
            "edges of method.truth are ruled out": truth & self.forbidden[:p],
            "required edges are not in method.truth": self.required & ~truth,
        }
        parts = []
        for what, edges in both.items():
            listed = [f"{self.names[i]} -> {self.names[j]}" for i, j in np.argwhere(edges)]
            if listed:
                parts.append(f"{what} ({', '.join(listed)})")
        if not parts:
            return ""
        return f"The job contradicts itself: {'; '.join(parts)}. So no graph has a full score."


FORBIDDEN: Final = "forbidden"
"""Key of the forbidden edges in a coordinator's state."""


def in_state(known: Knowledge | None) -> State:
    """Return the forbidden edges for a coordinator's state, as 0 and 1; nothing without any."""
    return {} if known is None else {FORBIDDEN: known.forbidden.astype(np.float64)}


@dataclass(frozen=True, kw_only=True)
class KnowledgeSettings:
    """The keys of methods that cannot force an edge into the graph."""

    tiers: tuple[tuple[str, ...], ...] = ()
    """Columns in order of time, such as `[["age", "sex"], ["bmi"]]`: no edge leads to an earlier
    list."""
    forbidden: Edges = ()
    """Edges `["cause", "effect"]` that the graph cannot have."""

    def known(self, public: PublicFacts) -> Knowledge | None:
        """Return the knowledge about the method's graph. Raises as `knowledge`."""
        raise NotImplementedError

    def remarks(self, public: PublicFacts) -> list[str]:
        """Return for the plan which edges of `truth`, if it is set, the knowledge contradicts."""
        known, truth = self.known(public), getattr(self, "truth", None)
        if known is None or truth is None:
            return []
        against = known.against(adjacency(truth, known.names))
        return [against] if against else []

    def knowledge(
        self, names: Sequence[str], public: PublicFacts, causes: Sequence[str] = (),
        lags: Sequence[Sequence[str]] = (),
    ) -> Knowledge | None:  # fmt: skip
        """Return the knowledge about a graph's variables, or None if there is none about them.

        names: of the variables; a key may name one of them, or a column for all its indicators.
            Declared columns that are not in the graph have no effect.
        causes: names of further causes, such as values of earlier steps, for `forbidden` only; they
            follow `names` in the result's first axis
        lags: columns of earlier steps that are among the variables, one step before first. No edge
            leads to an earlier step; all columns in no lag are of the last step
        Raises `JobError` for an unknown column, a column in two tiers, an edge of a variable to
        itself, a required edge that is forbidden or against the tiers, and a cycle of them.
        """
        required: Edges = getattr(self, "required", ())
        if not (self.tiers or self.forbidden or required or lags):
            return None
        reader = _Reader(tuple(names), (*names, *causes), public)
        tier, step = reader.tiers("tiers", self.tiers), reader.tiers("lags", lags)
        against = (tier[:, None] > tier) & (tier >= 0) & (tier[:, None] >= 0)
        back = step[:, None] < step  # -1 stands for the last step, 0 for the one before
        forbidden, wanted = (
            reader.edges("forbidden", self.forbidden),
            reader.edges("required", required),
        )
        p = len(names)
        forbidden[:p] |= against | back
        for i, j in np.argwhere(wanted & forbidden):
            why = "lags" if back[i, j] else "tiers" if against[i, j] else "forbidden"
            what = f"{names[i]} -> {names[j]} is ruled out by method.{why}"
            raise JobError("method.required", what, "Leave it out of one of them.")
        if not is_acyclic(wanted[:p]):
            what = "the required edges form a cycle"
            raise JobError("method.required", what, "Leave one of them out.")
        keys = {}
        for key, lists in {"lags": lags, "tiers": self.tiers}.items():
            inside = [[name for name in each if reader.has(name)] for each in lists]
            keys[key] = [each for each in inside if each]
        for key, edges in {"forbidden": self.forbidden, "required": required}.items():
            keys[key] = [list(edge) for edge in edges if all(map(reader.has, edge))]
        summary = {key: value for key, value in keys.items() if value}
        if not summary:
            return None
        return Knowledge(tuple(names), forbidden, wanted[:p], summary)


@dataclass(frozen=True, kw_only=True)
class RequiredSettings(KnowledgeSettings):
    """The keys of methods that can."""

    required: Edges = ()
    """Edges that the graph must have; only with `pc` and `ges`."""


CANNOT_REQUIRE: Final = (
    "a graph of weights cannot be made to have an edge, because its weight may be zero"
)


@dataclass(frozen=True)
class _Reader:
    """Reads names of variables or columns; rows: names of causes, `names` first."""

    names: tuple[str, ...]
    rows: tuple[str, ...]
    public: PublicFacts

    def tiers(self, key: str, tiers: Sequence[Sequence[str]]) -> NDArray[np.int64]:
        """Return the place of each variable's list among these, -1 if it is in none."""
        tier = np.full(len(self.names), -1)
        seen = set[str]()
        for t, columns in enumerate(tiers):
            if not columns:
                raise JobError(f"method.{key}", "a list is empty", "Leave it out.")
            for name in columns:
                which = self._positions(name, key, self.names)
                variables = {v.name for v in self.public.variables if name in (v.name, v.column)}
                if seen & variables:
                    raise JobError(f"method.{key}", f"{name!r} is named twice", "Name it once.")
                seen |= variables
                tier[which] = t
        return tier

    def edges(self, key: str, edges: Edges) -> NDArray[np.bool_]:
        """Return the edges, shape (rows, names)."""
        found = np.zeros((len(self.rows), len(self.names)), dtype=np.bool_)
        for cause, effect in edges:
            columns = self._positions(effect, key, self.names)
            rows = self._positions(cause, key, self.rows)
            if cause == effect or self._columns(cause) & self._columns(effect):
                what = f"{cause!r} and {effect!r} are one column"
                raise JobError(f"method.{key}", what, "Name two columns.")
            found[np.ix_(rows, columns)] = True
        return found

    def _columns(self, name: str) -> set[str]:
        """Return the column that a name is, or that it is a level of; none of a further cause."""
        return {v.column for v in self.public.variables if name in (v.name, v.column)}

    def has(self, name: str) -> bool:
        """Return whether a declared column is in the graph."""
        return bool(self._positions(name, "tiers", self.rows))

    def _positions(self, name: str, key: str, among: Sequence[str]) -> list[int]:
        """Return the places of a declared column's variables; of none if it is not in the graph."""
        declared = [v.name for v in self.public.variables if name in (v.name, v.column)]
        if not declared:
            known = {*self.public.columns, *(v.name for v in self.public.variables)}
            hint = f"{did_you_mean(name, known)} Columns are {', '.join(self.public.columns)}."
            raise JobError(f"method.{key}", f"no column {name!r}", hint.strip())
        return [among.index(each) for each in declared if each in among]
