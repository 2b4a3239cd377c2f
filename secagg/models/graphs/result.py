"""The result of every graph learner: a (partially) directed graph over named variables."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal, TypedDict

import numpy as np
from numpy.typing import NDArray

from secagg.models.graphs.knowledge import Knowledge

# The functional form, because `from` is a keyword.
Edge = TypedDict(
    "Edge",
    {"from": str, "to": str, "kind": Literal["directed", "undirected"], "weight": float | None},
)


@dataclass(frozen=True, eq=False)
class GraphFit:
    """A learned graph over p variables.

    method: its learner, such as "notears", "golem-ev" or "notears-admm-proximal"
    names: the p variables, in the order of all arrays below
    directed: bool (p, p), [i, j] true for an edge from i to j
    undirected: bool (p, p), symmetric: edges whose direction the method does not determine
    weights: (p, p), [i, j] the estimated effect of i on j, before the threshold, in the units
        analysed (standard deviations if the method standardised); None from PC and GES
    converged: False if the optimiser failed; `notes` then gives the reason, and the graph must not
        be trusted
    settings: of the method; diagnostics: numbers on the search; notes: sentences on it
    caution: what a reader must know before the graph, although the search converged; also a note
    knowledge: what the search took as known; also a note
    noise: what the noise in the moments changed, in numbers; also a note
    dropped: what least squares say of the weights that are no edges (`graphs.support`); also a note
    """

    method: str
    names: tuple[str, ...]
    directed: NDArray[np.bool_]
    undirected: NDArray[np.bool_]
    weights: NDArray[np.float64] | None
    converged: bool
    settings: Mapping[str, float | bool | str]
    diagnostics: Mapping[str, float] = field(default_factory=dict)
    notes: tuple[str, ...] = ()
    caution: str = ""
    knowledge: Knowledge | None = None
    noise: Mapping[str, Any] | None = None
    dropped: Mapping[str, Any] | None = None

    def edges(self) -> list[Edge]:
        """Return all edges: directed ones first, each undirected one once, in variable order."""

        def edge(i: int, j: int, kind: Literal["directed", "undirected"]) -> Edge:
            weight = None if self.weights is None else float(self.weights[i, j])
            return {"from": self.names[i], "to": self.names[j], "kind": kind, "weight": weight}

        return [edge(int(i), int(j), "directed") for i, j in np.argwhere(self.directed)] + [
            edge(int(i), int(j), "undirected") for i, j in np.argwhere(np.triu(self.undirected))
        ]

    def to_dict(self) -> dict[str, object]:
        """Return plain lists, numbers and strings: what a JSON file holds."""
        known = self.knowledge
        return {
            "method": self.method,
            "names": list(self.names),
            "edges": self.edges(),
            "weights": None if self.weights is None else self.weights.tolist(),
            "converged": self.converged,
            "settings": dict(self.settings),
            "diagnostics": dict(self.diagnostics),
            "notes": [*self.notes, *([] if known is None else [known.note()])],
            **({"caution": self.caution} if self.caution else {}),
            **({} if known is None else {"knowledge": dict(known.summary)}),
            **({} if self.noise is None else {"noise": dict(self.noise)}),
            **({} if self.dropped is None else {"dropped": dict(self.dropped)}),
        }
