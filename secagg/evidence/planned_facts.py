"""The facts of a run that follow from its job: what method and protocol show, and the guarantee.

Claims of privacy and disclosure rest on them. The coordinator writes run.json alone, so `verify`
computes them again: a coordinator cannot state more than its job gives.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict
from typing import Any

from secagg.privacy.accounting.guarantee import guarantee
from secagg.sessions.planned_job import Planned


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
