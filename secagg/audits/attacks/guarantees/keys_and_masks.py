"""A16: keys, nonces and masks that are used twice, or that can be guessed, in a run's messages.

The secrecy of `masked` (Bonawitz and others, CCS 2017, section 4), of `additive` and of the two
Paillier protocols rests on random numbers that are used once. A coordinator that follows the
protocol looks at all messages that it received, and counts what breaks this:

    repeated message     a party sent the same signed message, or the same signature, twice
    repeated nonce       two sealed envelopes begin with the same 12 bytes: the nonce of AES-GCM, or
                         the start of the sender's public key in HPKE (RFC 9180)
    repeated value       a party sent a public key, a commitment, an envelope, a ciphertext or a
                         vector that was sent before, also by another party
    mask used twice      with y = x + m and y' = x' + m, y - y' = x - x' is as small as
                         contributions are. For masks that are uniform and independent, n numbers
                         are all in such a range with probability (range / ring)^n         (1)
    unmasked numbers     all numbers of a vector are themselves as small as contributions, (1)
    guessed key          a public key, or a commitment, belongs to one of 2^12 short secrets: the
                         number itself as little or big endian bytes, repeated, or hashed

The control has one fault of each kind, whatever the protocol of the run, and counts only if all are
found.

(1) counts if it is below 2^-40. Masks are compared between rounds of a site, and between sites in a
round, for the first 200 rounds, in rings of the same size. A shorter vector is compared with the
start of a longer one, because masks are one stream.

Not shown: that a key has enough entropy. A secret of 32 bits, drawn well, passes. Nor does it show
what a site's own generator did in another run: runs are compared by `many_run_epsilon`, for noise.
Signatures are checked where a view is made (`secagg.audits.views`), and by `secagg verify`.
"""

from __future__ import annotations

import hashlib
import itertools
import math
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, ClassVar

import numpy as np

from secagg.audits.contract import Attack, Finding, Limit, Truth
from secagg.audits.views import View
from secagg.core import canonical_encoding, ring
from secagg.core.identity import COORDINATOR
from secagg.core.ring import RingVector
from secagg.errors import PeerError
from secagg.evidence.transcript_file import Message
from secagg.protocols.masked import masks
from secagg.protocols.paillier.single_key import Paillier
from secagg.protocols.plain import Plain

_NONCE_BYTES = 12
_SECRET_BYTES = 12  # shorter values are names and numbers, and not keys
_KEY_DIGEST = "key"  # of the public key of `threshold_paillier`: the same from all sites
_CHANCE = -40.0  # log2 of the probability of a false alarm, for each comparison
_SHORT_BITS = 12
_ROUNDS = 200
_NUMBERS = 64  # compared, or more if (1) needs more


@dataclass(frozen=True)
class _Vector:
    """A vector of ring elements in a message, with a bound of the contributions behind it."""

    site: str
    round: int
    values: RingVector
    bound: int


@dataclass
class _Sent:
    """What the parties sent, apart from the coordinator."""

    frames: list[bytes] = field(default_factory=list)
    signatures: list[bytes] = field(default_factory=list)
    nonces: list[bytes] = field(default_factory=list)
    values: list[bytes] = field(default_factory=list)
    keys: list[bytes] = field(default_factory=list)
    vectors: list[_Vector] = field(default_factory=list)


