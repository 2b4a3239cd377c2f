"""A coordinator that departs from the masked sum, and seven faults of a known library, one by one.

The library is the secure aggregation of the best-known federated-learning framework for Python, as
read in its source and measured in November 2026; each `test_finding_...` names one fault and shows
that it cannot happen here. The other two, masks that never take the top value and an overflow check
that counts shares instead of parties, are excluded by `test_prg.py` and `test_fixed_point.py`.
"""

import numpy as np
import pytest
from contracts.secure_sum import numbers
from support.protocols.cheating import Cheat
from support.protocols.world import STAGE, SumNumbers, World, run_until

from secagg.core import canonical_encoding, ring
from secagg.core.frames import Header, write_frame
from secagg.core.identity import Identity, Role
from secagg.errors import PeerError
from secagg.protocols import prg
from secagg.protocols.masked import masks
from secagg.protocols.masked.protocol import Masked
from secagg.sessions.rounds import COHORT

EVERYBODY = ["site_0", "site_1", "site_2", "site_3", "site_4"]


class Masks(Cheat):
    """Plays a coordinator of five sites (three must stay) phase by phase."""

    def __init__(self, sites=5):
        super().__init__(Masked(), sites)

    def advertise(self):
        return {s: self.ask(s, "advertise", 0, {"stage": COHORT})["keys"] for s in self.sites}

    def share(self, site, directory):
        body = {"stage": COHORT, "directory": directory}
        return self.ask(site, "share", 0, body)["envelopes"]

    def mask(self, site, envelopes, masking_sites=None, message=None):
        to_site = {by: sealed[site] for by, sealed in envelopes.items() if site in sealed}
        body = {"stage": COHORT, "cohort": self.sites, "records": None, "message": message or {},
                "masking": masking_sites or self.sites, "envelopes": to_site}  # fmt: skip
        return self.ask(site, "mask", 0, body)["masked"]

    def opening(self, survivors):
        claims = {site: self.claims[site] for site in survivors}
        return {"stage": COHORT, "contributors": list(survivors), "claims": claims}

    def agree(self, site, survivors):
        body = {"stage": COHORT, "survivors": survivors}
        return self.ask(site, "agree", 0, body)["statement"]

    def unmask(self, site, survivors, statements):
        body = {**self.opening(survivors), "statements": statements}
        return self.ask(site, "unmask", 0, body)["shares"]

    def until_masked(self):
        directory = self.advertise()
        envelopes = {site: self.share(site, directory) for site in self.sites}
        for site in self.sites:
            self.mask(site, envelopes)

    def ask(self, party, phase, round_, body):
        """As `Cheat.ask`, but keep the proofs of contributions only."""
        kept = self.claims.get(party)
        reply = super().ask(party, phase, round_, body)
        if phase != "mask" and kept is not None:
            self.claims[party] = kept
        return reply


def test_honest_requests_are_answered():
    cheat = Masks()
    cheat.until_masked()
    survivors = EVERYBODY[:4]  # site_4 is said to be lost
    statements = {site: cheat.agree(site, survivors) for site in survivors}
    shares = {site: cheat.unmask(site, survivors, statements) for site in survivors}
    assert all(set(given) == set(EVERYBODY) for given in shares.values())


# --- the seven findings --------------------------------------------------------------------------


