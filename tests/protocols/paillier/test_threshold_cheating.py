"""Attacks on threshold decryption by a coordinator that departs from the protocol: all refused.

It wants one site's ciphertext decrypted, or two sums that differ by one site. `refused(where)` says
which refusal: by the site's own policy (`where` is the site), or of the coordinator's request.
"""

import functools

import numpy as np
import pytest
from support.protocols.cheating import Cheat
from support.protocols.world import STAGE

from secagg.core import canonical_encoding
from secagg.core.frames import seal_frame
from secagg.core.randomness import replayable_random
from secagg.errors import PeerError, PolicyRefusal
from secagg.privacy.policy.release_rules import ReleasePolicy
from secagg.protocols.paillier import cryptosystem
from secagg.protocols.paillier.encrypted_vectors import EncryptedVectors
from secagg.protocols.paillier.key_shares import answers_from_bytes, combine, share_key
from secagg.protocols.paillier.keys import PrivateKey, PublicKey, generate_keypair
from secagg.protocols.paillier.threshold import ThresholdPaillier
from secagg.sessions.fixed_point import decode
from secagg.sessions.rounds import COHORT


@functools.cache
def key_of(seed: int) -> PrivateKey:
    """Return an ordinary key, quick to make; seeds 3 and 7 have factors that suit four sites."""
    return generate_keypair(2048, replayable_random(seed))


def public() -> PublicKey:
    return key_of(3).public


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


def refused(where: str = "coordinator"):
    """Expect a refusal: a `PeerError` about the coordinator, or a `PolicyRefusal` of a site."""
    kind = PeerError if where == "coordinator" else PolicyRefusal
    return pytest.raises(kind, check=lambda error: error.where == where)


def zeros_like(ciphertexts: bytes, seed: int = 1) -> bytes:
    """Return encryptions of zero; the public key is enough to make them."""
    count = len(ciphertexts) // public().ciphertext_bytes
    made = cryptosystem.encrypt(public(), [0] * count, replayable_random(seed))
    return cryptosystem.ciphertexts_to_bytes(public(), made)


def test_honest_requests_are_answered() -> None:
    cheat = ThresholdCheat()
    sent = cheat.encrypt(0)
    claims = dict(cheat.claims)
    answers = [cheat.decrypt(site, 0, sent, claims=claims) for site in cheat.sites[1:]]
    plan = cheat.world.plans.of(STAGE)
    sums = EncryptedVectors(public(), plan.shape, 4)
    columns = [sums.ciphertexts(site, data) for site, data in sent.items()]
    numbers = {i: answers_from_bytes(public(), "", a, sums.count) for i, a in enumerate(answers, 2)}
    plaintexts = combine(public(), 4, numbers, cryptosystem.multiply(public(), columns))
    fields, _ = decode(plan, sums.total(plaintexts, 4))
    np.testing.assert_array_equal(fields["x"], cheat.world.expected(cheat.sites))


# --- one site's ciphertext ------------------------------------------------------------------------


def powered(ciphertexts: bytes) -> bytes:
    (ciphertext,) = cryptosystem.ciphertexts_from_bytes(public(), ciphertexts, 1)
    return cryptosystem.ciphertexts_to_bytes(
        public(), [pow(ciphertext, 1 << 1500, public().n ** 2)]
    )


SHOWN = {
    "one site and encryptions of zero": lambda sent: {
        s: c if s == "site_0" else zeros_like(c) for s, c in sent.items()
    },
    "one site alone": lambda sent: {"site_0": sent["site_0"]},
    "one left empty": lambda sent: {**sent, "site_2": b""},
    "none": lambda sent: {},
    "not a mapping": lambda sent: None,
    "two swapped": lambda sent: {**sent, "site_0": sent["site_1"], "site_1": sent["site_0"]},
    "one raised to a power": lambda sent: {**sent, "site_1": powered(sent["site_1"])},
}


@pytest.mark.parametrize("case", SHOWN)
def test_ciphertexts_that_sites_did_not_send_are_refused(case: str) -> None:
    cheat = ThresholdCheat()
    sent = cheat.encrypt(0)
    with refused():
        cheat.decrypt("site_2", 0, SHOWN[case](sent), contributors=cheat.sites)


@pytest.mark.parametrize("chosen", [[0, 1], [0, 1, 2], [0, 1, 1]])
def test_fewer_contributors_than_encrypted_for_are_refused(chosen: list[int]) -> None:
    """The ciphertexts are true, but of fewer sites than contributed; the rule is three sites."""
    cheat = ThresholdCheat(policies={"site_1": ReleasePolicy(4, 1)})
    sent = cheat.encrypt(0)
    names = [cheat.sites[i] for i in chosen]
    with refused():
        cheat.decrypt("site_0", 0, {site: sent[site] for site in names}, contributors=names)


def test_a_site_decrypts_no_sum_without_its_own_ciphertext() -> None:
    cheat = ThresholdCheat()
    others = cheat.encrypt(0, cheat.sites[1:], cohort=cheat.sites[1:])
    with refused("site_0"):
        cheat.decrypt("site_0", 0, others)


