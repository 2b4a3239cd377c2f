"""A site's own result: what a run leaves there for the site's own eyes, as a private file.

It is written with the site's part in the last round, before that round's sum is opened: should the
run fail after that, the file is there all the same.

Methods whose sites have parameters of their own (`secagg.contracts.HasSiteResult`) leave them
there. The file is written at the site, by the process that reads its records, into the folder of
its
ledger: `SITE.SESSION.json`, the session by its first 8 hexadecimal digits. Nothing of it crosses
the wire, and the coordinator's folder does not have it. Where all sites are in one process, that
process has all of it anyhow (`secagg.runs.run.Run.own`).

Not protected: the file tells of the site's records at least what a model fitted to them tells. Its
place is the ledger's: where a site has no policy of its own the job chooses that (`sites.ledgers`),
and so where the file lies (`secagg.jobs.data_sources`).
"""

from __future__ import annotations

import json
from pathlib import Path
from urllib.parse import quote

from secagg.contracts import Result
from secagg.core.private_files import write_private
from secagg.jobs.data_sources import SiteSource
from secagg.jobs.job import Job


def own_file(source: SiteSource, session: bytes) -> Path | None:
    """Return where a site's own result goes; None for records given in Python."""
    if source.ledger is None:
        return None
    return source.ledger.parent / f"{quote(source.name, safe=' ')}.{session.hex()[:8]}.json"


def keep_own(source: SiteSource, session: bytes, job: Job, result: Result) -> str | None:
    """Write a site's own result to its file, if it has one. Returns why it could not be written.

    That is for the site to know; it is no reason to end a run that the others have finished.
    """
    path = own_file(source, session)
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
    except (OSError, ValueError) as error:  # the latter for a number that JSON has not
        why = getattr(error, "strerror", None) or error
        return f"{source.name}: its own result, {path}, cannot be written ({why})"
    return None
