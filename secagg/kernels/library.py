"""The compiled kernels: finding them, and finding out whether this machine can run them.

They are built when secagg is installed on a 64-bit x86 machine with a C compiler, and left out
otherwise, silently. They run if the processor has AVX-512 IFMA (Intel since 2019, AMD since 2022)
and the operating system saves its registers. The environment variable `SECAGG_KERNELS=off` forces
the portable path, read at every use, so that tests run both paths in one process.

The library is a plain shared object called through ctypes: it needs no headers of Python, works
with every version of it, and other threads run while it calculates.
"""

from __future__ import annotations

import ctypes
import os
from functools import cache
from importlib.machinery import EXTENSION_SUFFIXES
from pathlib import Path

_FOLDER = Path(__file__).parent
_P, _N = ctypes.c_void_p, ctypes.c_size_t
_ARGUMENTS: dict[
    str, tuple[type[ctypes.c_void_p | ctypes.c_size_t], ...]
] = {  # of every function; what they mean is said in the C files
    "load": (_P, _N, _P, _N, _N),
    "store": (_P, _N, _N, _P, _N),
    "multiply": (_P, _P, _N, _P, _N, _N, _P, _N),
    "multiply_add": (_P, _N, _P, _N, _P, _N, _P, _N, _N),
    "canonical": (_P, _P, _N, _N),
    "fixed_base": (_P, _P, _P, _P, _N, _N, _P, _N, _P, _P, _N),
    "split": (_P, _P, _N, _P, _P, _N),
    "multiply_pairs": (_P, _P, _P, _N, _P, _N),
    "canonical_pairs": (_P, _P, _N),
    "power": (_P, _P, _N, _N, _P, _P, _P, _N),
}


def available() -> bool:
    """Return whether the kernels are here, can run on this machine, and are not switched off."""
    return os.environ.get("SECAGG_KERNELS") != "off" and built() and _supported()


@cache
def built() -> bool:
    """Return whether the kernels were compiled when secagg was installed."""
    return _file() is not None


def call(name: str, *arguments: object) -> None:
    """Call a kernel: pointers (`ctypes` structures or addresses) and sizes."""
    _function(name)(*arguments)


def _file() -> Path | None:
    candidates = (_FOLDER / f"_ifma{suffix}" for suffix in EXTENSION_SUFFIXES)
    return next((path for path in candidates if path.exists()), None)


@cache
def _library() -> ctypes.CDLL:
    return ctypes.CDLL(str(_file()))


@cache
def _supported() -> bool:
    return bool(_library().secagg_ifma_supported())


@cache
def _function(name: str) -> ctypes._NamedFuncPointer:
    function: ctypes._NamedFuncPointer = getattr(_library(), f"secagg_ifma_{name}")
    function.argtypes = _ARGUMENTS[name]
    function.restype = None
    return function
