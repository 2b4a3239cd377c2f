"""Sums under threshold Paillier: sites encrypt, the coordinator multiplies, any t sites decrypt.

Encryption and packing are those of `paillier`. How the key is shared, how t answers decrypt, and
why t - 1 tell nothing, is in `threshold_keys` (after Shoup, EUROCRYPT 2000, and Paillier, EUROCRYPT
1999). No party holds the private key once it is dealt.

A sum: every site sends ciphertexts. The coordinator asks t of the contributing sites to decrypt,
and others in place of those that do not answer. It shows each of them *all* contributors'
ciphertexts and claims. A site answers, once a round, only if

1. the release rules hold for the contributors (checked before this step, with their signatures);
2. it is itself one of them;
3. the ciphertexts are, by the digest in each signed claim, those that the contributors sent in this
   round, under the key that it was dealt itself;

and then it multiplies them and answers the product. So what it helps to open is a sum over at least
its own min_sites contributions, its own among them, whatever the coordinator says.

Threat model: coordinator and sites follow the protocol; the coordinator and up to t - 1 sites, the
dealer not among them, pool what they see. They learn the sums, of which each colluding site can
subtract its own part. A coordinator that departs from the protocol, while the sites do not,

* cannot have one site's ciphertext decrypted, nor one of another round, nor one twice (1, 3);
* cannot have sums over two cohorts opened, whose difference would be somebody's contribution. Once
  a site has contributed to a stage of the method, its cohort is fixed, and it helps to open no sum
  but its cohort's (2), so two such cohorts have no site in common. In the cohort stage, where
  record counts are summed, a site fixes the cohort that it helps to open. Two cohorts take two sets
  of t sites with no honest one in common: impossible if 2 t > K, and with the help of c dishonest
  sites as long as 2 t - c > K.

Why t = floor(2K/3) + 1 unless the job says otherwise: then up to 2K/3 sites may collude without the
key, up to K/3 may give their shares away in the last point, and almost K/3 may drop out. The key
must not undercut the release rule either: min_sites k hides a site from k - 2 colluding others
(k - 1 would subtract their own parts and see it), so sharing has to withstand as many, t - 1 >=
k - 2. A site refuses to encrypt anything where t does not live up to its own rule.

Not protected: everything, against t colluding sites, or the dealer, who knows the key while it
deals (the coordinator chooses it among the sites); two cohorts' counts, if 2 t <= K; honest
contributions, against a *site* that departs from the protocol together with the coordinator (it can
derive its ciphertext from theirs: no proofs are sent); the sum, which a dishonest site can make
wrong by what it contributes. A wrong partial decryption or a false share is always noticed, and
stops the sum, as do fewer than t answers: nothing is released then, and who lied is not found out.
"""

from __future__ import annotations

import hmac
from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar

from secagg.contracts import Ask, Body, Capabilities, Context, Phase, Ready, Shape, State, Total
from secagg.core import encoding
from secagg.core.frames import Header
from secagg.core.identity import Role
from secagg.core.randomness import RandomBytes
from secagg.core.ring import RingVector
from secagg.errors import InternalError, JobError, PeerError, PolicyRefusal, ProtocolAbort
from secagg.protocols.paillier import cryptosystem, key_distribution
from secagg.protocols.paillier.encrypted_vectors import EncryptedSums
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
from secagg.protocols.paillier.keys import (
    DEFAULT_BITS,
    PrivateKey,
    PublicKey,
    check_public_key,
)


