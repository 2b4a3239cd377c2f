"""Each protocol without messages: one function plays all parties, on one screen of code."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from secagg.contracts import Body, Shape
from secagg.core import ring
from secagg.core.randomness import RandomBytes
from secagg.core.ring import RingVector
from secagg.protocols.additive import _sum_shares, split
from secagg.protocols.masked import masks
from secagg.protocols.paillier import cryptosystem
from secagg.protocols.paillier.encrypted_vectors import EncryptedVectors
from secagg.protocols.paillier.key_shares import combine, partially_decrypt, share_key
from secagg.protocols.paillier.keys import PrivateKey


def additive_sum(
    contributions: Mapping[str, RingVector], shape: Shape, aggregators: int, random: RandomBytes
) -> RingVector:
    """Compute the sum without messages: split, add at each aggregator, add the results."""
    held: list[list[Body]] = [[] for _ in range(aggregators)]
    for contribution in contributions.values():
        seeds, remainder = split(contribution, aggregators - 1, random)
        held[0].append({"vector": remainder})
        for shares, seed in zip(held[1:], seeds, strict=True):
            shares.append({"seed": seed})
    sums = [_sum_shares(shares, shape) for shares in held]
    return ring.total(sums, shape.length, shape.ring_bits)


def masked_sum(
    contributions: Mapping[str, RingVector],
    dropped: Sequence[str],
    shape: Shape,
    random: RandomBytes,
) -> RingVector:
    """Compute the sum without messages and secret sharing: mask, add, unmask.

    contributions: the contributions of the sites that do not drop out
    dropped: the sites that shared masks and then dropped out
    """
    label = random(32)
    sites = sorted([*contributions, *dropped])
    own = {site: random(32) for site in sites}
    pairs = {(i, j): random(32) for i in sites for j in sites if i < j}

    def seeds(site: str, peers: Sequence[str]) -> dict[str, bytes]:
        keys = {peer: pairs[min(site, peer), max(site, peer)] for peer in peers if peer != site}
        return {peer: masks.seed(key, label) for peer, key in keys.items()}

    hidden: list[RingVector] = []
    for site, contribution in contributions.items():
        vector = contribution.copy()
        masks.mask(vector, site, seeds(site, sites), masks.seed(own[site], label))
        hidden.append(vector)
    total = ring.total(hidden, shape.length, shape.ring_bits)
    masks.unmask(
        total,
        [masks.seed(own[site], label) for site in contributions],
        {site: seeds(site, list(contributions)) for site in dropped},
    )
    return total


def paillier_sum(
    contributions: Mapping[str, RingVector], shape: Shape, key: PrivateKey, random: RandomBytes
) -> RingVector:
    """Compute the sum without messages: pack, encrypt, multiply, decrypt, unpack."""
    sums = EncryptedVectors(key.public, shape, len(contributions))
    columns = [
        cryptosystem.encrypt(key.public, sums.plaintexts(contribution), random)
        for contribution in contributions.values()
    ]
    return sums.total(
        cryptosystem.decrypt(key, cryptosystem.multiply(key.public, columns)), len(contributions)
    )


def threshold_paillier_sum(
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
