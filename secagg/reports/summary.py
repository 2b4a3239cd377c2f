"""The sentences of a report's first page: claims, warnings and questions.

The facts of the run generate every sentence, so no sentence can claim more than they support. There
is no verdict: a status states that evidence is attached, that it is missing, or that a person must
judge.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from secagg.evidence.claims.claim import Banner, Status
from secagg.evidence.claims.counts import at_least
from secagg.evidence.claims.guarantee import adjacency_in_words, factor, how_strong
from secagg.evidence.claims.privacy import NO_CLAIM, PrivacyClaims, contribution_hidden
from secagg.evidence.claims.rules import opened, sites_in_a_sum, thresholds_met
from secagg.evidence.claims.warnings import EXACT_STAYS, exact_before
from secagg.evidence.claims.warnings import warnings as of_claims
from secagg.evidence.numbers import count, counted, listing, typeset
from secagg.reports.expected_utility import fewer_records_than_expected, red_title
from secagg.reports.expected_utility import in_short as expected_in_short
from secagg.reports.results import blocks

Facts = Mapping[str, Any]
_ANSWERS = (Status.ATTACHED, Status.MISSING, Status.PERSON)
MANY_CLIPPED = "Many values lay outside the public bounds and were clipped"
_MANY_CLIPPED_SHARE = 0.01  # of all rows


@dataclass(frozen=True)
class Question:
    """One line of the first page: a data protection officer's question, its status, its section."""

    text: str
    status: Status
    why: str
    section: str


def in_short(warnings: Sequence[Banner], asked: Sequence[Question]) -> str:
    """Return the first line of the page: how many questions have evidence."""
    if any(banner.void for banner in warnings):
        return "This run protects nothing: see the top of this page."
    attached, missing, person = (sum(q.status == s for q in asked) for s in _ANSWERS)
    text = f"The software answers {attached} of {counted(len(asked), 'question')}; "
    if missing:
        text += f"evidence is missing for {missing}, and "
    text += f"a person must answer {person}."
    return f"Read the warnings first. {text}" if warnings else text


def claim(facts: Facts, claims: PrivacyClaims) -> list[str]:
    """Return the guarantee for a record, its strength, repeated releases, and sites in a sum."""
    strength = how_strong(claims.guarantee) if claims.holds else ""
    rule = f"Opened: {opened(facts)}. {sites_in_a_sum(claims.thresholds)}"
    texts = (typeset(claims.sentence), strength, claims.ledger.repeats, rule)
    return [text for text in texts if text]


def banners(facts: Facts, summary: Mapping[str, Any], claims: PrivacyClaims) -> list[Banner]:
    """Return the warnings at the top of the first page."""
    warnings = of_claims(facts, claims)
    warnings += _of_plan(facts, summary, claims)
    warnings += _of_results(facts, summary)
    if outside := _outside(summary):
        warnings.append(Banner(MANY_CLIPPED, outside))
    clipped = sum(sum(fields.values()) for fields in summary["contributions_clipped"].values())
    if clipped:
        text = (
            f"{counted(clipped, 'contributed number')} lay outside the declared bounds. The sites "
            "replaced them by the bound, so the result is not that of the pooled records."
        )
        warnings.append(Banner("Contributions were clipped", text))
    if "simulation" in summary:
        text = (
            "This page also shows the results of each site alone. Computing them requires each "
            "site's records, which only a simulation has; a federated run cannot show them. Handle "
            "this page like the records themselves."
        )
        warnings.append(Banner("Simulation: results of single sites are shown", text))
    return warnings


def ending(facts: Facts, summary: Mapping[str, Any], claims: PrivacyClaims) -> str:
    """Return the last line of a run whose results may all be used: why to read them with caution.

    The reasons are the banners' and the blocks' own, so no method can end without its caution.
    """
    reasons = [block.caution for block in blocks(facts, summary) if block.caution]
    reasons += [banner.title for banner in _of_plan(facts, summary, claims)]
    reasons += [MANY_CLIPPED] if _outside(summary) else []
    if not reasons:
        return "complete: every result can be used"
    return f"complete, to be read with caution: {'; '.join(dict.fromkeys(reasons))}"


def _of_plan(facts: Facts, summary: Mapping[str, Any], claims: PrivacyClaims) -> list[Banner]:
    """Return what the plan said against a run with noise, and whether it still holds."""
    warnings = []
    if claims.noised and facts["feasibility"]["verdict"] == "red":
        text = f"{expected_in_short(facts)} The plan predicted this from public numbers."
        warnings.append(Banner(red_title(facts), text))
    if claims.noised and (fewer := fewer_records_than_expected(facts, summary)):
        warnings.append(Banner(*fewer))
    return warnings


