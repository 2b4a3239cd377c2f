"""What a method says of itself to plan, report and terminal: plain data that is kept with the run.

A report is made from the files of a run alone, so all of this is written to run.json.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Final


class DisclosureKind(StrEnum):
    """What the sums of all rounds, taken together, tell."""

    POOLED = "pooled"  # statistics of the pooled records, and nothing of a single site
    SITES = "sites"  # they may reveal single sites: a person must judge
    SOLVABLE = "solvable"  # an honest coordinator can solve them for single sites


@dataclass(frozen=True)
class Disclosure:
    """What the sums of all rounds tell, in words for plan and report.

    kind: POOLED only where the method's docstring shows it, and a test checks it
    text: what all sums together determine
    if_malicious: what a coordinator can read that does not send what the method computes
    if_malicious_noised: the same where every sum has noise; empty: as without noise
    if_honest: what officers ask of a coordinator that follows the method, with the answers; shown
        only under a protocol that hides sites from it
    other_runs: what runs of other methods over the same records would add by subtraction; shown
        only without noise
    """

    kind: DisclosureKind
    text: str
    if_malicious: str
    if_malicious_noised: str = ""
    if_honest: tuple[str, ...] = ()
    other_runs: str = ""


ASKED_ONCE: Final = (
    "It gains nothing by this: sites are asked once, and what they contribute depends on no number "
    "that the coordinator chooses. It still decides which sites are asked."
)
"""`Disclosure.if_malicious` of a method with one round and an empty message."""

TRUSTED: Final = (
    "It is trusted to send what the method computes, and sites cannot check whether it does."
)
"""Beginning of `Disclosure.if_malicious` of a method whose sums depend on what was sent."""

ANY_MESSAGE: Final = (
    f"{TRUSTED} Every sum depends on what was sent: a coordinator that chooses its messages itself "
    "may make a sum depend mostly on few records. The number of rounds limits how often it can ask."
)
"""`Disclosure.if_malicious` where nothing more is known."""


class TableKind(StrEnum):
    """Which table shows a summary, and with it which keys the summary has."""

    REGRESSION = "regression"  # outcome, terms
    GRAPH = "graph"  # names, edges, settings
    DESCRIPTION = "description"  # columns, correlation, n
    POSTERIOR = "posterior"  # outcome, coefficients with PIPs, prior, sampler
    POSTERIOR_GRAPH = "posterior graph"  # names, pairs or arrows, prior, sampler
    SITES = "sites"  # outcome, across_sites, errors
    NUMBERS = "numbers"  # every number by its label; what a new method gets without more work


Label = tuple[str, str]
"""What a number is called, and what it means; the second is empty where the first says it."""


@dataclass(frozen=True)
class ResultTable:
    """How one summary of a result is shown.

    title: its heading
    labels: of its single numbers, by their keys in the summary; a key without one is shown as it is
    converged: what is said of a method that reached its goal, in place of "Converged"
    caption: of a graph: how far its arrows may be read as causes
    weights: of a graph: the unit of its weights
    """

    title: str
    kind: TableKind = TableKind.NUMBERS
    labels: Mapping[str, Label] = field(default_factory=dict)
    converged: str = ""
    caption: str = ""
    weights: str = ""