class KeysAndMasks(Attack):
    """Count what is used twice."""

    name: ClassVar[str] = "keys_and_masks"
    title: ClassVar[str] = "Keys, nonces and masks that are used twice or can be guessed"
    source: ClassVar[str] = "Bonawitz and others (2017), section 4; equation (1) of the module"
    knows: ClassVar[str] = "all messages that passed through it"
    metric: ClassVar[str] = "reused_secrets"
    meaning: ClassVar[str] = "number of keys, nonces, masks and messages used twice or guessed"

    def why_not(self, view: View) -> str:
        """Return why it does not apply."""
        if view.planned.protocol.name == Plain.name:
            return "protocol plain uses no mask and no key for encryption"
        return "" if view.messages else "the run has no transcript"

    def limit(self, view: View) -> Limit:
        """Return the limit."""
        return Limit(0.0)

    def run(self, view: View, rng: np.random.Generator) -> dict[str, int]:
        """Return the numbers of what was found, by kind."""
        sent = _read(view)
        short = _short_secrets() if sent.keys else frozenset[bytes]()
        return {
            "repeated messages": max(_repeats(sent.frames), _repeats(sent.signatures)),
            "repeated nonces": _repeats(sent.nonces),
            "repeated values": _repeats(sent.values),
            "masks used twice": _masks_used_twice(sent.vectors),
            "unmasked vectors": sum(_is_small(v.values, v.bound) for v in sent.vectors),
            "guessed keys": sum(key in short for key in sent.keys),
        }

    def score(self, guess: dict[str, int], view: View, truth: Truth) -> Finding:
        """Return their number; of the control, none if a kind was not found."""
        if isinstance(view, _Planted) and not all(guess.values()):
            return Finding.exact(0.0, 0.0, **guess)
        found = self.without_truth(guess, view)
        assert found is not None
        return found

    def without_truth(self, guess: dict[str, int], view: View) -> Finding | None:
        """Return their number: it needs no truth."""
        return Finding.exact(float(sum(guess.values())), 0.0, **guess)

    def control(self, plain: View) -> View:
        """Return the view of messages with one fault of each kind; they are read as Paillier's."""
        planned = replace(plain.planned, protocol=Paillier())
        planted = tuple(_planted_messages(plain))
        return _Planted(plain.who, planned, plain.sites, (), plain.result, messages=planted)


class _Planted(View):
    """The view of the control."""


# --- what is in the messages ----------------------------------------------------------------------


def _read(view: View) -> _Sent:
    """Return what the parties sent."""
    sent, plans = _Sent(), view.planned.plans
    contributing = {phase.name for phase in view.planned.protocol.phases if phase.contributes}
    lengths = {
        (plan.length, plan.ring_bits): max(f.largest + f.tail for f in plan.fields)
        for plan in plans.plans.values()
    }
    ciphertext = getattr(view.planned.protocol, "key_bits", 0) // 4  # bytes: modulo n^2
    for message in view.messages:
        if message.sender == COORDINATOR:
            continue
        _, signature, content = (
            bytes(p) for p in canonical_encoding.split(message.frame, "a frame")
        )
        sent.frames.append(message.frame)
        sent.signatures.append(signature)
        body = canonical_encoding.loads(content, None, canonical_encoding.LONG_INTEGER_BYTES)
        for name, value in _leaves(body):
            if isinstance(value, np.ndarray):
                bits = 8 * value.itemsize * (value.shape[1] if value.ndim == 2 else 1)
                bound = lengths.get((len(value), bits))
                if bound is not None and message.phase in contributing:
                    sent.vectors.append(_Vector(message.sender, message.round, value, bound))
                sent.values.append(value.tobytes())
            elif isinstance(value, bytes) and name == "ciphertexts" and ciphertext:
                cuts = range(0, len(value), ciphertext)
                sent.values += [value[at : at + ciphertext] for at in cuts]
            elif isinstance(value, bytes) and len(value) >= _SECRET_BYTES and name != _KEY_DIGEST:
                _sort(name, value, sent)
    return sent


def _sort(name: str, value: bytes, sent: _Sent) -> None:
    """Put a value of some bytes where it belongs: a signed statement, an envelope, or another."""
    try:
        statement = canonical_encoding.loads(canonical_encoding.split(value, "a frame")[2])
    except (PeerError, IndexError):
        sent.values.append(value)
        if name == "envelopes":
            sent.nonces.append(value[:_NONCE_BYTES])
        return
    for key, inner in _leaves(statement):
        if key in ("first", "later", "commitment") and isinstance(inner, bytes):
            sent.keys.append(inner)
            sent.values.append(inner)


