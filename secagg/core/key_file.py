"""A coordinator's own keys in a file, so that sites can name whom they answer.

Without one a coordinator draws new keys for every run, and a site's policy cannot tell one from
another. The file is private to its owner (mode 0600); whoever reads it can ask in his name. It has
no password: where the computer is not trusted with it, keep it on another.
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
    """Draw keys and write them to a new file. Raises `UsageError` if something is there already."""
    drawn = Identity.generate(name, Role.COORDINATOR, random)
    try:
        if os.path.lexists(path):
            raise UsageError(str(path), "is there already", "Name another file.")
        write_checked(path, [_FORMAT, drawn.signing_key, drawn.opening_key])
    except OSError as error:
        raise UsageError(str(path), f"cannot be written ({error.strerror})") from None
    return drawn


def read_key(path: Path, name: str) -> Identity:
    """Return the keys in the file. Raises `UsageError`."""
    try:
        match read_checked(path):
            case [str(kind), bytes(signing), bytes(opening)] if (
                kind == _FORMAT and len(signing) == len(opening) == 32
            ):
                return Identity(name, Role.COORDINATOR, signing, opening)
    except EvidenceError:
        pass
    raise UsageError(str(path), "holds no coordinator's key", "Make one: secagg key FILE.")