@dataclass(frozen=True)
class ThresholdPaillier:
    """Paillier sums under a key that the sites share."""

    key_bits: int = DEFAULT_BITS
    """Length of the modulus in bits, even, from 2048 (112-bit security) to 16384. 3072 is the
    128-bit level."""
    threshold: int | None = None
    """How many sites must decrypt together, from 2 to all. If it is not set: floor(2K/3) + 1 of K
    sites. A site refuses to contribute if it is below that site's `min_sites` - 1."""
    short_exponents: bool = False
    """Encrypt about five times faster, under the further assumption that short random powers look
    random."""

    name: ClassVar[str] = "threshold_paillier"
    capabilities: ClassVar[Capabilities] = Capabilities(
        ring_bits=(32, 64, 128),
        hides_from_coordinator=True,
        dropouts="any site may drop out, as long as the threshold's number of those that "
        "contributed can decrypt",
        sees={
            "coordinator": "ciphertexts it cannot read, the sum, and the product of the "
            "ciphertexts' randomisers, which tells nothing of any single contribution",
            "site": "the cohort, the number of records in all, the method's messages, and when it "
            "is asked to decrypt all contributors' ciphertexts, which it cannot read",
        },
        unprotected=(
            "As many sites as the threshold, together with the coordinator, could read every "
            "contribution.",
            "The site that deals the key, any one of the coordinator's choice, knows all of it "
            "while it does so, and is trusted to keep only its share.",
            "A site that departs from the protocol together with the coordinator could derive its "
            "ciphertext from another's and learn that contribution; no proofs are sent.",
            "With a threshold of half the sites or fewer, a coordinator that departs from the "
            "protocol could have the first round's counts opened for two sets of sites.",
            "A dishonest site can spill into neighbouring values and make the sum wrong; one that "
            "decrypts wrongly can only stop the run.",
            "The coordinator is trusted to send every site the method's own messages: it may not "
            "choose them so that a sum shows more than the method declares.",
        ),
    )
    setup: ClassVar[tuple[Phase, ...]] = key_distribution.DEALING
    phases: ClassVar[tuple[Phase, ...]] = (
        Phase("encrypt", Role.SITE, contributes=True),
        Phase("decrypt", Role.SITE, opens=True),
    )

    def __post_init__(self) -> None:
        key_distribution.check_key_bits(self.key_bits)
        if self.threshold is not None and self.threshold < 2:
            raise JobError("protocol.threshold", "a single site could decrypt alone: at least 2")

    def guarantee_text(self, sites: int) -> str:
        """Fewer than t sites may collude; all but t may be missing."""
        t = self.threshold_of(sites)
        return (
            f"any {t} of {sites} sites decrypt together: up to {t - 1} may collude with the "
            f"coordinator, not the one that made the key; up to {sites - t} may be missing when a "
            "sum is decrypted"
        )

    def max_colluding(self, sites: int) -> int:
        """Fewer than the threshold (the one that made the key not among them)."""
        return self.threshold_of(sites) - 1

    def parties(self) -> tuple[tuple[str, Role], ...]:
        """Need nobody beside sites and coordinator."""
        return ()

    def threshold_of(self, sites: int) -> int:
        """Return t for so many sites. Raises `JobError` where the job asks for more than all."""
        if self.threshold is None:
            return 2 * sites // 3 + 1
        if self.threshold > sites:
            raise JobError(
                "protocol.threshold", f"{self.threshold} sites cannot decrypt: there are {sites}"
            )
        return self.threshold

    def draw_key(self, random: RandomBytes) -> PrivateKey:
        """Return a fresh key; whoever wants to deal an existing one overrides this."""
        return generate_keypair(self.key_bits, random)

    def client(
        self,
        phase: str,
        state: State,
        body: Body,
        context: Context,
        contribution: RingVector | None = None,
    ) -> tuple[State, Body]:
        """Deal, install, encrypt, decrypt: all at a site."""
        match phase:
            case "deal":
                return self._deal(state, context)
            case "install":
                return self._install(state, body, context)
            case "encrypt" if contribution is not None:
                return state, self._encrypt(_share(state, context), contribution, context)
            case "decrypt":
                return self._decrypt(state, body, context)
        raise InternalError(self.name, f"no client step {phase!r}")

    def server(
        self, phase: str, state: State, replies: Mapping[str, Body], context: Context
    ) -> tuple[State, Ask | Total | Ready]:
        """Relay the shares, multiply ciphertexts, ask sites to decrypt until t have answered."""
        match phase:
            case "setup" | "deal" | "install":
                self.threshold_of(len(_sites(context)))
                return key_distribution.relay(phase, state, replies, self.key_bits)
            case "sum":
                asked = [site for site in replies if site in state["holders"]]
                return state, Ask("encrypt", {site: {} for site in asked})
            case "encrypt":
                return self._multiply(state, replies, context)
            case "decrypt":
                return self._collect(state, replies, context)
        raise InternalError(self.name, f"no server step {phase!r}")

    # --- a site ------------------------------------------------------------------------------

    def _deal(self, state: State, context: Context) -> tuple[State, Body]:
        """Draw a key and deal its shares; of the key, only our share outlives this step."""
        _refuse_second_key(state, context)
        sites = _sites(context)
        key = self.draw_key(context.random)
        shares = share_key(key, len(sites), self.threshold_of(len(sites)), context.random)
        plain = {site: _plain(share) for site, share in zip(sites, shares, strict=True)}
        mine = plain.pop(context.me)
        return {**mine, "opened": -1}, key_distribution.deal(key.public, plain, context)

    def _install(self, state: State, body: Body, context: Context) -> tuple[State, Body]:
        """Take the share that the dealer, a site, sealed for us, once a session."""
        _refuse_second_key(state, context)
        dealer, plain = key_distribution.open_dealt(body, context)
        share = _share(plain, context)
        key_distribution.check_size(dealer, share.public, self.key_bits)
        check_public_key(share.public)
        check_share(share)
        return {**_plain(share), "opened": -1}, {}

    def _encrypt(self, share: KeyShare, contribution: RingVector, context: Context) -> Body:
        self._check_rule(context)
        ciphertexts = cryptosystem.encrypt(
            share.public,
            EncryptedSums.of(share.public, context).plaintexts(contribution),
            context.random,
            short_exponent_assumption=self.short_exponents,
        )
        return _contribution(
            cryptosystem.ciphertexts_to_bytes(share.public, ciphertexts), share.public
        )

    def _decrypt(self, state: State, body: Body, context: Context) -> tuple[State, Body]:
        """Answer the product over the contributors, once a round; see the module's conditions."""
        share = _share(state, context)
        if context.round <= state["opened"]:
            raise PolicyRefusal(context.me, "it helped to open a sum of this round already")
        if context.me not in body["contributors"]:
            raise PolicyRefusal(context.me, "it helps to open only sums that it is part of")
        sent = body.get("ciphertexts")
        if not isinstance(sent, dict):
            raise PeerError(context.roster.coordinator, "malformed request: no ciphertexts")
        sums = EncryptedSums.of(share.public, context)
        columns: list[Integers] = []
        for site in body["contributors"]:
            claimed = Header.from_bytes(body["claims"][site][0])
            shown = encoding.digest(_contribution(sent.get(site), share.public))
            if not hmac.compare_digest(shown, claimed.body_digest):
                raise PeerError(
                    context.roster.coordinator, f"shows other ciphertexts than {site} sent"
                )
            columns.append(sums.ciphertexts(site, sent[site]))
        answers = partially_decrypt(share, cryptosystem.multiply(share.public, columns))
        return {**state, "opened": context.round}, {"answers": answers.to_bytes()}

    def _check_rule(self, context: Context) -> None:
        """Refuse if as few sites could decrypt as this site's own rule does not allow for."""
        threshold = self.threshold_of(len(_sites(context)))
        if threshold < context.min_sites - 1:
            raise PolicyRefusal(
                context.me,
                f"{threshold} sites could decrypt together, and its own rule withstands "
                f"{context.min_sites - 2} colluding sites",
                f"Set protocol.threshold to at least {context.min_sites - 1}.",
            )

    # --- the coordinator ---------------------------------------------------------------------

    def _multiply(
        self, state: State, replies: Mapping[str, Body], context: Context
    ) -> tuple[State, Ask]:
        public = PublicKey(state["n"], state["h_s"])
        sums = EncryptedSums.of(public, context)
        columns: list[Integers] = []
        for site, body in replies.items():
            match body:
                case {"ciphertexts": bytes(data), "key": bytes(key)} if key == _name(public):
                    columns.append(sums.ciphertexts(site, data))
                case _:
                    raise PeerError(site, "sends no ciphertexts under this key")
        if not columns:
            raise ProtocolAbort(self.name, "no site sent ciphertexts")
        # Another site comes first in each round, so that all have the same share of the work.
        contributors = list(replies)
        first = context.round % len(contributors)
        state = {
            **state,
            "ciphertexts": {site: body["ciphertexts"] for site, body in replies.items()},
            "product": cryptosystem.ciphertexts_to_bytes(
                public, cryptosystem.multiply(public, columns)
            ),
            "unasked": contributors[first:] + contributors[:first],
            "answers": {},
        }
        return self._ask_missing(state, context)

    def _ask_missing(self, state: State, context: Context) -> tuple[State, Ask]:
        """Ask as many further sites as answers are missing; abort if there are not so many."""
        threshold = self.threshold_of(len(_sites(context)))
        missing = threshold - len(state["answers"])
        asked, unasked = state["unasked"][:missing], state["unasked"][missing:]
        if len(asked) < missing:
            raise ProtocolAbort(
                self.name,
                f"{len(state['answers']) + len(asked)} sites are left to decrypt, and {threshold} "
                "are needed",
                "Nothing was released. A smaller protocol.threshold survives more dropouts.",
            )
        body: Body = {"ciphertexts": state["ciphertexts"]}
        ask = Ask("decrypt", dict.fromkeys(asked, body), tuple(state["ciphertexts"]))
        return {**state, "unasked": unasked}, ask

    def _collect(
        self, state: State, replies: Mapping[str, Body], context: Context
    ) -> tuple[State, Ask | Total]:
        public = PublicKey(state["n"], state["h_s"])
        sums = EncryptedSums.of(public, context)
        answers = dict(state["answers"])
        for site, body in replies.items():
            answers_from_bytes(public, site, body.get("answers"), sums.count)
            answers[site] = body["answers"]
        state = {**state, "answers": answers}
        if len(answers) < self.threshold_of(len(_sites(context))):
            return self._ask_missing(state, context)
        sites = _sites(context)
        product = sums.ciphertexts(context.me, state["product"])
        by_index = {
            sites.index(site) + 1: answers_from_bytes(public, site, data, sums.count)
            for site, data in answers.items()
        }
        plaintexts = combine(public, len(sites), by_index, product)
        contributors = tuple(state["ciphertexts"])
        lasting = {key: state[key] for key in ("n", "h_s", "holders")}
        return lasting, Total(sums.total(plaintexts, len(contributors)), contributors)


