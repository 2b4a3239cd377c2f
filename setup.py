"""The optional kernels. All else about the package is in pyproject.toml.

They are compiled where there is a 64-bit x86 processor and a C compiler. Anywhere else installation
succeeds without them: `optional` turns a failed compilation into a warning. The libraries use
nothing of Python's, so one build serves all versions (hence `py_limited_api`, which names it so).
"""

from __future__ import annotations

import hashlib
import platform
from pathlib import Path

from setuptools import Extension, setup

KERNELS = "secagg/protocols/kernels/"
LIBRARIES = {
    "ifma": ("fixed_base.c", "ifma.h", "multiply.c", "power.c"),
    "masks": ("masks.c",),
}


def library(name: str) -> Extension:
    """Return how to compile a library; it knows the hash of its sources.

    `secagg.protocols.kernels.library` compares: a library compiled from other sources is not used.
    """
    sources = [KERNELS + source for source in LIBRARIES[name]]
    content = b"".join((Path(__file__).parent / source).read_bytes() for source in sources)
    digest = hashlib.sha256(content).hexdigest()[:16]
    return Extension(
        f"secagg.protocols.kernels._{name}",
        sources=[source for source in sources if source.endswith(".c")],
        depends=sources,
        define_macros=[("SECAGG_SOURCES", f"0x{digest}")],
        extra_compile_args=["-O3", "-fvisibility=hidden"],
        py_limited_api=True,
        optional=True,
    )


setup(
    ext_modules=[library(name) for name in LIBRARIES]
    if platform.machine() in ("x86_64", "AMD64")
    else [],
    options={"bdist_wheel": {"py_limited_api": "cp311"}},
)
