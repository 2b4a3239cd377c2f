"""Find a data file inside an installed package, without importing the package.

Public records ship inside packages of the Python registry. Their code is neither needed nor run:
only one file is read, and only if its SHA-256 is the expected one.
"""

from __future__ import annotations

import hashlib
from importlib import metadata
from pathlib import Path

from secagg.errors import UsageError


def packaged_file(distribution: str, ending: str, sha256: str, install: str) -> Path:
    """Return the one file of `distribution` whose path ends in `ending`, its content checked.

    install: the command that installs it. Raises `UsageError` where the package is missing or the
    file is another one.
    """
    try:
        files = metadata.files(distribution) or []
    except metadata.PackageNotFoundError:
        raise UsageError(distribution, "not installed", f"Run: {install}") from None
    matches = [file for file in files if f"/{file.as_posix()}".endswith(f"/{ending}")]
    if len(matches) != 1:
        raise UsageError(
            distribution, f"{len(matches)} files end in {ending!r}, not one", f"Run: {install}"
        )
    path = Path(str(matches[0].locate()))
    found = hashlib.sha256(path.read_bytes()).hexdigest()
    if found != sha256:
        what = f"{ending} has SHA-256 {found}, expected {sha256}"
        raise UsageError(distribution, what, f"Run: {install}")
    return path
