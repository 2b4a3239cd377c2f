"""The sentences of a report's first page: what is claimed, warned of and asked.

Every sentence is generated from the facts of the run, so that it cannot say more than they do.
There is no verdict: a status says whether evidence is attached, is missing, or a person must judge.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal, get_args

from secagg.contracts import DisclosureKind
from secagg.reports.disclosure import disclosure_kind, headline
from secagg.reports.dp_claims import PrivacyClaims, changed
from secagg.reports.dp_plain_language import explain_epsilon, factor
from secagg.reports.expected_utility import fewer_records_than_expected
from secagg.reports.expected_utility import in_short as expected_in_short
from secagg.reports.ledgers import LedgerClaims
from secagg.reports.numbers import count, counted, listing
from secagg.reports.results import blocks

Facts = Mapping[str, Any]
Status = Literal["evidence attached", "evidence missing", "needs a person"]
EXACT_BEFORE = "Exact sums of these sites were released before"
MANY_CLIPPED = "Many values lay outside the public bounds and were clipped"
_MANY_CLIPPED_SHARE = 0.01  # of all rows


@dataclass(frozen=True)
class Banner:
    """A warning that nobody may miss. `void`: the run protects nothing."""

    title: str
    text: str
    void: bool = False


@dataclass(frozen=True)
class Question:
    """One line of the first page: what an officer asks, how it stands, and where to read on."""

    asked: str
    status: Status
    why: str
    section: str


def _rule_kept(facts: Facts) -> bool:
    """Say whether each release has a signed claim of each site and as many sites as they ask."""
    return bool(facts["releases"]) and all(
        set(release["contributors"]) == set(release["claims"]) == set(release["thresholds"])
        and len(release["contributors"]) >= max(release["thresholds"].values())
        for release in facts["releases"]
    )


def in_short(found: Sequence[Banner], asked: Sequence[Question]) -> str:
    """Return how the questions stand, for the first line of the page; a verdict is never given."""
    if any(banner.void for banner in found):
        return "This run protects nothing: see the banner."
    attached, missing, person = (sum(q.status == s for q in asked) for s in get_args(Status))
    return (
        f"{'Read the warnings first. ' if found else ''}Of {len(asked)} questions, {attached} "
        f"{'has its' if attached == 1 else 'have their'} evidence on this page, {missing} "
        f"{'has' if missing == 1 else 'have'} none, and {person} "
        f"{'needs' if person == 1 else 'need'} a person."
    )


def claim(facts: Facts, claims: PrivacyClaims) -> list[str]:
    """Return what is guaranteed of a record and how much that is, and how many sites a sum covers.

    Sums that only repeat what an earlier run released are named, too.
    """
    signed = claims.thresholds
    least = min(len(release["contributors"]) for release in facts["releases"])
    rule = (
        f"Every sum that was opened covers at least {counted(least, 'site')}; the smallest "
        f"threshold that a site signed is k = {min(signed)}"
    )
    if max(signed) > min(signed):
        rule += f", the strictest, which decides, {max(signed)}"
    told = (claims.sentence, explain_epsilon(claims), claims.ledger.repeats, f"{rule}.")
    return [text for text in told if text]


def who_saw(facts: Facts, claims: PrivacyClaims) -> str:
    """Return who saw what, in how many sums over how many sites."""
    over = f"In {counted(len(facts['releases']), 'release')} over "
    over += (
        f"{counted(len(facts['cohort']), 'site')}, {'all with noise, ' if claims.noised else ''}"
    )
    parts = [
        f"{'the coordinator' if role == 'coordinator' else f'each {role}'} saw {what}"
        for role, what in claims.sees.items()
    ]
    return over + "; ".join(parts) + "."


def consent(facts: Facts, claims: PrivacyClaims) -> str:
    """Return who consented, on what grounds and when, and who was asked and did not."""
    signed = facts["consented"]
    sites = [party["name"] for party in facts["roster"] if party["role"] == "site"]
    silent = [name for name in sites if name not in signed]
    grounds = "rules and its budget" if claims.noised else "rules, its records and its budget"
    others = ""
    if silent:
        others = f"; {listing(silent)} did not, and {'are' if silent[1:] else 'is'} in no sum"
    return (
        "Before the first sum every site was asked for its consent to this job, these bounds and "
        f"these terms. Each that consented decided on its {grounds}; before the first sum of the "
        "method, on what the count of records had shown as well. Consent was signed by "
        f"{listing(signed)}{others}. That it came first is what the signatures show: a site that "
        "has contributed no longer signs it."
    )


def banners(facts: Facts, summary: Mapping[str, Any], claims: PrivacyClaims) -> list[Banner]:
    """Return what must be read before anything else."""
    found: list[Banner] = []
    if not facts["protocol"]["hides_from_coordinator"]:
        found.append(_nothing_hidden(facts, claims))
    if not claims.secret_randomness:
        noise = ", and all noise, which they can subtract" if claims.noised else ""
        text = (
            "Its randomness was replayable: whoever knows the seed can compute every key and every "
            f"share, and with them each site's own contribution{noise}. This run protects nothing."
        )
        found.append(Banner("Privacy: void. Replayable randomness", text, void=True))
    elif claims.noised and not claims.holds:
        text = (
            "Noise was added, but the epsilon and delta that this run states do not follow from "
            "its other facts. Nothing is claimed of them here."
        )
        found.append(Banner("A claim of differential privacy that does not hold", text))
    if claims.noised and (before := _exact_before(claims.ledger)):
        text = f"{before} The epsilon of this run bounds nothing against whoever has both."
        found.append(Banner(EXACT_BEFORE, text))
    if claims.noised and facts["feasibility"]["verdict"] == "red":
        text = f"{expected_in_short(facts)} The plan said so from public numbers."
        found.append(Banner("Noise was expected to drown the result", text))
    if claims.noised and (less := fewer_records_than_expected(facts, summary)):
        found.append(Banner(*less))
    if useless := [block for block in blocks(facts, summary) if not block.usable]:
        goal = "the method did not reach its goal."
        text = " ".join(f"{block.title}: {next(iter(block.notes), goal)}" for block in useless)
        found.append(Banner(unusable(facts, summary), text))
    if far := _outside(summary):
        found.append(Banner(MANY_CLIPPED, far))
    clipped = sum(sum(fields.values()) for fields in summary["contributions_clipped"].values())
    if clipped:
        text = (
            f"{counted(clipped, 'contributed number')} lay outside the declared bounds and "
            "went into the sums as the bound: the result is not that of the pooled records."
        )
        found.append(Banner("Contributions were clipped", text))
    if title := headline(disclosure_kind(facts)):
        text = f"What they determine: {facts['method']['disclosure']['text']}"
        found.append(Banner(title, text))
    if "simulation" in summary:
        text = (
            "This page also shows what each site would find alone. That was computed by reading "
            "each site's records, which only a simulation can do: a federated run shows no such "
            "thing, and this page must be handled like the records themselves."
        )
        found.append(Banner("Simulation: single-site results shown", text))
    if min(claims.thresholds) == 2:
        noise = ", with that site's noise" if claims.noised else ""
        text = (
            "A site signed a threshold of two. In a sum over two sites, each reads the other's "
            f"contribution{noise}, by subtracting its own."
        )
        found.append(Banner("k = 2 protects no site from the other", text))
    return found


def unusable(facts: Facts, summary: Mapping[str, Any]) -> str:
    """Return a headline if a method did not reach its goal; empty if each did."""
    number = sum(not block.usable for block in blocks(facts, summary))
    if number < 2:
        return "A result that must not be used" if number else ""
    return f"{count(number)} results that must not be used"


def _outside(summary: Mapping[str, Any]) -> str:
    """Return which columns had many values outside their bounds; empty if none had."""
    rows = summary["records"] + (summary["incomplete_records"] or 0)
    far = {
        k: v for k, v in summary["values_outside_bounds"].items() if v > _MANY_CLIPPED_SHARE * rows
    }
    if not far:
        return ""
    named = listing([f"“{column}” {count(values)}" for column, values in far.items()])
    return (
        f"Of {counted(rows, 'row')}, so many had a value outside the public bounds, which went in "
        f"as the bound: {named}. The result is of the records as clipped, not as they are. Are "
        "the bounds right, and the unit?"
    )


def _exact_before(ledger: LedgerClaims) -> str:
    """Return by whose ledgers exact sums were released before; empty if by none's."""
    if ledger.exact:
        release = counted(ledger.exact, "exact release")
        return f"The coordinator's ledger has {release} of sums over these sites."
    return (
        f"Exact sums are in the ledgers of {listing(ledger.exact_at)}." if ledger.exact_at else ""
    )