def _leaves(body: Any, name: str = "") -> Iterator[tuple[str, Any]]:
    """Yield each value in a body, with the name of the outermost entry that holds it."""
    if isinstance(body, Mapping):
        for key, value in body.items():
            yield from _leaves(value, name or str(key))
    elif isinstance(body, list):
        for value in body:
            yield from _leaves(value, name)
    else:
        yield name, body


# --- what breaks secrecy --------------------------------------------------------------------------


def _repeats(values: list[bytes]) -> int:
    """Return how many values were seen before."""
    return sum(count - 1 for count in Counter(values).values())


def _masks_used_twice(vectors: list[_Vector]) -> int:
    """Return how many pairs have the same mask."""
    early = [each for each in vectors if each.round <= _ROUNDS]
    return sum(
        _have_one_mask(one, other)
        for key in (lambda v: v.site, lambda v: v.round)
        for group in _grouped(early, key)
        for one, other in itertools.combinations(group, 2)
    )


def _grouped(
    vectors: list[_Vector], key: Callable[[_Vector], str | int]
) -> Iterator[list[_Vector]]:
    groups: dict[str | int, list[_Vector]] = {}
    for each in vectors:
        groups.setdefault(key(each), []).append(each)
    yield from groups.values()


def _have_one_mask(one: _Vector, other: _Vector) -> bool:
    if ring.bits_of(one.values) != ring.bits_of(other.values):
        return False
    n = min(len(one.values), len(other.values))
    difference = ring.subtract(one.values[:n], other.values[:n])
    return _is_small(difference, one.bound + other.bound)


def _is_small(values: RingVector, bound: int) -> bool:
    """Return whether all numbers are within a bound, although (1) makes that unlikely."""
    chance = math.log2(2 * bound + 1) - ring.bits_of(values)  # of one number
    enough = math.ceil(_CHANCE / chance) if chance < 0 else len(values) + 1
    if len(values) < enough:
        return False
    return all(abs(value) <= bound for value in ring.to_integers(values[: max(enough, _NUMBERS)]))


def _short_secrets() -> frozenset[bytes]:
    """Return the public keys and commitments of short secrets."""
    found = set[bytes]()
    for number in range(1 << _SHORT_BITS):
        little, big = (number.to_bytes(masks.KEY_BYTES, order) for order in ("little", "big"))
        twice = number.to_bytes(2, "big") * (masks.KEY_BYTES // 2)
        for secret in (little, big, twice, hashlib.sha256(little).digest()):
            found |= {masks.public_key(secret), masks.commit(secret)}
    return frozenset(found)


# --- the control ----------------------------------------------------------------------------------


def _planted_messages(plain: View) -> Iterator[Message]:
    """Yield messages of one site, with one fault of each kind.

    A contribution of zeros has the same mask as another one, so one sum of the run is enough.
    """
    rng = np.random.default_rng(0)
    own = max((v.values for v in _read(plain).vectors), key=len)
    mask = ring.from_bytes(rng.bytes(own.nbytes), ring.bits_of(own))
    nonce, ciphertext = rng.bytes(_NONCE_BYTES), rng.bytes(Paillier().key_bits // 4)
    short = (1).to_bytes(masks.KEY_BYTES, "big")
    bodies: list[dict[str, Any]] = [
        {"values": own},
        {"values": ring.add(own, mask)},
        {"values": mask},
        {"envelopes": {name: nonce + rng.bytes(masks.KEY_BYTES) for name in plain.sites[:2]}},
        {"ciphertexts": ciphertext + rng.bytes(len(ciphertext)) + ciphertext},
        {"keys": _unsigned({"first": masks.public_key(short)}, rng)},
        {},
    ]
    frames = [_unsigned(body, rng) for body in bodies]
    phase = next(phase.name for phase in Paillier.phases if phase.contributes)
    for number, frame in enumerate((*frames, frames[-1])):
        yield Message(number, phase, plain.sites[0], COORDINATOR, frame)


def _unsigned(body: Mapping[str, Any], rng: np.random.Generator) -> bytes:
    """Return a frame as `_read` reads it: its header is not read, and no signature is checked."""
    return canonical_encoding.dumps([b"", rng.bytes(64), canonical_encoding.dumps(dict(body))])
