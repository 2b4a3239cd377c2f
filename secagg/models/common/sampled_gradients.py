"""Rounds that sum clipped gradients over Poisson samples of the records: what all methods share.

Abadi, Chu, Goodfellow, McMahan, Mironov, Talwar and Zhang (CCS 2016), algorithm 1, with the records
of all sites as one data set. In each round, each site draws a Poisson sample of its records: each
record takes part with probability q, independently of all others. The sites sum the clipped
gradients of their samples and a quarter of the clip C for each record of the sample
(`secagg.models.common.clipped_sums`). The session adds the noise, once, in the sum over sites. The
second sum estimates the sample's size.

Guarantees: a round reveals less if nobody outside the site knows which records took part. The
accountant counts on this. So the draws come from the site's secret random numbers: 64 bits for each
record, compared with q rounded down to a multiple of 2^-64, so that the probability is never above
q.

Not protected: which records of its own took part, from the site itself. This file neither clips
gradients nor adds noise.
"""

from __future__ import annotations

import math
from typing import Final

import numpy as np
from numpy.typing import NDArray

from secagg.contracts import Field, Kind, Stage, Update
from secagg.core.arrays import Array
from secagg.core.randomness import RandomBytes
from secagg.errors import JobError
from secagg.models.common.clipped_sums import exact_bits, gradient_sensitivity

MIN_FRACTION_BITS: Final = 12
_MIN_RECORDS: Final = 1.0  # by which a mean is divided, at least


def private_stage(
    name: str, parameters: int, rounds: int, clip: float, rate: float, max_rows: int
) -> Stage:
    """Declare the rounds. rate: q. Raises `JobError` if sums would not be exact."""
    bits = exact_bits(max_rows, clip)
    if bits < MIN_FRACTION_BITS:
        what = "is too large for exact sums of clipped gradients"
        raise JobError("sites.max_rows", what, "Lower it, or method.clip.")
    spec = (
        Field("change", (parameters,), max_rows * clip, bits, Kind.BOUNDED),
        Field("size", (1,), max_rows * clip / 4, bits, Kind.WEIGHT),
    )
    sample = "all records" if rate == 1 else "a random sample of records"
    sees = f"noised: sum of clipped gradients of {sample} at the parameters it sent, their number"
    sensitivity = gradient_sensitivity(clip)
    return Stage(name, spec, rounds, sees, sensitivity, ends_early=False, sampling_rate=rate)


def sums_of_sample(change: Array, records: int, clip: float, bits: int) -> Update:
    """Return a site's part of a round, without noise.

    change: the sum of the sample's clipped gradients; records: the sample's size
    """
    quarter = math.trunc(clip / 4 * 2.0**bits) * 2.0**-bits
    return {"change": change, "size": np.array([records * quarter])}


def poisson_sample(records: int, rate: float, random: RandomBytes) -> NDArray[np.bool_]:
    """Return for each record whether it is in the sample, shape (records,)."""
    if rate >= 1:
        return np.ones(records, dtype=np.bool_)
    limit = np.uint64(math.floor(rate * 2.0**64))
    return np.asarray(np.frombuffer(random(8 * records), dtype="<u8") < limit)


def mean_gradient(total: Update, clip: float, sizes: float, rounds: int) -> tuple[Array, float]:
    """Return the estimated mean gradient, and the estimated number of records in a sample.

    sizes: sum of the noisy sizes of all rounds so far, of which there are `rounds`. Their mean has
        little noise
    """
    size = max(4 * sizes / (rounds * clip), _MIN_RECORDS)
    return total["change"] / size, size
