"""The variants of NOTEARS-ADMM: what holds for settings that a job leaves out.

=================  ==============================  ================================================
setting            "fast"                          "paper"
=================  ==============================  ================================================
solver             "proximal"                      "subgradient" (appendix B)
standardise        true                            false: the paper scales no column
random_inputs      false                           true, as in the paper's program
gamma1, gamma2     1.75 and 1.25; 1.3 and 1.1 for  1.75 and 1.25 (appendix B)
                   time series
rounds             200; 500 for time series        200 (appendix B)
=================  ==============================  ================================================

For the paper (Ng and Zhang, AISTATS 2022), `penalty`, `rho1`, `rho2` and `threshold` have the same
defaults in both variants, those of its appendix B and section 6. The paper does not simulate time
series. With its growth of penalties, weights of such models stop far from an optimum
(`tests/statistical/test_notears_admm_quality.py`), so "fast" lets them grow more slowly.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final, Literal

from secagg.models.notears_admm.coordinator import SLOWER_SCHEDULE, Schedule

Variant = Literal["fast", "paper"]

_FAST: Final = {"solver": "proximal", "standardise": True, "random_inputs": False}
_PAPER: Final = {"solver": "subgradient", "standardise": False, "random_inputs": True}
_OF_SCHEDULE: Final = ("gamma1", "gamma2", "rounds")


def variant_settings(variant: Variant, *, lagged: bool = False) -> dict[str, Any]:
    """Return the values of the settings in the table above; lagged: for time series."""
    schedule = SLOWER_SCHEDULE if lagged and variant == "fast" else Schedule()
    chosen = _PAPER if variant == "paper" else _FAST
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
