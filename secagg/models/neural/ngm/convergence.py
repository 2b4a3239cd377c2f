"""When the training of a neural graphical model has converged, and what its result says of it.

The slope of the objective is no measure: a network has directions in which its parameters hardly
matter, and there a small slope is far from the end. The objective itself, times the number of
records, is minus the log posterior of the parameters, up to a constant. Near a maximum of the log
posterior with curvature H, a point d away from it is lower by D = d' H d / 2, and by the inequality
of Cauchy and Schwarz a function of the parameters with slope g changes by

    |g' d| <= sqrt(g' H^-1 g) sqrt(d' H d) = sqrt(2 D) standard errors                           (1)

where standard errors are those of the posterior (`secagg.models.neural.ngm.fitted.replicates`). So
the search ends when its last `GAIN_STEPS` steps together gained less than `least_gain`; it also
ends at a slope of at most `tolerance`, and where rounding hides what a step gains.

The path penalty of `network = "paper"` has kinks, where small steps gain little or nothing far from
the maximum. Another search, from there, gained 97 to 548 log units of 300 simulated records, by
penalty (`python -m benchmarks.networks.kinks`). So there, no search counts as converged.

What this does not show: that nothing is left. A search may rest on a plateau, and gain more later
(docs/adr/040 has figures; `least_gain` is the remedy). Nor that the maximum is the highest one. The
log posterior of a network has several, and other first parameters (`seed`) may lead to another.
"""

from __future__ import annotations

import math
from typing import Any, Final

from secagg.contracts import State
from secagg.models.neural.optimisers import NO_STEP
from secagg.models.neural.rounds import CONVERGED, OUT_OF_ROUNDS, PARAMETER_LIMIT

GAIN_STEPS: Final = 20
AT_KINKS: Final = "ended at kinks of the penalty"


def with_gain(training: State, records: float, least_gain: float) -> State:
    """Return the state after a round; if it is of L-BFGS and gains too little, it has ended.

    training: of `secagg.models.neural.rounds.NetworkRounds.advance_training`
    """
    optimiser = training["optimiser"]
    if "value" not in optimiser:
        return training
    values, steps = training.get("values", []), optimiser["steps"]
    if steps > training.get("steps", 0):
        values = [*values, optimiser["value"]][-GAIN_STEPS - 1 :]
    gain = (values[0] - values[-1]) * records if len(values) > GAIN_STEPS else math.inf
    training = {**training, "values": values, "steps": steps, "gain": gain}
    may_go_on = training.get("ended", OUT_OF_ROUNDS) == OUT_OF_ROUNDS
    return training | {"ended": CONVERGED} if may_go_on and gain < least_gain else training


def with_convergence(
    summary: dict[str, Any],
    training: State,
    least_gain: float,
    rounds: str,
    *,
    kinks: bool = False,
) -> dict[str, Any]:
    """Return a summary that says whether the networks converged; if not, its first note is why.

    rounds: the setting that allows more rounds; kinks: whether the objective has some
    With noise, and with optimisers that make all their rounds, nothing shows it: no `converged`.
    """
    if "value" not in training["optimiser"]:
        return summary
    ended = training["ended"]
    if ended in (CONVERGED, NO_STEP):
        if not kinks:
            return summary | {"converged": True}
        summary = summary | {"status": AT_KINKS}
        note = (
            "The penalty on paths has kinks, at which the search ends far from its optimum. Use "
            "network = 'masked', which needs no such penalty."
        )
    elif ended == PARAMETER_LIMIT:
        note = (
            "A parameter reached the limit of what sites accept before the networks converged. "
            "Increase method.penalty and method.linear_penalty."
        )
    else:
        note = "The rounds ended before the networks converged"
        if math.isfinite(gain := training["gain"]):
            note += (
                f": their last {GAIN_STEPS} steps raised the log posterior by {gain:.2g}, and "
                f"should raise it by less than {least_gain:g}. In these steps alone, answers may "
                f"have moved by {math.sqrt(2 * gain):.1f} standard errors"
            )
        note += f". Increase {rounds}."
    return summary | {"converged": False, "notes": [note, *summary["notes"]]}
