"""Compute the masks that `secagg.protocols.prg` defines, with the fastest AES instructions.

The compiled code is a separate library, because it needs other instructions than the arithmetic of
Paillier (VAES and AVX-512 BW: AMD since 2022, Intel since 2019). `SECAGG_KERNELS=off` switches it
off too. `masks.c` names the source of the method, and says on what the running time depends.
"""

from __future__ import annotations

import ctypes
from collections.abc import Sequence
from functools import cache

from secagg.core import ring
from secagg.core.ring import RingVector
from secagg.protocols.kernels.library import load_library, switched_off

_SOURCES = ("masks.c",)
_P, _N = ctypes.c_void_p, ctypes.c_size_t


def available() -> bool:
    """Return whether the kernel is built, runs on this processor, and is not switched off."""
    return not switched_off() and _apply() is not None


def apply(vector: RingVector, add: Sequence[bytes], subtract: Sequence[bytes]) -> None:
    """Add and subtract the masks of seeds, in place. `prg.apply_masks` checks the arguments."""
    function = _apply()
    if function is None:
        raise RuntimeError("the kernel is not available")
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
    library = load_library("masks", _SOURCES)
    if library is None:
        return None
    function: ctypes._NamedFuncPointer = library.secagg_masks_apply
    function.argtypes = (_P, _N, _N, _P, _N, _N)
    function.restype = None
    return function
