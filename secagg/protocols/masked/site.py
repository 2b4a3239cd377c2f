"""A site's steps of the masked sum. `protocol` has the paper and the threat model.

The table in `protocol` lists the requests that a site refuses. With every protocol,
`secagg.sessions.party` also refuses an outdated round, a repeated phase, and a cohort or number of
sites that the site's rules forbid.
"""

from __future__ import annotations

import hmac
from collections.abc import Iterable, Mapping, Sequence

from secagg.contracts import Body, Context
from secagg.core import canonical_encoding
from secagg.core.ring import RingVector
from secagg.errors import PeerError, PolicyRefusal
from secagg.protocols.masked import masks, shamir
from secagg.protocols.masked.graph import Graph, GraphPlan, neighbours
from secagg.protocols.masked.masks import KEY_BYTES, Directory, PublicKeys
from secagg.protocols.masked.states import LaterSums, OwnSecrets, SiteState

_INDEX_BYTES = 4
"""Bytes of a site's index in the cohort."""


def advertise(state: SiteState, context: Context) -> tuple[SiteState, Body]:
    """Draw the keys of this session and sign the public keys. Allowed once in a session."""
    if "advertised" in state:
        raise PolicyRefusal(context.me, "has already advertised its keys for this session")
    first, later, self_secret = (context.random(KEY_BYTES) for _ in range(3))
    keys = PublicKeys(masks.public_key(first), masks.public_key(later), masks.commit(self_secret))
    private: OwnSecrets = {
        "round": context.round, "first": first, "later": later, "self": self_secret,
    }  # fmt: skip
    statement = masks.sign_statement(context, "advertise", keys.to_plain())
    return {"advertised": private}, {"keys": statement}


def share(
    state: SiteState, body: Body, plan: GraphPlan, context: Context
) -> tuple[SiteState, Body]:
    """Verify the keys of all sites, and seal shares of both own secrets for the neighbours.

    Allowed once in a session.
    """
    coordinator = context.roster.coordinator
    own = _advertised(state, context)
    statements = body.get("directory")
    if "directory" in state or not isinstance(statements, dict):
        raise PeerError(coordinator, "malformed request, or a second key directory")
    directory = masks.read_directory(statements, context)
    if directory.get(context.me) != _own_keys(own):
        raise PeerError(coordinator, "sent a key directory without this site's own keys")
    _require_sites(plan, len(directory), "advertised keys", context)
    near = _neighbourhood(directory, plan, context)
    points = [index + 1 for index, site in enumerate(directory) if site in near]
    shares = {
        kind: shamir.split(secret, plan.threshold, points, context.random)
        for kind, secret in (("first", own["first"]), ("self", own["self"]))
    }
    dealt = {
        site: {kind: shares[kind][point] for kind in shares}
        for site, point in zip(near, points, strict=True)
    }
    held = {context.me: dealt.pop(context.me)}
    pairs = _pairs(own, "shares", directory, dealt, context)
    sealed = {
        site: masks.seal_shares(
            pairs[site], canonical_encoding.dumps(both), context.me, site, context.random
        )
        for site, both in dealt.items()
    }
    # One value is faster than many, because every phase decodes and encodes the state.
    plain = canonical_encoding.dumps({site: keys.to_plain() for site, keys in directory.items()})
    return {**state, "directory": plain, "near": near, "held": held}, {"envelopes": sealed}


def mask(
    state: SiteState, body: Body, plan: GraphPlan, context: Context, contribution: RingVector
) -> tuple[SiteState, Body]:
    """Mask a contribution. In the first sum, use pairwise masks and the self mask.

    In later sums, use pairwise masks only.

    Guarantee: a pair key or self secret is used with each label at most once. The label depends on
    the round, and a site masks one contribution in a round, with increasing numbers of rounds.
    """
    if context.round <= state.get("round", -1):
        raise PolicyRefusal(context.me, "has already masked in this round or a later one")
    own: bytes | None = None
    if _advertised_in(state) == context.round:
        state, pair_seeds, own = _first_masks(state, body, plan, context)
    else:
        state, pair_seeds = _later_masks(state, body, plan, context)
    masks.mask(contribution, context.me, pair_seeds, own)
    return {**state, "round": context.round}, {"masked": contribution}


def _first_masks(
    state: SiteState, body: Body, plan: GraphPlan, context: Context
) -> tuple[SiteState, dict[str, bytes], bytes]:
    """Open the neighbours' shares; return the seeds of the pairwise masks and of the self mask."""
    coordinator, own = context.roster.coordinator, state["advertised"]
    directory = _directory(state, context)
    match body:
        case {"masking": list(masking_sites), "envelopes": dict(envelopes)} if (
            _are_sites(masking_sites, directory) and context.me in masking_sites
        ):
            pass
        case _:
            raise PeerError(coordinator, "malformed request to mask")
    near = [site for site in state["near"] if site in masking_sites]
    if len(masking_sites) < plan.least_survivors or len(near) < plan.threshold:
        raise PolicyRefusal(context.me, "too few sites shared their secrets")
    peers = [site for site in near if site != context.me]
    shared = _pairs(own, "shares", directory, peers, context)
    opened = {
        site: _open_shares(site, envelopes.get(site), shared[site], context) for site in peers
    }
    held = {**state["held"], **opened}
    label = masks.label(
        context.session, context.round, masks.directory_digest(directory), masking_sites,
        context.request_digest,
    )  # fmt: skip
    pairs = _pairs(own, "first", directory, peers, context)
    seeds = {site: masks.seed(key, label) for site, key in pairs.items()}
    state = {**state, "held": held, "masking": sorted(masking_sites), "label": label}
    return state, seeds, masks.seed(own["self"], label)


