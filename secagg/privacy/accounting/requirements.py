"""What a guarantee requires of stages, protocol and terms, before any noise is computed.

`secagg.privacy.accounting.calibration` lists the cases in a table.
"""

from __future__ import annotations

from collections.abc import Sequence

from secagg.contracts import Stage
from secagg.contracts.noise import Placement, Sensitivity
from secagg.errors import CapabilityError, JobError
from secagg.privacy.accounting.terms import Terms


def steps_of(stage: Stage) -> int:
    """Return the number of noisy sums in one round of a stage."""
    return 1 if stage.training is None else stage.training.steps


def rate_of(stage: Stage) -> float:
    """Return the probability with which each record takes part in one noisy sum."""
    return stage.sampling_rate if stage.training is None else stage.training.sampling_rate


def sensitivity_of(stage: Stage) -> Sensitivity | None:
    """Return how far one record moves one noisy sum; None if there is no bound."""
    return stage.sensitivity if stage.training is None else stage.training.sensitivity


def check_terms(
    terms: Terms, method: Sequence[Stage], min_sites: int, expected_records: int, hides: bool
) -> None:
    unbounded = [stage for stage in method if sensitivity_of(stage) is None]
    if unbounded:
        # A stage of the method has more rounds than a count beside it.
        longest = max(unbounded, key=lambda stage: stage.max_rounds)
        iterative = "its rounds build on each other, so " if longest.max_rounds > 1 else ""
        raise CapabilityError(
            "privacy.placement",
            f"in stage {longest.name!r}, the influence of one record is unbounded: {iterative}no "
            "amount of noise is enough",
            "`secagg list methods --privacy` shows where noise is possible. For a logistic "
            "regression, use method gradient with placement 'round'.",
        )
    if terms.group() != 1 and any(rate_of(stage) < 1 for stage in method):
        raise JobError(
            "method.sampling_rate",
            "must be 1 if a person may have several records, because each is drawn on its own",
        )
    alone = [stage for stage in method if stage.training is not None]
    if alone and terms.placement is not Placement.SITE:
        raise CapabilityError(
            "privacy.placement", "sites train alone and add all noise themselves", "Use 'site'."
        )  # fmt: skip
    once = sum(stage.max_rounds for stage in method) == 1
    if once and terms.placement is Placement.ROUND:
        raise CapabilityError(
            "privacy.placement", "'round' is for several rounds, and this method has one release",
            "Use 'sum' or 'site', or method gradient, which has several rounds.",
        )  # fmt: skip
    if not once and terms.placement is not Placement.ROUND:
        raise CapabilityError(
            "privacy.placement",
            f"{terms.placement.value!r} is for one release, and this method has several rounds",
            "Use 'round'.",
        )
    if terms.placement is not Placement.SITE:
        if not hides:
            raise CapabilityError(
                "privacy.placement",
                "this protocol shows the coordinator each contribution, with only that site's "
                "share of the noise",
                "Use placement 'site' or another protocol.",
            )
        if min_sites <= terms.colluding:
            raise JobError(
                "privacy.colluding",
                f"{terms.colluding} colluding sites of the {min_sites} in a sum would leave no "
                "noise",
                "Lower it, or raise release.min_sites.",
            )
    if terms.delta * expected_records >= 1:
        raise JobError(
            "privacy.delta",
            f"must be below 1 / {expected_records}: a larger delta allows publishing a record",
            "A common choice is a tenth of 1 / records, or less.",
        )
