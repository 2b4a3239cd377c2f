"""Each record's own gradient, the same in every bit whatever the other records are.

Under differential privacy, adding one record must change its own term of a sum and nothing else. A
batch of records is computed much faster than single ones. But in a batch, the rounding of a
record's gradient depends on its position, and so on which other records there are: with the default
network, gradients in odd positions differ by a unit in the last place from those in even ones. This
unit, in each of many records' terms, would not be covered by the noise.

So records are computed in batches of a fixed number of slots (`torch.func.vmap`), of which only
those are used in which every record has the same gradient; zeros fill the others. `equal_slots`
finds them before the first batch: it puts each of many random records into each slot, at random
parameters. Both are fixed: a coordinator that chose them could choose zeros, at which all slots
look equal. Argument: which operations a dense kernel does, and in which order, depends on shapes
and not on values. If two slots had different orders, some of the many sums of random numbers would
be rounded differently. Where fewer than two slots are equal, or the module cannot be vectorised,
each record is computed in a batch of its own.

Where equal bits are needed, and what follows from them:

    sensitivity      of a sum with noise: one record may not touch other records' terms. Truncation
                     to the grid turns a unit in the last place into a whole step
    training alone   at a site whose ledger draws the noise of equal records and settings once:
                     equal records in equal order give equal batches, and so equal bits
    repeated rounds  `repeatable` of the facts, and the recomputation of sums, concern sums without
                     noise. They use one pass (`secagg.models.neural.gradients`), not this file
    a killed party   stored its answer before it sent it, and sends it again; what it had not stored
                     nobody saw

The number of slots is public: it depends on the network alone. If it depended on the records, one
record could change the shape of the batches, and so all gradients.

Not protected: a module whose operations depend on the values of other records in its batch. `vmap`
gives it one record at a time, so it would have to break out of torch to do so.
"""

from __future__ import annotations

import weakref
from collections.abc import Callable, Iterator, Mapping
from hashlib import sha256
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from secagg.core.arrays import Array
from secagg.models.neural.learner import Learner
from secagg.models.neural.parameters import tensors

if TYPE_CHECKING:
    import torch

Gradients = Callable[[Array], Array]
"""From records, shape (n, variables), to their gradients, shape (n, parameters)."""

_SLOTS, _SMALL = 64, 2**14  # slots of a batch for a network with at most so many parameters
_FEW_SLOTS = 32  # for a larger one: the search for equal slots takes the square of their number
_MAX_NUMBERS = 2**21  # in the gradients of a batch: with more, memory takes the time
_found: weakref.WeakKeyDictionary[Any, tuple[int, NDArray[np.int64]]] = weakref.WeakKeyDictionary()


def record_gradients(learner: Learner, theta: Array, values: Array) -> Iterator[Array]:
    """Yield batches of the records' gradients, shape (records of the batch, parameters)."""
    if not len(values):
        return
    if learner not in _found:
        _found[learner] = _usable_slots(learner, len(theta), values.shape[1])
    slots, used = _found[learner]
    if len(used) < 2:
        gradient = _single(learner, theta)
        for record in values:
            yield gradient(record[None])
        return
    gradients = _vectorised(learner, theta)
    for start in range(0, len(values), len(used)):
        records = values[start : start + len(used)]
        batch = np.zeros((slots, values.shape[1]))
        batch[used[: len(records)]] = records
        yield gradients(batch)[used[: len(records)]]


def equal_slots(gradients: Gradients, variables: int, slots: int) -> NDArray[np.int64]:
    """Return the slots in which all test records have the same gradient as in the first."""
    rng = np.random.default_rng(0)  # any numbers do, if no two are related
    records = rng.uniform(-1, 1, (slots, variables))
    found = np.empty((slots, slots), dtype=object)  # [record, slot]: a digest of the gradient
    for roll in range(slots):
        computed = gradients(np.roll(records, roll, axis=0))
        for slot in range(slots):
            found[(slot - roll) % slots, slot] = sha256(computed[slot].tobytes()).digest()
    equal = np.all(found == found[:, :1], axis=0)
    return np.flatnonzero(equal)


def _usable_slots(
    learner: Learner, parameters: int, variables: int
) -> tuple[int, NDArray[np.int64]]:
    """Return the number of slots of a batch, and those that may be used."""
    none = np.zeros(0, dtype=np.int64)
    slots = min(_SLOTS if parameters <= _SMALL else _FEW_SLOTS, _MAX_NUMBERS // parameters)
    if slots < 2:
        return 1, none
    theta = np.random.default_rng(1).standard_normal(parameters)
    try:
        return slots, equal_slots(_vectorised(learner, theta), variables, slots)
    except (RuntimeError, ValueError, NotImplementedError):  # of vmap, for what it cannot do
        return 1, none


def _vectorised(learner: Learner, theta: Array) -> Gradients:
    """Differentiate by each block: by one vector, every block would fill a vector of zeros."""
    import torch  # noqa: PLC0415

    def loss(parameters: Mapping[str, torch.Tensor], record: torch.Tensor) -> torch.Tensor:
        return learner.losses(parameters, record[None])[0]

    each = torch.func.vmap(torch.func.grad(loss), in_dims=(None, 0), randomness="different")
    parameters = tensors(learner.blocks, torch.tensor(theta, dtype=torch.float64))

    def gradients(records: Array) -> Array:
        found = each(parameters, torch.tensor(records))
        return torch.cat([found[name].flatten(1) for name in parameters], dim=1).numpy()

    return gradients


def _single(learner: Learner, theta: Array) -> Gradients:
    import torch  # noqa: PLC0415

    def gradient(record: Array) -> Array:
        vector = torch.tensor(theta, dtype=torch.float64, requires_grad=True)
        loss = learner.losses(tensors(learner.blocks, vector), torch.tensor(record)).sum()
        return np.asarray(torch.autograd.grad(loss, vector)[0].numpy())[None]

    return gradient
