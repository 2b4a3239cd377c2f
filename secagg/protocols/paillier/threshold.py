"""Sums under threshold Paillier: sites encrypt, the coordinator multiplies, any t sites decrypt.

Encryption and packing are those of `single_key`. The site that makes the key, called the dealer,
splits it into shares. `key_shares` explains the shares, how t of the K sites decrypt, and why t - 1
sites learn nothing (after Shoup, EUROCRYPT 2000, and Paillier, EUROCRYPT 1999). After set-up, no
party holds the private key.

A sum: every site sends ciphertexts. The coordinator asks t of the contributing sites to decrypt. If
a site does not answer, it asks another. It sends each of these sites the ciphertexts of *all*
contributors, with their signatures. A site answers, once in a round, only if three conditions hold:

1. The release rules hold for the contributors. (`Party` checks this first, and the contributors'
   signatures.)
2. The site itself is a contributor.
3. The signatures show that the contributors sent these ciphertexts in this round, under the key of
   which this site holds a share.

Then the site multiplies the ciphertexts and returns its partial decryption of the product. So
whatever the coordinator sends, a site helps to open only sums that contain its own contribution,
and that cover at least as many sites as its own min_sites.

Threat model: coordinator and sites are honest but curious. The coordinator and up to t - 1 sites
may collude, but not the dealer. They learn only the sums, from which each colluding site can
subtract its own contribution. If the coordinator is malicious and the sites are honest, the
coordinator

* cannot have a single site's ciphertext decrypted, nor a ciphertext of another round, nor one
  ciphertext twice (conditions 1 and 3);
* cannot open sums over two cohorts (sets of contributors), whose difference could be one site's
  contribution. In the first round, which counts records, a site's cohort is fixed when it helps to
  open the sum. To open sums over two cohorts, the coordinator would need two sets of t sites
  without a common honest site. This is impossible if 2 t > K, or with c malicious sites if
  2 t - c > K. In later rounds, a site's cohort is fixed when it contributes, and the site helps to
  open only sums over this cohort (condition 2). So two cohorts would have no site in common.

K is the number of sites that the *job* names, also in a session that leaves some of them out. If
t were computed for fewer sites, the sites that may collude could decrypt any contribution. A
session covers all sites or at least t + 1; otherwise it does not begin. Then t - 1 colluding sites,
which may all be in the session, leave two others in each sum, and 2 t - c > K also rules out two
cohorts in the session.

The default is t = floor(2K/3) + 1. Then up to 2K/3 colluding sites do not obtain the key, up to K/3
sites may be malicious in the argument on two cohorts, and almost K/3 sites may drop out. t must
also fit the release rule. With min_sites = k, a site expects to be hidden from k - 2 other
colluding sites, since k - 1 others could subtract their own contributions. So t - 1 >= k - 2 is
required. A site refuses to encrypt if t is too small for its own rule.

Not protected:

* Everything, against t colluding sites, or against the dealer, which knows the key while it deals.
  The coordinator chooses the dealer among the sites, so one dishonest site is enough
  (docs/adr/026-no-key-without-a-dealer.md says what a key without a dealer would cost).
* The numbers of records of two cohorts, if 2 t <= K.
* Contributions, if a malicious *site* colludes with the coordinator. It can compute its ciphertext
  from another site's ciphertext, because no proofs are sent.
* The result, if a malicious site sends a false contribution. A false partial decryption or key
  share is always detected and stops the sum. The sum also stops if fewer than t sites answer. Then
  nothing is released, and nobody learns which site was malicious.
"""

from __future__ import annotations

import hmac
from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar

