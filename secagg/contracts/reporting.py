"""How a method describes its result and its disclosures, for `secagg plan`, report and terminal.

These descriptions are written to run.json, because a report uses only the files of a run.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from enum import StrEnum
from typing import Any, Final

from numpy.typing import NDArray


@dataclass(frozen=True)
class Result:
    """The result of a run. `summary` is written to result.json, `arrays` to arrays.npz."""

    summary: dict[str, Any]
    arrays: dict[str, NDArray[Any]] = field(default_factory=dict)


class DisclosureKind(StrEnum):
    """What the sums of all rounds together reveal."""

    POOLED = "pooled"  # only statistics of the pooled records, and nothing about a single site
    SITES = "sites"  # perhaps something about single sites: a person must judge this
    SOLVABLE = "solvable"  # the numbers of single sites: an honest coordinator can solve for them


@dataclass(frozen=True)
class Disclosure:
    """What the sums of all rounds together reveal, as texts for plan and report.

    kind: `POOLED` only if the method's docstring derives it and a test checks it
    text: what all sums together determine
    if_malicious: what a coordinator can learn that sends other messages than the method computes
    if_malicious_noised: what such a coordinator can learn if every sum has noise; if this text is
        empty, `if_malicious` holds with noise too
    if_honest: questions of data-protection officers about a coordinator that follows the method,
        with answers; shown only if the protocol hides contributions from the coordinator
    other_runs: what could be computed by subtracting these sums and those of other methods' runs
        on the same records; shown only without noise
    attacks: names of attacks that carry out what the texts state (`secagg list attacks`)
    text_noised: what all sums together determine if there is noise; if this text is empty, `text`
        holds with noise too, up to the noise
    kind_noised: the kind if there is noise, for a method that is then another algorithm, to which
        the attacks do not apply; None for `kind`
    """

    kind: DisclosureKind
    text: str
    if_malicious: str
    if_malicious_noised: str = ""
    if_honest: tuple[str, ...] = ()
    other_runs: str = ""
    attacks: tuple[str, ...] = ()
    text_noised: str = ""
    kind_noised: DisclosureKind | None = None

    def under_noise(self) -> Disclosure:
        """Return what the sums of a run with noise reveal."""
        return replace(
            self,
            kind=self.kind_noised or self.kind,
            text=self.text_noised or self.text,
            attacks=self.attacks if self.kind_noised is None else (),
        )


ASKED_ONCE: Final = (
    "Such a coordinator learns nothing more, because sites are asked once, and their contributions "
    "depend on no number that the coordinator chooses. It still decides which sites are asked."
)
"""`Disclosure.if_malicious` of a method with one round, in which sites receive an empty message."""

TRUSTED: Final = (
    "The coordinator is trusted to send what the method computes, and sites cannot check whether "
    "it does."
)
"""Beginning of `Disclosure.if_malicious` of a method whose sums depend on the coordinator's
messages."""

ANY_MESSAGE: Final = (
    f"{TRUSTED} Every sum depends on what it sends. A coordinator that sends other numbers may "
    "make a sum depend mostly on few records. The number of rounds limits how often it can do this."
)
"""`Disclosure.if_malicious` of a method about which nothing more is known."""


class TableKind(StrEnum):
    """The kind of table that shows a summary. It determines the keys of the summary (comments)."""

    REGRESSION = "regression"  # outcome, terms
    GRAPH = "graph"  # names, edges, settings
    DESCRIPTION = "description"  # columns, correlation, n
    POSTERIOR = "posterior"  # outcome, coefficients with PIPs, prior, sampler
    POSTERIOR_GRAPH = "posterior graph"  # names, pairs or arrows, prior, sampler
    SITES = "sites"  # outcome, across_sites, errors
    COUNTS = "counts"  # tables: columns, levels, counts, std_error
    NETWORK = "network"  # status, losses, calibration; of a graph also: names, edges
    NUMBERS = "numbers"  # every number with its label; the default for a new method


Label = tuple[str, str]
"""The name of a number and its meaning. The meaning is empty if the name is enough."""


@dataclass(frozen=True)
class ResultTable:
    """How one summary of a result is shown.

    title: heading of the table
    kind: kind of the table
    labels: the label of each single number, by its key in the summary; without a label, the key
        itself is shown
    converged: the words shown in place of "Converged" when the method has reached its goal
    caption: for a graph, to what extent its arrows may be interpreted as causes
    weights: for a graph, the unit of the weights of its edges
    """

    title: str
    kind: TableKind = TableKind.NUMBERS
    labels: Mapping[str, Label] = field(default_factory=dict)
    converged: str = ""
    caption: str = ""
    weights: str = ""
