"""Attacks on threshold decryption by a coordinator that departs from the protocol: all refused.

It wants one site's ciphertext decrypted, or two sums that differ by one site. Each refusal is a
typed error at the site that was asked.
"""

from __future__ import annotations

import functools

import numpy as np
import pytest
from support.cheating import Cheat
from support.world import STAGE

from secagg.core import encoding
from secagg.core.frames import seal_frame
from secagg.core.randomness import replayable_random
from secagg.errors import PeerError, PolicyRefusal
from secagg.privacy.policy.release_rules import ReleasePolicy
from secagg.protocols.paillier import cryptosystem
from secagg.protocols.paillier.encrypted_vectors import EncryptedVectors
from secagg.protocols.paillier.key_shares import answers_from_bytes, combine, share_key
from secagg.protocols.paillier.keys import PrivateKey, generate_keypair
from secagg.protocols.paillier.threshold import ThresholdPaillier
from secagg.runtime.fixed_point import decode
from secagg.runtime.rounds import COHORT

OTHER_SITES = "told contributors of other sites than contributed"
"""Refuses any other cohort than the one the contributors signed, whatever else would refuse it."""


@functools.cache
def key_of(seed: int) -> PrivateKey:
    """Ordinary keys, quick to make; for seeds 3 and 7, with factors that suit four sites."""
    return generate_keypair(2048, replayable_random(seed))


class KeyOfTests(ThresholdPaillier):
    def draw_key(self, random):
        return key_of(3)


class ThresholdCheat(Cheat):
    """A cheating coordinator, with the key dealt honestly by site_0 unless `dealt` is false."""

    def __init__(self, threshold: int = 3, sites: int = 4, dealt: bool = True, **options) -> None:
        super().__init__(KeyOfTests(2048, threshold), sites, **options)
        if dealt:
            envelopes = self.ask("site_0", "deal", 0, {})["envelopes"]
            for site, envelope in envelopes.items():
                self.ask(site, "install", 0, {"dealer": "site_0", "envelope": envelope})

    def encrypt(self, round_: int, sites: list[str] | None = None, **how) -> dict[str, bytes]:
        return {
            site: self.invite(site, "encrypt", round_, **how)["ciphertexts"]
            for site in sites or self.sites
        }

    def decrypt(self, site, round_, ciphertexts, contributors=None, stage=STAGE, claims=None):
        contributors = contributors or sorted(ciphertexts)
        claims = claims or {name: self.claims[name] for name in contributors}
        body = {
            "stage": stage, "contributors": contributors, "claims": claims,
            "ciphertexts": ciphertexts,
        }  # fmt: skip
        return self.ask(site, "decrypt", round_, body)["answers"]


def zeros_like(ciphertexts: bytes, seed: int = 1) -> bytes:
    """Return encryptions of zero, which anybody with the public key can make."""
    public = key_of(3).public
    count = len(ciphertexts) // public.ciphertext_bytes
    made = cryptosystem.encrypt(public, [0] * count, replayable_random(seed))
    return cryptosystem.ciphertexts_to_bytes(public, made)


def test_an_honest_course_is_answered() -> None:
    cheat = ThresholdCheat()
    sent = cheat.encrypt(0)
    claims = dict(cheat.claims)
    answers = [cheat.decrypt(site, 0, sent, claims=claims) for site in cheat.sites[1:]]
    public, plan = key_of(3).public, cheat.world.plans.of(STAGE)
    sums = EncryptedVectors(public, plan.shape, 4)
    columns = [sums.ciphertexts(site, data) for site, data in sent.items()]
    numbers = {i: answers_from_bytes(public, "", a, sums.count) for i, a in enumerate(answers, 2)}
    plaintexts = combine(public, 4, numbers, cryptosystem.multiply(public, columns))
    fields, _ = decode(plan, sums.total(plaintexts, 4))
    np.testing.assert_array_equal(fields["x"], cheat.world.expected(cheat.sites))


# --- one site's ciphertext ------------------------------------------------------------------------


def test_one_site_and_encryptions_of_zero() -> None:
    """The product would be a fresh encryption of what site_0 contributed."""
    cheat = ThresholdCheat()
    sent = cheat.encrypt(0)
    alone = {s: c if s == "site_0" else zeros_like(c) for s, c in sent.items()}
    with pytest.raises(PeerError, match="did not relay the ciphertexts that site_1 sent"):
        cheat.decrypt("site_1", 0, alone)


