"""Where the form contradicts the runs: what it says that they lack, and what they have that it
does not say.

Answers are free text, so this reads only what stands there plainly: names of sites and protocols,
numbers, years. It can ask in vain, and it finds no contradiction in other words. So nothing that
it does not name is thereby confirmed: an answer stays "stated by a person".

| question        | contradicts the runs if                                                       |
|-----------------|-------------------------------------------------------------------------------|
| aggregators     | it names some and no run has one; it says none and a run has some             |
| sites           | it has another number of sites; it names some sites of a run but not all      |
| sites, separate | all parties of a run ran on one computer                                      |
| any of trust    | it names a protocol that no run used                                          |
| epsilon         | it states another ε; an ε where no run has noise; no noise where one has      |
| rows per person | it says more than the guarantee protects, or another number than it           |
| source,         | it says fewer records than took part, or another number; it has a year after  |
| population      | the run                                                                       |
| tuning          | it says public or simulated records, and an attached experiment has private   |
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterator, Sequence

from secagg.compliance.evidence import AllEvidence, RunEvidence, well_formed
from secagg.compliance.placeholders import says_none
from secagg.compliance.statements import Evidence
from secagg.core.identity import Role
from secagg.evidence.numbers import count, counted, listing, significant
from secagg.jobs.registry import PROTOCOLS

Found = tuple[str, str, tuple[Evidence, ...]]
"""A key of the form, as `trust/sites`; what contradicts it; where that is."""

_WORDS = ("zero", "one", "two", "three", "four", "five", "six", "seven", "eight", "nine", "ten",
          "eleven", "twelve", "thirteen", "fourteen", "fifteen", "sixteen", "seventeen",
          "eighteen", "nineteen", "twenty")  # fmt: skip
_VALUES = {word: float(i) for i, word in enumerate(_WORDS)} | {"single": 1.0, "both": 2.0}
_NUMBER = r"(?<![\w.,])\d{1,3}(?:[,' ]\d{3})+(?![\d])|(?<![\w.])\d+(?:\.\d+)?"
_MONTHS = "jan|feb|mar|apr|may|jun|jul|aug|sep|oct|nov|dec"
_DATE = re.compile(
    rf"\d{{4}}-\d\d(?:-\d\d)?|\d{{1,2}}\.\s?\d{{1,2}}\.\s?\d{{2,4}}|\d{{1,2}}/\d{{1,2}}/\d{{2,4}}"
    rf"|\d{{1,2}}\.?\s+(?:{_MONTHS})\w*\.?(?:\s+\d{{4}})?|(?:{_MONTHS})\w*\.?\s+\d{{1,2}}(?:,?\s+\d{{4}})?"
    r"|(?:19|20|21)\d\d",
    re.IGNORECASE,
)
_EPSILON = re.compile(rf"(?:ε|\beps(?:ilon)?\b)\s*(?:=|≤|<=|:|of|is|at most)?\s*({_NUMBER})", re.I)
_RECORDS = re.compile(
    rf"({_NUMBER})\s+(?:\w+\s+)?(?:records?|rows|patients|persons|people|cases|participants|"
    r"subjects|individuals|adults|children|women|men)\b", re.I,
)  # fmt: skip
_SITES = re.compile(
    rf"({_NUMBER}|\b(?:{'|'.join(_VALUES)})\b)\s+(?:\w+\s+)?(?:sites?|hospitals?|clinics?|centres?|"
    r"centers?|organi[sz]ations?|institutions?|parties|registries|universities|companies)\b", re.I,
)  # fmt: skip
_AGGREGATORS = re.compile(
    rf"({_NUMBER}|\b(?:{'|'.join(_VALUES)})\b)\s+(?:\w+\s+)?aggregators?\b", re.I
)
_YEAR = re.compile(r"(?<![\w-])((?:19|20|21)\d\d)(?!\w)")
_NO_NOISE = re.compile(r"\b(?:no|without|not? need(?:s|ed)?(?: any)?)\s+(?:added\s+)?noise\b", re.I)
_NEAR = 0.1  # how far a noisy number of records may be from the one on the form


def contradictions(evidence: AllEvidence) -> dict[str, list[Found]]:
    """Return for each key of the form what in the runs contradicts its answer."""
    found = dict[str, list[Found]]()
    for each in (
        *_aggregators(evidence), *_sites(evidence), *_one_computer(evidence),
        *_protocols(evidence), *_epsilon(evidence), *_rows(evidence), *_records(evidence),
        *_years(evidence), *_tuning(evidence),
    ):  # fmt: skip
        found.setdefault(each[0], []).append(each)
    return found


def aggregators_of(run: RunEvidence) -> list[str]:
    """Return the names of a run's aggregators."""
    return _named(run, Role.AGGREGATOR)


