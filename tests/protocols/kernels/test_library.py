"""When the kernels are used, and that nothing needs them."""

from __future__ import annotations

import subprocess
import sys
from importlib.machinery import EXTENSION_SUFFIXES
from pathlib import Path

import pytest

from secagg.protocols.kernels import library
from secagg.protocols.paillier.residues import use_kernels


def test_the_environment_switches_them_off(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SECAGG_KERNELS", "off")
    assert not library.available()
    assert not use_kernels(15)


@pytest.mark.parametrize("content", [None, b"", b"no library"])
def test_without_a_library_that_loads_everything_runs_on_gmpy2(
    content: bytes | None, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    if content is not None:
        (tmp_path / f"_ifma{EXTENSION_SUFFIXES[0]}").write_bytes(content)
    monkeypatch.setattr(library, "_FOLDER", tmp_path)
    library._library.cache_clear()
    try:
        assert not library.available()
        assert not use_kernels(15)
    finally:
        library._library.cache_clear()


@pytest.mark.usefixtures("kernels")
def test_they_are_used_where_they_are() -> None:
    assert use_kernels(15)
    assert not use_kernels(16)


@pytest.mark.usefixtures("kernels")
def test_a_library_of_other_sources_is_not_used(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(library, "_digest", lambda _: 0)
    library._library.cache_clear()
    try:
        assert not library.available()
    finally:
        library._library.cache_clear()


def test_importing_protocols_does_not_load_them() -> None:
    """The library may be missing or be foreign code for this processor until it is needed."""
    program = (
        "import secagg.protocols.paillier.single_key\n"
        "from secagg.protocols.kernels import library\n"
        "print(library._library.cache_info().currsize)\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=True
    )
    assert done.stdout == "0\n"
