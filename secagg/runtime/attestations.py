"""What a contributing site signs in public, and what an opener reads from it.

The frame that carries a contribution has a signed header; its note says under which rule the site
contributed and what exactly it was asked. Header and signature, without the body, form the site's
*claim*: shown to whoever can open a sum, it proves that the site takes part, in this round, under
this threshold, answering this request.

Guarantees
    * `read_attestations` returns only if every contributor answered one and the same request
      (stage,
      message, cohort, record count). Otherwise a coordinator could send one site a message of its
      own (coefficients at which all other sites' derivatives vanish, or another stage) and read
      that site's answer off the sum.
    * In every round after the one that counts records, the contributors are as many as each of them
      was told: by that number it sized its share of the noise of differential privacy.
    * `check_consent` returns only for a site that signed its consent to a run over these sites in
      this session, whose name is a digest of job, bounds and rules (`secagg.runtime.session`). A
      site signs none after it has contributed (`secagg.runtime.party`).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from secagg.core import encoding
from secagg.core.frames import is_whole, verify_header
from secagg.core.identity import Role, Roster
from secagg.errors import PeerError
from secagg.runtime.rounds import COHORT, CONSENT

_MAX_SITES = 2**32 - 1


@dataclass(frozen=True)
class ContributionAttestation:
    """The note a site signed.

    min_sites: its own; sites: how many it was told would contribute
    asked: digest of the request that it answers
    """

    min_sites: int
    sites: int
    stage: str
    asked: bytes

    def note(self) -> dict[str, Any]:
        """Return the claim as the note of a frame."""
        return {
            "min_sites": self.min_sites, "sites": self.sites, "stage": self.stage,
            "asked": self.asked,
        }  # fmt: skip


def digest_request(
    stage: str, cohort: Sequence[str], records: int | None, message: Mapping[str, Any]
) -> bytes:
    """Return the digest of what a site is asked to contribute to."""
    return encoding.digest(["secagg request 1", stage, list(cohort), records, dict(message)])


def read_attestation(
    site: str, claim: object, round_: int, roster: Roster, session: bytes
) -> ContributionAttestation:
    """Return what `site` signed when it contributed in this round.

    `claim` is [header, signature] of the frame that carried the contribution. Raises `PeerError`.
    """
    match claim:
        case [bytes(header_bytes), bytes(signature)]:
            header = verify_header(header_bytes, signature, roster, session)
            is_site = roster.parties[header.sender].role is Role.SITE
            match header.note:
                case {
                    "min_sites": min_sites,
                    "sites": sites,
                    "stage": str(stage),
                    "asked": bytes(asked),
                } if (
                    is_site
                    and (header.sender, header.round) == (site, round_)
                    and is_whole(min_sites, _MAX_SITES)
                    and is_whole(sites, _MAX_SITES)
                    and min_sites > 0
                    and sites > 0
                ):
                    return ContributionAttestation(min_sites, sites, stage, asked)
    raise PeerError(roster.coordinator, f"shows no valid proof that {site} takes part")


def read_attestations(
    claims: Mapping[str, object], stage: object, round_: int, roster: Roster, session: bytes
) -> dict[str, int]:
    """Return each contributor's min_sites, if all answered the same request of this stage.

    Raises `PeerError` for a claim that does not hold, or that answers something else.
    """
    read = {
        site: read_attestation(site, claim, round_, roster, session)
        for site, claim in claims.items()
    }
    if any(claim.stage != stage for claim in read.values()):
        raise PeerError(roster.coordinator, "shows contributions to another stage")
    if len({claim.asked for claim in read.values()}) > 1:
        raise PeerError(roster.coordinator, "did not ask all contributors the same")
    if stage != COHORT and any(claim.sites != len(read) for claim in read.values()):
        raise PeerError(roster.coordinator, "told contributors of other sites than contributed")
    return {site: claim.min_sites for site, claim in read.items()}


def check_consent(
    site: str, claim: object, sites: Sequence[str], roster: Roster, session: bytes
) -> None:
    """Raise `PeerError` unless `claim` shows that this site consented to a run over `sites`.

    `claim` is [header, signature] of its answer before the first sum.
    """
    asked = {"asked": digest_request(COHORT, sites, None, {})}
    match claim:
        case [bytes(header_bytes), bytes(signature)]:
            header = verify_header(header_bytes, signature, roster, session)
            said = (header.sender, header.round, header.phase, dict(header.note))
            if said == (site, 0, CONSENT.name, asked):
                return
    raise PeerError(roster.coordinator, f"shows no valid proof that {site} consented")
