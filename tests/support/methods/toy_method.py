"""The share of records in which a column lies in the upper half of its bounds.

A method as a newcomer would write it: `tests/runs/test_new_method.py` registers it by one line.
"""

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from secagg.contracts import (
    ASKED_ONCE,
    NO_WINDOWS,
    Body,
    Disclosure,
    DisclosureKind,
    EqualWeights,
    Field,
    Kind,
    MethodFacts,
    PublicFacts,
    RecordCount,
    Result,
    ResultTable,
    SingleRecords,
    SiteRecords,
    Stage,
    State,
    Update,
)
from secagg.contracts.noise import Placements
from secagg.core.randomness import RandomBytes
from secagg.models.common.variables import choose


@dataclass(frozen=True)
class UpperShare:
    """A share of records."""

    column: str

    name: ClassVar[str] = "upper_share"
    placements: ClassVar[Placements] = Placements((), "")
    title: ClassVar[str] = "Share of high values"
    disclosure: ClassVar[Disclosure] = Disclosure(
        DisclosureKind.SITES,
        "How many pooled records have a high value.",
        ASKED_ONCE,
        other_runs="A second run over other sites shows their part by subtraction.",
    )
    unknown_settings: ClassVar[dict[str, str]] = {"threshold": "cuts at the middle of the bounds"}

    @property
    def facts(self) -> MethodFacts:
        """One count, of single records."""
        return MethodFacts(
            derivation=type(self).__module__,
            weights=EqualWeights("Sites are asked once, with an empty message."),
            reads=SingleRecords(reason="counts records with a high value", repeatable=True),
            windows=NO_WINDOWS,
            named_code=(),
            network=False,
            regression=None,
            edge_rule=None,
        )

    def tables(self, public: PublicFacts) -> tuple[ResultTable, ...]:
        """Return a table of single numbers."""
        labels = {"share": ("share of high values", "above the middle of the bounds")}
        return (ResultTable(self.title, labels=labels),)

    def stages(self, public: PublicFacts) -> tuple[Stage, ...]:
        """Declare one count."""
        self._at(public)
        spec = (Field("high", (1,), float(public.max_rows), 0, Kind.COUNT),)
        return (Stage("share", spec, 1, "how many records have a high value"),)

    def initial_state(self, public: PublicFacts) -> State:
        """Nothing is known yet."""
        return {}

    def next_request(self, state: State) -> tuple[str, Body] | None:
        """Ask once."""
        return None if "high" in state else ("share", {})

    def contribute(
        self,
        stage: str,
        rows: SiteRecords,
        message: Body,
        memory: State,
        public: PublicFacts,
        random: RandomBytes,
    ) -> tuple[Update, State]:
        """Count."""
        return {"high": np.array([np.sum(rows.values[:, self._at(public)] > 0.0)])}, memory

    def aggregate(self, state: State, total: Update, sites: int) -> State:
        """Keep the count."""
        return {"high": float(total["high"][0])}

    def result(self, state: State, public: PublicFacts, counted: RecordCount) -> Result:
        """Divide."""
        share = state["high"] / counted.records
        return Result({"method": self.name, "share": share}, {"share": np.array(share)})

    def _at(self, public: PublicFacts) -> int:
        (at,) = choose(public, [self.column], "method.column")
        return int(at)
