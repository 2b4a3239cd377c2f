"""A coordinator who departs from the masked sum; and seven faults of a known library, one by one.

The library is the secure aggregation of the best-known federated-learning framework for Python, as
read in its source and measured in November 2026; each `test_finding_...` names one fault and shows
that it cannot happen here.
"""

import hmac
import inspect

import numpy as np
import pytest
from contracts.secure_sum import numbers
from support.cheating import Cheat
from support.world import STAGE, SumNumbers, World, run_until

from secagg.contracts import Field, Kind
from secagg.core import encoding, ring
from secagg.core.frames import Header, write_frame
from secagg.core.identity import Identity, Role
from secagg.core.randomness import replayable_random
from secagg.errors import OverflowRefusal, PeerError, PolicyRefusal
from secagg.protocols import prg
from secagg.protocols.masked import masks
from secagg.protocols.masked import site as site_steps
from secagg.protocols.masked.protocol import Masked
from secagg.runtime.rounds import COHORT
from secagg.runtime.sum_plan import plan_sum

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


def test_an_honest_course_is_answered():
    cheat = Masks()
    cheat.until_masked()
    survivors = EVERYBODY[:4]  # site_4 is said to be lost
    statements = {site: cheat.agree(site, survivors) for site in survivors}
    shares = {site: cheat.unmask(site, survivors, statements) for site in survivors}
    assert all(set(given) == set(EVERYBODY) for given in shares.values())


# --- the seven findings --------------------------------------------------------------------------


