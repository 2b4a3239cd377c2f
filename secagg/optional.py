"""What a method may have beside `secagg.contracts.Method`; whoever uses it does without as well."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, Protocol, runtime_checkable

from secagg.contracts import Body, Public, Result, Rows, State, Update
from secagg.randomness import RandomBytes

GROWING: Final = "collected"
"""Key of the coordinator's state whose value is a list that only grows at its end: what a journal
has to write of it in a round is what is new."""


@runtime_checkable
class LeavesOwn(Protocol):
    """A method that leaves a site something for its own eyes."""

    def own_result(self, memory: State, public: Public) -> Result | None:
        """Return it, from what the site remembers after its part in the last round; or None."""
        ...


@runtime_checkable
class Together(Protocol):
    """A method that computes many sites' contributions at once, where one process has them all."""

    def together(
        self,
        stage: str,
        rows: Sequence[Rows],
        message: Body,
        memories: Sequence[State],
        public: Public,
        randoms: Sequence[RandomBytes],
    ) -> list[tuple[Update, State]]:
        """Return what `local` returns at each of these sites, bit for bit."""
        ...
