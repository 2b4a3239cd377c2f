"""The app folder that Flower gets: one file that names the two apps of secagg, and no code.

Flower packs the folder into an app bundle and sends it to every node of the run. Its run
configuration has the job.
"""

from __future__ import annotations

import json
import os
from pathlib import Path

from secagg.core.roster_file import check_name
from secagg.errors import UsageError

FLWR = "1.41.0"
"""The version of Flower that was tested."""


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
serverapp = "secagg.deploy.flower_parties:server"
clientapp = "secagg.deploy.flower_parties:client"

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