from secagg.contracts import (
    Body,
    Capabilities,
    Context,
    PhaseRequest,
    ProtocolState,
    Shape,
    Total,
)
from secagg.core import canonical_encoding
from secagg.core.frames import Header
from secagg.core.identity import Role
from secagg.core.randomness import RandomBytes
from secagg.core.ring import RingVector
from secagg.errors import JobError, PeerError, PolicyRefusal, ProtocolAbort
from secagg.protocols.paillier import cryptosystem, phases
from secagg.protocols.paillier.encrypted_vectors import EncryptedVectors
from secagg.protocols.paillier.integers import Integers
from secagg.protocols.paillier.key_shares import (
    KeyShare,
    answers_from_bytes,
    check_share,
    combine,
    generate_keypair,
    partially_decrypt,
    share_key,
)
from secagg.protocols.paillier.keys import PrivateKey, PublicKey, check_public_key
from secagg.protocols.paillier.phases import PaillierPhases


@dataclass(frozen=True)
class ThresholdPaillier(PaillierPhases):
    """Paillier sums under a key that the sites share."""

    threshold: int | None = None
    """Number of sites needed to decrypt, from 2 to all. If it is not set: floor(2K/3) + 1 for the
    job's K sites. A site refuses to contribute if it is below the site's own `min_sites` (fewest
    sites in a sum) minus 1."""
    short_exponents: bool = False
    """Encrypt about five times faster, under the further assumption that powers with short random
    exponents cannot be distinguished from random ones."""

    name: ClassVar[str] = "threshold_paillier"
    capabilities: ClassVar[Capabilities] = Capabilities(
        ring_bits=(32, 64, 128),
        hides_from_coordinator=True,
        dropouts="any site may drop out, as long as contributing sites remain to decrypt, as many "
        "as the threshold",
        sees={
            "coordinator": "ciphertexts it cannot read, the sum, and the product of the "
            "ciphertexts' randomisers, which reveals nothing about a single contribution",
            "site": "which sites took part, the total number of records, the method's messages, "
            "and, if it is asked to decrypt, the ciphertexts of all contributors, which it cannot "
            "read",
        },
        unprotected=(
            "As many sites as the threshold, together with the coordinator, could read every "
            "contribution.",
            "The dealer, a site that the coordinator chooses, knows the whole key while it deals "
            "and is trusted to keep only its share. If it colludes with the coordinator, the two "
            "read every contribution of the run.",
            "A malicious site that colludes with the coordinator could derive its ciphertext from "
            "another site's and learn that contribution; no proofs are sent.",
            "If only half of the sites or fewer must decrypt together, a malicious coordinator "
            "could obtain the first round's record counts of two different groups of sites.",
            "A malicious site can change other values of the sum and so make it wrong; with a "
            "false partial decryption it can only stop the run.",
            "The coordinator is trusted to send the method's own messages. With other messages, a "
            "sum could reveal more than the method declares.",
        ),
    )

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.threshold is not None and self.threshold < 2:
            raise JobError("protocol.threshold", "must be at least 2: 1 site could decrypt alone")

    def guarantee_text(self, sites: int) -> str:
        t = self.threshold_of(sites)
        return (
            f"any {t} of {sites} sites decrypt together: up to {t - 1} may collude with the "
            f"coordinator, but not the dealer: the site that makes the key, which the coordinator "
            f"chooses, could keep it and read every contribution alone; up to {sites - t} may be "
            "missing when a sum is decrypted"
        )

    def max_colluding(self, sites: int) -> int:
        """Return t - 1, without the dealer of the key, who alone could read all contributions."""
        return self.threshold_of(sites) - 1

    def least_sites(self, sites: int) -> int:
        """Return t + 1 if there are so many: t - 1 colluding sites leave two others in each sum."""
        return min(sites, self.threshold_of(sites) + 1)

    def threshold_of(self, sites: int) -> int:
        """Return t for this number of sites, which are those that the job names.

        Raises `JobError` if the job sets a threshold above the number of sites.
        """
        if self.threshold is None:
            return 2 * sites // 3 + 1
        if self.threshold > sites:
            raise JobError("protocol.threshold", f"must be at most {sites}, the number of sites")
        return self.threshold

    def draw_key(self, random: RandomBytes) -> PrivateKey:
        """Return a fresh key. Override this method to use an existing key."""
        return generate_keypair(self.key_bits, random)

    # --- a site ------------------------------------------------------------------------------

    def _deal(self, context: Context) -> tuple[ProtocolState, Body]:
        """Draw a key and seal its shares for the sites. The dealer keeps only its own share."""
        sites, threshold = _sites(context), self.threshold_of(context.job_sites)
        key = self.draw_key(context.random)
        shares = share_key(key, len(sites), threshold, context.random)
        plain = {site: _plain(share) for site, share in zip(sites, shares, strict=True)}
        own = plain.pop(context.me)
        return {**own, "opened": -1}, phases.deal(key.public, plain, context)

    def _install(self, body: Body, context: Context) -> ProtocolState:
        dealer, plain = phases.open_dealt(body, context)
        share = _share(plain, context)
        phases.check_size(dealer, share.public, self.key_bits)
        check_public_key(share.public)
        check_share(share)
        return {**_plain(share), "opened": -1}

    def _encrypt(self, state: ProtocolState, contribution: RingVector, context: Context) -> Body:
        share = _share(state, context)
        self._check_rule(context)
        ciphertexts = cryptosystem.encrypt(
            share.public,
            EncryptedVectors.of(share.public, context).plaintexts(contribution),
            context.random,
            short_exponent_assumption=self.short_exponents,
        )
        return _contribution(ciphertexts.to_bytes(), share.public)

    def _decrypt(self, state: ProtocolState, body: Body, context: Context) -> Body:
        """Partially decrypt the product, if the conditions in the module's text hold."""
        share = _share(state, context)
        if context.me not in body["contributors"]:
            raise PolicyRefusal(context.me, "helps to open only sums that it contributes to")
        sent = body.get("ciphertexts")
        if not isinstance(sent, dict):
            raise PeerError(context.roster.coordinator, "malformed request: no ciphertexts")
        sums = EncryptedVectors.of(share.public, context)
        columns: list[Integers] = []
        for site in body["contributors"]:
            attested = Header.from_bytes(body["claims"][site][0])
            digest = canonical_encoding.digest(_contribution(sent.get(site), share.public))
            if not hmac.compare_digest(digest, attested.body_digest):
                raise PeerError(
                    context.roster.coordinator, f"did not relay the ciphertexts that {site} sent"
                )
            columns.append(sums.ciphertexts(site, sent[site]))
        product = cryptosystem.multiply(share.public, columns)
        return {"answers": partially_decrypt(share, product).to_bytes()}

    def _check_rule(self, context: Context) -> None:
        """Raise an error if the threshold is too small for this site's min_sites."""
        threshold = self.threshold_of(context.job_sites)
        if threshold < context.min_sites - 1:
            raise PolicyRefusal(
                context.me,
                f"{threshold} sites could decrypt together, but min_sites = {context.min_sites} "
                f"must protect against {context.min_sites - 2} colluding sites",
                f"Set protocol.threshold to at least {context.min_sites - 1}.",
            )

    # --- the coordinator ---------------------------------------------------------------------

    def _multiply(
        self, state: phases.CoordinatorState, replies: Mapping[str, Body], context: Context
    ) -> tuple[phases.CoordinatorState, PhaseRequest]:
        public = PublicKey(state["n"], state["h_s"])
        sums = EncryptedVectors.of(public, context)
        columns: list[Integers] = []
        for site, body in replies.items():
            match body:
                case {"ciphertexts": bytes(data), "key": bytes(key)} if key == _key_digest(public):
                    columns.append(sums.ciphertexts(site, data))
                case _:
                    raise PeerError(site, "malformed message: no ciphertexts under this key")
        # Begin with a different site in each round, so that all sites do the same amount of work.
        contributors = list(replies)
        first = context.round % len(contributors)
        state = {
            **state,
            "ciphertexts": {site: body["ciphertexts"] for site, body in replies.items()},
            "product": cryptosystem.multiply(public, columns).to_bytes(),
            "unasked": contributors[first:] + contributors[:first],
            "answers": {},
        }
        return self._ask_missing(state, context)

    def _ask_missing(
        self, state: phases.CoordinatorState, context: Context
    ) -> tuple[phases.CoordinatorState, PhaseRequest]:
        """Ask further sites for the missing answers. Raise an error if there are too few sites."""
        threshold = self.threshold_of(context.job_sites)
        missing = threshold - len(state["answers"])
        next_sites, unasked = state["unasked"][:missing], state["unasked"][missing:]
        if len(next_sites) < missing:
            raise ProtocolAbort(
                self.name,
                f"only {len(state['answers']) + len(next_sites)} sites remain to decrypt; "
                f"{threshold} are required",
                "Nothing was released. Run again when more sites can be reached.",
            )
        body: Body = {"ciphertexts": state["ciphertexts"]}
        ask = PhaseRequest("decrypt", dict.fromkeys(next_sites, body), tuple(state["ciphertexts"]))
        return {**state, "unasked": unasked}, ask

    def _collect(
        self, state: phases.CoordinatorState, replies: Mapping[str, Body], context: Context
    ) -> tuple[phases.CoordinatorState, PhaseRequest | Total]:
        public = PublicKey(state["n"], state["h_s"])
        sums = EncryptedVectors.of(public, context)
        answers = dict(state["answers"])
        for site, body in replies.items():
            answers_from_bytes(public, site, body.get("answers"), sums.count)
            answers[site] = body["answers"]
        state = {**state, "answers": answers}
        if len(answers) < self.threshold_of(context.job_sites):
            return self._ask_missing(state, context)
        sites = _sites(context)
        product = sums.ciphertexts(context.me, state["product"])
        by_index = {
            sites.index(site) + 1: answers_from_bytes(public, site, data, sums.count)
            for site, data in answers.items()
        }
        plaintexts = combine(public, len(sites), by_index, product)
        contributors = tuple(state["ciphertexts"])
        return phases.session_state(state), Total(
            sums.total(plaintexts, len(contributors)), contributors
        )