def _later_masks(
    state: SiteState, body: Body, plan: GraphPlan, context: Context
) -> tuple[SiteState, dict[str, bytes]]:
    """Return the seeds of this round's pairwise masks; delete the first sum's secrets.

    There is no self mask, and nothing is unmasked. The masks cancel if and only if the whole cohort
    has sent its contributions. If a site received another cohort or request, its masks are
    different and never cancel.
    """
    cohort = sorted(body["cohort"])  # `Party` has checked the rules on it, and that it is fixed
    session = state.get("session") or _begin_session(state, cohort, plan, context)
    if session["cohort"] != canonical_encoding.dumps(cohort):
        raise PolicyRefusal(context.me, "the sites changed after the first sum")
    label = masks.label(
        context.session, context.round, session["label"], cohort, context.request_digest
    )
    seeds = {
        cohort[int.from_bytes(peer[KEY_BYTES:], "little")]: masks.seed(peer[:KEY_BYTES], label)
        for peer in _split(session["peers"])
    }
    later: LaterSums = {**session, "label": label}
    return {"advertised": {"round": state["advertised"]["round"]}, "session": later}, seeds


def _begin_session(
    state: SiteState, cohort: list[str], plan: GraphPlan, context: Context
) -> LaterSums:
    """Derive the pair keys of all later sums with the neighbours in the cohort."""
    directory = _directory(state, context)
    if "label" not in state or state.get("survivors", cohort) != cohort:
        raise PolicyRefusal(context.me, "the cohort differs from the first sum's")
    if not set(cohort) <= set(state["masking"]) or len(cohort) < plan.least_survivors:
        raise PolicyRefusal(
            context.me, "the cohort is too small or has sites that did not mask in the first sum"
        )
    members = {site: directory[site] for site in cohort}
    peers = [site for site in _neighbourhood(members, plan, context) if site != context.me]
    pairs = _pairs(state["advertised"], "later", directory, peers, context)
    # One value is faster than many, because every round decodes and encodes the state.
    peer_keys = b"".join(
        key + cohort.index(site).to_bytes(_INDEX_BYTES, "little") for site, key in pairs.items()
    )
    return {"cohort": canonical_encoding.dumps(cohort), "label": state["label"], "peers": peer_keys}


def _split(peers: bytes) -> list[bytes]:
    """Return the entries of a session's `peers`, each a pair key followed by an index."""
    size = KEY_BYTES + _INDEX_BYTES
    return [peers[at : at + size] for at in range(0, len(peers), size)]


def agree(
    state: SiteState, body: Body, plan: GraphPlan, context: Context
) -> tuple[SiteState, Body]:
    """Sign the list of survivors. A site signs only one list."""
    survivors = _survivors(state, body.get("survivors"), plan, context)
    if "survivors" in state:
        raise PolicyRefusal(context.me, "has already signed a list of survivors")
    digest = masks.survivors_digest(state["label"], survivors)
    statement = masks.sign_statement(context, "agree", {"survivors": digest})
    return {**state, "survivors": survivors}, {"statement": statement}


def unmask(
    state: SiteState, body: Body, plan: GraphPlan, context: Context
) -> tuple[SiteState, Body]:
    """Return one share for each neighbour.

    If the neighbour survived, this is the share of its self secret. If it dropped out, this is the
    share of its first private key.

    Guarantee: whatever the coordinator requests, a site never reveals both shares of a neighbour.
    The list of survivors was fixed in `agree`. The sites that dropped out follow from this list and
    not from a message of the coordinator. This step also deletes the shares from the state.
    """
    survivors = _survivors(state, body["contributors"], plan, context)
    if "held" not in state or state.get("survivors") != survivors:
        raise PolicyRefusal(context.me, "has already unmasked, or signed another list of survivors")
    statements = body.get("statements")
    if not isinstance(statements, dict):
        raise PeerError(context.roster.coordinator, "malformed request to unmask")
    check_agreement(statements, state["label"], survivors, plan, context)
    shares = {
        site: held["self" if site in survivors else "first"] for site, held in state["held"].items()
    }
    own = state["advertised"]
    needed_later: SiteState = {
        "advertised": {"round": own["round"], "later": own["later"]},
        "directory": state["directory"],
        "masking": state["masking"],
        "label": state["label"],
        "survivors": state["survivors"],
        "round": state["round"],
    }
    return needed_later, {"shares": shares}


