"""Flower's SecAgg+ at one client and at the server, by Flower's own functions.

The client's steps are those of Flower's `secaggplus_mod`, called as the mod itself calls them. The
server's are the loops of `SecAggPlusWorkflow.collect_masked_vectors_stage` and `unmask_stage`,
which exist only inside methods that also talk to the network: the loops are written here, all that
they call is Flower's.

With many clients a server's loop is run for some of them and scaled: its cost is a sum over
clients, and those of one kind all cost the same.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from flwr.client.mod.secure_aggregation.secaggplus_mod import (
    SecAggPlusState,
    _collect_masked_vectors,
    _setup,
    _share_keys,
)
from flwr.common import bytes_to_ndarray, ndarrays_to_parameters
from flwr.common.secure_aggregation.crypto.shamir import combine_shares, create_shares
from flwr.common.secure_aggregation.crypto.symmetric_encryption import encrypt, generate_shared_key
from flwr.common.secure_aggregation.ndarrays_arithmetic import (
    get_parameters_shape,
    parameters_addition,
    parameters_mod,
    parameters_subtraction,
)
from flwr.common.secure_aggregation.secaggplus_constants import Key
from flwr.common.secure_aggregation.secaggplus_utils import (
    pseudo_rand_gen,
    share_keys_plaintext_concat,
)
from flwr.supercore.primitives.asymmetric import bytes_to_private_key, bytes_to_public_key
from numpy.typing import NDArray

from benchmarks.harness import timed

CLIP, LEVELS, MODULUS = 8.0, 1 << 22, 1 << 32  # the workflow's defaults


class Flower:
    """A client whose k neighbours have drawn keys, and the server; steps return their seconds."""

    def __init__(
        self, clients: int, neighbours: int, threshold: int, values: NDArray[np.float64]
    ) -> None:
        self.neighbours, self.threshold = neighbours, threshold
        self.parameters = ndarrays_to_parameters([values])
        settings: Any = {
            Key.SAMPLE_NUMBER: clients,
            Key.SHARE_NUMBER: neighbours + 1,
            Key.THRESHOLD: threshold,
            Key.CLIPPING_RANGE: CLIP,
            Key.TARGET_RANGE: LEVELS,
            Key.MOD_RANGE: MODULUS,
            Key.MAX_WEIGHT: 1000.0,
        }
        self.states = [SecAggPlusState() for _ in range(neighbours + 1)]
        self.me = self.states[0]
        self.public: dict[str, Any] = {}
        for name, state in enumerate(self.states):
            state.nid = name
            keys = _setup(state, settings)
            self.public[str(name)] = (keys[Key.PUBLIC_KEY_1], keys[Key.PUBLIC_KEY_2])
        self.total: Any = None

    def share(self) -> float:
        """One client shares its secrets with its neighbours."""
        return timed(lambda: _share_keys(self.me, dict(self.public)))[0]  # type: ignore[arg-type]

    def mask(self) -> tuple[float, list[bytes]]:
        """One client quantises and masks its vector; return its upload as well.

        The envelopes it opens hold shares as long as in a whole round.
        """
        sealed: dict[int, bytes] = {}
        for state in self.states[1:]:
            key = generate_shared_key(
                bytes_to_private_key(state.sk2), bytes_to_public_key(self.me.pk2)
            )
            text = share_keys_plaintext_concat(
                state.nid, self.me.nid, bytes(52), bytes(len(state.sk1) + 20)
            )
            sealed[state.nid] = encrypt(key, text)
        config: Any = {Key.CIPHERTEXT_LIST: [*sealed.values()], Key.SOURCE_LIST: [*sealed]}
        taken, reply = timed(
            lambda: _collect_masked_vectors(self.me, config, 1000, self.parameters)
        )
        return taken, reply[Key.MASKED_PARAMETERS]  # type: ignore[return-value]

    def add(self, upload: list[bytes], contributors: int, sample: int) -> float:
        """The server adds the masked vectors; run on `sample` copies of one."""

        def loop() -> Any:
            total = [bytes_to_ndarray(part) for part in upload]
            for _ in range(sample - 1):
                total = parameters_addition(total, [bytes_to_ndarray(part) for part in upload])
            return parameters_mod(total, MODULUS)

        taken, self.total = timed(loop)
        return taken * contributors / sample

    def unmask(self, contributors: int, lost: int, sample: int) -> float:
        """The server removes the masks, from shares at hand; run for `sample` contributors and one
        lost client.

        Each secret is put together from `threshold` shares, fewer than would come back: in Flower's
        favour.
        """
        seeds = [self._shares(self.me.rd_seed) for _ in range(sample)]
        taken = timed(lambda: [self._remove_self_mask(shares) for shares in seeds])[0]
        taken *= contributors / sample
        if lost:
            key = self._shares(self.me.sk1)
            taken += timed(lambda: self._remove_pairwise_masks(key))[0] * lost
        return taken + timed(lambda: parameters_mod(self.total, MODULUS))[0]

    def _shares(self, secret: bytes) -> list[bytes]:
        return create_shares(secret, self.threshold, self.neighbours + 1)[: self.threshold]

    def _remove_self_mask(self, shares: list[bytes]) -> None:
        mask = pseudo_rand_gen(combine_shares(shares), MODULUS, get_parameters_shape(self.total))
        self.total = parameters_subtraction(self.total, mask)

    def _remove_pairwise_masks(self, shares: list[bytes]) -> None:
        private = combine_shares(shares)
        for name in range(1, self.neighbours + 1):
            key = generate_shared_key(
                bytes_to_private_key(private), bytes_to_public_key(self.public[str(name)][0])
            )
            mask = pseudo_rand_gen(key, MODULUS, get_parameters_shape(self.total))
            self.total = parameters_subtraction(self.total, mask)