def _named(run: RunEvidence, role: Role) -> list[str]:
    return sorted(p["name"] for p in run.facts["roster"] if p["role"] == role.value)


def _value(text: str) -> float:
    plain = text.lower()
    return _VALUES[plain] if plain in _VALUES else float(re.sub(r"[,' ]", "", plain))


def _numbers(text: str) -> list[float]:
    """Return the numbers in a text, in digits or words, without its dates."""
    left = _DATE.sub(" ", text)
    words = re.findall(rf"{_NUMBER}|\b(?:{'|'.join(_VALUES)})\b", left, re.IGNORECASE)
    return [_value(word) for word in words]


def _aggregators(evidence: AllEvidence) -> Iterator[Found]:
    key, answer = "trust/aggregators", evidence.form.trust.aggregators
    having = [run for run in evidence.runs if aggregators_of(run)]
    if having and (not answer or says_none(answer)):
        names = {name for run in having for name in aggregators_of(run)}
        which = listing([run.name for run in having])
        what = f"{which} had {counted(len(names), 'aggregator')}: {listing(sorted(names))}."
        yield key, what, tuple(run.at("roster") for run in having)
    elif answer and not says_none(answer) and not having:
        protocols = listing(sorted({str(r.facts["protocol"]["name"]) for r in evidence.runs}))
        what = f"no run had an aggregator: the protocol was {protocols}."
        yield key, what, tuple(run.at("roster") for run in evidence.runs)
    elif having:
        names = {name for run in having for name in aggregators_of(run)}
        stated = {_value(match[1]) for match in _AGGREGATORS.finditer(answer)}
        other = {each.lower() for each in re.findall(r"\baggregator_\d+\b", answer, re.I)} - names
        if other or (stated and len(names) not in stated):
            what = f"the aggregators were {listing(sorted(names))}."
            yield key, what, tuple(run.at("roster") for run in having)


def _sites(evidence: AllEvidence) -> Iterator[Found]:
    key, answer = "trust/sites", evidence.form.trust.sites
    stated = {_value(match[1]) for match in _SITES.finditer(answer)}
    numbers = {len(_named(run, Role.SITE)) for run in evidence.runs}
    if stated and not numbers <= stated:
        yield key, f"the runs had {listing(sorted(map(str, numbers)))} sites.", _rosters(evidence)
    names = {name for run in evidence.runs for name in _named(run, Role.SITE)}
    named = {name for name in names if _mentions(answer, name)}
    if named and named != names:
        what = f"it does not name {listing(sorted(names - named))}, which took part."
        yield key, what, _rosters(evidence)


def _rosters(evidence: AllEvidence) -> tuple[Evidence, ...]:
    return tuple(run.at("roster") for run in evidence.runs)


def _mentions(text: str, name: str) -> bool:
    return re.search(rf"(?<!\w){re.escape(name)}(?!\w)", text, re.IGNORECASE) is not None


def _one_computer(evidence: AllEvidence) -> Iterator[Found]:
    together = [run for run in evidence.runs if "pinned_roster" not in run.facts["engine"]]
    for key in ("trust/sites", "trust/separate"):
        if together and _answer(evidence, key):
            names = listing([run.name for run in together])
            what = f"all parties of {names} ran on one computer: see “where it ran”."
            yield key, what, tuple(run.at("engine") for run in together)


