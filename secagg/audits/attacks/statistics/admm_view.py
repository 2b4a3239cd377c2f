"""The view of a coordinator of linear NOTEARS-ADMM, in the notation of the paper."""

from __future__ import annotations

import numpy as np

from secagg.audits.attacks.statistics.admm_solved_sums import AdmmRound
from secagg.audits.views import View
from secagg.contracts import SiteRecords
from secagg.core.arrays import Array
from secagg.models.notears_admm.linear import NotearsAdmm
from secagg.models.notears_admm.range import CONSENSUS


def is_static(view: View) -> bool:
    """Return whether it is a run of linear NOTEARS-ADMM without lags."""
    method = view.planned.method
    return isinstance(method, NotearsAdmm) and not method.lags


def why_not_admm(view: View) -> str:
    """Return why there is no round of linear NOTEARS-ADMM to attack; "" if there is one."""
    if not is_static(view):
        return "for notears_admm without lags"
    return "" if admm_rounds(view) else "the sums before the first round hold no response"


def admm_rounds(view: View) -> list[AdmmRound]:
    """Return W, rho2 and the sum of every round."""
    method = view.planned.method
    assert isinstance(method, NotearsAdmm)
    found, rho2 = list[AdmmRound](), 0.0
    for seen in view.rounds:
        if seen.stage == CONSENSUS:
            rho2 = method.schedule.next_rho2(rho2)
            units = method.units(seen.message["scale"])
            found.append(AdmmRound(seen.message["W"], rho2, seen.total["responses"] * units))
    return found


def response_rounding(view: View) -> float:
    """Return the expected misfit of the true matrices by rounding, as `Recovered.misfit`.

    Each site rounds to multiples of 2^-f. Decoding and the attacker's sums round to float64.
    """
    method = view.planned.method
    assert isinstance(method, NotearsAdmm)
    fields = {plan.field.name: plan.field for plan in view.planned.plans.of(CONSENSUS).fields}
    step, found = 2.0 ** -fields["responses"].fraction_bits, 0.0
    for seen in view.rounds:
        if seen.stage == CONSENSUS:
            total, units = seen.total["responses"], method.units(seen.message["scale"])
            variance = len(view.sites) * step**2 / 12 + (np.finfo(float).eps * total) ** 2
            found += float(np.sum(variance * units**2)) / 2
    return found


def covariance_of(view: View, rows: SiteRecords) -> Array:
    """Return the S of a site's records, in the units of the run."""
    method = view.planned.method
    assert isinstance(method, NotearsAdmm)
    message = next(seen.message for seen in view.rounds if seen.stage == CONSENSUS)
    u = rows.values[:, method.chosen(view.planned.public)] * message["scale"]
    u = u - u.mean(axis=0)
    return np.asarray(u.T @ u / message["records"])