# --- another round --------------------------------------------------------------------------------


def test_ciphertexts_of_an_earlier_round_are_refused() -> None:
    cheat = ThresholdCheat()
    old = cheat.encrypt(0)
    old_claims = dict(cheat.claims)
    new = cheat.encrypt(1)
    mixed = {**new, "site_3": old["site_3"]}
    for round_, shown, claims in ((1, old, old_claims), (1, old, None), (1, mixed, None)):
        with refused():
            cheat.decrypt("site_1", round_, shown, claims=claims)
    assert cheat.decrypt("site_1", 1, new)


def test_a_second_answer_in_a_round_is_refused() -> None:
    """The party refuses it; so does the protocol, even if the party's own record is lost."""
    cheat = ThresholdCheat()
    sent = cheat.encrypt(0)
    claims = dict(cheat.claims)
    cheat.decrypt("site_1", 0, sent, claims=claims)
    with refused():
        cheat.decrypt("site_1", 0, sent, claims=claims)
    state = canonical_encoding.loads(cheat.states["site_1"])
    cheat.states["site_1"] = canonical_encoding.dumps({**state, "handled": []})
    with refused("site_1"):
        cheat.decrypt("site_1", 0, sent, claims=claims)


# --- two cohorts ----------------------------------------------------------------------------------


def test_a_second_cohort_in_the_counting_round_is_refused() -> None:
    """All four contribute; three sites open {0, 1, 2}, and then no other sum."""
    cheat = ThresholdCheat()
    sent = cheat.encrypt(0, stage=COHORT)
    claims = dict(cheat.claims)
    first = {site: sent[site] for site in cheat.sites[:3]}
    for site in first:
        cheat.decrypt(site, 0, first, stage=COHORT, claims=claims)
    for second in (sent, {site: sent[site] for site in cheat.sites[1:]}):
        for site in ("site_1", "site_2"):
            with refused():
                cheat.decrypt(site, 0, second, stage=COHORT, claims=claims)
    assert cheat.decrypt("site_3", 0, sent, stage=COHORT, claims=claims)  # one answer is too few


def test_another_cohort_after_the_first_release_is_refused() -> None:
    cheat = ThresholdCheat()
    sent = cheat.encrypt(0, stage=COHORT)
    first = {site: sent[site] for site in cheat.sites[:3]}
    cheat.decrypt("site_0", 0, first, stage=COHORT)
    with refused("site_0"):
        cheat.encrypt(1, ["site_0"])


# --- keys -----------------------------------------------------------------------------------------


def install(cheat: ThresholdCheat, key: PrivateKey, dealer: str, to: str, round_: int = 0) -> dict:
    """Seal a share of `key` for a site with the dealer's keys, and ask the site to install it."""
    w = cheat.world
    share = share_key(key, 4, 3, replayable_random(1))[cheat.sites.index(to)]
    plain = {"n": key.public.n, "h_s": key.public.h_s, "share": share.value}
    sealed = seal_frame(w.identities[dealer], w.roster, w.session, round_, "deal", to, plain)
    return cheat.ask(to, "install", round_, {"dealer": dealer, "envelope": sealed})


def test_a_key_made_by_the_coordinator_is_refused() -> None:
    cheat = ThresholdCheat(dealt=False)
    with refused():
        install(cheat, key_of(3), "coordinator", "site_1")
    assert install(cheat, key_of(3), "site_0", "site_1") == {}


def test_a_second_key_is_refused() -> None:
    cheat = ThresholdCheat()
    with refused():
        install(cheat, key_of(7), "site_2", "site_1")
    for site in ("site_0", "site_1"):
        with refused():
            cheat.ask(site, "deal", 1, {})
    for site in ("site_0", "site_1"):  # a valid key, in a round for which the site has none
        with refused():
            install(cheat, key_of(7), "site_2", site, round_=1)


def test_sites_with_different_keys_do_not_decrypt_together() -> None:
    """Ciphertexts under another key than the opener's do not match the signed attestation."""
    cheat = ThresholdCheat(dealt=False)
    for site, seed in (("site_0", 3), ("site_1", 3), ("site_2", 3), ("site_3", 7)):
        install(cheat, key_of(seed), "site_1" if site == "site_0" else "site_0", site)
    sent = cheat.encrypt(0)
    with refused():
        cheat.decrypt("site_0", 0, sent)


def test_malformed_key_shares_are_refused() -> None:
    cheat = ThresholdCheat(dealt=False)
    w, n, h_s = cheat.world, public().n, public().h_s
    for change in ({"n": n >> 1}, {"n": n - 1}, {"share": n >> 2}, {"share": None}, {"h_s": None}):
        plain = {"n": n, "h_s": h_s, "share": 5, **change}
        sealed = seal_frame(w.identities["site_0"], w.roster, w.session, 0, "deal", "site_1", plain)
        with pytest.raises(PeerError):
            cheat.ask("site_1", "install", 0, {"dealer": "site_0", "envelope": sealed})
