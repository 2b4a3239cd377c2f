"""The app folder that Flower gets: one file with the job, and no code.

Flower packs the folder into an app bundle and sends it to every node of the run. An app has to name
two objects, which Flower would load. `secagg.deploy.flower_worker` loads none.
"""

from __future__ import annotations

import json
import os
from pathlib import Path

from secagg.core.roster_file import check_name
from secagg.errors import UsageError

FLWR = "1.41.0"
"""The version of Flower that was tested."""
APP = None
"""What an app folder names; Flower's own programs refuse it."""


def app_file(job: str, name: str) -> str:
    """Return the app's pyproject.toml. job: what the parties agree on, as JSON."""
    return f"""[project]
name = "secagg"
version = "1.0.0"
description = "A run of secagg, without code"
license = "Apache-2.0"
dependencies = ["flwr=={FLWR}"]

[tool.flwr.app]
publisher = "secagg"

[tool.flwr.app.components]
serverapp = "secagg.deploy.flower_job:APP"
clientapp = "secagg.deploy.flower_job:APP"

[tool.flwr.app.config]
name = "{name}"
job = {json.dumps(job, ensure_ascii=False)}
"""


def write_app_folder(out: Path, job: str, name: str) -> None:
    """Write the app into a new folder. Raises `UsageError`."""
    check_name("name", name)
    if os.path.lexists(out):
        raise UsageError(str(out), "already exists", "Choose another --out.")
    try:
        out.mkdir(parents=True)
        (out / "pyproject.toml").write_text(app_file(job, name), encoding="utf-8")
    except OSError as error:
        raise UsageError(str(out), f"cannot be written ({error.strerror})") from None
