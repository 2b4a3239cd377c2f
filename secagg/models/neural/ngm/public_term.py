"""Public records in the training of a neural graphical model, at the coordinator.

Chajewska and Shrivastava (2023), equation 3: the loss of the global network over the sites' records
(or samples), plus its loss over M public records. For means over N records of sites, the
coordinator adds

    (w / N) sum_{k = 1..M} loss(public record k)                                                (1)

to the mean loss, with w = `public_weight`. With w = 1, the fit is that of a further site with these
records. A large w draws the model towards the public records' distribution: "distribution shifts in
clients' data" (the paper). Graph, units and counts of residuals are the sites' alone.

What it reveals: nothing more. The sums of the sites have no part of (1), and the public records are
in the job. Under noise, (1) is exact and costs no budget.
"""

from __future__ import annotations

from secagg.contracts import State
from secagg.core.arrays import Array
from secagg.models.neural.gradients import gradient_sum
from secagg.models.neural.learner import Learner
from secagg.models.neural.rounds import Penalty


def with_public_term(penalty: Penalty, learner: Learner, state: State, weight: float) -> Penalty:
    """Return the penalty plus (1); the penalty alone if the state has no public records.

    weight: w
    """
    if "public" not in state:
        return penalty

    def both(theta: Array, records: float) -> tuple[float, Array]:
        value, slope = penalty(theta, records)
        loss, gradient = gradient_sum(learner, theta, state["public"])
        return value + weight / records * loss, slope + weight / records * gradient

    return both
