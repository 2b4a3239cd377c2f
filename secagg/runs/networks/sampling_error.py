"""Whether a finished run of a neural graphical model has intervals, and the replicates for them."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any, Final

import numpy as np

from secagg.contracts import PublicFacts
from secagg.core.arrays import Array
from secagg.models.neural.ngm.fitted.conditionals import Conditional
from secagg.models.neural.ngm.fitted.model import FittedNgm
from secagg.models.neural.ngm.fitted.replicates import MAX_PARAMETERS, Replicates, replicates_of
from secagg.models.neural.ngm.fitted.sampling import start, sweep
from secagg.models.neural.ngm.method import FedNgm
from secagg.models.neural.rounds import PARAMETER_LIMIT

_DRAWN: Final = 8192  # records, of which each replicate is made
_SWEEPS: Final = 100


def why_no_interval(
    networks: FedNgm, model: FittedNgm, public: PublicFacts, summary: Mapping[str, Any]
) -> str:
    """Return why queries have no intervals, as a clause; "" if they have.

    networks: the method that fitted the networks; summary: of the result
    """
    if public.clip is not None:
        return "the run has noise, whose error they would not include"
    if networks.learn_from == "samples":
        return "the networks are fitted to samples, not to records"
    if networks.algorithm == "fedavg":
        return "federated averaging does not end at the minimum of the loss"
    if "records" not in summary:
        return "the result does not say how many records it has"
    if summary.get("persons", math.inf) < summary["records"]:
        return "some persons have several records, which are not independent"
    largest = max(network.parameters for network in model.networks)
    if largest > MAX_PARAMETERS:
        return f"a column's network has {largest} parameters; {MAX_PARAMETERS} is the limit"
    return ""


def note_on_ending(status: str | None) -> str:
    """Return a note on a training for whose result nothing shows that it converged; "" if none.

    status: how it ended, None if that is not known
    """
    if status not in {"out of rounds", PARAMETER_LIMIT}:
        return ""
    return (
        f"The networks' training ended before it converged ({status}). Means, probabilities and "
        "intervals do not account for what is missing. Allow more rounds."
    )


def replicates(
    conditionals: list[Conditional], networks: FedNgm, records: float, shifted: Mapping[int, Array]
) -> Replicates:
    """Return replicates of the networks of a run.

    networks: the method that fitted them; records: their number; shifted: as for `sweep`
    """
    rng, model = np.random.default_rng(0), conditionals[0].model
    drawn = model.states_of(np.full((_DRAWN, model.layout.d), np.nan))
    start(conditionals, drawn, rng)
    for _ in range(_SWEEPS):
        sweep(conditionals, drawn, rng, shifted=shifted)
    return replicates_of(
        model, drawn, records, networks.hidden_penalty(noised=False), networks.linear_penalty, rng
    )
