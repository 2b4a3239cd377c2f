"""The facts of a run that follow from its job: what is shown, the guarantee, the expected error.

Claims of privacy, disclosure and usefulness rest on these facts. Only the coordinator writes
run.json, so `verify` computes the facts again: a coordinator cannot claim more than its job
guarantees. This needs neither the sums nor the same software, but a version of secagg that plans
the job in the same way.
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any

from secagg.errors import EvidenceError, UsageError
from secagg.evidence.feasibility.facts import prospect
from secagg.evidence.run_files import json_bytes
from secagg.evidence.run_folder import RunFolder
from secagg.privacy.accounting.guarantee import guarantee
from secagg.sessions.planned_job import Planned, session_of

_ADVICE = "The coordinator states what the job does not give: do not rely on this run's report."
_ROUNDING = 1e-6  # relative: other versions of libraries may compute other last digits


@dataclass(frozen=True)
class Checked:
    """Whether something was computed again and is equal; if it was not tried, why."""

    done: bool
    why: str = ""


def check_claims(run: RunFolder) -> Checked:
    """Compare the facts that claims rest on with those that follow from the job.

    Raises `EvidenceError` if run.json states something else.
    """
    try:
        planned = run.planned
    except UsageError as error:
        return Checked(False, error.what)
    if session_of(planned, run.roster, bytes.fromhex(run.facts["nonce"])) != run.session_bytes:
        return Checked(False, "this version of secagg plans the job differently")
    facts = planned_facts(planned, run.events[0], len(run.cohort))
    for key, expected in json.loads(json_bytes(facts)).items():
        if not _equal(run.facts[key], expected):
            raise EvidenceError("run.json", f"{key!r} does not follow from the job", _ADVICE)
    return Checked(True)


def _equal(stated: Any, expected: Any) -> bool:
    """Return whether two values from JSON are equal, but for the rounding of numbers."""
    if isinstance(expected, float) and isinstance(stated, float):
        return math.isclose(stated, expected, rel_tol=_ROUNDING)
    if type(stated) is not type(expected):
        return False
    if isinstance(expected, dict):
        same_keys = stated.keys() == expected.keys()
        return same_keys and all(_equal(stated[key], value) for key, value in expected.items())
    if isinstance(expected, list):
        same_length = len(stated) == len(expected)
        return same_length and all(map(_equal, stated, expected))
    return bool(stated == expected)


def planned_facts(planned: Planned, opening: Mapping[str, Any], sites: int) -> dict[str, Any]:
    """Return these facts. opening: first line of the log; sites: number of those in the sums."""
    capabilities = planned.protocol.capabilities
    return {
        "title": planned.job.title,
        "method": {**opening["method"], **method_facts(planned)},
        "protocol": {
            **opening["protocol"],
            "hides_from_coordinator": capabilities.hides_from_coordinator,
            "in_numbers": planned.in_numbers,
            "dropouts": capabilities.dropouts,
            "sees": dict(capabilities.sees),
            "unprotected": list(capabilities.unprotected),
        },
        "privacy": privacy_facts(planned, sites),
        "feasibility": feasibility_facts(planned),
    }


def method_facts(planned: Planned) -> dict[str, Any]:
    """Return the method's title, disclosure and tables; the report needs no more of the method."""
    method = planned.method
    tables = [asdict(table) for table in method.tables(planned.public)]
    title = method.title
    if planned.private is not None:
        title = planned.facts.title_under_noise or title
    disclosure = method.disclosure
    if planned.private is not None:
        disclosure = disclosure.under_noise()
    about = {"title": title, "disclosure": asdict(disclosure), "tables": tables}
    plain: dict[str, Any] = json.loads(json.dumps(about))  # as in run.json
    return plain


def privacy_facts(planned: Planned, sites: int) -> dict[str, Any] | None:
    """Return the differential privacy guarantee for a cohort of this many sites, if any."""
    if planned.private is None:
        return None
    assert planned.public.clip is not None  # with noise, records are always clipped
    max_colluding = planned.protocol.max_colluding(planned.job_sites)
    return guarantee(planned.private, planned.public.clip, sites, max_colluding)


def feasibility_facts(planned: Planned) -> dict[str, Any] | None:
    """Return whether the result was expected to be usable, as in the plan; None without noise."""
    facts = privacy_facts(planned, len(planned.public.sites))
    return None if facts is None else prospect(planned, facts)
