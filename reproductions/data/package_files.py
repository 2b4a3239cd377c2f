"""Find a data file inside an installed package, without importing the package.

Some Python packages contain public records. Their code is neither needed nor run: only one file is
read, and only if it has the expected SHA-256.
"""

from __future__ import annotations

import hashlib
from importlib import metadata
from pathlib import Path

from secagg.errors import UsageError


def packaged_file(distribution: str, ending: str, sha256: str, install: str) -> Path:
    """Return the only file of `distribution` whose path ends in `ending`, after checking its hash.

    install: the command that installs the package. Raises `UsageError` if the package is missing
    or the file differs.
    """
    try:
        files = metadata.files(distribution) or []
    except metadata.PackageNotFoundError:
        raise UsageError(distribution, "not installed", f"Run: {install}") from None
    matches = [file for file in files if f"/{file.as_posix()}".endswith(f"/{ending}")]
    if len(matches) != 1:
        raise UsageError(
            distribution, f"{len(matches)} files end in {ending!r} instead of 1", f"Run: {install}"
        )
    path = Path(str(matches[0].locate()))
    actual = hashlib.sha256(path.read_bytes()).hexdigest()
    if actual != sha256:
        what = f"{ending} has SHA-256 {actual}, expected {sha256}"
        raise UsageError(distribution, what, f"Run: {install}")
    return path
