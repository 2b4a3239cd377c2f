"""A site's steps of the masked sum; `masked` has the paper, the threat model and the coordinator.

What a site keeps from one step to the next (private; whoever stores it keeps it safe):

    advertised   its own private keys and self secret, from the moment it drew them
    directory    everybody's public keys, once they were verified
    near         this site and its neighbours in the graph, from then on
    held         shares of other sites' secrets, from the moment it masked until it unmasked
    session      pair keys for all later sums, from the first of them on
    round        the last round in which it masked: rounds only go up, so no label comes twice

What a site refuses here, beside what `Party` refuses for every protocol (a stale round, a repeated
phase, a cohort or threshold against its rules): see the table in `masked`.
"""

from __future__ import annotations

import hmac
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from secagg.contracts import Body, Context, State
from secagg.core import encoding
from secagg.core.ring import RingVector
from secagg.errors import PeerError, PolicyRefusal
from secagg.protocols.masked import masks, shamir
from secagg.protocols.masked.graph import GraphPlan, neighbours
from secagg.protocols.masked.masks import KEY_BYTES, Directory, PublicKeys

_INDEX_BYTES = 4
"""Of a site's place in the cohort."""


def advertise(state: State, context: Context) -> tuple[State, Body]:
    """Draw this session's keys and state the public halves, once a session."""
    if "advertised" in state:
        raise PolicyRefusal(context.me, "has advertised its keys for this session already")
    first, later, self_secret = (context.random(KEY_BYTES) for _ in range(3))
    keys = PublicKeys(masks.public_key(first), masks.public_key(later), masks.commit(self_secret))
    private = {"round": context.round, "first": first, "later": later, "self": self_secret}
    statement = masks.state_publicly(context, "advertise", keys.to_plain())
    return {"advertised": private}, {"keys": statement}


def share(state: State, body: Body, plan: GraphPlan, context: Context) -> tuple[State, Body]:
    """Verify everybody's keys, then seal shares of both own secrets to the neighbours, once."""
    coordinator = context.roster.coordinator
    own = _advertised(state, context)
    statements = body.get("directory")
    if "directory" in state or not isinstance(statements, dict):
        raise PeerError(coordinator, "malformed request: one key directory a session")
    directory = masks.read_directory(statements, context)
    if directory.get(context.me) != _own_keys(own):
        raise PeerError(coordinator, "shows a key directory without this site's own keys")
    if len(directory) < plan.least_survivors:
        raise PolicyRefusal(
            context.me, f"{len(directory)} sites have keys, and {plan.least_survivors} are needed"
        )
    near = _neighbourhood(directory, plan, context)
    points = [index + 1 for index, site in enumerate(directory) if site in near]
    shares = {
        kind: shamir.split(own[kind], plan.threshold, points, context.random)
        for kind in ("first", "self")
    }
    dealt = {
        site: {kind: shares[kind][point] for kind in shares}
        for site, point in zip(near, points, strict=True)
    }
    held = {context.me: dealt.pop(context.me)}
    pairs = _pairs(own, "shares", directory, dealt, context)
    sealed = {
        site: masks.seal_shares(pairs[site], encoding.dumps(both), context.me, site, context.random)
        for site, both in dealt.items()
    }
    plain = {site: keys.to_plain() for site, keys in directory.items()}
    return {**state, "directory": plain, "near": near, "held": held}, {"envelopes": sealed}


def mask(
    state: State, body: Body, plan: GraphPlan, context: Context, contribution: RingVector
) -> tuple[State, Body]:
    """Mask a contribution: twice in the first sum, pairwise among the fixed cohort in later ones.

    Guarantee: each pair key and self secret meets a label at most once, because the label holds
    the round and a site masks once a round, in rounds that only go up.
    """
    if context.round <= state.get("round", -1):
        raise PolicyRefusal(context.me, "has masked in this round or a later one already")
    own: bytes | None = None
    if state.get("advertised", {}).get("round") == context.round:
        state, pair_seeds, own = _first_masks(state, body, plan, context)
    else:
        state, pair_seeds = _later_masks(state, body, plan, context)
    masks.mask(contribution, context.me, pair_seeds, own)
    return {**state, "round": context.round}, {"masked": contribution}


