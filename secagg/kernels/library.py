"""The compiled kernels: finding them, and finding out whether this machine can run them.

They are built when secagg is installed on a 64-bit x86 machine with a C compiler, and left out
otherwise, silently. A library compiled from other sources than those beside it, which a checkout
may have kept, is not used: its functions may differ. Kernels run if the processor has AVX-512 IFMA
(Intel since 2019, AMD since 2022) and the operating system saves its registers. The environment
variable `SECAGG_KERNELS=off` forces the portable path, read at every use, so that tests run both
paths in one process.

The library is a plain shared object called through ctypes: it needs no headers of Python, works
with every version of it, and other threads run while it calculates.
"""

from __future__ import annotations

import ctypes
import hashlib
import os
from functools import cache
from importlib.machinery import EXTENSION_SUFFIXES
from pathlib import Path

_SOURCES = ("fixed_base.c", "ifma.h", "multiply.c", "power.c")
_FOLDER = Path(__file__).parent
_P, _N = ctypes.c_void_p, ctypes.c_size_t
_Types = tuple[type[ctypes.c_void_p | ctypes.c_size_t], ...]
_ARGUMENTS: dict[str, _Types] = {  # of every function; what they mean is said in the C files
    "load": (_P, _N, _P, _N, _N),
    "store": (_P, _N, _N, _P, _N),
    "multiply": (_P, _P, _N, _P, _N, _N, _P, _N),
    "multiply_add": (_P, _N, _P, _N, _P, _N, _P, _N, _N),
    "canonical": (_P, _P, _N, _N),
    "fixed_base": (_P, _P, _P, _P, _N, _N, _P, _N, _P, _P, _N),
    "split": (_P, _P, _N, _P, _N),
    "multiply_pairs": (_P, _P, _P, _N, _P, _N),
    "canonical_pairs": (_P, _P, _N),
    "power": (_P, _P, _N, _N, _P, _P, _N, _P, _N),
}


def available() -> bool:
    """Return whether the kernels are here, can run on this machine, and are not switched off."""
    return os.environ.get("SECAGG_KERNELS") != "off" and _library() is not None


def call(name: str, *arguments: object) -> None:
    """Call a kernel with addresses and sizes. To be asked first: `available`."""
    _function(name)(*arguments)


@cache
def _library() -> ctypes.CDLL | None:
    """Return the library, if there is one for this system and this processor can run it."""
    candidates = (_FOLDER / f"_ifma{suffix}" for suffix in EXTENSION_SUFFIXES)
    path = next((path for path in candidates if path.exists()), None)
    if path is None:
        return None
    try:
        library = ctypes.CDLL(str(path))
        library.secagg_ifma_sources.restype = ctypes.c_uint64
    except (OSError, AttributeError):  # made for another system, or no such library
        return None
    usable = library.secagg_ifma_sources() == _digest() and library.secagg_ifma_supported()
    return library if usable else None


def _digest() -> int:
    """Return a hash of the sources, as setup.py does."""
    content = b"".join(Path(__file__).with_name(name).read_bytes() for name in _SOURCES)
    return int(hashlib.sha256(content).hexdigest()[:16], 16)


@cache
def _function(name: str) -> ctypes._NamedFuncPointer:
    function: ctypes._NamedFuncPointer = getattr(_library(), f"secagg_ifma_{name}")
    function.argtypes = _ARGUMENTS[name]
    function.restype = None
    return function
