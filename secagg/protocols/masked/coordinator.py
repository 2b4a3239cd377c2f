"""The coordinator's steps of the masked sum. `protocol` has the paper and the threat model.

Each step takes the replies to one phase and returns the requests of the next, or the sum. A step
ends the run if fewer sites reply than the plan of the neighbour graph requires.
"""

from __future__ import annotations

import hmac
from collections.abc import Mapping
from typing import Any

from secagg.contracts import Body, Context, PhaseRequest, Shape, Total
from secagg.core import ring
from secagg.core.ring import RingVector
from secagg.errors import PeerError, ProtocolAbort
from secagg.protocols.masked import masks, shamir
from secagg.protocols.masked import site as site_steps
from secagg.protocols.masked.graph import GraphPlan
from secagg.protocols.masked.masks import Directory
from secagg.protocols.masked.states import CoordinatorState

_RETRY_ADVICE = "Nothing was released. Run again when more sites can be reached."


def _require_sites(plan: GraphPlan, count: int, what_they_did: str) -> None:
    if count < plan.least_survivors:
        raise ProtocolAbort(
            "masked", f"only {count} sites {what_they_did}; {plan.least_survivors} are required",
            _RETRY_ADVICE,
        )  # fmt: skip


def relay_directory(
    state: CoordinatorState, replies: Mapping[str, Body], plan: GraphPlan, context: Context
) -> tuple[CoordinatorState, PhaseRequest]:
    """Send each site the signed keys of all sites."""
    statements = {site: reply.get("keys") for site, reply in replies.items()}
    directory = masks.read_directory(statements, context)
    _require_sites(plan, len(directory), "advertised keys")
    plain = {site: keys.to_plain() for site, keys in directory.items()}
    body: Body = {"directory": statements}
    return {**state, "directory": plain}, PhaseRequest("share", dict.fromkeys(directory, body))


def relay_shares(
    state: CoordinatorState, replies: Mapping[str, Body], plan: GraphPlan
) -> tuple[CoordinatorState, PhaseRequest]:
    """Send each site the sealed shares of its neighbours, and the list of sites that share."""
    sealed: dict[str, dict[Any, Any]] = {}
    for site, reply in replies.items():
        envelopes = reply.get("envelopes")
        if not isinstance(envelopes, dict):
            raise PeerError(site, "malformed message: no sealed shares")
        sealed[site] = envelopes
    sharing = sorted(sealed)
    _require_sites(plan, len(sharing), "shared their secrets")
    bodies: dict[str, Body] = {
        site: {
            "masking": sharing,
            "envelopes": {by: to[site] for by, to in sealed.items() if site in to},
        }
        for site in sharing
    }
    return {**state, "masking": sharing}, PhaseRequest("mask", bodies)


def read_masked(replies: Mapping[str, Body], shape: Shape) -> RingVector:
    """Add the masked contributions. Raises `PeerError` for one of a wrong shape."""
    for site, reply in replies.items():
        if not ring.is_vector(reply.get("masked"), shape.length, shape.ring_bits):
            raise PeerError(site, "its masked contribution has the wrong shape")
    return ring.total((r["masked"] for r in replies.values()), shape.length, shape.ring_bits)


def collect_first(
    state: CoordinatorState, replies: Mapping[str, Body], plan: GraphPlan, context: Context
) -> tuple[CoordinatorState, PhaseRequest]:
    """Add the masked contributions to the first sum, and send the list of survivors."""
    survivors = sorted(replies)
    _require_sites(plan, len(survivors), "sent a masked contribution")
    label = masks.label(
        context.session, context.round, masks.directory_digest(_directory(state)),
        state["masking"], context.request_digest,
    )  # fmt: skip
    total = read_masked(replies, context.shape)
    state = {**state, "survivors": survivors, "label": label, "masked": total}
    body: Body = {"survivors": survivors}
    return state, PhaseRequest("agree", dict.fromkeys(survivors, body))


def relay_agreement(
    state: CoordinatorState, replies: Mapping[str, Body], plan: GraphPlan, context: Context
) -> tuple[CoordinatorState, PhaseRequest]:
    """Send each survivor enough signatures on the list of survivors."""
    _require_sites(plan, len(replies), "signed the list of survivors")
    # Send only as many signatures as required, because each site verifies each of them.
    signing = sorted(replies)[: plan.least_survivors]
    statements = {site: replies[site].get("statement") for site in signing}
    site_steps.check_agreement(statements, state["label"], state["survivors"], plan, context)
    body: Body = {"statements": statements}
    return state, PhaseRequest("unmask", dict.fromkeys(replies, body), tuple(state["survivors"]))


def unmask(
    state: CoordinatorState, replies: Mapping[str, Body], plan: GraphPlan, context: Context
) -> Total:
    """Recover the secrets, compare each with the advertised value, and remove the masks."""
    directory, label, survivors = _directory(state), state["label"], state["survivors"]
    points = {site: index + 1 for index, site in enumerate(directory)}
    graph = site_steps.draw_graph(directory, plan, context.session)

    def secret(owner: str) -> bytes:
        shares: dict[int, bytes] = {}
        for holder in (owner, *graph[owner]):
            revealed = replies.get(holder, {}).get("shares")
            if isinstance(revealed, dict) and isinstance(revealed.get(owner), bytes):
                shares[points[holder]] = revealed[owner]
        if len(shares) < plan.threshold:
            raise ProtocolAbort(
                "masked", f"only {len(shares)} shares of a secret of {owner} arrived; "
                f"{plan.threshold} are required", _RETRY_ADVICE,
            )  # fmt: skip
        # More shares are not needed, because the secret is compared with the advertised value.
        return shamir.combine(dict(sorted(shares.items())[: plan.threshold]))

    self_seeds: list[bytes] = []
    for site in survivors:
        self_secret = secret(site)
        _check(site, masks.commit(self_secret), directory[site].commitment)
        self_seeds.append(masks.seed(self_secret, label))
    dropped: dict[str, dict[str, bytes]] = {}
    for site in sorted(set(state["masking"]) - set(survivors)):
        private = secret(site)
        _check(site, masks.public_key(private), directory[site].first)
        public = {peer: directory[peer].first for peer in graph[site] if peer in survivors}
        pairs = masks.pair_keys(private, public, "first", site, context.session)
        dropped[site] = {peer: masks.seed(key, label) for peer, key in pairs.items()}
    total = state["masked"].copy()
    masks.unmask(total, self_seeds, dropped)
    return Total(total, tuple(survivors))


def _check(site: str, computed: bytes, advertised: bytes) -> None:
    if not hmac.compare_digest(computed, advertised):
        raise PeerError(site, "its shares do not combine to the secret that it advertised")


def _directory(state: CoordinatorState) -> Directory:
    return {site: masks.PublicKeys(**keys) for site, keys in state["directory"].items()}
