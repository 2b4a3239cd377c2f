"""The job folder that NVIDIA FLARE gets: three JSON files that name classes, and no code.

NVFLARE's own exporter copies the modules that a job uses into the job, which then counts as one
that brings its own code (BYOC), and which sites that follow `secagg.deploy.nvflare_kit` refuse. So
these files are written here. `tests/deploy` compares them with the exporter's.
"""

from __future__ import annotations

import json
import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from secagg.core.roster_file import check_name
from secagg.errors import UsageError
from secagg.jobs.job import Job
from secagg.sessions.planned_job import named_sites

CONTROLLER = "nvflare.collab.runtime.controller.CollabController"
EXECUTOR = "nvflare.collab.runtime.executor.CollabExecutor"
LEAD = "secagg.deploy.nvflare_parties.LeadObject"
PARTY = "secagg.deploy.nvflare_parties.PartyObject"
CLASSES = (CONTROLLER, EXECUTOR, LEAD, PARTY)
"""All classes that a job names, and so all that a site has to allow."""
_SYNC_SECONDS = 60
_NONE: dict[str, Any] = {"components": [], "task_data_filters": [], "task_result_filters": []}


def job_files(job: str, name: str, parties: Sequence[str]) -> dict[str, Any]:
    """Return the content of the job's files, by path in its folder.

    job: what the parties agree on, as JSON; name: of the run; parties: the clients that take part

    NVFLARE starts the job when these clients are there. If the job may leave sites out, it starts
    without some of them.
    """
    agreed = Job.model_validate_json(job)
    sites = agreed.sites.names or ()
    named = named_sites(agreed)
    absent = 0 if named is None else len(sites) - named.fewest
    lead = {"id": "_server", "path": LEAD, "args": {"job": job, "name": name}}
    party = {"id": "_client", "path": PARTY, "args": {}}
    controller = {
        "server_obj_id": "_server", "collab_obj_ids": [], "sync_task_timeout": _SYNC_SECONDS,
    }  # fmt: skip
    executor = {"client_obj_id": "_client", "collab_obj_ids": []}
    return {
        "meta.json": {
            "name": name, "resource_spec": {}, "min_clients": len(parties) - absent,
            "mandatory_clients": [party for party in parties if not absent or party not in sites],
            "deploy_map": {"app": ["server", *parties]},
        },
        "app/config/config_fed_server.json": {
            "format_version": 2, **_NONE,
            "workflows": [{"id": "controller", "path": CONTROLLER, "args": controller}],
            "components": [lead],
        },
        "app/config/config_fed_client.json": {
            "format_version": 2, **_NONE,
            "executors": [
                {"tasks": ["*"], "executor": {"path": EXECUTOR, "args": executor}}
            ],
            "components": [party],
        },
    }  # fmt: skip


def write_job_folder(out: Path, job: str, name: str, parties: Sequence[str]) -> None:
    """Write the job's files into a new folder. Raises `UsageError`, also for a name of a party."""
    for party in parties:
        check_name("sites.names", party)
    check_name("name", name)
    if os.path.lexists(out):
        raise UsageError(str(out), "already exists", "Choose another --out.")
    try:
        for path, content in job_files(job, name, parties).items():
            (out / path).parent.mkdir(parents=True, exist_ok=True)
            (out / path).write_text(json.dumps(content, indent=1) + "\n", encoding="utf-8")
    except OSError as error:
        raise UsageError(str(out), f"cannot be written ({error.strerror})") from None
