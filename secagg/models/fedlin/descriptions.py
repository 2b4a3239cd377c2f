"""How FedLin results are shown, and what a coordinator that departs can read of all of them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from secagg.contracts import TRUSTED, Label, ResultTable, TableKind
from secagg.models.common.disclosures import means_by_subtraction
from secagg.models.fedlin.design import Intercept

SOLVED_BY_CHOICE: Final = (
    f"{TRUSTED} One that chooses its messages itself can, in some tens of rounds, make sums into "
    "equations that it can solve for single sites' regressions and cross products, where sites and "
    "predictors are few. Its messages can be such as the method has over other sites, so that no "
    "check could tell."
)
"""`Disclosure.if_malicious` of HM1 and HM2: `secagg.audits.attacks` has the attack."""

SITE_OLS, MEAN_ONLY = "site_ols", "mean_only"
"""Names of the predictions that all methods are compared with."""

_LABELS: Final[Mapping[str, Label]] = {
    "outcome_deviation": ("standard deviation of the outcome, within sites", ""),
    "noise_sd": ("standard deviation of the noise, pooled over sites", ""),
    "change": ("relative change in the last round", ""),
    "remaining": (
        "relative change still to come",
        "estimated from the last changes, when rounds ended; near 0 more rounds change nothing",
    ),
    "sites_telling_noise": ("sites with more records than coefficients", ""),
    "distance": (
        "distance of the shared posterior from where it goes",
        "in its standard deviations, when rounds ended; well below 1 it has arrived",
    ),
    "hierarchy": ("distribution of the sites' coefficients", ""),
    "hm1": ("HM1", ""),
    "hm2": ("HM2", ""),
    "fedavg": ("FedAvg: one model for all sites", ""),
    "ditto": ("Ditto: each site's own, near FedAvg's", ""),
    SITE_OLS: ("each site's own least squares", ""),
    MEAN_ONLY: ("no predictor", ""),
}
"""Of single numbers, and of the models whose predictions are compared."""


def seen_by_subtraction(intercept: Intercept) -> str:
    """Return `Disclosure.other_runs`: sites that centre their records release no means."""
    return means_by_subtraction() if intercept == "site" else ""


def disclosed_by_hm2(points: int) -> str:
    """Return what the sums of HM2 determine, with so many importance sampling points."""
    weighed = (
        f"Then, at {points} points, sums of what they say of them exactly, which can be solved for "
        "every single site's cross products, without knowing which site has which. "
    )
    return (
        "In each round, the sum over sites of normal approximations of what each site's records "
        "say of the parameters that sites share. The approximations depend on the round, so that "
        "many rounds may tell more of single sites than the last one does. "
        f"{weighed if points else ''}At the end, sums of posterior means, of more than two sites "
        "their squares, how many sites include each coefficient, and errors of predictions."
    )


def sites_table(title: str) -> ResultTable:
    """Return the table of a FedLin result."""
    return ResultTable(title, TableKind.SITES, _LABELS)