def _answer(evidence: AllEvidence, key: str) -> str:
    table, _, name = key.partition("/")
    return evidence.form.questions(table)[name][1]


def _protocols(evidence: AllEvidence) -> Iterator[Found]:
    used = {str(run.facts["protocol"]["name"]) for run in evidence.runs}
    for name, (_, answer) in evidence.form.questions("trust").items():
        for protocol in sorted(PROTOCOLS.keys() - used):
            word = f"{protocol} protocol" if protocol == "plain" else protocol
            if _mentions(answer, word) and not any(_mentions(answer, each) for each in used):
                what = f"no run used {protocol!r}; the protocol was {listing(sorted(used))}."
                places = tuple(run.at("protocol/name") for run in evidence.runs)
                yield f"trust/{name}", what, places


def _epsilon(evidence: AllEvidence) -> Iterator[Found]:
    key, answer = "judgement/epsilon", evidence.form.judgement.epsilon
    stated = [_value(match[1]) for match in _EPSILON.finditer(answer)] or _numbers(answer)
    for run in evidence.runs if answer else ():
        place = (run.at("privacy"),)
        if not run.claims.holds:
            if _EPSILON.search(answer) and not any(r.claims.holds for r in evidence.runs):
                yield key, f"{run.name} has no guarantee of differential privacy.", place
            continue
        epsilon = float(run.claims.guarantee["epsilon"])
        shown = f"the ε of {run.name} is {significant(epsilon)}."
        if _NO_NOISE.search(answer) and all(r.claims.noised for r in evidence.runs):
            yield key, f"{run.name} has noise, and {shown}", place
        elif stated and not any(math.isclose(each, epsilon, rel_tol=0.005) for each in stated):
            yield key, shown, place


def _rows(evidence: AllEvidence) -> Iterator[Found]:
    key, answer = "data/rows_per_person", evidence.form.data.rows_per_person
    most = max(_numbers(answer), default=math.nan)
    for run in evidence.runs:
        if not run.claims.holds or math.isnan(most):
            continue
        unit, place = run.claims.guarantee["unit"], (run.at("privacy/unit"),)
        if unit != "person" and most > 1:
            what = f"the guarantee of {run.name} protects one {unit}, so such a person less."
            yield key, what, place
        elif unit == "person":
            kept = run.claims.guarantee["records_per_person"]
            if most != kept:
                rows = counted(kept, "record")
                yield key, f"{run.name} used at most {rows} of a person at a site.", place


def _records(evidence: AllEvidence) -> Iterator[Found]:
    for name in ("source", "population"):
        answer = evidence.form.questions("data")[name][1]
        stated = [_value(match[1]) for match in _RECORDS.finditer(answer)]
        for run in evidence.runs if stated else ():
            near = _NEAR * run.records if run.claims.noised else 0.0
            if not any(abs(each - run.records) <= near for each in stated):
                about = "about " if run.claims.noised else ""
                what = f"{about}{count(run.records)} records took part in {run.name}."
                yield f"data/{name}", what, (run.at("", "result.json"),)


def _years(evidence: AllEvidence) -> Iterator[Found]:
    last = max(str(run.facts["finished"])[:10] for run in evidence.runs)
    for name in ("source", "population"):
        answer = evidence.form.questions("data")[name][1]
        later = [year for year in _YEAR.findall(answer) if year > last[:4]]
        if later:
            what = f"the last run ended on {last}, before {listing(later)}."
            yield f"data/{name}", what, tuple(run.at("finished") for run in evidence.runs)


def _tuning(evidence: AllEvidence) -> Iterator[Found]:
    answer = evidence.form.judgement.tuning
    private = list[str]()
    for name, each in evidence.experiments.items():
        with well_formed(f"experiments/{name}"):
            private += [] if each["public"] else [name]
    if private and re.search(r"\b(?:public|simulated|synthetic)\b", answer, re.IGNORECASE):
        places: Sequence[Evidence] = [Evidence(f"experiments/{n}", "public") for n in private]
        what = "an attached experiment read private records: see section 9."
        yield "judgement/tuning", what, tuple(places)
