"""The optional kernels. All else about the package is in pyproject.toml.

They are compiled where there is a 64-bit x86 processor and a C compiler. Anywhere else installation
succeeds without them: `optional` turns a failed compilation into a warning. The library uses
nothing of Python's, so one build serves all versions (hence `py_limited_api`, which names it so).
"""

from __future__ import annotations

import platform

from setuptools import Extension, setup

KERNELS = "secagg/kernels/"

setup(
    ext_modules=[
        Extension(
            "secagg.kernels._ifma",
            sources=[KERNELS + name for name in ("multiply.c", "fixed_base.c", "power.c")],
            depends=[KERNELS + "ifma.h"],
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