def _first_masks(
    state: State, body: Body, plan: GraphPlan, context: Context
) -> tuple[State, dict[str, bytes], bytes]:
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
        raise PolicyRefusal(context.me, "too few sites shared their secrets to go on")
    peers = [site for site in near if site != context.me]
    shared = _pairs(own, "shares", directory, peers, context)
    opened = {
        site: _open_shares(site, envelopes.get(site), shared[site], context) for site in peers
    }
    held = {**state["held"], **opened}
    label = masks.label(
        context.session, context.round, masks.directory_digest(directory), masking_sites,
        context.asked,
    )  # fmt: skip
    pairs = _pairs(own, "first", directory, peers, context)
    seeds = {site: masks.seed(key, label) for site, key in pairs.items()}
    state = {**state, "held": held, "masking": sorted(masking_sites), "label": label}
    return state, seeds, masks.seed(own["self"], label)


def _later_masks(
    state: State, body: Body, plan: GraphPlan, context: Context
) -> tuple[State, dict[str, bytes]]:
    """Return the seeds of this round's pairwise masks; the first sum's secrets are dropped now.

    There is no self mask and nothing to unmask: the sum opens exactly when all of the cohort have
    sent, and a site that was told another cohort or request has other masks, which never cancel.
    """
    cohort = sorted(body["cohort"])  # the party has checked it: its rules, itself, one a session
    session = state.get("session") or _begin_session(state, cohort, plan, context)
    if session["cohort"] != encoding.dumps(cohort):
        raise PolicyRefusal(context.me, "the sites changed after the first sum")
    label = masks.label(context.session, context.round, session["label"], cohort, context.asked)
    seeds = {
        cohort[int.from_bytes(peer[KEY_BYTES:], "little")]: masks.seed(peer[:KEY_BYTES], label)
        for peer in _split(session["peers"])
    }
    advertised = {"round": state["advertised"]["round"]}
    return {"advertised": advertised, "session": {**session, "label": label}}, seeds


def _begin_session(
    state: State, cohort: list[str], plan: GraphPlan, context: Context
) -> dict[str, Any]:
    """Agree on the pair keys of all later sums with the neighbours among the cohort."""
    directory = _directory(state, context)
    if "label" not in state or state.get("survivors", cohort) != cohort:
        raise PolicyRefusal(context.me, "the cohort is not that of the first sum")
    if not set(cohort) <= set(state["masking"]) or len(cohort) < plan.least_survivors:
        raise PolicyRefusal(context.me, "the cohort is not of enough sites that masked before")
    members = {site: directory[site] for site in cohort}
    peers = [site for site in _neighbourhood(members, plan, context) if site != context.me]
    pairs = _pairs(state["advertised"], "later", directory, peers, context)
    # This is read and written again in every round, and three values take no time.
    kept = b"".join(
        key + cohort.index(site).to_bytes(_INDEX_BYTES, "little") for site, key in pairs.items()
    )
    return {"cohort": encoding.dumps(cohort), "label": state["label"], "peers": kept}


def _split(peers: bytes) -> list[bytes]:
    """Return each peer's part of a session's `peers`: its pair key, then its index."""
    size = KEY_BYTES + _INDEX_BYTES
    return [peers[at : at + size] for at in range(0, len(peers), size)]


def agree(state: State, body: Body, plan: GraphPlan, context: Context) -> tuple[State, Body]:
    """Sign the list of survivors: from now on this site knows no other."""
    survivors = _survivors(state, body.get("survivors"), plan, context)
    if "survivors" in state:
        raise PolicyRefusal(context.me, "has agreed on the survivors already")
    digest = masks.survivors_digest(state["label"], survivors)
    statement = masks.state_publicly(context, "agree", {"survivors": digest})
    return {**state, "survivors": survivors}, {"statement": statement}


def unmask(state: State, body: Body, plan: GraphPlan, context: Context) -> tuple[State, Body]:
    """Give one share of each neighbour: of its self secret if it survived, else of its key.

    Guarantee: for no neighbour does a site ever give both, whatever it is asked: who survived was
    settled, once, in `agree`; who is lost follows from it here and is not the coordinator's to say;
    and the shares are gone from the state after this step.
    """
    survivors = _survivors(state, body["contributors"], plan, context)
    if "held" not in state or state.get("survivors") != survivors:
        raise PolicyRefusal(context.me, "has unmasked already, or agreed on other survivors")
    statements = body.get("statements")
    if not isinstance(statements, dict):
        raise PeerError(context.roster.coordinator, "malformed request to unmask")
    check_agreement(statements, state["label"], survivors, plan, context)
    shares = {
        site: held["self" if site in survivors else "first"] for site, held in state["held"].items()
    }
    kept = ("advertised", "directory", "masking", "label", "survivors", "round")
    state = {key: state[key] for key in kept}
    state["advertised"] = {k: state["advertised"][k] for k in ("round", "later")}
    return state, {"shares": shares}


