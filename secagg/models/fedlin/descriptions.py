"""Labels of FedLin results, and disclosures that the methods share."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from secagg.contracts import TRUSTED, Label, ResultTable, TableKind
from secagg.models.common.disclosures import means_by_subtraction
from secagg.models.fedlin.design import Intercept

SOLVED_BY_CHOICE: Final = (
    f"{TRUSTED} A dishonest coordinator can choose its messages so that the sums become equations. "
    "After some tens of rounds it can solve them, and obtains the regressions and cross products "
    "of single sites. This was shown in small cases, and may be possible in larger ones. An honest "
    "coordinator could have sent the same messages, so no check can detect this."
)
"""`Disclosure.if_malicious` of HM1 and HM2: `secagg.audits.attacks` has the attack."""

SITE_OLS, MEAN_ONLY = "site_ols", "mean_only"
"""Names of the predictions that all methods are compared with."""

_LABELS: Final[Mapping[str, Label]] = {
    "outcome_deviation": ("standard deviation of the outcome, within sites", ""),
    "noise_sd": ("standard deviation of the regression's errors, pooled over sites", ""),
    "change": ("relative change in the last round", ""),
    "remaining": (
        "relative change still to come",
        "estimated from the last changes; near 0 further rounds change nothing",
    ),
    "sites_telling_noise": ("sites with more records than coefficients", ""),
    "distance": (
        "distance of the shared posterior from convergence",
        "in its standard deviations, after the last round; well below 1 it has converged",
    ),
    "hierarchy": ("distribution of the sites' coefficients", ""),
    "hm1": ("HM1", ""),
    "hm2": ("HM2", ""),
    "full": ("full covariance", ""),
    "fedavg": ("FedAvg: one model for all sites", ""),
    "ditto": ("Ditto: each site's own, near FedAvg's", ""),
    SITE_OLS: ("each site's own least squares", ""),
    MEAN_ONLY: ("no predictor", ""),
}
"""Labels of single numbers, and of the models whose predictions are compared."""


def seen_by_subtraction(intercept: Intercept) -> str:
    """Return `Disclosure.other_runs`: sites that centre their records release no means."""
    return means_by_subtraction() if intercept == "site" else ""


def disclosed_by_hm2(points: int) -> str:
    """Return what the sums of HM2 determine, with so many importance sampling points."""
    weighed = (
        f"Then, at {points} points, sums of the exact likelihoods of these parameters. They can be "
        "solved for every single site's cross products, without knowing which site is which. "
    )
    return (
        "In each round, the sum over sites of normal approximations of each site's likelihood of "
        "the parameters that sites share. The approximations change from round to round, so many "
        "rounds may reveal more about single sites than the last round alone. "
        f"{weighed if points else ''}At the end, sums over sites of posterior means, of their "
        "squares if there are more than two sites, and of prediction errors; and for each "
        "coefficient, at how many sites its interval excludes 0."
    )


def sites_table(title: str, labels: Mapping[str, Label] | None = None) -> ResultTable:
    """Return how a result is shown; labels: of numbers that the method has, or names otherwise."""
    return ResultTable(title, TableKind.SITES, {**_LABELS, **(labels or {})})