def _nothing_hidden(facts: Facts, claims: PrivacyClaims) -> Banner:
    name = facts["protocol"]["name"]
    if claims.noised and claims.secret_randomness:
        text = (
            f"Protocol “{name}” hides no site: the coordinator read every site's own contribution. "
            "All that protects the records in it is the noise that the site had added."
        )
        return Banner("Only noise protects: each site's contribution was seen", text)
    text = (
        f"Protocol “{name}” protects nothing: the coordinator read every site's own contribution "
        "in clear. Its use is to check the other protocols."
    )
    return Banner("This run protects nothing", text, void=True)


def questions(facts: Facts, claims: PrivacyClaims, *, fits: bool) -> list[Question]:
    """Return the officer's questions, each with its status; a verdict is never given.

    fits: whether every stage's proof of fit holds
    """
    kept = _rule_kept(facts)
    must_not_collude = [
        Question(
            "Are the parties that must not collude run by different bodies?", "needs a person",
            facts["protocol"]["unprotected"][0], "unprotected",
        )
    ]  # fmt: skip
    return [
        Question("What are purpose, legal basis and permit?", "needs a person",
                 "Not known to software.", "sign"),
        Question("Is a single site's contribution hidden from the coordinator?",
                 *_hidden(facts, claims), "seen"),
        *(must_not_collude if claims.hides_sites else []),
        Question("Does every opened sum cover enough sites?",
                 *_shown(kept, "Each release with its sites' signed thresholds.",
                        "A release lacks a signature, or sites."), "releases"),
        Question("Were the sums computed without overflow?",
                 *_shown(fits, "Bounds and bits, proved before any record was read.",
                        "The proof does not hold."), "bounds"),
        *_of_noise(facts, claims),
        Question("Was this run attacked to measure what leaks?", "evidence missing",
                 "No attack was run on this transcript.", "unprotected"),
        Question("Is the record of this run unchanged?", "needs a person",
                 "Run the check, with the chain head kept elsewhere.", "integrity"),
    ]  # fmt: skip


