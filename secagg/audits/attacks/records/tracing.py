"""A9: whether a known person is among the records of a released sum of moments.

Homer and others (PLoS Genetics 2008), for means; Dwork, Smith, Steinke, Ullman and Vadhan (FOCS
2015), "Robust traceability from trace amounts", for the inner product. With z = (1, u), u the
person's scaled record, M the released sum of z z' over n records, and P its expectation over the
population, estimated from reference records,

    T(u) = <z z' - P, M / n - P>,                                                                (1)

is larger for a person among the n records, whose z z' is part of M. T is compared between the
records that took part and others from the same sites.

The attacker knows the person's whole record and has reference records of the same population. The
sum is the same under every protocol, so every protocol has the same number; only noise lowers it.
"""

from __future__ import annotations

from typing import ClassVar

import numpy as np

from secagg.audits.contract import Attack, Finding, Limit, Truth
from secagg.audits.membership import area_under_roc, true_positive_rate
from secagg.audits.views import View
from secagg.core.arrays import Array
from secagg.models.moments.method import STAGE
from secagg.models.numerics.natural_gaussian import symmetric

_FEW = 20  # others, below which there is no estimate


class Tracing(Attack):
    """Score (1)."""

    name: ClassVar[str] = "tracing"
    title: ClassVar[str] = "Whether a known person is among the records of the pooled moments"
    source: ClassVar[str] = "Homer and others (2008); Dwork and others (2015)"
    knows: ClassVar[str] = "the person's whole record, and reference records from the same sites"
    metric: ClassVar[str] = "tracing_auc"
    meaning: ClassVar[str] = "area under the ROC curve; 0.5 is a guess"

    def why_not(self, view: View) -> str:
        """Return why it does not apply."""
        if any(seen.stage == STAGE and "moments" in seen.total for seen in view.rounds):
            return ""
        return "for the sum of the method moments"

    def limit(self, view: View) -> Limit:
        """Return the limit."""
        return Limit(0.6)

    def run(self, view: View, rng: np.random.Generator) -> Array:
        """Return M / n, with the n of the same sum."""
        p = len(view.planned.public.variables)
        M = symmetric(_moments(view), p + 1)
        return M / max(float(M[0, 0]), 1.0)

    def score(self, guess: Array, view: View, truth: Truth) -> Finding:
        """Return the AUC of (1); half of the others are the reference."""
        half = len(truth.others) // 2
        if half < _FEW:
            return Finding.impossible(f"fewer than {2 * _FEW} records did not take part")
        P = second_moments(truth.others[:half])
        members = np.concatenate([truth.sites[site].values for site in view.sites])
        scored = traces(members, guess, P), traces(truth.others[half:], guess, P)
        auc = area_under_roc(*scored)
        details = {
            f"true_positive_rate_at_{share:g}": tuple(true_positive_rate(*scored, share))
            for share in (0.01, 0.001)
            if share * len(truth.others[half:]) >= 1
        }
        return Finding(*auc, 0.5, {"members": len(members), "others": half, **details})

    def control(self, plain: View) -> View:
        """Return the sum of one site alone, without noise."""
        return min((plain.alone(site) for site in plain.sites), key=lambda v: _moments(v)[0])


def traces(records: Array, moments: Array, P: Array) -> Array:
    """Return (1) of each record, shape (records,). moments: M / n"""
    z = np.column_stack([np.ones(len(records)), records])
    difference = moments - P
    return np.asarray(np.einsum("ij,jk,ik->i", z, difference, z) - np.sum(P * difference))


def second_moments(records: Array) -> Array:
    """Return the mean of z z', shape (p + 1, p + 1)."""
    z = np.column_stack([np.ones(len(records)), records])
    return np.asarray(z.T @ z / len(z))


def _moments(view: View) -> Array:
    """Return M's upper triangle."""
    found = [seen.total["moments"] for seen in view.rounds if "moments" in seen.total]
    return np.asarray(found[0], dtype=np.float64)
