"""The optional kernels. All else about the package is in pyproject.toml.

They are compiled where there is a 64-bit x86 processor and a C compiler. Anywhere else installation
succeeds without them: `optional` turns a failed compilation into a warning. The library uses
nothing of Python's, so one build serves all versions (hence `py_limited_api`, which names it so).
"""

from __future__ import annotations

import hashlib
import platform
from pathlib import Path

from setuptools import Extension, setup

KERNELS = "secagg/kernels/"
IFMA = [KERNELS + name for name in ("fixed_base.c", "ifma.h", "multiply.c", "power.c")]
# What `secagg.kernels.library` compares: a library compiled from other sources is not used.
CONTENT = b"".join((Path(__file__).parent / name).read_bytes() for name in IFMA)
DIGEST = hashlib.sha256(CONTENT).hexdigest()[:16]

setup(
    ext_modules=[
        Extension(
            "secagg.kernels._ifma",
            sources=[name for name in IFMA if name.endswith(".c")],
            depends=IFMA,
            define_macros=[("SECAGG_SOURCES", f"0x{DIGEST}")],
            extra_compile_args=["-O3", "-fvisibility=hidden"],
            py_limited_api=True,
            optional=True,
        ),
        Extension(
            "secagg.kernels._masks",
            sources=[KERNELS + "masks.c"],
            extra_compile_args=["-O3", "-fvisibility=hidden"],
            py_limited_api=True,
            optional=True,
        ),
    ]
    if platform.machine() in ("x86_64", "AMD64")
    else [],
    options={"bdist_wheel": {"py_limited_api": "cp311"}},
)