def check_agreement(
    statements: Mapping[str, object],
    label: bytes,
    survivors: Sequence[str],
    plan: GraphPlan,
    context: Context,
) -> None:
    """Raise an error if too few survivors have signed exactly this list, in this sum.

    Two different lists can never both pass this check. Any two sets of `least_survivors` sites have
    an honest site in common, which signs only one list.
    """
    expected = masks.survivors_digest(label, survivors)
    for site, statement in statements.items():
        signed = masks.read_statement(statement, site, "agree", context).get("survivors")
        if (
            site not in survivors
            or not isinstance(signed, bytes)
            or not hmac.compare_digest(signed, expected)
        ):
            raise PeerError(site, "signed another list of survivors")
    _require_sites(plan, len(statements), "signed the list of survivors", context)


def _require_sites(plan: GraphPlan, count: int, what_they_did: str, context: Context) -> None:
    if count < plan.least_survivors:
        raise PolicyRefusal(
            context.me, f"only {count} sites {what_they_did}; {plan.least_survivors} are required"
        )


def _survivors(state: SiteState, names: object, plan: GraphPlan, context: Context) -> list[str]:
    """Return the sorted names, after a check that they can be the survivors of this sum."""
    if not isinstance(names, list) or not all(isinstance(name, str) for name in names):
        raise PeerError(context.roster.coordinator, "malformed request: no list of survivors")
    survivors = sorted(set(names))
    if state.get("round") != context.round or "label" not in state:
        raise PolicyRefusal(context.me, "has no masked contribution in this round")
    if not set(survivors) <= set(state["masking"]) or context.me not in survivors:
        raise PeerError(
            context.roster.coordinator, "the list of survivors has a site that did not mask, or "
            "lacks this site",
        )  # fmt: skip
    _require_sites(plan, len(survivors), "survived", context)
    return survivors


def neighbourhood_seed(directory: Directory, session: bytes) -> bytes:
    """Return the seed of the neighbour graph, which is public and different in each session."""
    return masks.label(session, 0, masks.directory_digest(directory), list(directory), b"graph")


def _neighbourhood(directory: Directory, plan: GraphPlan, context: Context) -> list[str]:
    """Return this site and its neighbours, sorted."""
    graph = draw_graph(directory, plan, context.session)
    return sorted((context.me, *graph[context.me]))


def draw_graph(directory: Directory, plan: GraphPlan, session: bytes) -> Graph:
    """Return each site's neighbours. All parties with the same directory get the same graph."""
    degree = min(plan.degree, len(directory) - 1)
    return neighbours(list(directory), degree, neighbourhood_seed(directory, session))


def _pairs(
    own: OwnSecrets, kind: str, directory: Directory, peers: Iterable[str], context: Context
) -> dict[str, bytes]:
    """Return the pair keys of a kind. Only kind "first" uses the first private key.

    Shares of the first private key are given to the neighbours. So the keys that seal shares must
    use the second private key. Otherwise anyone who recovers the first key of a site that dropped
    out could read the shares that this site held.
    """
    if kind == "first":
        private, public = own["first"], {site: directory[site].first for site in peers}
    else:
        private, public = own["later"], {site: directory[site].later for site in peers}
    return masks.pair_keys(private, public, kind, context.me, context.session)


def _open_shares(site: str, sealed: object, pair: bytes, context: Context) -> dict[str, bytes]:
    if not isinstance(sealed, bytes):
        raise PeerError(context.roster.coordinator, f"did not relay the shares of {site}")
    match canonical_encoding.loads(masks.open_shares(pair, sealed, site, context.me)):
        case {"first": bytes(first), "self": bytes(self_share), **rest} if not rest and {
            len(first),
            len(self_share),
        } == {shamir.SHARE_BYTES}:
            return {"first": first, "self": self_share}
    raise PeerError(site, "sent malformed shares")


def _advertised_in(state: SiteState) -> int | None:
    """Return the round in which this site drew its keys, if it did."""
    return state["advertised"]["round"] if "advertised" in state else None


def _advertised(state: SiteState, context: Context) -> OwnSecrets:
    if _advertised_in(state) != context.round:
        raise PeerError(context.roster.coordinator, "asks for shares of another round's keys")
    return state["advertised"]


def _own_keys(own: OwnSecrets) -> PublicKeys:
    return PublicKeys(
        masks.public_key(own["first"]),
        masks.public_key(own["later"]),
        masks.commit(own["self"]),
    )


def _directory(state: SiteState, context: Context) -> Directory:
    if "directory" not in state:
        raise PeerError(context.roster.coordinator, "asks to mask before keys were shared")
    plain = canonical_encoding.loads(state["directory"])
    return {site: PublicKeys(**keys) for site, keys in plain.items()}


def _are_sites(names: Sequence[object], directory: Directory) -> bool:
    """Return whether these are different names of sites in the directory."""
    known = [name for name in names if isinstance(name, str) and name in directory]
    return len(set(known)) == len(names)
