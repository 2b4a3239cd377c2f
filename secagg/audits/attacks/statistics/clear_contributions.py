"""Whether the coordinator can read each site's contributions.

Each frame from a site to the coordinator is read as a contribution. If all frames of a round add up
to the opened sum, the frames are the contributions. Under `plain` they are; under every other
protocol they must not be. No record is needed to see it.

A run folder without a transcript has no frames. If the protocol hides nothing from the coordinator,
by its own declaration (`Capabilities.hides_from_coordinator`), the coordinator could read every
contribution while the job ran, whether or not it kept the messages. So the share is 1.

Not found: contributions that are hidden in another way than by their sum, for example in one
message for several rounds.
"""

from __future__ import annotations

from typing import ClassVar

import numpy as np

from secagg.audits.contract import Attack, Finding, Limit, Truth
from secagg.audits.views import View


class ClearContributions(Attack):
    """Add up the frames of each round."""

    name: ClassVar[str] = "clear_contributions"
    title: ClassVar[str] = "Whether the coordinator can read the sites' contributions"
    source: ClassVar[str] = "the module's text"
    knows: ClassVar[str] = "the encoding"
    metric: ClassVar[str] = "readable_share"
    meaning: ClassVar[str] = "share of sums whose contributions the coordinator can read"

    def why_not(self, view: View) -> str:
        """Return why it does not apply."""
        if not view.messages and _hides(view):
            return "the run has no transcript"
        return "" if view.rounds else "the run opened no sum of the method"

    def limit(self, view: View) -> Limit:
        """Return the limit."""
        return Limit(0.0)

    def run(self, view: View, rng: np.random.Generator) -> float:
        """Return the share of sums that the frames add up to; 1 by the protocol's declaration."""
        if not view.messages:
            return 1.0
        return float(np.mean([view.adds_up(seen) for seen in view.rounds]))

    def score(self, guess: float, view: View, truth: Truth) -> Finding:
        """Return the share: that the frames add up is proof enough."""
        return self.without_truth(guess, view)

    def without_truth(self, guess: float, view: View) -> Finding:
        """Return the share; details: how it is known."""
        name = view.planned.protocol.name
        known = f"protocol {name!r} declares that it hides nothing from the coordinator"
        by = "the frames in the transcript" if view.messages else known
        return Finding.exact(guess, 0.0, sums=len(view.rounds), known_by=by)


def _hides(view: View) -> bool:
    """Return whether the protocol hides contributions from the coordinator, as it declares."""
    return view.planned.protocol.capabilities.hides_from_coordinator
