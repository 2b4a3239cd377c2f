"""A site's part of a round with noise: DP-SGD whose noise is added once, in the sum over sites.

Abadi, Chu, Goodfellow, McMahan, Mironov, Talwar and Zhang (CCS 2016), algorithm 1. Samples and sums
are those of `secagg.models.common.sampled_gradients`, records' gradients those of
`secagg.models.neural.gradients`.

Guarantees: what one record changes is at most the sensitivity of `gradient_sensitivity`, whatever
parameters the coordinator sends. Which records take part, the site draws in secret.

Not protected: which records of its own took part, from the site itself.
"""

from __future__ import annotations

from secagg.contracts import Update
from secagg.core.arrays import Array
from secagg.core.randomness import RandomBytes
from secagg.models.common.clipped_sums import exact_bits
from secagg.models.common.sampled_gradients import poisson_sample, sums_of_sample
from secagg.models.neural.gradients import clipped_gradient_sum
from secagg.models.neural.learner import Learner


def private_contribution(
    learner: Learner,
    theta: Array,
    values: Array,
    *,
    clip: float,
    rate: float,
    max_rows: int,
    random: RandomBytes,
) -> Update:
    """Return a site's part of a round, without noise."""
    chosen = values[poisson_sample(len(values), rate, random)]
    bits = exact_bits(max_rows, clip)
    change = clipped_gradient_sum(learner, theta, chosen, clip, bits)
    return sums_of_sample(change, len(chosen), clip, bits)
