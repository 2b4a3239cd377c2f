"""The coordinator's keys in a file, so that sites can recognise the coordinator in later runs.

Without this file, a coordinator draws new keys for every run, and a site's policy cannot
distinguish coordinators. Only the owner can read the file (mode 0600).

Not protected: anyone who reads the file can send requests in the coordinator's name. The file has
no password, so keep the file on a computer that you trust.
"""

from __future__ import annotations

import os
from pathlib import Path

from secagg.core.identity import Identity, Role
from secagg.core.private_files import read_checked, write_checked
from secagg.core.randomness import RandomBytes
from secagg.errors import EvidenceError, UsageError

_FORMAT = "secagg coordinator key 1"


def make_key(path: Path, name: str, random: RandomBytes) -> Identity:
    """Draw keys, write them to a new file, and return them.

    Raises `UsageError` if the path exists or cannot be written.
    """
    identity = Identity.generate(name, Role.COORDINATOR, random)
    try:
        if os.path.lexists(path):
            raise UsageError(str(path), "already exists", "Choose another file name.")
        write_checked(path, [_FORMAT, identity.signing_key, identity.opening_key])
    except OSError as error:
        raise UsageError(str(path), f"cannot be written ({error.strerror})") from None
    return identity


def read_key(path: Path, name: str) -> Identity:
    """Return the keys in the file, for a coordinator called `name`.

    Raises `UsageError` if the file is not a key file.
    """
    try:
        match read_checked(path):
            case [str(kind), bytes(signing), bytes(opening)] if (
                kind == _FORMAT and len(signing) == len(opening) == 32
            ):
                return Identity(name, Role.COORDINATOR, signing, opening)
    except EvidenceError:
        pass
    raise UsageError(
        str(path), "is not a coordinator's key file", "Make a new one with secagg key FILE."
    )