def _sites(context: Context) -> tuple[str, ...]:
    """Return the sites in the order of their key shares (index 1, 2, ...)."""
    return context.roster.with_role(Role.SITE)


def _contribution(ciphertexts: object, public: PublicKey) -> Body:
    """Return the message body of a contribution. The site signs its digest.

    The body includes a digest of the key, so that all contributors to a sum use the same key.
    """
    return {"ciphertexts": ciphertexts, "key": _key_digest(public)}


def _key_digest(public: PublicKey) -> bytes:
    return canonical_encoding.digest([public.n, public.h_s])


def _plain(share: KeyShare) -> Body:
    return {"n": share.public.n, "h_s": share.public.h_s, "share": share.value}


def _share(plain: ProtocolState, context: Context) -> KeyShare:
    sites = _sites(context)
    match plain:
        case {"n": int(n), "h_s": int(h_s), "share": int(value)}:
            index = sites.index(context.me) + 1
            return KeyShare(PublicKey(n, h_s), len(sites), index, value)
    raise PeerError("threshold_paillier", "this site has no share of a key")


# --- the whole protocol without messages ---------------------------------------------------------


def run_ideal(
    contributions: Mapping[str, RingVector],
    shape: Shape,
    key: PrivateKey,
    threshold: int,
    random: RandomBytes,
) -> RingVector:
    """Compute the sum without messages. The last `threshold` sites decrypt."""
    public, sites = key.public, len(contributions)
    sums = EncryptedVectors(public, shape, sites)
    columns = [
        cryptosystem.encrypt(public, sums.plaintexts(c), random) for c in contributions.values()
    ]
    product = cryptosystem.multiply(public, columns)
    shares = share_key(key, sites, threshold, random)[sites - threshold :]
    answers = {share.index: partially_decrypt(share, product) for share in shares}
    return sums.total(combine(public, sites, answers, product), sites)
