"""What a federated method must provide."""

from __future__ import annotations

from typing import Any, ClassVar, Final, Protocol

from secagg.contracts.data import Body, PublicFacts, SiteRecords, Stage, State, Update
from secagg.contracts.facts import MethodFacts
from secagg.contracts.noise import Placements
from secagg.contracts.reporting import Disclosure, RecordCount, Result, ResultTable
from secagg.core.randomness import RandomBytes
from secagg.errors import PolicyRefusal, SecaggError


class Method(Protocol):
    """A federated method. Its settings are the fields of a frozen dataclass.

    `secagg plan`, the report and the terminal show `title`, `disclosure` and `tables`. The other
    functions depend on their arguments only. They are called in this order:

    1. All parties call `stages`, before any record is read.
    2. The coordinator calls `initial_state`.
    3. In each round, the coordinator calls `next_request`, each site calls `contribute`, and the
       coordinator calls `aggregate` with the sum of the contributions.
    4. When `next_request` returns None, the coordinator calls `result`.

    Every method must have these properties:

    * `contribute` uses a site's records only to compute the fields of the requested stage. All
      entries are within the bounds of the fields.
    * `aggregate` receives only sums.
    * The method's docstring derives what the sums of all rounds together determine about a site,
      and `disclosure` states the conclusion.

    A new method needs such a class, a line in `secagg.jobs.registry.METHODS`, and tests. No other
    part of the program refers to a method by name. A class may have `unknown_settings`: for each
    setting that users may expect and that it lacks, the reason, as the end of a sentence that
    begins with the method's name. It may have `remarks(public)`: sentences for `secagg plan`, about
    settings that contradict each other.
    """

    name: ClassVar[str]
    placements: ClassVar[Placements]

    @property
    def title(self) -> str:
        """The name of the method, with its settings, for headings."""
        ...

    @property
    def disclosure(self) -> Disclosure:
        """What all sums together reveal, and to whom, with these settings."""
        ...

    @property
    def facts(self) -> MethodFacts:
        """What sites and audits must know of the method, with these settings."""
        ...

    def tables(self, public: PublicFacts) -> tuple[ResultTable, ...]:
        """Return how the result is shown: one table for the summary of the result.

        If the summary has a list "analyses", there is one table for each analysis, in that order.
        """
        ...

    def stages(self, public: PublicFacts) -> tuple[Stage, ...]:
        """Return every kind of round of the method. All parties call this before data is read.

        Raises `JobError` if the settings do not fit the declared columns.
        """
        ...

    def initial_state(self, public: PublicFacts) -> State:
        """Return the coordinator's first state."""
        ...

    def next_request(self, state: State) -> tuple[str, Body] | None:
        """Return the stage of the next round and the message to all sites; None after the last."""
        ...

    def contribute(
        self,
        stage: str,
        rows: SiteRecords,
        message: Body,
        memory: State,
        public: PublicFacts,
        random: RandomBytes,
    ) -> tuple[Update, State]:
        """Return a site's contribution, and the memory that it keeps until its next round.

        stage: name of the requested stage
        rows: the site's records
        message: from the coordinator
        memory: the memory that this function returned in the site's previous round; empty in the
            first round
        random: the site's secret random bytes. The protocol draws from another source, so the
            method draws the same numbers under every protocol
        Raises `PeerError` if the message is not valid.
        """
        ...

    def aggregate(self, state: State, total: Update, sites: int) -> State:
        """Return the coordinator's next state, given the decoded sum over `sites` sites."""
        ...

    def result(self, state: State, public: PublicFacts, counted: RecordCount) -> Result:
        """Return the result of a finished run. counted: the released number of records."""
        ...


COLLECTED_DRAWS: Final = "collected"
"""Key in the coordinator's state of a list to which rounds only append. So in each round it is
enough to write the new items to disk."""


def facts_of(method: Method) -> MethodFacts:
    """Return the method's facts. Raises `PolicyRefusal` if they are missing or incomplete."""
    name = getattr(method, "name", type(method).__name__)
    try:
        found: Any = method.facts
        disclosed: Any = method.disclosure
    except SecaggError:
        raise
    except Exception as error:  # any: a property of the method runs its author's code
        what = f"its facts cannot be read ({type(error).__name__}: {error})".splitlines()[0]
        raise PolicyRefusal(f"method {name!r}", what, _ADVICE) from error
    if not isinstance(found, MethodFacts) or not isinstance(disclosed, Disclosure):
        missing = "facts" if not isinstance(found, MethodFacts) else "disclosure"
        raise PolicyRefusal(f"method {name!r}", f"does not state its {missing}", _ADVICE)
    return found


_ADVICE: Final = (
    "Sites cannot judge what such a method releases. Its author must define `facts` and "
    "`disclosure` (secagg.contracts.MethodFacts)."
)
