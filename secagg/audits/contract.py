"""What an attack must provide, and what it finds.

An attack is a pure function of a view (`secagg.audits.views`) and a generator. `run` returns a
guess. `score` compares the guess with the truth, which the attack never gets. Where the truth is
not at hand, for example for a folder of somebody else's run, only `run` is called.

A finding counts as a leak if its number exceeds the limit: the attack's own, or the user's. That no
leak was found counts only if the same attack finds the leak in a run that has it, the *positive
control*: the same job under `plain`, without noise; if the attack does not know itself that it
failed; and if the whole interval is within the limit. Otherwise the verdict is "inconclusive"
(`secagg.contracts.findings`, the only place that computes verdicts).
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from secagg.audits.views import View, Who
from secagg.contracts import SiteRecords
from secagg.contracts.findings import Finding, Limit, Verdict
from secagg.core.arrays import Array

__all__ = ["Attack", "Finding", "Limit", "Truth", "Verdict"]


@dataclass(frozen=True)
class Truth:
    """What the scorer knows.

    sites: the records that took part, by site
    others: complete records that did not take part, scaled in the same way, of all sites in random
        order, shape (records, variables)
    of_site: the site of each of the others
    """

    sites: Mapping[str, SiteRecords]
    others: Array = field(default_factory=lambda: np.zeros((0, 0)))
    of_site: NDArray[np.str_] = field(default_factory=lambda: np.zeros(0, dtype=np.str_))


class Attack(ABC):
    """An attack. The registry is `secagg.audits.catalogue`; a new attack is a file and a line."""

    name: ClassVar[str]
    title: ClassVar[str]
    """What is attacked, in a line."""
    source: ClassVar[str]
    """The publication, or where the derivation is."""
    knows: ClassVar[str]
    """What the attacker knows besides the view, as a phrase."""
    views: ClassVar[tuple[Who, ...]] = (Who.COORDINATOR,)
    """Whose views it attacks."""
    metric: ClassVar[str]
    """The name of the number, as in a file of limits."""
    meaning: ClassVar[str]
    """What the number is, as a phrase."""
    from_sums_only: ClassVar[bool] = False
    """Whether it reads nothing of a run but its sums and contributions, whichever of them there
    are. Then it can be tried on the first sums of a run (`secagg.audits.by_rounds`)."""
    rates: ClassVar[Mapping[str, float]] = {}
    """Rates in a finding's details, as (number, low, high), for which a file of limits may set a
    limit; and what a guess finds."""

    def colluding(self, sites: int) -> int:
        """Return how many of so many sites are in a coalition."""
        return 1

    @abstractmethod
    def why_not(self, view: View) -> str:
        """Return why the attack does not apply to a run; "" if it does."""

    @abstractmethod
    def limit(self, view: View) -> Limit:
        """Return the limit if the user sets none."""

    @abstractmethod
    def run(self, view: View, rng: np.random.Generator) -> Any:
        """Return the guess."""

    @abstractmethod
    def score(self, guess: Any, view: View, truth: Truth) -> Finding:
        """Compare the guess with the truth."""

    def without_truth(self, guess: Any, view: View) -> Finding | None:
        """Return what the attacker knows about its guess without the truth; None: nothing."""
        return None

    def control(self, plain: View) -> View:
        """Return the view with the planted leak. plain: of the same job, in clear, without noise"""
        return plain
