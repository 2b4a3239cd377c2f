"""Find the compiled libraries, and find out whether this computer can run them.

The libraries are built when secagg is installed on a 64-bit x86 computer with a C compiler. On
other computers they are left out, without a message. Only libraries in the folder of this file are
loaded. A library is not used if it was compiled from other sources than those in this folder,
because its functions may differ.

The kernels run if the processor has the instructions AVX-512 IFMA (Intel since 2019, AMD since
2022), and if the operating system supports their registers. With the environment variable
`SECAGG_KERNELS=off`, gmpy2 is used instead. The variable is read at every use, so that tests can
run the kernels and gmpy2 in one process.

The library is a shared object that is called through ctypes. So it needs no headers of Python and
works with every version of Python, and other threads can run while it computes.
"""

from __future__ import annotations

import ctypes
import hashlib
import os
from collections.abc import Sequence
from functools import cache
from importlib.machinery import EXTENSION_SUFFIXES
from pathlib import Path

_SOURCES = ("fixed_base.c", "ifma.h", "multiply.c", "power.c")
_FOLDER = Path(__file__).parent
_P, _N = ctypes.c_void_p, ctypes.c_size_t
_Types = tuple[type[ctypes.c_void_p | ctypes.c_size_t], ...]
_ARGUMENTS: dict[str, _Types] = {  # the C files explain them
    "load": (_P, _N, _P, _N, _N),
    "store": (_P, _N, _N, _P, _N),
    "multiply": (_P, _P, _N, _P, _N, _N, _P, _N),
    "multiply_add": (_P, _N, _P, _N, _P, _N, _P, _N, _N),
    "canonical": (_P, _P, _N, _N),
    "fixed_base": (_P, _P, _P, _P, _N, _P, _N, _N, _N, _P, _P, _N),
    "split": (_P, _P, _N, _P, _N),
    "multiply_pairs": (_P, _P, _P, _N, _P, _N),
    "canonical_pairs": (_P, _P, _N),
    "power": (_P, _P, _N, _N, _P, _P, _N, _P, _N),
}


def switched_off() -> bool:
    """Return whether the environment variable switches the kernels off."""
    return os.environ.get("SECAGG_KERNELS") == "off"


def available() -> bool:
    """Return whether the kernels are built, run on this processor, and are not switched off."""
    return not switched_off() and _library() is not None


def call(name: str, *arguments: object) -> None:
    """Call a kernel with addresses and sizes. Call `available` before."""
    _function(name)(*arguments)


def load_library(name: str, sources: Sequence[str]) -> ctypes.CDLL | None:
    """Return the library `_name`; None unless built from these sources for this processor."""
    candidates = (_FOLDER / f"_{name}{suffix}" for suffix in EXTENSION_SUFFIXES)
    path = next((path for path in candidates if path.exists()), None)
    if path is None:
        return None
    try:
        library = ctypes.CDLL(str(path))
        sources_digest = getattr(library, f"secagg_{name}_sources")
        supported = getattr(library, f"secagg_{name}_supported")
    except (OSError, AttributeError):  # built for another system, or another library
        return None
    sources_digest.restype = ctypes.c_uint64
    return library if sources_digest() == _digest(sources) and supported() else None


@cache
def _library() -> ctypes.CDLL | None:
    return load_library("ifma", _SOURCES)


def _digest(sources: Sequence[str]) -> int:
    """Return the hash of the sources, computed as in setup.py."""
    content = b"".join(Path(__file__).with_name(name).read_bytes() for name in sources)
    return int(hashlib.sha256(content).hexdigest()[:16], 16)


@cache
def _function(name: str) -> ctypes._NamedFuncPointer:
    function: ctypes._NamedFuncPointer = getattr(_library(), f"secagg_ifma_{name}")
    function.argtypes = _ARGUMENTS[name]
    function.restype = None
    return function
