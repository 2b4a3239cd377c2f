"""The sentences of a report's first page: claims, warnings and questions.

The facts of the run generate every sentence, so no sentence can claim more than they support. There
is no verdict: a status states that evidence is attached, that it is missing, or that a person must
judge.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal, get_args

from secagg.contracts import DisclosureKind
from secagg.reports.disclosure import disclosure_kind, headline
from secagg.reports.dp_claims import PrivacyClaims, adjacency_in_words
from secagg.reports.dp_plain_language import explain_epsilon, factor
from secagg.reports.expected_utility import fewer_records_than_expected, red_title
from secagg.reports.expected_utility import in_short as expected_in_short
from secagg.reports.ledgers import LedgerClaims
from secagg.reports.numbers import count, counted, listing, typeset
from secagg.reports.results import blocks
from secagg.reports.site_counts import at_least

Facts = Mapping[str, Any]
Status = Literal["evidence attached", "evidence missing", "needs a person"]
EXACT_BEFORE = "Exact sums of these sites were released before"
MANY_CLIPPED = "Many values lay outside the public bounds and were clipped"
_MANY_CLIPPED_SHARE = 0.01  # of all rows


@dataclass(frozen=True)
class Banner:
    """A warning on the first page. `void`: the run protects nothing."""

    title: str
    text: str
    void: bool = False


@dataclass(frozen=True)
class Question:
    """One line of the first page: a data protection officer's question, its status, its section."""

    text: str
    status: Status
    why: str
    section: str


def _thresholds_met(facts: Facts) -> bool:
    """Return whether each release has every site's signed threshold, and that many sites."""
    return bool(facts["releases"]) and all(
        set(release["contributors"]) == set(release["claims"]) == set(release["thresholds"])
        and len(release["contributors"]) >= max(release["thresholds"].values())
        for release in facts["releases"]
    )


def in_short(warnings: Sequence[Banner], asked: Sequence[Question]) -> str:
    """Return the first line of the page: how many questions have evidence."""
    if any(banner.void for banner in warnings):
        return "This run protects nothing: see the banner."
    attached, missing, person = (sum(q.status == s for q in asked) for s in get_args(Status))
    return (
        f"{'Read the warnings first. ' if warnings else ''}Of {len(asked)} questions, {attached} "
        f"{'has' if attached == 1 else 'have'} evidence on this page, {missing} "
        f"{'has' if missing == 1 else 'have'} none, and a person must answer {person}."
    )


def claim(facts: Facts, claims: PrivacyClaims) -> list[str]:
    """Return the guarantee for a record, its strength, repeated releases, and sites in a sum."""
    signed = claims.thresholds
    min_sites = min(len(release["contributors"]) for release in facts["releases"])
    rule = (
        f"Every opened sum covers at least {counted(min_sites, 'site')}. Each site signed that a "
        f"sum with its contribution covers at least {counted(min(signed), 'site')}"
    )
    if max(signed) > min(signed):
        rule += f"; some required more, and the largest number, {max(signed)}, is binding"
    texts = (typeset(claims.sentence), explain_epsilon(claims), claims.ledger.repeats, f"{rule}.")
    return [text for text in texts if text]


def who_saw(facts: Facts, claims: PrivacyClaims) -> str:
    """Return who saw what, in how many sums over how many sites."""
    noise = "all with noise, " if claims.noised else ""
    scope = (
        f"In {counted(len(facts['releases']), 'release')} over "
        f"{counted(len(facts['cohort']), 'site')}, {noise}"
    )
    parts = [
        f"{'the coordinator' if role == 'coordinator' else f'each {role}'} saw {what}"
        for role, what in claims.sees.items()
    ]
    return scope + "; ".join(parts) + "."


def consent(facts: Facts, claims: PrivacyClaims) -> str:
    """Return which sites consented, when and why, and which sites did not."""
    signed = facts["consented"]
    sites = [party["name"] for party in facts["roster"] if party["role"] == "site"]
    silent = [name for name in sites if name not in signed]
    grounds = "rules and its budget" if claims.noised else "rules, its records and its budget"
    others = ""
    if silent:
        others = f"; {listing(silent)} did not sign and {'are' if silent[1:] else 'is'} in no sum"
    return (
        "Before the first sum the coordinator asked every site for its consent to this job, these "
        f"bounds and these terms. Each site decided by its {grounds}. Before the first sum of the "
        f"method, each site also considered the count of records. {listing(signed)} signed consent"
        f"{others}. The signatures show that consent came first, because a site's program signs no "
        "consent after a contribution."
    )


