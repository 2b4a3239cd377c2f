"""What commonly goes wrong with differential privacy, and how it stands in a run.

The list follows the hazards of NIST SP 800-226 (2025), in words of our own. Each answer is made of
the facts of the run; what software cannot see is left to a person.
"""

from __future__ import annotations

import math

from secagg.reports.dp_claims import Facts, PrivacyClaims
from secagg.reports.numbers import counted, declared, significant
from secagg.reports.results import records_of


def hazards(claims: PrivacyClaims, summary: Facts, sites: int) -> list[tuple[str, str]]:
    """Return (what may go wrong, how it stands here), for a run whose guarantee holds.

    sites: whose data is in the sums
    """
    guarantee = claims.guarantee
    chance = significant(guarantee["delta"] * records_of(summary)[0], 2)
    return [
        (
            "ε or δ is too large to mean anything",
            "ε bounds by how much the odds of any conclusion about the unit change, to a factor of "
            f"{significant(math.exp(guarantee['epsilon']), 3)}. δ times the number of records is "
            f"about {chance}; from 1 on, publishing a record at random would be allowed. Whether "
            "that is little enough needs a person.",
        ),
        ("The unit is less than a person", _unit(guarantee)),
        ("Bounds or settings were read off the records",
         "The job declared all of them before any record was read. Where whoever wrote it took "
         "them from needs a person."),
        ("Numbers leave beside the noised ones", _exact_ones()),
        ("Further releases add up", claims.ledger.adds_up),
        ("Noise on floating-point numbers tells the value by its last digits",
         "No: noise is drawn on integers and added to integers; the sum is turned into fractions "
         "after it was opened."),
        ("Noise that can be guessed",
         "No: its seeds are the operating system's."),
        ("Noise must be trusted to somebody", _trust(guarantee, sites)),
        ("Times and sizes tell of records",
         "Processor times are not written down. When a site answers is visible to the "
         "coordinator; sizes of messages depend on declared shapes only."),
        ("Groups, or what is true of many",
         "Not protected, and meant to be learned. A guess about a person from what holds for "
         "people like them is no breach of this guarantee."),
        ("Clipping and noise distort the result",
         "Clipping is a bias that no interval allows for. Noise of a given size weighs more the "
         "fewer records there are, so that results for small groups suffer most."),
        ("Somebody reads the records themselves",
         "Differential privacy bounds what is released. Who may read a site's table, its ledger "
         "and its keys is for the site to rule."),
    ]  # fmt: skip


def _unit(guarantee: Facts) -> str:
    if guarantee["unit"] == "person":
        return (
            "No: all records of a person within the caps, at up to "
            f"{counted(guarantee['sites_per_person'], 'site')}."
        )
    return (
        "The unit is a record. Whether each person has one only needs a person; if not, set "
        "privacy.person."
    )


def _exact_ones() -> str:
    return (
        "None: the number of records has noise; how many were incomplete, outside the bounds or "
        "clipped is not counted; processor times are not written down. That a site takes part, and "
        "thus has the records that its rules ask for, is not hidden."
    )


def _trust(guarantee: Facts, sites: int) -> str:
    if guarantee["placement"] == "site":
        return (
            "Each site's own noise protects its records, whoever else colludes. That a site adds "
            "it is for the site alone to see."
        )
    if not guarantee["colluding"]:
        return (
            "No site may tell anybody its noise, and each can take its own away. That the others "
            "add theirs cannot be checked."
        )
    return (
        f"Up to {declared(guarantee['colluding'])} of {counted(sites, 'site')} may "
        "tell the coordinator their noise. That the others add theirs cannot be checked."
    )
