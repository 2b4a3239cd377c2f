"""What a job says of the order of the columns of a directed graph: known, drawn, or cycles."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from secagg.contracts import PublicFacts, State
from secagg.errors import JobError, PeerError
from secagg.models.sparse_bayes.joint.known_arrows import KnownArrows
from secagg.models.sparse_bayes.joint.orders import Orders, is_order, neighbours
from secagg.models.sparse_bayes.laplace_graph import Order
from secagg.models.sparse_bayes.metropolis.alternatives import pairs_of


@dataclass(frozen=True, kw_only=True)
class OrderOfColumns(KnownArrows):
    """The columns of a directed graph, which of them may act on which, and in which order."""

    cycles: bool = True
    """If false, the graph has no cycles: chains also draw an order of the columns, in which each
    acts only on later ones. All orders are equally likely before the records are seen."""

    def known_by_position(self, shared: State) -> Order:
        """Return which arrows are possible in a sweep: by position if chains draw their order."""
        return self.known_from(shared) if self.cycles else True

    def pairs(self, p: int, number: int) -> NDArray[np.int64]:
        """Return the pairs of a round: of columns, or without cycles of positions in the order."""
        return pairs_of(p, number) if self.cycles else neighbours(p, number)

    def orders(self, shared: State, many: int = 1) -> Orders | None:
        """Return the orders of the chains of this many sites; None if chains draw none."""
        if self.cycles:
            return None
        return Orders(np.concatenate([shared["order"]] * many).astype(np.int64))

    def check_arrows(self, shared: State, public: PublicFacts) -> None:
        super().check_arrows(shared, public)
        if not self.cycles and not is_order(shared["order"]):
            raise PeerError("message", "the coordinator's order is not one of the columns")

    def check_order(self, public: PublicFacts) -> None:
        """Raise `JobError` for settings that contradict `cycles`."""
        if self.cycles:
            return
        if self.ordered:
            what = "cannot be false with ordered, which says that there are no cycles"
            raise JobError("method.cycles", what, "Leave out method.cycles or method.ordered.")
        if self.tiers or self.forbidden:
            what = "cannot be false with tiers or forbidden, because chains draw from all orders"
            advice = "Leave it out, or leave out method.tiers and method.forbidden."
            raise JobError("method.cycles", what, advice)
        if public.site_moments:
            what = "must be true under noise once at the site"
            raise JobError("method.cycles", what, "If the order is known, set method.ordered.")
        names = [public.variables[i].column for i in self.columns(public)]
        if lacked := [name for name in names if name in public.partial]:
            what = f"cannot be false, because some sites lack {', '.join(lacked)}"
            advice = "Leave it out, or leave these columns out of method.variables."
            raise JobError("method.cycles", what, advice)
