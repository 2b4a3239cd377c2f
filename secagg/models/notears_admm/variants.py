"""The variants of NOTEARS-ADMM: what holds for settings that a job leaves out.

=================  ==============================  ================================================
setting            "fast"                          "paper"
=================  ==============================  ================================================
solver             "proximal"                      "subgradient" (appendix B)
standardise        true; for time series none      false: the paper scales no column
random_inputs      false                           true, as in the paper's program
gamma1, gamma2     1.75 and 1.25; 1.3 and 1.1 for  1.75 and 1.25 (appendix B)
                   time series
rounds             200; 500 for time series        200 (appendix B)
=================  ==============================  ================================================

For the paper (Ng and Zhang, AISTATS 2022), `penalty`, `rho1`, `rho2` and `threshold` have the same
defaults in both variants, those of its appendix B and section 6. The paper does not simulate time
series. With its growth of penalties, weights of such models stop far from an optimum
(`tests/statistical/test_notears_admm_quality.py`), so "fast" lets them grow more slowly. On
standardised columns, directions within a step are right only by chance. On one scale for all
columns, they are mostly right if all columns have the same unit, and else worse in other respects
(docs/methods/notears_admm.md). So "fast" has no default for time series, and the job must choose.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final, Literal

from secagg.errors import JobError
from secagg.models.notears_admm.coordinator import SLOWER_SCHEDULE, Schedule

Variant = Literal["fast", "paper"]

_FAST: Final = {"solver": "proximal", "standardise": True, "random_inputs": False}
_PAPER: Final = {"solver": "subgradient", "standardise": False, "random_inputs": True}
_OF_SCHEDULE: Final = ("gamma1", "gamma2", "rounds")


def variant_settings(variant: Variant, *, lagged: bool = False) -> dict[str, Any]:
    """Return the values of the settings in the table above; lagged: for time series."""
    schedule = SLOWER_SCHEDULE if lagged and variant == "fast" else Schedule()
    chosen = _PAPER if variant == "paper" else _FAST
    if lagged and variant == "fast":
        chosen = {**chosen, "standardise": None}
    return {**chosen, **{name: getattr(schedule, name) for name in _OF_SCHEDULE}}


def settings_in_force(
    variant: Variant, given: Mapping[str, Any], *, lagged: bool = False
) -> dict[str, Any]:
    """Return those of a job; given: its settings by name, None where the job leaves one out."""
    own = {name: given[name] for name in given if given[name] is not None}
    return {**variant_settings(variant, lagged=lagged), **own}


def variant_in_words(variant: Variant, given: Mapping[str, Any]) -> str:
    """Return the variant for a title, with the settings in which a job departs from the paper."""
    paper = variant_settings("paper")
    other = [name for name in given if given[name] not in (None, paper[name])]
    changed = f" except {', '.join(other)}" if variant == "paper" and other else ""
    return f"variant “{variant}”{changed}"


def check_chosen(standardise: bool | str | None) -> None:
    """Raise `JobError` for time series if the job does not say how columns are scaled."""
    if standardise is None:
        raise JobError(
            "method.standardise",
            "time series have no default, because no value suits all of them",
            'If all columns have the same unit, set standardise = "common". If not, set '
            "standardise = true; directions of edges within a step are then right only by chance.",
        )
