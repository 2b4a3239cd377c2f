"""A site's own result: a private file at the site, for methods with parameters of each site.

Such a method has `site_result` in its facts. The process that reads the site's records
writes the file into the folder of the site's ledger, as `SITE.SESSION.json` (the session by its
first 8 hexadecimal digits). Nothing of it is sent, and the coordinator's folder does not contain
it. If all sites are in one process, that process has all these results (`secagg.runs.run.Run.own`).

The site writes the file when it contributes to the last round, before that round's sum is opened.
The file therefore remains even if the run fails after that.

Not protected: the file reveals at least as much about the site's records as a model fitted to them.
It lies with the ledger. If a site has no policy of its own, the job chooses this folder
(`sites.ledgers`, see `secagg.jobs.data_sources`).
"""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from urllib.parse import quote

from secagg.contracts import Result
from secagg.core.private_files import write_private
from secagg.jobs.data_sources import SiteSource
from secagg.jobs.job import Job
from secagg.sessions.planned_job import Planned

SITE_NOISE_NOTE = (
    "The sites have only moments with the noise of differential privacy. Intervals and "
    "probabilities, if there are any, ignore this noise, so they are too narrow."
)
TOO_NARROW = "intervals are too narrow, because they ignore the noise of differential privacy"
"""The caution of a result with intervals, if the method does not know the noise at the sites."""
KNOWN_NOISE_NOTE = (
    "The sites have only moments with the noise of differential privacy, and treat the exact ones "
    "as unknown. So intervals and probabilities include this noise."
)


def site_result_path(source: SiteSource, session: bytes) -> Path | None:
    """Return the path of a site's own result; None for records given in Python."""
    if source.ledger is None:
        return None
    return source.ledger.parent / f"{quote(source.name, safe=' ')}.{session.hex()[:8]}.json"


def noise_note(planned: Planned) -> str:
    """Return what noise once at the sites means for intervals of the method."""
    return KNOWN_NOISE_NOTE if planned.facts.knows_noise else SITE_NOISE_NOTE


def with_noise(result: Result, planned: Planned) -> Result:
    """Return a site's own result with what it has to say about the noise in its moments, if any."""
    if planned.private is None or not planned.public.site_moments:
        return result
    terms = planned.private.terms
    privacy = {
        "placement": terms.placement.value, "epsilon": terms.epsilon, "delta": terms.delta,
        "unit": terms.unit, "note": noise_note(planned),
    }  # fmt: skip
    return replace(result, summary={**result.summary, "privacy": privacy})


def write_site_result(source: SiteSource, session: bytes, job: Job, result: Result) -> str | None:
    """Write a site's own result, if it has a file; return an error text if that fails.

    The text is for the site. A file that cannot be written does not end the run.
    """
    path = site_result_path(source, session)
    if path is None:
        return None
    content = {
        "site": source.name,
        "title": job.title,
        "session": session.hex(),
        "method": job.method.name,
        **result.summary,
    }
    try:
        path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        write_private(path, (json.dumps(content, indent=1, allow_nan=False) + "\n").encode())
    except (OSError, ValueError) as error:  # ValueError: nan or inf
        why = getattr(error, "strerror", None) or error
        return f"{source.name}: cannot write the site's own result to {path} ({why})"
    return None
