"""What a guarantee requires of stages, protocol and terms, before any noise is computed.

`secagg.privacy.accounting.calibration` lists the cases in a table.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from secagg.contracts import Stage
from secagg.contracts.noise import Placement, Placements, Sensitivity
from secagg.errors import CapabilityError, JobError
from secagg.privacy.accounting.terms import Terms

NOT_DECLARED: Final = Placements((), "")
"""Those of stages that belong to no method."""

_LIST: Final = "`secagg list methods --privacy` shows where noise is possible."


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
    terms: Terms,
    method: Sequence[Stage],
    min_sites: int,
    expected_records: int,
    hides: bool,
    placements: Placements = NOT_DECLARED,
) -> None:
    """Raise `JobError` or `CapabilityError` if no noise can give the guarantee.

    Arguments: as for `secagg.privacy.accounting.calibration.calibrate`
    """
    unbounded = [stage for stage in method if sensitivity_of(stage) is None]
    if unbounded:
        # A stage of the method has more rounds than a count beside it.
        longest = max(unbounded, key=lambda stage: stage.max_rounds)
        iterative = "its rounds build on each other, so " if longest.max_rounds > 1 else ""
        raise CapabilityError(
            "privacy.placement",
            f"in stage {longest.name!r}, the influence of one record is unbounded: {iterative}no "
            "amount of noise is enough",
            placements.instead or f"{_use(terms.placement, placements)}{_LIST}",
        )
    if terms.group(terms.placement) != 1 and any(rate_of(stage) < 1 for stage in method):
        raise JobError(
            "method.sampling_rate",
            "must be 1 if a person may have several records, because each is drawn on its own",
        )
    if terms.person is not None and not terms.pinned and any(rate_of(s) < 1 for s in method):
        raise JobError(
            "privacy.person",
            "with random samples of records, the policy of every site must name this column",
            "Set privacy.person_pinned, leave person out, or set method.sampling_rate to 1.",
        )
    alone = [stage for stage in method if stage.training is not None]
    if alone and len(alone) == len(method) and terms.placement is not Placement.SITE:
        raise CapabilityError(
            "privacy.placement", "sites train alone and add all noise themselves", "Use 'site'."
        )  # fmt: skip
    _check_rounds(terms.placement, sum(stage.max_rounds for stage in method), placements)
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


def _check_rounds(placement: Placement, rounds: int, placements: Placements) -> None:
    if rounds == 1 and placement is Placement.ROUND:
        what, advice = "and this method has one release", _use(placement, placements) + _LIST
        if placement in placements.where:
            what, advice = "and this job has one", "Use 'sum', or settings with several rounds."
        raise CapabilityError("privacy.placement", f"'round' is for several rounds, {what}", advice)
    if rounds != 1 and placement is not Placement.ROUND:
        needs = f" {placements.note}" if placement in placements.where else ""
        raise CapabilityError(
            "privacy.placement",
            f"{placement.value!r} adds noise once, but this method reads the records in {rounds} "
            "sums, and each of them needs noise of its own",
            f"Use 'round'.{needs}",
        )


def _use(placement: Placement, placements: Placements) -> str:
    """Return advice to use another placement of the method; "" if it has none."""
    others = [repr(other.value) for other in placements.where if other is not placement]
    return f"Use {' or '.join(others)}. " if others else ""
