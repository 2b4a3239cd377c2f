"""Contributions as plaintexts of Paillier encryption, and sums from decrypted plaintexts.

The elements v of a contribution, read as signed, satisfy |v| < 2^(value_bits - 1). The offset
2^(value_bits - 1) is added to make them non-negative, so that several elements can be packed into
one plaintext, each in its own slot (`packing`). In a sum over K contributions, every slot contains
K offsets. When the offsets are subtracted, the slots contain the sum.

Not protected: the result, because the values of a malicious site can overflow into other slots.
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
class EncryptedVectors:
    """How vectors are encrypted under a key, for sums over at most `sites` sites."""

    public: PublicKey
    shape: Shape
    sites: int

    @classmethod
    def of(cls, public: PublicKey, context: Context) -> EncryptedVectors:
        """Return the encryption for sums over all sites in the roster."""
        return cls(public, context.shape, len(context.roster.with_role(Role.SITE)))

    @property
    def packing(self) -> Packing:
        """How values are packed into plaintexts."""
        return Packing.for_sites(self.shape.value_bits, self.sites, self.public.bits)

    @property
    def count(self) -> int:
        """Number of plaintexts (and ciphertexts) of one contribution."""
        return self.packing.plaintexts(self.shape.length)

    def plaintexts(self, contribution: RingVector) -> Integers:
        """Return the plaintexts of one contribution, in [0, n)."""
        return self.packing.pack(ring.add(contribution, self._offsets(1)))

    def total(self, plaintexts: Sequence[int], contributors: int) -> RingVector:
        """Return the ring sum from the summed plaintexts of `contributors` sites.

        A slot may have more or fewer bits than the ring. Reduction of a slot and subtraction of the
        offsets are both exact modulo 2^ring_bits. Raises `PeerError` for plaintexts that cannot be
        such a sum.
        """
        slot_sums = self.packing.unpack(plaintexts, self.shape.length)
        reduced = ring.zeros(self.shape.length, self.shape.ring_bits)
        common = min(reduced.shape[1], slot_sums.shape[1])
        reduced[:, :common] = slot_sums[:, :common]
        return ring.subtract(reduced, self._offsets(contributors))

    def ciphertexts(self, sender: str, data: object) -> Integers:
        """Return the ciphertexts in `data` from `sender`, not yet checked. Raises `PeerError`."""
        if not isinstance(data, bytes):
            raise PeerError(sender, "malformed message: no ciphertexts")
        return cryptosystem.ciphertexts_from_bytes(self.public, data, self.count)

    def _offsets(self, times: int) -> RingVector:
        return ring.from_integers([times << (self.shape.value_bits - 1)], self.shape.ring_bits)
