"""Common hazards of differential privacy, and whether they apply to a run.

The list follows the hazards of NIST SP 800-226 (2025). Each answer comes from the facts of the run;
a person must judge what software cannot see.
"""

from __future__ import annotations

import math

from secagg.evidence.claims.counts import records_of
from secagg.evidence.claims.privacy import Facts, PrivacyClaims
from secagg.evidence.numbers import count, counted, significant


def hazards(claims: PrivacyClaims, summary: Facts, sites: int) -> list[tuple[str, str]]:
    """Return (hazard, answer) pairs for a run whose guarantee holds.

    sites: number of sites whose data is in the sums
    """
    guarantee = claims.guarantee
    chance = significant(guarantee["delta"] * records_of(summary)[0], 2)
    return [
        (
            "ε or δ is too large for a useful guarantee",
            "ε limits the change in the odds of any conclusion about the unit to a factor of "
            f"{significant(math.exp(guarantee['epsilon']), 3)}. δ times the number of records is "
            f"about {chance}; from 1 on, the guarantee would allow publishing a random record. A "
            "person must judge whether these values are small enough.",
        ),
        ("The unit is less than a person", _unit(guarantee)),
        ("Somebody derived bounds or settings from the records",
         "The job declared all of them before a site read any record. A person must judge how the "
         "job's author chose them."),
        ("Exact numbers are released as well",
         "No: the number of records has noise. The run does not count incomplete records, values "
         "outside the bounds and clipped values, and does not record processor times. It does not "
         "hide that a site takes part, and so has as many records as its rules require."),
        ("Further releases add up", claims.ledger.adds_up),
        ("The last digits of floating-point noise reveal the value",
         "No: sites draw noise as integers and add it to integers. The sum becomes a fraction "
         "only after it was opened."),
        ("Somebody can guess the noise",
         "No: the operating system generated its seeds."),
        ("Somebody must be trusted to add noise", _trust(guarantee, sites)),
        ("Times and sizes reveal records",
         "The run does not record processor times. The coordinator sees when a site answers; "
         "the sizes of messages depend on declared shapes only."),
        ("Conclusions about groups",
         "Not protected, and the purpose of the analysis. A guess about a person from what holds "
         "for similar people does not break this guarantee."),
        ("Clipping and noise distort the result",
         "No interval accounts for the bias of clipping. Noise of a given size has more effect "
         "with fewer records, so results for small groups suffer most."),
        ("Somebody reads the records themselves",
         "Differential privacy limits what releases reveal. The site must control who can read "
         "its table, its ledger and its keys."),
    ]  # fmt: skip


def _unit(guarantee: Facts) -> str:
    if guarantee["unit"] == "person":
        return (
            "No: the unit is all records of a person within the caps, at up to "
            f"{counted(guarantee['sites_per_person'], 'site')}."
        )
    if guarantee["unit"] == "event":
        return (
            "The unit is an event: one step of a series. A person must judge whether single steps "
            "need protection, or whole series; if whole series, set privacy.person."
        )
    return (
        "The unit is a record. A person must judge whether each person has only one; if not, set "
        "privacy.person."
    )


def _trust(guarantee: Facts, sites: int) -> str:
    if guarantee["placement"] == "site":
        return (
            "Each site's own noise protects its records, even if all others collude. Only the site "
            "itself can see that it adds the noise."
        )
    unchecked = "Nobody can check that the other sites add their noise."
    if not guarantee["colluding"]:
        return (
            "No site may tell anybody its noise, and each site can subtract its own noise from "
            f"the sum. {unchecked}"
        )
    return (
        f"Up to {count(guarantee['colluding'])} of {counted(sites, 'site')} may tell the "
        f"coordinator their noise. {unchecked}"
    )
