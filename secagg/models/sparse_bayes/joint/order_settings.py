"""What a job says of the order of the columns of a directed graph: known, drawn, or cycles."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from secagg.contracts import PublicFacts, State
from secagg.errors import JobError
from secagg.models.sparse_bayes.joint.orders import Orders, neighbours
from secagg.models.sparse_bayes.metropolis.alternatives import pairs_of


@dataclass(frozen=True, kw_only=True)
class OrderOfColumns:
    """The settings of a directed graph's order."""

    ordered: bool = False
    """If true, the columns are in causal order: each acts only on later ones (of `variables`). Then
    there are no cycles, and effects are determined with normal errors, too."""
    cycles: bool = True
    """If false, the graph has no cycles: chains also draw an order of the columns, in which each
    acts only on later ones. All orders are equally likely before the records are seen."""

    @property
    def acyclic(self) -> bool:
        """Whether the graph has no cycles, its order known or drawn."""
        return self.ordered or not self.cycles

    def pairs(self, p: int, number: int) -> NDArray[np.int64]:
        """Return the pairs of a round: of columns, or without cycles of positions in the order."""
        return pairs_of(p, number) if self.cycles else neighbours(p, number)

    def orders(self, shared: State, many: int = 1) -> Orders | None:
        """Return the orders of the chains of this many sites; None if chains draw none."""
        if self.cycles:
            return None
        return Orders(np.concatenate([shared["order"]] * many).astype(np.int64))

    def check_order(self, public: PublicFacts) -> None:
        """Raise `JobError` for settings that contradict `cycles`."""
        if self.cycles:
            return
        if self.ordered:
            what = "cannot be false with ordered, which says that there are no cycles"
            raise JobError("method.cycles", what, "Leave out method.cycles or method.ordered.")
        if public.site_moments:
            what = "must be true under noise once at the site"
            raise JobError("method.cycles", what, "If the order is known, set method.ordered.")
