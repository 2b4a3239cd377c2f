"""Ring vectors under Paillier encryption: from a contribution to plaintexts, and from sums back.

A contribution's elements v have |v| < 2^(value_bits - 1), read as signed. Adding the offset
2^(value_bits - 1) makes them non-negative, so that they can lie side by side in slots (`packing`).
A sum over K contributions then holds K offsets in every slot; without them it is the ring sum.

Not protected: a site that departs from the protocol can spill into neighbouring slots.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from secagg.contracts import Context, Shape
from secagg.core import ring
from secagg.core.identity import Role
from secagg.core.ring import RingVector
from secagg.errors import PeerError
from secagg.protocols.paillier import cryptosystem
from secagg.protocols.paillier.integers import Integers
from secagg.protocols.paillier.keys import PublicKey
from secagg.protocols.paillier.packing import Packing


@dataclass(frozen=True)
class EncryptedSums:
    """How vectors of this shape are carried under this key, in sums over at most `sites` sites."""

    public: PublicKey
    shape: Shape
    sites: int

    @classmethod
    def of(cls, public: PublicKey, context: Context) -> EncryptedSums:
        """Return the one of this step: guard bits for as many sites as the roster has."""
        return cls(public, context.shape, len(context.roster.named(Role.SITE)))

    @property
    def packing(self) -> Packing:
        """How values lie in plaintexts."""
        return Packing.for_sites(self.shape.value_bits, self.sites, self.public.bits)

    @property
    def count(self) -> int:
        """Plaintexts, and ciphertexts, of one contribution."""
        return self.packing.plaintexts(self.shape.length)

    def plaintexts(self, contribution: RingVector) -> Integers:
        """Return the plaintexts, in [0, n), of one contribution."""
        return self.packing.pack(ring.add(contribution, self._offsets(1)))

    def total(self, plaintexts: Sequence[int], contributors: int) -> RingVector:
        """Return the ring sum that the summed plaintexts of `contributors` sites hold.

        A slot may be wider or narrower than the ring: reduced, then freed of the offsets; both are
        exact modulo 2^ring_bits. Raises `PeerError` for plaintexts that no honest sites sum to.
        """
        slot_sums = self.packing.unpack(plaintexts, self.shape.length)
        reduced = ring.zeros(self.shape.length, self.shape.ring_bits)
        common = min(reduced.shape[1], slot_sums.shape[1])
        reduced[:, :common] = slot_sums[:, :common]
        return ring.subtract(reduced, self._offsets(contributors))

    def ciphertexts(self, sender: str, data: object) -> Integers:
        """Return the ciphertexts that `sender` sent, not yet checked. Raises `PeerError`."""
        if not isinstance(data, bytes):
            raise PeerError(sender, "sends no ciphertexts")
        return cryptosystem.ciphertexts_from_bytes(self.public, data, self.count)

    def _offsets(self, times: int) -> RingVector:
        return ring.from_integers([times << (self.shape.value_bits - 1)], self.shape.ring_bits)