def _sites(context: Context) -> tuple[str, ...]:
    """Return the sites in the order of their shares, whose indices count from 1."""
    return context.roster.named(Role.SITE)


def _contribution(ciphertexts: object, public: PublicKey) -> Body:
    """Return the body that carries a contribution, whose digest the site signs.

    It names the key: a site that was dealt another one does not take part in a sum under this.
    """
    return {"ciphertexts": ciphertexts, "key": _name(public)}


def _name(public: PublicKey) -> bytes:
    return encoding.digest([public.n, public.h_s])


def _refuse_second_key(state: State, context: Context) -> None:
    if "share" in state:
        raise PeerError(context.roster.coordinator, "deals a second key")


def _plain(share: KeyShare) -> Body:
    return {"n": share.public.n, "h_s": share.public.h_s, "share": share.value}


def _share(plain: Body, context: Context) -> KeyShare:
    sites = _sites(context)
    match plain:
        case {"n": int(n), "h_s": int(h_s), "share": int(value)}:
            index = sites.index(context.me) + 1
            return KeyShare(PublicKey(n, h_s), len(sites), index, value)
    raise PeerError("threshold_paillier", "this site was not dealt a share of a key")


# --- all parties on one screen -------------------------------------------------------------------


def run_ideal(
    contributions: Mapping[str, RingVector],
    shape: Shape,
    key: PrivateKey,
    threshold: int,
    random: RandomBytes,
) -> RingVector:
    """Play every party, without messages; the last `threshold` sites decrypt."""
    public, sites = key.public, len(contributions)
    sums = EncryptedSums(public, shape, sites)
    columns = [
        cryptosystem.encrypt(public, sums.plaintexts(c), random) for c in contributions.values()
    ]
    product = cryptosystem.multiply(public, columns)
    shares = share_key(key, sites, threshold, random)[sites - threshold :]
    answers = {share.index: partially_decrypt(share, product) for share in shares}
    return sums.total(combine(public, sites, answers, product), sites)