def _hidden(facts: Facts, claims: PrivacyClaims) -> tuple[Status, str]:
    """Say whether a contribution is hidden, in each sum and in all of them together."""
    kind = disclosure_kind(facts)
    if claims.hides_sites and kind is DisclosureKind.SOLVABLE:
        return "evidence missing", (
            "Each message hides it, but where sites are few all sums together can be solved for "
            "what every single site contributed: see the banner."
        )
    if claims.hides_sites and kind is DisclosureKind.SITES:
        return "needs a person", (
            "Each message hides it, but all sums together may reveal single sites: what they "
            "determine is stated."
        )
    return _shown(
        claims.hides_sites,
        "By role and message; but all was played on one computer.",
        "It is not: see the banner.",
    )


def _shown(holds: bool, why: str, why_not: str) -> tuple[Status, str]:
    return ("evidence attached", why) if holds else ("evidence missing", why_not)


def _of_noise(facts: Facts, claims: PrivacyClaims) -> list[Question]:
    """Return the questions about what releases tell of one record."""
    if not claims.noised:
        return [
            Question("May exact sums be released, without noise?", "needs a person",
                     "What they determine is stated.", "seen"),
        ]  # fmt: skip
    guarantee, ledger = claims.guarantee, claims.ledger
    added_up, standing = ledger.kept, ledger.standing
    why_not = "It does not follow from the facts: see the banner."
    size = why_not
    if claims.holds:
        size = f"{claims.size}, {changed(guarantee, guarantee['adjacency'])}; a factor of "
        size += f"{factor(guarantee)}."
    if _exact_before(ledger):
        added_up, standing = False, "Exact sums are among them, which no noise makes up for."
    return [
        Question(f"Is what one {guarantee['unit']} changes bounded in all that this run released?",
                 *_shown(claims.holds, "Sensitivity, noise, composition, worked out again.",
                         why_not), "privacy"),
        Question("Are unit, ε and δ fit for these records?", "needs a person", size, "privacy"),
        Question("Are all releases of these records added up?",
                 *_shown(added_up, ledger.together, standing), "privacy"),
        Question("Is the result exact enough for its purpose?", "needs a person",
                 expected_in_short(facts), "result"),
    ]  # fmt: skip


def played_on(facts: Facts) -> str:
    """Return where the parties of this run were."""
    engine = facts["engine"]
    if engine["name"] == "memory":
        return "one computer, all parties in one process"
    words = (
        f"one computer, {counted(engine['processes'], 'process', 'processes')}, one for each party"
    )
    if engine["resumed"]:
        words += f"; interrupted and resumed {counted(engine['resumed'], 'time')}"
    return words


def dropped(facts: Facts) -> Sequence[str]:
    """Return the sites in the roster whose data is in no sum."""
    cohort = set(facts["cohort"])
    return [p["name"] for p in facts["roster"] if p["role"] == "site" and p["name"] not in cohort]