def _of_results(facts: Facts, summary: Mapping[str, Any]) -> list[Banner]:
    """Return which results must not be used, and which with caution."""
    warnings, shown = [], blocks(facts, summary)
    if failed := [block for block in shown if not block.usable]:
        default = "the method gave no usable result."
        text = " ".join(f"{block.title}: {next(iter(block.notes), default)}" for block in failed)
        warnings.append(Banner(unusable(facts, summary), text))
    if doubtful := [block for block in shown if block.usable and block.caution]:
        text = " ".join(f"{block.title}: {block.caution}." for block in doubtful)
        warnings.append(Banner("Read the result with caution", text))
    return warnings


def unusable(facts: Facts, summary: Mapping[str, Any]) -> str:
    """Return a headline if an analysis has no usable result; "" if all have one."""
    number = sum(not block.usable for block in blocks(facts, summary))
    if number < 2:
        return "A result that must not be used" if number else ""
    return f"{count(number)} results that must not be used"


def _outside(summary: Mapping[str, Any]) -> str:
    """Return which columns had many values outside their bounds; "" if none had."""
    rows = summary["records"] + (summary["incomplete_records"] or 0)
    outside = {
        k: v for k, v in summary["values_outside_bounds"].items() if v > _MANY_CLIPPED_SHARE * rows
    }
    if not outside:
        return ""
    columns = listing([f"“{column}” {at_least(values)}" for column, values in outside.items()])
    return (
        f"Values outside the public bounds in {counted(rows, 'row')}, replaced by the bound: "
        f"{columns}. The result is that of the clipped records, not of the original ones. Check "
        "the bounds and the unit."
    )


def questions(facts: Facts, claims: PrivacyClaims, *, fits: bool) -> list[Question]:
    """Return the officer's questions, each with its status, without a verdict.

    fits: whether the overflow check of every stage holds
    """
    hidden = contribution_hidden(facts, claims)
    must_not_collude = [
        Question(
            "Do different organisations run the parties that must not collude?", Status.PERSON,
            facts["protocol"]["unprotected"][0], "unprotected",
        )
    ]  # fmt: skip
    return [
        Question("What are purpose, legal basis and permit?", Status.PERSON,
                 "Software cannot know this.", "sign"),
        Question("Is a single site's contribution hidden from the coordinator?",
                 hidden.status, hidden.text, "seen"),
        *(must_not_collude if claims.hides_sites else []),
        Question("Does every opened sum cover enough sites?",
                 *_status(thresholds_met(facts),
                          "Each release, with the number of sites that each site signed.",
                          "A release lacks a signature, or sites."), "releases"),
        Question("Were the sums computed without overflow?",
                 *_status(fits, "Bounds and bits, checked before a site read any record.",
                          "The check fails."), "bounds"),
        *_questions_on_noise(facts, claims),
        Question("Was this run attacked to measure what leaks?", Status.PERSON,
                 "Not this run. Whoever holds all records, or simulated ones, can attack the same "
                 "job: secagg audit JOB. Decide whether that is needed.", "unprotected"),
        Question("Is the record of this run unchanged?", Status.PERSON,
                 "Run the check, with the chain head kept elsewhere.", "integrity"),
    ]  # fmt: skip


def _status(holds: bool, evidence: str, problem: str) -> tuple[Status, str]:
    return (Status.ATTACHED, evidence) if holds else (Status.MISSING, problem)


def _questions_on_noise(facts: Facts, claims: PrivacyClaims) -> list[Question]:
    """Return the questions about what releases reveal about one record."""
    if not claims.noised:
        return [
            Question("May exact sums be released, without noise?", Status.PERSON,
                     "The section states what they determine.", "seen"),
        ]  # fmt: skip
    guarantee, ledger = claims.guarantee, claims.ledger
    added_up, standing = ledger.kept, ledger.standing
    strength = NO_CLAIM
    if claims.holds:
        adjacency = adjacency_in_words(guarantee, guarantee["adjacency"])
        strength = f"{claims.epsilon_and_delta}, {adjacency}; a factor of {factor(guarantee)}."
    if exact_before(ledger):
        added_up, standing = False, f"{EXACT_STAYS}."
    return [
        Question(f"Is the effect of one {guarantee['unit']} on all releases of this run bounded?",
                 *_status(claims.holds, "Sensitivity, noise and composition, computed again.",
                          NO_CLAIM), "privacy"),
        Question("Are unit, ε and δ adequate for these records?", Status.PERSON, strength,
                 "privacy"),
        Question("Are all releases of these records added up?",
                 *_status(added_up, ledger.together, standing), "privacy"),
        Question("Is the result exact enough for its purpose?", Status.PERSON,
                 expected_in_short(facts), "result"),
    ]  # fmt: skip