def test_finding_a_mask_seeds_depend_on_all_key_bits():
    """Theirs: 28 bits of the pairwise key seed the masks. Ours: each of its 256 bits counts."""
    key, label = bytes(range(32)), bytes(32)
    vectors = set()
    for bit in range(256):
        flipped = bytearray(key)
        flipped[bit // 8] ^= 1 << bit % 8
        vector = ring.zeros(4, 64)
        prg.apply_masks(vector, [masks.seed(bytes(flipped), label)], [])
        vectors.add(vector.tobytes())
    assert len(vectors) == 256


def test_finding_b_no_site_counts_as_both_present_and_dropped():
    """Theirs: both secrets of a neighbour on both lists are revealed. Ours: there is one list."""
    cheat = Masks()
    cheat.until_masked()
    first, second = EVERYBODY[:4], EVERYBODY[1:]
    statements = {site: cheat.agree(site, first) for site in first}
    shares = cheat.unmask("site_1", first, statements)
    state = canonical_encoding.loads(cheat.states["site_1"])["protocol"]
    assert "held" not in state  # the other secret of each neighbour is gone
    for site, given in shares.items():
        assert isinstance(given, bytes), f"one share of {site}, not two"
    # `Party` refuses these; so do the steps themselves (test_refusals.py).
    with pytest.raises(PeerError):
        cheat.unmask("site_1", second, statements)
    with pytest.raises(PeerError):
        cheat.agree("site_2", second)


def test_finding_c_no_request_sets_a_sites_thresholds():
    """Theirs: threshold, clipping, modulus and neighbours come from the server. Ours: from the job
    that each site has accepted; no request carries any of them."""
    world = World(Masked(), numbers(5, 3, 1), SumNumbers((3,)), min_sites=2)
    words = ("threshold", "degree", "neighbours", "modulus", "clip", "bound", "ring", "seed")

    def keys(value):
        if isinstance(value, dict):
            return set(value) | {k for v in value.values() for k in keys(v)}
        return set().union(*map(keys, value)) if isinstance(value, list) else set()

    step = world.coordinator.start()
    while not step.done:
        for request in step.requests.values():
            asked = keys(canonical_encoding.loads(canonical_encoding.loads(request)[2]))
            assert not [key for key in asked for word in words if word in key]
        step = world.coordinator.advance(step.state, world.engine.exchange(step.requests))


def test_finding_d_the_coordinator_is_no_sites_neighbour():
    """Theirs: keys are unsigned, so the server may pose as a site. Ours: signed by pinned keys."""
    cheat = Masks()
    directory = cheat.advertise()
    world = cheat.world
    own = masks.PublicKeys(*(masks.public_key(bytes([i]) * 32) for i in (1, 2, 3))).to_plain()

    def state_as(identity, name):
        forged = Identity(name, Role.SITE, identity.signing_key, identity.opening_key)
        return write_frame(forged, world.session, 0, "advertise", masks.ALL_RECIPIENTS, own)

    coordinator = world.identities["coordinator"]
    for name in ("site_3", "coordinator", "stranger"):
        with pytest.raises(PeerError):
            cheat.share("site_0", {**directory, name: state_as(coordinator, name)})
    assert cheat.share("site_0", directory)


def test_finding_e_no_counts_or_metrics_are_sent_in_clear():
    """Theirs: record counts and metrics are sent in clear. Ours: nothing but a signed note."""
    world = World(Masked(), numbers(5, 3, 1), SumNumbers((3,)))
    step = run_until(world, "mask")
    for frame in world.engine.exchange(step.requests):
        header, _, content = canonical_encoding.loads(frame)
        assert set(canonical_encoding.loads(content)) == {"masked"}
        assert set(Header.from_bytes(header).note) == {"min_sites", "sites", "stage", "asked"}


# --- another message for one site ----------------------------------------------------------------


def test_sites_asked_different_questions_later_give_noise():
    """No site is asked to unmask there, so the masks alone must protect: the sum is noise."""
    world = World(Masked(), numbers(5, 400, 1), SumNumbers((400,)))
    step = run_until(world, "mask", 1)
    other = "site_3"
    _, _, content = canonical_encoding.loads(step.requests[other])
    body = {**canonical_encoding.loads(content), "message": {"at": 0.5}}
    differing = write_frame(world.identities["coordinator"], world.session, 1, "mask", other, body)
    replies = [
        canonical_encoding.loads(canonical_encoding.loads(f)[2])["masked"]
        for f in world.engine.exchange({**step.requests, other: differing})
    ]
    shape = world.plans.of(STAGE).shape
    total = np.array(ring.to_integers(ring.total(replies, shape.length, shape.ring_bits)))
    # uniform in the ring: each is within the proved bound with probability 2^(sum bits - ring bits)
    small = np.abs(total.astype(object)) < 2 ** (shape.ring_bits - 8)
    assert small.mean() < 0.1  # 2^-7 expected of 400; 40 or more of them is beyond 10^-20
