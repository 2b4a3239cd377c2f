"""What a contributing site signs in public, and what a party reads from that before it opens a sum.

The header of the frame that carries a contribution is signed. Its note contains the site's rule on
the number of sites, and a digest of the request that the site answers. Header and signature,
without the body, are the site's *claim*. A claim shows to every party that opens a sum that the
site takes part in this round, under this threshold, and answers this request.

Guarantees
    * `read_attestations` returns only if every contributor answered the same request (stage,
      message, cohort, number of records) after the same earlier requests. Otherwise a coordinator
      could send different messages to different sites, for example coefficients at which the
      derivatives of all sites but one are zero. It could then read this one site's answer off the
      sum. And the other sites could not recognise a site that was restored from an old copy
      (`secagg.sessions.engines.progress`).
    * In every round after the count of records, the number of contributors equals the number that
      the coordinator sent to each of them. A site uses this number to size its share of the noise
      for differential privacy.
    * `check_consent` returns only for a site that signed its consent to a run over these sites in
      this session. The session's name is a digest of job, bounds and rules
      (`secagg.sessions.session`). A site signs no consent after it has contributed
      (`secagg.sessions.party`).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from secagg.core import canonical_encoding
from secagg.core.frames import is_whole, verify_header
from secagg.core.identity import Role, Roster
from secagg.errors import PeerError
from secagg.sessions.rounds import COHORT, CONSENT

_MAX_SITES = 2**32 - 1


@dataclass(frozen=True)
class ContributionAttestation:
    """The note that a site signs with its contribution.

    min_sites: the site's own rule; sites: the number of contributors in the request
    asked: digest of the request that the site answers
    """

    min_sites: int
    sites: int
    stage: str
    asked: bytes

    def note(self) -> dict[str, Any]:
        """Return the attestation as the note of a frame."""
        return dict(vars(self))


def digest_request(
    stage: str, cohort: Sequence[str], records: int | None, message: Mapping[str, Any],
    before: bytes = b"",
) -> bytes:  # fmt: skip
    """Return the digest of a request to contribute.

    before: digest of the requests that the site has contributed to in this session
        (`secagg.sessions.countersignatures.extend_requests`), as the site itself remembers them;
        empty if there are none, and in run folders whose evidence is older than version 3
    """
    request = [stage, list(cohort), records, dict(message)]
    named = ["secagg request 2", before] if before else ["secagg request 1"]
    return canonical_encoding.digest([*named, *request])


def read_attestation(
    site: str, claim: object, round_: int, roster: Roster, session: bytes
) -> ContributionAttestation:
    """Return the attestation that `site` signed with its contribution to this round.

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
    raise PeerError(roster.coordinator, f"sends no valid signature that {site} takes part")


def read_attestations(
    claims: Mapping[str, object], stage: object, round_: int, roster: Roster, session: bytes
) -> dict[str, int]:
    """Return each contributor's min_sites, if all answered the same request for this stage.

    Raises `PeerError` for an invalid claim, or a claim that answers another request.
    """
    attestations = {
        site: read_attestation(site, claim, round_, roster, session)
        for site, claim in claims.items()
    }
    signed = attestations.values()
    if any(each.stage != stage for each in signed):
        raise PeerError(roster.coordinator, "sends claims for another stage")
    if len({each.asked for each in signed}) > 1:
        raise PeerError(roster.coordinator, "sent different requests to the contributors")
    if stage != COHORT and any(each.sites != len(attestations) for each in signed):
        raise PeerError(roster.coordinator, "announced another number of contributors")
    return {site: each.min_sites for site, each in attestations.items()}


def check_consent(
    site: str, claim: object, sites: Sequence[str], roster: Roster, session: bytes
) -> None:
    """Raise `PeerError` unless `claim` proves that this site consented to a run over `sites`.

    `claim` is [header, signature] of the site's consent before the first sum.
    """
    note = {"asked": digest_request(COHORT, sites, None, {})}
    match claim:
        case [bytes(header_bytes), bytes(signature)]:
            header = verify_header(header_bytes, signature, roster, session)
            signed = (header.sender, header.round, header.phase, dict(header.note))
            if signed == (site, 0, CONSENT.name, note):
                return
    raise PeerError(roster.coordinator, f"sends no valid signature that {site} consented")
