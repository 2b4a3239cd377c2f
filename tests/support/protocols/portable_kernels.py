"""The kernels compiled for any processor: their own C, with the vector instructions in plain C.

Slow, and for tests only: see `tests/protocols/kernels/portable/immintrin.h`.
"""

import os
import shutil
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from importlib.machinery import EXTENSION_SUFFIXES
from pathlib import Path

import pytest

from secagg.protocols.kernels import aes, library

SOURCES = Path(library.__file__).parent
INSTRUCTIONS = Path(__file__).parents[2] / "protocols" / "kernels" / "portable"
LIBRARIES = {"ifma": library._SOURCES, "masks": aes._SOURCES}


def compiler() -> str | None:
    """Return the C compiler of this machine, if it has one."""
    return shutil.which(os.environ.get("CC", "cc"))


def build(folder: Path, *options: str, sources: Path = SOURCES) -> None:
    """Compile the libraries into a folder, under the names that `library` looks for."""
    for name, files in LIBRARIES.items():
        command = [
            str(compiler()), "-O3", "-Wno-psabi", "-shared", "-fPIC", "-fvisibility=hidden",
            f"-I{INSTRUCTIONS}", f"-DSECAGG_SOURCES={library._digest(files):#x}", *options,
            *(str(sources / file) for file in files if file.endswith(".c")),
            "-o", str(folder / f"_{name}{EXTENSION_SUFFIXES[0]}"),
        ]  # fmt: skip
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stderr


@contextmanager
def loaded_from(folder: Path) -> Iterator[None]:
    """Use the libraries in this folder in place of the installed ones."""
    caches = (library._library, library._function, aes._apply)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(library, "_FOLDER", folder)
        try:
            for cache in caches:
                cache.cache_clear()
            assert library.available()
            assert aes.available()
            yield
        finally:
            for cache in caches:
                cache.cache_clear()