def test_one_site_and_nothing_else() -> None:
    cheat = ThresholdCheat()
    sent = cheat.encrypt(0)
    for shown in ({"site_0": sent["site_0"]}, {**sent, "site_2": b""}, {}):
        with pytest.raises(PeerError, match="did not relay the ciphertexts"):
            cheat.decrypt("site_1", 0, shown, contributors=cheat.sites)
    with pytest.raises(PeerError, match="no ciphertexts"):
        cheat.decrypt("site_1", 0, None, contributors=cheat.sites)


def test_ciphertexts_of_two_sites_swapped() -> None:
    """Harmless in a product, but not what was signed."""
    cheat = ThresholdCheat()
    sent = cheat.encrypt(0)
    sent["site_0"], sent["site_1"] = sent["site_1"], sent["site_0"]
    with pytest.raises(PeerError, match="did not relay the ciphertexts that site_0 sent"):
        cheat.decrypt("site_2", 0, sent)


def test_a_ciphertext_raised_to_a_power() -> None:
    cheat = ThresholdCheat()
    sent = cheat.encrypt(0)
    public = key_of(3).public
    (ciphertext,) = cryptosystem.ciphertexts_from_bytes(public, sent["site_1"], 1)
    powered = pow(ciphertext, 1 << 1500, public.n**2)
    sent["site_1"] = cryptosystem.ciphertexts_to_bytes(public, [powered])
    with pytest.raises(PeerError, match="did not relay the ciphertexts that site_1 sent"):
        cheat.decrypt("site_2", 0, sent)


def test_fewer_than_the_openers_own_rule() -> None:
    """Here the coordinator even shows true ciphertexts: of two sites, where three are the rule."""
    cheat = ThresholdCheat()
    sent = cheat.encrypt(0)
    two = {site: sent[site] for site in cheat.sites[:2]}
    with pytest.raises(PeerError, match=OTHER_SITES):
        cheat.decrypt("site_0", 0, two)


def test_fewer_than_a_contributors_rule() -> None:
    cheat = ThresholdCheat(policies={"site_1": ReleasePolicy(4, 1)})
    sent = cheat.encrypt(0)
    three = {site: sent[site] for site in cheat.sites[:3]}
    with pytest.raises(PeerError, match=OTHER_SITES):
        cheat.decrypt("site_0", 0, three)


def test_a_site_counted_twice() -> None:
    cheat = ThresholdCheat()
    sent = cheat.encrypt(0)
    twice = ["site_0", "site_1", "site_1"]
    with pytest.raises(PeerError, match=OTHER_SITES):
        cheat.decrypt("site_0", 0, sent, contributors=twice)


def test_a_sum_of_others() -> None:
    cheat = ThresholdCheat()
    others = cheat.encrypt(0, cheat.sites[1:], cohort=cheat.sites[1:])
    with pytest.raises(PolicyRefusal, match="only sums that it contributes to"):
        cheat.decrypt("site_0", 0, others)


# --- another round --------------------------------------------------------------------------------


def test_ciphertexts_of_an_earlier_round() -> None:
    cheat = ThresholdCheat()
    old = cheat.encrypt(0)
    old_claims = dict(cheat.claims)
    new = cheat.encrypt(1)
    with pytest.raises(PeerError, match="no valid proof that site_0"):
        cheat.decrypt("site_1", 1, old, claims=old_claims)
    with pytest.raises(PeerError, match="did not relay the ciphertexts that site_0 sent"):
        cheat.decrypt("site_1", 1, old)
    mixed = {**new, "site_3": old["site_3"]}
    with pytest.raises(PeerError, match="did not relay the ciphertexts that site_3 sent"):
        cheat.decrypt("site_1", 1, mixed)
    with pytest.raises(PeerError, match="repeats"):
        cheat.decrypt("site_1", 0, old, claims=old_claims)
    assert cheat.decrypt("site_1", 1, new)


def test_a_second_answer_in_a_round() -> None:
    """Refused by the party; and by the protocol, should the party's own record be lost."""
    cheat = ThresholdCheat()
    sent = cheat.encrypt(0)
    claims = dict(cheat.claims)
    cheat.decrypt("site_1", 0, sent, claims=claims)
    with pytest.raises(PeerError, match="repeats"):
        cheat.decrypt("site_1", 0, sent, claims=claims)
    state = encoding.loads(cheat.states["site_1"])
    cheat.states["site_1"] = encoding.dumps({**state, "handled": []})
    with pytest.raises(PolicyRefusal, match="already helped to open a sum of this round"):
        cheat.decrypt("site_1", 0, sent, claims=claims)


# --- two cohorts ----------------------------------------------------------------------------------


