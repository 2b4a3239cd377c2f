"""What the parties of the masked sum keep between steps. `protocol` describes the protocol.

A site's state is private and must be stored safely. Whoever reads the state can unmask the site's
messages.
"""

from __future__ import annotations

from typing import TypedDict

from secagg.core.ring import RingVector


class OwnSecrets(TypedDict, total=False):
    """What a site drew in a session.

    round: in which it drew them; first, later: private keys for the first sum, and for all others
    self: seed of its self masks. `first` and `self` are deleted after the first sum
    """

    round: int
    first: bytes
    later: bytes
    self: bytes


class LaterSums(TypedDict):
    """What the later sums need, from the first of them on.

    cohort: the sites, encoded; label: of the sum before
    peers: pair keys with the neighbours, each followed by the neighbour's index in the cohort
    """

    cohort: bytes
    label: bytes
    peers: bytes


class SiteState(TypedDict, total=False):
    """What a site keeps.

    advertised: its own secrets, from `advertise` on
    directory: the verified public keys of all sites, encoded, from `share` on
    near: this site and its neighbours in the graph, sorted, from `share` on
    held: shares of secrets by owner and kind ("first", "self"), from `share` until `unmask`
    masking, label: sites that shared their secrets, and the label of the first sum, from `mask` on
    survivors: the only list of survivors that this site signs, from `agree` on
    session: from the first later sum on, when all other keys but `round` are deleted
    round: the last round in which the site masked a contribution. The numbers of rounds must
        increase, so that no label occurs twice
    """

    advertised: OwnSecrets
    directory: bytes
    near: list[str]
    held: dict[str, dict[str, bytes]]
    masking: list[str]
    label: bytes
    survivors: list[str]
    session: LaterSums
    round: int


class CoordinatorState(TypedDict, total=False):
    """What the coordinator keeps.

    first: the round of the first sum; the others are from that sum only
    directory: the public keys of each site; masking: the sites that shared their secrets
    survivors: the sites whose contributions are in `masked`, which is their sum, still masked
    """

    first: int
    directory: dict[str, dict[str, bytes]]
    masking: list[str]
    survivors: list[str]
    label: bytes
    masked: RingVector