def banners(facts: Facts, summary: Mapping[str, Any], claims: PrivacyClaims) -> list[Banner]:
    """Return the warnings at the top of the first page."""
    warnings: list[Banner] = []
    if not facts["protocol"]["hides_from_coordinator"]:
        warnings.append(_nothing_hidden(facts, claims))
    if not claims.secret_randomness:
        noise = ", and all noise, which can then be subtracted" if claims.noised else ""
        text = (
            "The randomness of this run can be reproduced. Anybody who knows the seed can compute "
            f"every key and every share, and with them each site's own contribution{noise}. This "
            "run protects nothing."
        )
        warnings.append(Banner("Privacy: void. Replayable randomness", text, void=True))
    elif claims.noised and not claims.holds:
        text = (
            "The sites added noise, but the stated epsilon and delta do not follow from the other "
            "facts of this run. This report does not claim them."
        )
        warnings.append(Banner("The claim of differential privacy does not hold", text))
    if claims.noised and (before := _exact_before(claims.ledger)):
        text = f"{before} Against anybody who has both, the epsilon of this run bounds nothing."
        warnings.append(Banner(EXACT_BEFORE, text))
    if claims.noised and facts["feasibility"]["verdict"] == "red":
        text = f"{expected_in_short(facts)} The plan predicted this from public numbers."
        warnings.append(Banner(red_title(facts), text))
    if claims.noised and (fewer := fewer_records_than_expected(facts, summary)):
        warnings.append(Banner(*fewer))
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
    if title := headline(disclosure_kind(facts), noised=claims.noised):
        text = f"What they determine: {facts['method']['disclosure']['text']}"
        warnings.append(Banner(title, text))
    if "simulation" in summary:
        text = (
            "This page also shows the results of each site alone. Computing them requires each "
            "site's records, which only a simulation has; a federated run cannot show them. Handle "
            "this page like the records themselves."
        )
        warnings.append(Banner("Simulation: results of single sites are shown", text))
    if min(claims.thresholds) == 2:
        noise = ", with that site's noise" if claims.noised else ""
        text = (
            "A site signed that two sites are enough. In a sum over two sites, each site can "
            f"subtract its own contribution and read the other's{noise}."
        )
        warnings.append(Banner("A sum over two sites does not protect a site from the other", text))
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


def _exact_before(ledger: LedgerClaims) -> str:
    """Return which ledgers contain earlier exact sums; "" if none does."""
    if ledger.exact:
        releases = counted(ledger.exact, "exact release")
        return f"The coordinator's ledger contains {releases} of sums over these sites."
    if ledger.exact_at:
        return f"The ledgers of {listing(ledger.exact_at)} contain exact sums."
    return ""


def _nothing_hidden(facts: Facts, claims: PrivacyClaims) -> Banner:
    name = facts["protocol"]["name"]
    if claims.noised and claims.secret_randomness:
        text = (
            f"Protocol “{name}” hides no site: the coordinator read every site's own contribution. "
            "Only the noise that each site added protects its records."
        )
        return Banner("Only noise protects: the coordinator saw each site's contribution", text)
    text = (
        f"Protocol “{name}” protects nothing: the coordinator read every site's own contribution "
        "in clear. Its purpose is to check the other protocols."
    )
    return Banner("This run protects nothing", text, void=True)


