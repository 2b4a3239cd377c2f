"""What each site would get alone: for simulations, where whoever runs the job holds all the data.

Not part of a federated run: nothing here crosses the wire, and results say that they are simulated.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from secagg.contracts import Counted, Method, Public, Rows
from secagg.core.randomness import RandomBytes, system_random
from secagg.core.threads import one_thread
from secagg.errors import SecaggError
from secagg.runtime.party import SiteSide


@one_thread()
def fit_alone(
    method: Method, public: Public, rows: Rows, random: RandomBytes = system_random
) -> dict[str, Any]:
    """Run the method on one site's records, without any protocol. Returns its summary."""
    state, memory = method.start(public), dict[str, Any]()
    while (following := method.message(state)) is not None:
        stage, message = following
        update, memory = method.local(stage, rows, message, memory, public, random)
        state = method.server(state, update, 1)
    return method.result(state, public, Counted(len(rows.values), 0.0)).summary


def fit_each_alone(sides: Mapping[str, SiteSide]) -> dict[str, dict[str, Any]]:
    """Return each site's own summary, or {"failed": why} where it gets none."""
    results: dict[str, dict[str, Any]] = {}
    for name, side in sides.items():
        try:
            results[name] = fit_alone(side.method, side.public, side.rows, side.random)
        except SecaggError as error:
            results[name] = {"failed": error.line()}
    return results
