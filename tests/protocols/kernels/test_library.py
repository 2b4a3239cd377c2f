"""When the kernels are used, and that nothing requires them."""

import subprocess
import sys
from collections.abc import Iterator
from importlib.machinery import EXTENSION_SUFFIXES
from pathlib import Path

import pytest

from secagg.core import ring
from secagg.protocols import prg
from secagg.protocols.kernels import aes, library
from secagg.protocols.paillier.residues import use_kernels


@pytest.fixture
def reloaded() -> Iterator[None]:
    """Load the libraries anew during a test, and again after it."""
    caches = (library._library, aes._apply)
    for cache in caches:
        cache.cache_clear()
    yield
    for cache in caches:
        cache.cache_clear()


def test_the_environment_variable_disables_the_kernels(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SECAGG_KERNELS", "off")
    assert not library.available()
    assert not aes.available()
    assert not use_kernels(15)


@pytest.mark.usefixtures("reloaded")
@pytest.mark.parametrize("content", [None, b"", b"no library"])
def test_without_loadable_libraries_everything_runs_in_python(
    content: bytes | None, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    if content is not None:
        for name in ("ifma", "masks"):
            (tmp_path / f"_{name}{EXTENSION_SUFFIXES[0]}").write_bytes(content)
    monkeypatch.setattr(library, "_FOLDER", tmp_path)
    assert not library.available()
    assert not aes.available()
    assert not use_kernels(15)
    vector = ring.zeros(3, 64)
    prg.apply_masks(vector, [bytes(32)], [])
    assert vector.all()
    with pytest.raises(RuntimeError):
        aes.apply(vector, [], [])


@pytest.mark.usefixtures("kernels")
def test_kernels_are_used_if_available(monkeypatch: pytest.MonkeyPatch) -> None:
    assert use_kernels(15)
    assert not use_kernels(16)
    monkeypatch.delattr(prg, "_apply_portably")
    prg.apply_masks(ring.zeros(3, 64), [bytes(32)], [])


@pytest.mark.usefixtures("kernels", "reloaded")
def test_a_library_built_from_other_sources_is_not_used(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(library, "_digest", lambda _: 0)
    assert not library.available()


def test_importing_protocols_does_not_load_the_kernels() -> None:
    """The libraries may be missing, or be built for another processor."""
    program = (
        "import secagg.protocols.paillier.single_key\n"
        "from secagg.protocols.kernels import library\n"
        "print(library._library.cache_info().currsize)\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=True
    )
    assert done.stdout == "0\n"