def test_finding_a_seeds_have_all_their_bits():
    """Theirs: 28 bits of the pairwise key seed the masks. Ours: every bit of 256 changes the mask,
    and no shorter seed is taken."""
    key, label = bytes(range(32)), bytes(32)
    vectors = set()
    for bit in range(256):
        flipped = bytearray(key)
        flipped[bit // 8] ^= 1 << bit % 8
        vector = ring.zeros(4, 64)
        prg.apply_masks(vector, [masks.seed(bytes(flipped), label)], [])
        vectors.add(vector.tobytes())
    assert len(vectors) == 256
    for short in (b"", bytes(4), bytes(16), bytes(31), bytes(33)):
        with pytest.raises(ValueError, match="32 bytes"):
            prg.apply_masks(ring.zeros(4, 64), [short], [])


def test_finding_b_nobody_is_alive_and_dead():
    """Theirs: a neighbour on both lists gets both secrets given away. Ours: there is one list."""
    cheat = Masks()
    cheat.until_masked()
    first, second = EVERYBODY[:4], EVERYBODY[1:]
    statements = {site: cheat.agree(site, first) for site in first}
    shares = cheat.unmask("site_1", first, statements)
    state = encoding.loads(cheat.states["site_1"])["protocol"]
    assert "held" not in state  # the other secret of each neighbour is gone
    for site, given in shares.items():
        assert isinstance(given, bytes), f"one share of {site}, not two"
    # So says `Party`; the steps themselves refuse as well: test_masked_refusals.
    with pytest.raises(PeerError, match="repeats an earlier request"):
        cheat.unmask("site_1", second, statements)
    with pytest.raises(PeerError, match="repeats an earlier request"):
        cheat.agree("site_2", second)


def test_finding_b_two_lists_cannot_both_be_signed_by_enough():
    """Each site signs one list; and what another list's signatures say is refused."""
    cheat = Masks()
    cheat.until_masked()
    first, second = EVERYBODY[:4], EVERYBODY[1:]
    statements = {"site_0": cheat.agree("site_0", first), "site_1": cheat.agree("site_1", first)}
    statements |= {site: cheat.agree(site, second) for site in ("site_2", "site_3", "site_4")}
    with pytest.raises(
        PolicyRefusal, match="only 2 sites signed the list of survivors; 4 are required"
    ):
        cheat.unmask("site_0", first, {s: statements[s] for s in ("site_0", "site_1")})
    with pytest.raises(PeerError, match="signed another list"):
        cheat.unmask("site_2", second, {s: statements[s] for s in second})


def test_finding_c_the_floor_is_the_sites_own():
    """Theirs: threshold, clipping, modulus and neighbours come from the server. Ours: from the job
    that each site has agreed to; no request carries any of them."""
    world = World(Masked(), numbers(5, 3, 1), SumNumbers((3,)), min_sites=2)
    words = ("threshold", "degree", "neighbours", "modulus", "clip", "bound", "ring", "seed")

    def keys(value):
        if isinstance(value, dict):
            return set(value) | {k for v in value.values() for k in keys(v)}
        return set().union(*map(keys, value)) if isinstance(value, list) else set()

    step = world.coordinator.start()
    while not step.done:
        for request in step.requests.values():
            asked = keys(encoding.loads(encoding.loads(request)[2]))
            assert not [key for key in asked for word in words if word in key]
        step = world.coordinator.advance(step.state, world.engine.exchange(step.requests))


@pytest.mark.parametrize("phase", ["share", "mask", "agree"])
def test_finding_c_too_few_are_refused_in_every_phase(phase):
    """The job's rule would be content with two sites; the protocol's own floor of five is four."""
    cheat = Masks()
    directory = cheat.advertise()
    three = EVERYBODY[:3]
    with pytest.raises(PolicyRefusal, match=r"3 sites|too few sites"):
        if phase == "share":
            cheat.share("site_0", {site: directory[site] for site in three})
        envelopes = {site: cheat.share(site, directory) for site in cheat.sites}
        if phase == "mask":
            cheat.mask("site_0", envelopes, masking_sites=three)
        for site in cheat.sites:
            cheat.mask(site, envelopes)
        cheat.agree("site_0", three)


def test_finding_d_the_coordinator_is_nobodys_neighbour():
    """Theirs: keys are unsigned, and the server may be anybody. Ours: signed by pinned keys."""
    cheat = Masks()
    directory = cheat.advertise()
    world = cheat.world
    own = masks.PublicKeys(*(masks.public_key(bytes([i]) * 32) for i in (1, 2, 3))).to_plain()

    def state_as(identity, name):
        forged = Identity(name, Role.SITE, identity.signing_key, identity.opening_key)
        return write_frame(forged, world.session, 0, "advertise", masks.ALL_RECIPIENTS, own)

    coordinator = world.identities["coordinator"]
    with pytest.raises(PeerError, match="invalid signature"):
        cheat.share("site_0", {**directory, "site_3": state_as(coordinator, "site_3")})
    with pytest.raises(PeerError, match="only sites"):
        cheat.share("site_0", {**directory, "coordinator": state_as(coordinator, "coordinator")})
    with pytest.raises(PeerError, match="not in the roster"):
        cheat.share("site_0", {**directory, "stranger": state_as(coordinator, "stranger")})


def test_finding_d_keys_of_another_session_or_round_are_refused():
    cheat = Masks()
    directory = cheat.advertise()
    identity, own = cheat.world.identities["site_3"], bytes(32)
    body = {"first": own, "later": own, "commitment": own}
    for session, round_ in ((bytes(16), 0), (cheat.world.session, 1)):
        stale = write_frame(identity, session, round_, "advertise", masks.ALL_RECIPIENTS, body)
        with pytest.raises(PeerError, match=r"another session|another site, round"):
            cheat.share("site_0", {**directory, "site_3": stale})


def test_finding_d_one_key_twice_is_refused():
    """A site (or who holds its signing key) that repeats another's key would repeat its secrets."""
    cheat = Masks()
    directory = cheat.advertise()
    body = encoding.loads(encoding.loads(directory["site_2"])[2])
    identity = cheat.world.identities["site_3"]
    again = write_frame(identity, cheat.world.session, 0, "advertise", masks.ALL_RECIPIENTS, body)
    with pytest.raises(PeerError, match="a repeated key"):
        cheat.share("site_0", {**directory, "site_3": again})


def test_finding_e_counts_and_notes_are_not_in_clear():
    """Theirs: number of records and metrics beside the masked vector. Ours: nothing but a claim."""
    world = World(Masked(), numbers(5, 3, 1), SumNumbers((3,)))
    step = run_until(world, "mask")
    for frame in world.engine.exchange(step.requests):
        header, _, content = encoding.loads(frame)
        assert set(encoding.loads(content)) == {"masked"}
        assert set(Header.from_bytes(header).note) == {"min_sites", "sites", "stage", "asked"}


@pytest.mark.parametrize("bits", [32, 64, 128])
def test_finding_f_masks_take_every_value(bits):
    """Theirs: the top value never occurs. Ours: masks are whole machine words; among 2^17 bytes of
    mask every byte value occurs at every place (one is missing with probability 256 e^-64 each)."""
    vector = ring.zeros((1 << 17) // (bits // 8), bits)
    prg.apply_masks(vector, [masks.seed(bytes(32), b"finding f")], [])
    columns = np.frombuffer(ring.to_bytes(vector), dtype=np.uint8).reshape(-1, 8)
    assert all(len(np.unique(column)) == 256 for column in columns.T)


def test_finding_g_overflow_counts_parties():
    """Theirs: the check compares shares. Ours: the plan holds for all sites at their bounds."""
    field = Field("x", (1,), 2.0**20, 100, Kind.BOUNDED)
    fits = [sites for sites in range(2, 400) if _fits(field, sites)]
    assert fits == list(range(2, 128))  # 127 * 2^120 < 2^127 <= 128 * 2^120


def _fits(field, sites):
    try:
        plan_sum((field,), sites, Masked.capabilities.ring_bits)
    except OverflowRefusal:
        return False
    return True


# --- transcripts that differ ---------------------------------------------------------------------


def test_who_is_asked_something_else_sends_noise():
    """Another message for one site: its masks differ from everybody's, and nothing cancels."""
    cheat = Masks()
    directory = cheat.advertise()
    envelopes = {site: cheat.share(site, directory) for site in cheat.sites}
    for site in cheat.sites:
        cheat.mask(site, envelopes, message={"x": 1} if site == "site_2" else None)
    labels = {s: encoding.loads(cheat.states[s])["protocol"]["label"] for s in cheat.sites}
    assert len(set(labels.values())) == 2
    statements = {site: cheat.agree(site, EVERYBODY) for site in cheat.sites}
    with pytest.raises(PeerError, match="did not ask all contributors the same"):
        cheat.unmask("site_0", EVERYBODY, statements)


def test_in_a_later_sum_too():
    """There nobody is asked to unmask, so the masks alone must protect: the sum is noise."""
    world = World(Masked(), numbers(5, 400, 1), SumNumbers((400,)))
    step = run_until(world, "mask", 1)
    other = "site_3"
    _, _, content = encoding.loads(step.requests[other])
    body = {**encoding.loads(content), "message": {"at": 0.5}}
    step.requests[other] = write_frame(
        world.identities["coordinator"], world.session, 1, "mask", other, body
    )
    replies = [
        encoding.loads(encoding.loads(f)[2])["masked"] for f in world.engine.exchange(step.requests)
    ]
    shape = world.plans.of(STAGE).shape
    total = np.array(ring.to_integers(ring.total(replies, shape.length, shape.ring_bits)))
    # uniform in the ring: each is within the proved bound with probability 2^(sum bits - ring bits)
    small = np.abs(total.astype(object)) < 2 ** (shape.ring_bits - 8)
    assert small.mean() < 0.1  # 2^-7 expected of 400; 40 or more of them is beyond 10^-20


def test_a_site_masks_once_a_round():
    """Whatever `Party` lets through, the protocol itself never masks twice under one round."""
    world = World(Masked(), numbers(3, 3, 1), SumNumbers((3,), rounds=3))
    run_until(world, "mask", 3)
    protocol = encoding.loads(world.engine.states["site_0"])["protocol"]
    context = context_of(world, "site_0", round_=2)
    body = {"cohort": ["site_0", "site_1", "site_2"]}
    plan = world.protocol.plan(context)
    with pytest.raises(PolicyRefusal, match="has already masked in this round or a later one"):
        site_steps.mask(protocol, body, plan, context, ring.zeros(4, 32))


def test_a_key_of_small_order_is_refused():
    with pytest.raises(PeerError, match="of small order"):
        masks.pair_keys(bytes([7]) * 32, {"b": bytes(32)}, "first", "a", bytes(16))


def test_both_sites_derive_the_same_seed_and_no_other():
    a, b = bytes([1]) * 32, bytes([2]) * 32
    of_a, of_b = masks.public_key(a), masks.public_key(b)
    session = bytes(16)
    ours = masks.pair_keys(a, {"b": of_b}, "first", "a", session)
    assert [*ours.values()] == [*masks.pair_keys(b, {"a": of_a}, "first", "b", session).values()]
    others = {
        masks.pair_keys(a, {peer: of_b}, kind, "a", s)[peer]
        for kind in ("first", "later") for peer in ("b", "c") for s in (session, bytes([1]) * 16)
    }  # fmt: skip
    assert len(others) == 8
    assert not hmac.compare_digest(*[masks.seed(a, label) for label in (b"1", b"2")])


def test_a_wrong_share_is_noticed():
    """A site gives a wrong share: the secret does not match what was advertised."""
    world = World(Masked(), numbers(4, 3, 1), SumNumbers((3,)))
    step = run_until(world, "unmask")
    frames = world.engine.exchange(step.requests)
    _, _, content = encoding.loads(frames[0])
    shares = encoding.loads(content)["shares"]
    wrong = {site: bytes([share[0] ^ 1]) + share[1:] for site, share in shares.items()}
    frames[0] = write_frame(
        world.identities["site_0"], world.session, 0, "unmask", "coordinator", {"shares": wrong}
    )
    with pytest.raises(PeerError, match="do not combine to"):
        world.coordinator.advance(step.state, frames)


def context_of(world, name, round_):
    from secagg.contracts import Context

    return Context(
        world.session, round_, world.identities[name], world.roster,
        world.plans.of(STAGE).shape, replayable_random(1),
    )  # fmt: skip


def test_randomness_is_an_argument():
    """No function of the protocol draws by itself."""
    for module in (masks, site_steps):
        source = inspect.getsource(module)
        assert "urandom" not in source
        assert "system_random" not in source
