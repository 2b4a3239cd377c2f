"""A coordinator that departs from the protocol to read one site's contribution, and is refused.

It holds its own signing key, so every request is well signed. Each attack once worked.
"""

import numpy as np
import pytest
from support.protocols.cheating import Cheat
from support.protocols.vectors import PaillierOfVectors, shared_key
from support.protocols.world import STAGE

from secagg.core.frames import seal_frame
from secagg.errors import PeerError
from secagg.protocols.additive import Additive
from secagg.protocols.paillier import phases
from secagg.protocols.paillier.keys import PublicKey
from secagg.sessions.rounds import COHORT


class AdditiveCheat(Cheat):
    """Attacks on shares held by aggregators."""

    def contribute(self, site, round_, **how):
        return self.invite(site, "share", round_, **how)["envelopes"]

    def open_at(self, aggregator, envelopes, round_, stage=STAGE, claimed=()):
        held = {site: sealed[aggregator] for site, sealed in envelopes.items()}
        self.ask(aggregator, "hold", round_, {"stage": stage, "envelopes": held})
        claims = {site: self.claims[site] for site in (*envelopes, *claimed)}
        body = {"stage": stage, "contributors": sorted(envelopes), "claims": claims}
        return self.ask(aggregator, "open", round_, body)["share"]


def test_honest_requests_are_answered():
    cheat = AdditiveCheat(Additive(2))
    envelopes = {site: cheat.contribute(site, 0) for site in cheat.sites}
    shares = [cheat.open_at(f"aggregator_{i}", envelopes, 0) for i in (1, 2)]
    total = (shares[0] + shares[1])[:3, 0].view(np.int64) / 2.0**20
    np.testing.assert_array_equal(total, cheat.world.expected(cheat.sites))


@pytest.mark.parametrize(
    "other",
    [
        {"message": {"trial": 1e6}},  # such as coefficients at which other derivatives vanish
        {"stage": COHORT},  # two stages of one length in one round
        {"cohort": ["site_1", "site_2", "site_3"]},
    ],
)
def test_a_different_request_to_one_site_is_detected(other):
    cheat = AdditiveCheat(Additive(2))
    envelopes = {site: cheat.contribute(site, 0) for site in cheat.sites[:3]}
    envelopes["site_3"] = cheat.contribute("site_3", 0, **other)
    with pytest.raises(PeerError):
        cheat.open_at("aggregator_1", envelopes, 0)


def test_shares_held_for_one_stage_are_not_opened_for_another():
    cheat = AdditiveCheat(Additive(2))
    envelopes = {site: cheat.contribute(site, 0, stage=COHORT) for site in cheat.sites}
    claims = dict(cheat.claims)
    held = {site: sealed["aggregator_1"] for site, sealed in envelopes.items()}
    cheat.ask("aggregator_1", "hold", 0, {"stage": STAGE, "envelopes": held})
    body = {"stage": COHORT, "contributors": cheat.sites, "claims": claims}
    with pytest.raises(PeerError, match="stage"):
        cheat.ask("aggregator_1", "open", 0, body)


def test_a_round_is_not_opened_again_over_fewer_sites():
    cheat = AdditiveCheat(Additive(2))
    envelopes = {site: cheat.contribute(site, 0) for site in cheat.sites}
    cheat.open_at("aggregator_1", envelopes, 0)
    fewer = {site: envelopes[site] for site in cheat.sites[1:]}
    with pytest.raises(PeerError):
        cheat.open_at("aggregator_1", fewer, 0)


def test_a_sum_over_fewer_sites_than_sized_their_noise_is_refused():
    """Claims of further sites would make up the number of contributors that each site signed."""
    cheat = AdditiveCheat(Additive(2))
    some = cheat.sites[:3]
    cheat.open_at(
        "aggregator_1", {s: cheat.contribute(s, 0, stage=COHORT) for s in some}, 0, COHORT
    )
    envelopes = {site: cheat.contribute(site, 1) for site in cheat.sites}
    with pytest.raises(PeerError):
        cheat.open_at("aggregator_1", {s: envelopes[s] for s in some}, 1, claimed=cheat.sites[3:])


def test_a_cohort_with_invented_sites_is_refused():
    cheat = AdditiveCheat(Additive(2))
    with pytest.raises(PeerError):
        cheat.contribute("site_0", 0, cohort=["site_0", "ghost_1", "ghost_2"])


def deal(cheat, key, dealer, to="site_1"):
    """Seal `key` to a site in the dealer's name, with the dealer's own keys, and install it."""
    w = cheat.world
    plain = {"n": key.public.n, "h_s": key.public.h_s, "p": key.p, "q": key.q}
    sealed = seal_frame(w.identities[dealer], w.roster, w.session, 0, "deal", to, plain)
    return cheat.ask(to, "install", 0, {"dealer": dealer, "envelope": sealed})


def test_a_key_dealt_by_the_coordinator_is_refused():
    """It would know the private key under which every site encrypts."""
    cheat = Cheat(PaillierOfVectors(2048))
    with pytest.raises(PeerError):
        deal(cheat, shared_key(), "coordinator")
    assert deal(cheat, shared_key(), "site_0") == {}


@pytest.mark.parametrize("bits", [2047, 2049])
def test_a_key_of_another_length_than_in_the_job_is_refused(bits):
    with pytest.raises(PeerError):
        phases.check_size("site_0", PublicKey(1 << bits - 1 | 1), 2048)
    cheat = Cheat(PaillierOfVectors(3072))
    with pytest.raises(PeerError):
        deal(cheat, shared_key(), "site_0")
