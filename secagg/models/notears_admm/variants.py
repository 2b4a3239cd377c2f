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

For networks:

=================  ==============================  ================================================
gamma1, gamma2     1.5 and 1.15                    1.75 and 1.25 (appendix B)
rho2               0.02                            0.1 (appendix B)
penalty            0.01                            0.001 (appendix B)
ridge              0.01                            0: the program has a ridge only in NOTEARS-MLP
zero_diagonal      true                            false
=================  ==============================  ================================================

All other settings have the defaults of Ng and Zhang (AISTATS 2022), appendix B and section 6, in
both variants.

Networks. With the paper's settings, ADMM ends far from NOTEARS-MLP on all records. Three causes
(docs/math/measured-methods.md). A variable's own value explains it without error, as long as h
allows that; by the time it does not, rho2 holds all other weights: `zero_diagonal`. In a round the
networks move by (sum of slopes) / (K rho2), and rho2 grows by a factor, so the way left is bounded:
rho2 has to begin near the curvature of the loss. And the smaller penalty keeps wrong edges, once
weights fit. The ridge is that of NOTEARS-MLP; it saves the sites a quarter of their time, and in
the calibration it changed no mean. All numbers were chosen on simulated seeds that no table has.

Linear. The paper does not simulate time series. With its growth of penalties, weights of such
models stop far from an optimum (`tests/statistical/test_notears_admm_quality.py`), so "fast" lets
them grow more slowly. On standardised columns, directions within a step are right only by chance.
On one scale for all columns, they are mostly right if all columns have the same unit, and else
worse in other respects (docs/methods/notears_admm.md). So "fast" has no default for time series,
and the job must choose.
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
_NETWORKS: Final[Mapping[Variant, Mapping[str, Any]]] = {
    "fast": {"gamma1": 1.5, "gamma2": 1.15, "rho2": 0.02, "penalty": 0.01, "ridge": 0.01,
             "zero_diagonal": True},
    "paper": {"rho2": 0.1, "penalty": 0.001, "ridge": 0.0, "zero_diagonal": False},
}  # fmt: skip


def variant_settings(
    variant: Variant, *, lagged: bool = False, networks: bool = False
) -> dict[str, Any]:
    """Return the values of the settings in the tables above; lagged: for time series."""
    schedule = SLOWER_SCHEDULE if lagged and variant == "fast" else Schedule()
    chosen = _PAPER if variant == "paper" else _FAST
    if lagged and variant == "fast":
        chosen = {**chosen, "standardise": None}
    growth = {name: getattr(schedule, name) for name in _OF_SCHEDULE}
    return {**chosen, **growth, **(_NETWORKS[variant] if networks else {})}


def settings_in_force(
    variant: Variant, given: Mapping[str, Any], *, lagged: bool = False, networks: bool = False
) -> dict[str, Any]:
    """Return those of a job; given: its settings by name, None where the job leaves one out."""
    own = {name: given[name] for name in given if given[name] is not None}
    return {**variant_settings(variant, lagged=lagged, networks=networks), **own}


def variant_in_words(variant: Variant, given: Mapping[str, Any]) -> str:
    """Return the variant for a title, with the settings in which a job departs from the paper."""
    paper = variant_settings("paper", networks="ridge" in given)
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
