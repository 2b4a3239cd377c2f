"""The method fitted at each site alone: for simulations, whose user holds all the data.

This is not part of a federated run: nothing is sent, and results say that they are simulated.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from secagg.contracts import Method, PublicFacts, RecordCount, Result, SiteRecords
from secagg.core.randomness import RandomBytes, system_random
from secagg.core.threads import single_threaded_blas
from secagg.errors import SecaggError
from secagg.sessions.party import SiteContext


@single_threaded_blas()
def fit_one_site(
    method: Method, public: PublicFacts, rows: SiteRecords, random: RandomBytes = system_random
) -> Result:
    """Fit the method to one site's records, without a protocol."""
    state, memory = method.initial_state(public), dict[str, Any]()
    while (following := method.next_request(state)) is not None:
        stage, message = following
        update, memory = method.contribute(stage, rows, message, memory, public, random)
        state = method.aggregate(state, update, 1)
    return method.result(state, public, RecordCount(len(rows.values), 0.0))


def fit_site_only(
    method: Method, public: PublicFacts, rows: SiteRecords, random: RandomBytes = system_random
) -> dict[str, Any]:
    """Return only the summary of `fit_one_site`."""
    return fit_one_site(method, public, rows, random).summary


def fit_each_site_only(sides: Mapping[str, SiteContext]) -> dict[str, dict[str, Any]]:
    """Return each site's own summary, or {"failed": why} if the method fails there."""
    results: dict[str, dict[str, Any]] = {}
    for name, side in sides.items():
        try:
            results[name] = fit_site_only(side.method, side.public, side.rows, side.random)
        except SecaggError as error:
            results[name] = {"failed": error.line()}
    return results
