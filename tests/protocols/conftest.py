"""The kernels under test: the installed ones ("native") and a portable build of their C sources.

The portable build has plain C in place of the processor's vector instructions, so that the C is
tested also on a processor without them.
"""

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from support.protocols import portable_kernels

from secagg.core.private_files import exclusive_lock
from secagg.protocols.kernels import aes, library

CPUINFO = Path("/proc/cpuinfo")
NATIVE = pytest.param("native", marks=pytest.mark.kernels)
PORTABLE = pytest.param("portable", marks=pytest.mark.kernels)
EITHER = pytest.param("kernels", marks=pytest.mark.kernels)


@pytest.fixture(scope="session")
def portable_build(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a folder with the portable build, which all workers of a run share."""
    if not portable_kernels.compiler():
        pytest.skip("no C compiler")
    root = tmp_path_factory.getbasetemp()
    if "PYTEST_XDIST_WORKER" in os.environ:
        root = root.parent
    folder = root / "portable-kernels"
    with exclusive_lock(root / "portable-kernels.lock", seconds=300):
        if not folder.exists():
            folder.mkdir()
            portable_kernels.build(folder)
    return folder


@pytest.fixture(scope="module", params=[NATIVE, PORTABLE])
def kernels(request: pytest.FixtureRequest) -> Iterator[str]:
    """Run the tests of a module on the installed kernels and on the portable build."""
    with _selected(request.param, request):
        yield request.param


@pytest.fixture(scope="module", params=["off", NATIVE, PORTABLE])
def kernels_or_none(request: pytest.FixtureRequest) -> Iterator[str]:
    """Run the tests of a module without kernels, and as `kernels` does."""
    with _selected(request.param, request):
        yield request.param


@pytest.fixture(scope="module", params=["gmpy2", EITHER])
def arithmetic(request: pytest.FixtureRequest) -> Iterator[str]:
    """Run the tests of a module on gmpy2, and once on kernels: native ones where they run."""
    selected = "off" if request.param == "gmpy2" else "portable" if _why_not_native() else "native"
    with _selected(selected, request):
        yield request.param


@contextmanager
def _selected(which: str, request: pytest.FixtureRequest) -> Iterator[None]:
    if which == "off":
        with pytest.MonkeyPatch.context() as patch:
            patch.setenv("SECAGG_KERNELS", "off")
            yield
    elif library.switched_off():
        pytest.skip("SECAGG_KERNELS=off")
    elif which == "portable":
        with portable_kernels.loaded_from(request.getfixturevalue("portable_build")):
            yield
    elif reason := _why_not_native():
        pytest.skip(reason)
    else:
        yield


def _why_not_native() -> str | None:
    """Return why the installed kernels do not run on this machine, or None if they do."""
    if library.available() and aes.available():
        return None
    able = CPUINFO.exists() and {"avx512ifma", "vaes"} <= set(CPUINFO.read_text().split())
    return "kernels not compiled" if able else "no AVX-512 IFMA"
