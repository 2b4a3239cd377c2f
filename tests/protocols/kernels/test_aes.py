"""When the kernel of masks is used. What it computes: `test_prg.py` runs every test both ways."""

from __future__ import annotations

from importlib.machinery import EXTENSION_SUFFIXES
from pathlib import Path

import pytest

from secagg.core import ring
from secagg.protocols import prg
from secagg.protocols.kernels import aes, library


def test_the_environment_switches_it_off(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SECAGG_KERNELS", "off")
    assert not aes.available()


@pytest.mark.parametrize("content", [None, b"", b"no library"])
def test_without_a_library_that_loads_masks_are_made_portably(
    content: bytes | None, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    if content is not None:
        (tmp_path / f"_masks{EXTENSION_SUFFIXES[0]}").write_bytes(content)
    monkeypatch.setattr(library, "_FOLDER", tmp_path)
    aes._apply.cache_clear()
    try:
        assert not aes.available()
        vector = ring.zeros(3, 64)
        prg.apply_masks(vector, [bytes(32)], [])
        assert vector.all()
        with pytest.raises(RuntimeError, match="not available"):
            aes.apply(vector, [], [])
    finally:
        aes._apply.cache_clear()


@pytest.mark.usefixtures("kernels")
def test_it_is_used_where_it_is(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delattr(prg, "_apply_portably")
    prg.apply_masks(ring.zeros(3, 64), [bytes(32)], [])
