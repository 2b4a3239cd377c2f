"""The result of a session, from its released sums only: used by a run and by `secagg verify`."""

from __future__ import annotations

import math
import platform
from contextlib import suppress
from importlib import metadata
from typing import Any

from secagg.contracts import RecordCount, Result
from secagg.contracts.noise import SITE_MOMENTS
from secagg.core.threads import single_threaded_blas
from secagg.core.version import __version__
from secagg.models.common.clipped_moments import FAR_AWAY, far_away
from secagg.models.common.noisy_moments import REPEATED_NOTE
from secagg.sessions.coordinator_state import CoordinatorState
from secagg.sessions.engines.site_results import TOO_NARROW, noise_note
from secagg.sessions.planned_job import Planned
from secagg.sessions.rounds import COHORT
from secagg.sessions.site_moments import WEIGHTS, count_variance, weights_variance

_PACKAGES = ("numpy", "scipy", "pandas", "gmpy2", "phe", "cryptography", "pydantic", "causal-learn")


def result_of(planned: Planned, state: CoordinatorState) -> Result:
    """Return the result of a session whose method is done; it depends on the sums only."""
    with single_threaded_blas():
        result = planned.method.result(state.method, planned.public, counted(planned, state))
    summary = {"title": planned.job.title, **result.summary, **counts(planned, state)}
    if planned.public.site_moments:
        notes = [noise_note(planned), *([REPEATED_NOTE] if planned.public.repeated_persons else [])]
        summary["notes"] = [*summary.get("notes", ()), *notes]
        cautions = [summary.get("caution"), _far_away(planned, state)]
        if "level" in summary and not planned.facts.knows_noise:  # it has intervals
            cautions.append(TOO_NARROW)
        if any(cautions):
            summary["caution"] = "; ".join(filter(None, cautions))
    return Result(summary, result.arrays)


def _far_away(planned: Planned, state: CoordinatorState) -> str:
    """Return the caution that most records are far from the typical ranges, or nothing."""
    if WEIGHTS not in state.counts:
        return ""
    noise, clip = planned.public.noise[SITE_MOMENTS], planned.public.clip
    assert clip is not None
    error = math.sqrt(len(state.cohort) * weights_variance(noise, clip))
    counts = state.counts
    far = far_away(float(counts[WEIGHTS][0]), float(counts["records"][0]), error)
    return FAR_AWAY if far else ""


def counted(planned: Planned, state: CoordinatorState) -> RecordCount:
    """Return the count of the first sum, and its noise variance.

    Each site's noise is large enough for the smallest allowed number of sites.
    """
    records = float(state.counts["records"][0])
    return RecordCount(records, counted_variance(planned, len(state.cohort)))


def counted_variance(planned: Planned, sites: int) -> float:
    """Return the variance of the noise in the number of records of so many sites."""
    if planned.public.site_moments:
        public = planned.public
        assert public.clip is not None
        return sites * count_variance(public.noise[SITE_MOMENTS], public.clip)
    noise = planned.public.noise.get(COHORT)
    return 0.0 if noise is None else noise.sum_variance(sites, noise.site_variance(noise.min_sites))


def counts(planned: Planned, state: CoordinatorState) -> dict[str, Any]:
    """Return the released counts of records and of clipped values, summed over the cohort.

    Under differential privacy, only the number of records is released, with noise.
    """
    total, cohort = state.counts, list(state.cohort)
    if planned.private is not None:
        return {
            "cohort": cohort,
            "records": state.records,
            "records_error": math.sqrt(counted(planned, state).variance),
            "incomplete_records": None,
            "values_outside_bounds": {},
            "contributions_clipped": {},
        }
    outside = dict(zip(planned.public.columns, total["outside"].astype(int).tolist(), strict=True))
    clipped = {
        stage: dict(
            zip((f.name for f in planned.plans.stages[stage].spec), map(int, values), strict=True)
        )
        for stage in planned.plans.stages  # in plan order; the state of a resumed run has another
        if (values := state.clipped.get(stage)) is not None
    }
    return {
        "cohort": cohort,
        "records": int(total["records"][0]),
        "incomplete_records": int(total["incomplete"][0]),
        "values_outside_bounds": outside,
        "contributions_clipped": clipped,
        **({"persons": int(total["persons"][0])} if "persons" in total else {}),
    }


def versions() -> dict[str, str]:
    """Return the versions of the software that may affect the numbers."""
    table = {"secagg": __version__, "python": platform.python_version()}
    for package in _PACKAGES:
        with suppress(metadata.PackageNotFoundError):
            table[package] = metadata.version(package)
    return table
