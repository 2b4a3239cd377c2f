"""Common hazards of differential privacy, and whether they apply to a run.

The list follows the hazards of NIST SP 800-226 (2025). Each answer comes from the facts of the run;
a person must judge what software cannot see.
"""

from __future__ import annotations

from secagg.evidence.claims.claim import Claim, Status
from secagg.evidence.claims.counts import records_of
from secagg.evidence.claims.guarantee import Facts
from secagg.evidence.claims.privacy import PrivacyClaims
from secagg.evidence.numbers import significant

TOO_LARGE = "ε or δ is too large for a useful guarantee"
LESS_THAN_A_PERSON = "The unit is less than a person"
DERIVED = "Somebody derived bounds or settings from the records"


def hazards(claims: PrivacyClaims, summary: Facts) -> list[Claim]:
    """Return each hazard with its answer, for a run whose guarantee holds."""
    guarantee = claims.guarantee
    chance = significant(guarantee["delta"] * records_of(summary)[0], 2)
    answers = {
        TOO_LARGE: (
            f"δ times the number of records is about {chance}; from 1 on, the guarantee would "
            "allow publishing a random record. A person must judge whether ε and δ are small "
            "enough."
        ),
        LESS_THAN_A_PERSON: _unit(guarantee),
        DERIVED: (
            "The job declared all of them before a site read any record. A person must judge how "
            "the job's author chose them."
        ),
        "Exact numbers are released as well": (
            "No: the number of records has noise. The run does not count incomplete records, "
            "values outside the bounds and clipped values, and does not record processor times. "
            "It does not hide that a site takes part, and so has as many records as its rules "
            "require."
        ),
        "Further releases add up": "See which runs the guarantee covers.",
        "The last digits of floating-point noise reveal the value": (
            "No: sites draw noise as integers and add it to integers. The sum becomes a fraction "
            "only after it was opened."
        ),
        "Somebody can guess the noise": "No: the operating system generated its seeds.",
        "Somebody must be trusted to add noise": (
            "Yes: only a site itself can see that it adds its noise."
        ),
        "Times and sizes reveal records": (
            "The run does not record processor times. The coordinator sees when a site answers; "
            "the sizes of messages depend on declared shapes only."
        ),
        "Conclusions about groups": (
            "Not protected, and the purpose of the analysis. A guess about a person from what "
            "holds for similar people does not break this guarantee."
        ),
        "Clipping and noise distort the result": (
            "No interval accounts for the bias of clipping. Noise of a given size changes results "
            "for small groups most."
        ),
        "Somebody reads the records themselves": (
            "Differential privacy limits what releases reveal. The site must control who can read "
            "its table, its ledger and its keys."
        ),
    }
    return [Claim(topic, text, Status.PERSON, "privacy") for topic, text in answers.items()]


def _unit(guarantee: Facts) -> str:
    if guarantee["unit"] == "person":
        return "No: the unit is a person."
    several = "each person has only one"
    if guarantee["unit"] == "event":
        several = "single steps of a series need protection, and not whole series"
    return (
        f"The unit is one {guarantee['unit']}. A person must judge whether {several}; if not, set "
        "privacy.person."
    )
