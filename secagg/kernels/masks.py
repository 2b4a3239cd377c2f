"""Masks by wide AES instructions: what `secagg.protocols.prg` defines, as fast as AES can be.

A library of its own beside that of `library`, because it asks other things of the processor (VAES
and AVX-512 BW: AMD since 2022, Intel since 2019) and of the compiler. `SECAGG_KERNELS=off` switches
it off too. Source and the statement on time: `masks.c`.
"""

from __future__ import annotations

import ctypes
import os
from collections.abc import Sequence
from functools import cache
from importlib.machinery import EXTENSION_SUFFIXES
from pathlib import Path

from secagg import ring
from secagg.ring import RingVector

_FOLDER = Path(__file__).parent
_P, _N = ctypes.c_void_p, ctypes.c_size_t


def available() -> bool:
    """Return whether the kernel is here, can run on this machine, and is not switched off."""
    return os.environ.get("SECAGG_KERNELS") != "off" and _apply() is not None


def apply(vector: RingVector, add: Sequence[bytes], subtract: Sequence[bytes]) -> None:
    """Add and subtract the streams of seeds, in place; `prg.apply_masks` has checked them all."""
    function = _apply()
    if function is None:
        raise RuntimeError("called without asking whether it is available")
    function(
        vector.ctypes.data,
        vector.nbytes,
        ring.bits_of(vector),
        b"".join([*add, *subtract]),
        len(add),
        len(add) + len(subtract),
    )


@cache
def _apply() -> ctypes._NamedFuncPointer | None:
    """Return the kernel, if there is one for this system and this processor can run it."""
    candidates = (_FOLDER / f"_masks{suffix}" for suffix in EXTENSION_SUFFIXES)
    path = next((path for path in candidates if path.exists()), None)
    if path is None:
        return None
    try:
        library = ctypes.CDLL(str(path))
    except OSError:  # made for another system
        return None
    if not library.secagg_masks_supported():
        return None
    function: ctypes._NamedFuncPointer = library.secagg_masks_apply
    function.argtypes = (_P, _N, _N, _P, _N, _N)
    function.restype = None
    return function