def questions(facts: Facts, claims: PrivacyClaims, *, fits: bool) -> list[Question]:
    """Return the officer's questions, each with its status, without a verdict.

    fits: whether the overflow check of every stage holds
    """
    must_not_collude = [
        Question(
            "Do different organisations run the parties that must not collude?", "needs a person",
            facts["protocol"]["unprotected"][0], "unprotected",
        )
    ]  # fmt: skip
    return [
        Question("What are purpose, legal basis and permit?", "needs a person",
                 "Software cannot know this.", "sign"),
        Question("Is a single site's contribution hidden from the coordinator?",
                 *_hidden(facts, claims), "seen"),
        *(must_not_collude if claims.hides_sites else []),
        Question("Does every opened sum cover enough sites?",
                 *_status(_thresholds_met(facts),
                          "Each release, with the number of sites that each site signed.",
                          "A release lacks a signature, or sites."), "releases"),
        Question("Were the sums computed without overflow?",
                 *_status(fits, "Bounds and bits, checked before a site read any record.",
                          "The check fails."), "bounds"),
        *_questions_on_noise(facts, claims),
        Question("Was this run attacked to measure what leaks?", "needs a person",
                 "Not this run. Whoever holds all records, or simulated ones, can attack the same "
                 "job: secagg audit JOB. Decide whether that is needed.", "unprotected"),
        Question("Is the record of this run unchanged?", "needs a person",
                 "Run the check, with the chain head kept elsewhere.", "integrity"),
    ]  # fmt: skip


def _hidden(facts: Facts, claims: PrivacyClaims) -> tuple[Status, str]:
    """Return whether a contribution is hidden, in each sum and in all sums together."""
    kind = disclosure_kind(facts)
    if claims.hides_sites and kind is DisclosureKind.SOLVABLE:
        return "evidence missing", (
            "Each message hides it, but with few sites all sums together can be solved for the "
            "contributions of single sites: see the banner."
        )
    if claims.hides_sites and kind is DisclosureKind.SITES:
        return "needs a person", (
            "Each message hides it, but all sums together may reveal single sites: the section "
            "states what they determine."
        )
    if claims.hides_sites and facts["engine"]["name"] == "memory":
        return "needs a person", (
            "Each message hides it. But one process played all parties and held all records and "
            "keys: judge who controlled it."
        )
    where = (
        "Which parties shared a computer, secagg cannot tell."
        if "pinned_roster" in facts["engine"]
        else "All parties ran on one computer, so separate computers were not tested."
    )
    return _status(
        claims.hides_sites,
        f"By role and message. {where}",
        "It is not hidden: see the banner.",
    )


def _status(holds: bool, evidence: str, problem: str) -> tuple[Status, str]:
    return ("evidence attached", evidence) if holds else ("evidence missing", problem)


def _questions_on_noise(facts: Facts, claims: PrivacyClaims) -> list[Question]:
    """Return the questions about what releases reveal about one record."""
    if not claims.noised:
        return [
            Question("May exact sums be released, without noise?", "needs a person",
                     "The section states what they determine.", "seen"),
        ]  # fmt: skip
    guarantee, ledger = claims.guarantee, claims.ledger
    added_up, standing = ledger.kept, ledger.standing
    problem = "The claim does not follow from the facts: see the banner."
    strength = problem
    if claims.holds:
        adjacency = adjacency_in_words(guarantee, guarantee["adjacency"])
        strength = f"{claims.epsilon_and_delta}, {adjacency}; a factor of {factor(guarantee)}."
    if _exact_before(ledger):
        added_up, standing = False, "Some releases are exact; noise cannot compensate for them."
    return [
        Question(f"Is the effect of one {guarantee['unit']} on all releases of this run bounded?",
                 *_status(claims.holds, "Sensitivity, noise and composition, computed again.",
                          problem), "privacy"),
        Question("Are unit, ε and δ adequate for these records?", "needs a person", strength,
                 "privacy"),
        Question("Are all releases of these records added up?",
                 *_status(added_up, ledger.together, standing), "privacy"),
        Question("Is the result exact enough for its purpose?", "needs a person",
                 expected_in_short(facts), "result"),
    ]  # fmt: skip


def where_it_ran(facts: Facts) -> str:
    """Return where the parties of this run were."""
    engine = facts["engine"]
    if engine["name"] == "memory":
        return "one computer, all parties in one process"
    processes = counted(engine["processes"], "process", "processes")
    text = f"one computer, {processes}, one for each party"
    if pinned := engine.get("pinned_roster"):
        text = (
            f"each party at its own place, over {engine['name'].upper()}; roster with the "
            f"fingerprint {pinned}"
        )
    if engine["resumed"]:
        text += f"; interrupted and resumed {counted(engine['resumed'], 'time')}"
    return text


def dropped(facts: Facts) -> Sequence[str]:
    """Return the sites in the roster whose data is in no sum."""
    cohort = set(facts["cohort"])
    return [p["name"] for p in facts["roster"] if p["role"] == "site" and p["name"] not in cohort]
