"""Which arrows a directed graph may have, by what a job says: an order of columns, tiers, edges.

An arrow that is ruled out is no parameter: neither the common graph nor a site's has an entry for
it, no sum has numbers of it, and the prior of the others is as it is without it. If the columns'
order is known, an arrow leads to a later column only. With tiers, it leads to a column of the same
tier or a later one, and columns without a tier may act on all. Within a tier cycles are possible,
as in a graph without tiers; between tiers there are none.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from secagg.contracts import PublicFacts, State
from secagg.errors import JobError, PeerError
from secagg.models.common.variables import choose
from secagg.models.graphs.knowledge import Knowledge, KnowledgeSettings
from secagg.models.sparse_bayes.laplace_graph import Order, allowed_entries


@dataclass(frozen=True, kw_only=True)
class KnownArrows(KnowledgeSettings):
    """The columns of a graph, and which of them may act on which."""

    variables: tuple[str, ...] | None = None
    """The columns of the graph, at least two. If it is not set, all columns."""
    ordered: bool = False
    """If true, the columns are in causal order: each acts only on later ones (of `variables`). Then
    there are no cycles, and effects are determined with normal errors, too."""

    @property
    def order_known(self) -> bool:
        """Whether the job says in which order columns act: `ordered`, or each in a tier of its own.

        It decides about defaults only.
        """
        named = [each[0] for each in self.tiers if len(each) == 1]
        return self.ordered or (self.variables is not None and {*named} == {*self.variables})

    def columns(self, public: PublicFacts) -> NDArray[np.int64]:
        """Return the positions of the columns analysed."""
        return choose(public, self.variables, "method.variables")

    def known(self, public: PublicFacts) -> Knowledge | None:
        """Return what `tiers` and `forbidden` say of the graph's columns. Raises `JobError`."""
        if self.ordered and self.tiers:
            raise JobError("method.tiers", "has no effect beside method.ordered", "Leave one out.")
        return self.knowledge([public.variables[i].name for i in self.columns(public)], public)

    def possible(self, public: PublicFacts) -> Order:
        """Return which arrows are possible. Raises `JobError` if none is."""
        found = self.known(public)
        if found is None:
            return self.ordered
        allowed = allowed_entries(len(found.names), self.ordered) & ~found.forbidden.T
        if not allowed.any():
            raise JobError("method.forbidden", "no arrow is left", "Forbid fewer of them.")
        return allowed

    def shared_arrows(self, public: PublicFacts) -> State:
        """Return what all parties share, so that each step can read it: nothing without tiers."""
        known = self.possible(public)
        return {} if isinstance(known, bool) else {"allowed": known.astype(np.float64)}

    def known_from(self, shared: State) -> Order:
        """Return which arrows are possible, from what all parties share."""
        return shared["allowed"] > 0 if "allowed" in shared else self.ordered

    def check_arrows(self, shared: State, public: PublicFacts) -> None:
        """Raise `PeerError` if the coordinator's arrows are not those of the job."""
        if "allowed" in shared and not np.array_equal(shared["allowed"] > 0, self.possible(public)):
            raise PeerError("message", "the coordinator's arrows are not those of the job")


def is_acyclic(known: Order) -> bool:
    """Return whether no graph of these arrows has a cycle."""
    if isinstance(known, bool):
        return known
    return not np.linalg.matrix_power(known.astype(np.float64), len(known)).any()