def check_agreement(
    statements: Mapping[str, object],
    label: bytes,
    survivors: Sequence[str],
    plan: GraphPlan,
    context: Context,
) -> None:
    """Raise unless enough survivors have signed exactly this list, in this sum.

    Two lists can never both pass: any two quorums share an honest site, which signs one only.
    """
    expected = masks.survivors_digest(label, survivors)
    for site, statement in statements.items():
        signed = masks.read_statement(statement, site, "agree", context).get("survivors")
        if (
            site not in survivors
            or not isinstance(signed, bytes)
            or not hmac.compare_digest(signed, expected)
        ):
            raise PeerError(site, "has signed another list of survivors")
    if len(statements) < plan.least_survivors:
        raise PolicyRefusal(
            context.me,
            f"{len(statements)} sites signed the survivors, and {plan.least_survivors} are needed",
        )


def _survivors(state: State, named: object, plan: GraphPlan, context: Context) -> list[str]:
    """Return the survivors named, sorted, if they can be those of the sum in progress."""
    if not isinstance(named, list) or not all(isinstance(name, str) for name in named):
        raise PeerError(context.roster.coordinator, "malformed request: no list of survivors")
    survivors = sorted(set(named))
    if state.get("round") != context.round or "label" not in state:
        raise PolicyRefusal(context.me, "has no masked contribution to open in this round")
    if not set(survivors) <= set(state["masking"]) or context.me not in survivors:
        raise PeerError(context.roster.coordinator, "names survivors who did not all mask")
    if len(survivors) < plan.least_survivors:
        raise PolicyRefusal(
            context.me, f"{len(survivors)} sites survived, and {plan.least_survivors} are needed"
        )
    return survivors


def neighbourhood_seed(directory: Directory, session: bytes) -> bytes:
    """Return what the neighbour graph is drawn from: known to all, different every session."""
    return masks.label(session, 0, masks.directory_digest(directory), list(directory), b"graph")


def _neighbourhood(directory: Directory, plan: GraphPlan, context: Context) -> list[str]:
    """Return this site and its neighbours, sorted."""
    graph = draw_graph(directory, plan, context.session)
    return sorted((context.me, *graph[context.me]))


def draw_graph(directory: Directory, plan: GraphPlan, session: bytes) -> dict[str, tuple[str, ...]]:
    """Return each site's neighbours, the same for everybody who has this directory."""
    degree = min(plan.degree, len(directory) - 1)
    return neighbours(list(directory), degree, neighbourhood_seed(directory, session))


def _pairs(
    own: State, kind: str, directory: Directory, peers: Iterable[str], context: Context
) -> dict[str, bytes]:
    """Return the pair keys of a kind: only those of the first sum come from the key that is shared.

    What seals shares must not, or whoever recovers a lost site's key could read what it held.
    """
    which = "first" if kind == "first" else "later"
    public = {site: getattr(directory[site], which) for site in peers}
    return masks.pair_keys(own[which], public, kind, context.me, context.session)


def _open_shares(site: str, sealed: object, pair: bytes, context: Context) -> dict[str, bytes]:
    if not isinstance(sealed, bytes):
        raise PeerError(context.roster.coordinator, f"withholds the shares of {site}")
    match encoding.loads(masks.open_shares(pair, sealed, site, context.me)):
        case {"first": bytes(first), "self": bytes(self_share), **rest} if not rest and {
            len(first),
            len(self_share),
        } == {shamir.SHARE_BYTES}:
            return {"first": first, "self": self_share}
    raise PeerError(site, "sends malformed shares")


def _advertised(state: State, context: Context) -> State:
    if state.get("advertised", {}).get("round") != context.round:
        raise PeerError(context.roster.coordinator, "asks for shares of keys of another round")
    return dict(state["advertised"])


def _own_keys(own: Mapping[str, bytes]) -> PublicKeys:
    return PublicKeys(
        masks.public_key(own["first"]),
        masks.public_key(own["later"]),
        masks.commit(own["self"]),
    )


def _directory(state: State, context: Context) -> Directory:
    if "directory" not in state:
        raise PeerError(context.roster.coordinator, "asks to mask before keys were shared")
    return {site: PublicKeys(**keys) for site, keys in state["directory"].items()}


def _are_sites(names: Sequence[object], directory: Directory) -> bool:
    """Return whether these are names, each once, of sites whose keys are known."""
    known = [name for name in names if isinstance(name, str) and name in directory]
    return len(set(known)) == len(names)