def test_two_cohorts_in_the_cohort_stage() -> None:
    """All four contribute; opening {0, 1, 2} takes three sites, and they open no other."""
    cheat = ThresholdCheat()
    sent = cheat.encrypt(0, stage=COHORT)
    claims = dict(cheat.claims)
    first = {site: sent[site] for site in cheat.sites[:3]}
    for site in first:
        cheat.decrypt(site, 0, first, stage=COHORT, claims=claims)
    for second in (sent, {site: sent[site] for site in cheat.sites[1:]}):
        for site in ("site_1", "site_2"):
            with pytest.raises(PeerError, match="repeats"):
                cheat.decrypt(site, 0, second, stage=COHORT, claims=claims)
    assert cheat.decrypt("site_3", 0, sent, stage=COHORT, claims=claims)  # one answer is too few


def test_another_cohort_after_the_first_release() -> None:
    cheat = ThresholdCheat()
    sent = cheat.encrypt(0, stage=COHORT)
    first = {site: sent[site] for site in cheat.sites[:3]}
    cheat.decrypt("site_0", 0, first, stage=COHORT)
    with pytest.raises(PolicyRefusal, match="the sites changed after the first release"):
        cheat.encrypt(1, ["site_0"])


def test_a_smaller_cohort_than_was_invited() -> None:
    """Sites that contributed to a stage of the method open no other sum than their cohort's."""
    cheat = ThresholdCheat()
    sent = cheat.encrypt(0)
    three = {site: sent[site] for site in cheat.sites[:3]}
    with pytest.raises(PeerError, match=OTHER_SITES):
        cheat.decrypt("site_0", 0, three)


# --- keys -----------------------------------------------------------------------------------------


def install(cheat: ThresholdCheat, key: PrivateKey, dealer: str, to: str) -> dict:
    """Seal a share of `key` to a site with the dealer's own keys, and have it installed."""
    w = cheat.world
    share = share_key(key, 4, 3, replayable_random(1))[cheat.sites.index(to)]
    plain = {"n": key.public.n, "h_s": key.public.h_s, "share": share.value}
    sealed = seal_frame(w.identities[dealer], w.roster, w.session, 0, "deal", to, plain)
    return cheat.ask(to, "install", 0, {"dealer": dealer, "envelope": sealed})


def test_a_key_of_the_coordinators_own() -> None:
    cheat = ThresholdCheat(dealt=False)
    with pytest.raises(PeerError, match="no key sealed by a site"):
        install(cheat, key_of(3), "coordinator", "site_1")
    assert install(cheat, key_of(3), "site_0", "site_1") == {}


def test_a_second_key() -> None:
    cheat = ThresholdCheat()
    with pytest.raises(PeerError, match="repeats"):
        install(cheat, key_of(7), "site_2", "site_1")
    for site in ("site_0", "site_1"):
        with pytest.raises(PeerError, match="sends a second key"):
            cheat.ask(site, "deal", 1, {})
    with pytest.raises(PeerError, match="sends a second key"):
        cheat.ask("site_0", "install", 1, {})


def test_sites_divided_between_two_keys() -> None:
    """What is encrypted under another key than the opener's is not what the claim covers."""
    cheat = ThresholdCheat(dealt=False)
    for site, seed in (("site_0", 3), ("site_1", 3), ("site_2", 3), ("site_3", 7)):
        install(cheat, key_of(seed), "site_1" if site == "site_0" else "site_0", site)
    sent = cheat.encrypt(0)
    with pytest.raises(PeerError, match="did not relay the ciphertexts that site_3 sent"):
        cheat.decrypt("site_0", 0, sent)


@pytest.mark.parametrize("change", ["short", "even", "share", "nothing", "no h_s"])
def test_a_malformed_share(change: str) -> None:
    cheat = ThresholdCheat(dealt=False)
    w, key = cheat.world, key_of(3)
    good = {"n": key.public.n, "h_s": key.public.h_s, "share": 5}
    plain = {
        "short": {**good, "n": key.public.n >> 1}, "even": {**good, "n": key.public.n - 1},
        "share": {**good, "share": key.public.n >> 2}, "nothing": {},
        "no h_s": {**good, "h_s": None},
    }[change]  # fmt: skip
    sealed = seal_frame(w.identities["site_0"], w.roster, w.session, 0, "deal", "site_1", plain)
    with pytest.raises(PeerError, match=r"2048 bits|is even|out of range|has no share"):
        cheat.ask("site_1", "install", 0, {"dealer": "site_0", "envelope": sealed})


def test_a_threshold_below_what_the_rules_stand_for() -> None:
    """A rule of four sites withstands two that collude; two could decrypt: nothing is sent."""
    cheat = ThresholdCheat(threshold=2, policies={"site_3": ReleasePolicy(4, 1)})
    with pytest.raises(PolicyRefusal, match="2 sites could decrypt together, but min_sites = 4"):
        cheat.encrypt(0)
