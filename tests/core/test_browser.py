"""Files that a browser draws: real ones, and what is said if there is none or it fails."""

import shutil
import struct
from pathlib import Path

import pytest

from secagg.core.browser import draw_png, find_browser, print_pdf
from secagg.errors import UsageError

PICTURE = (
    '<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 120 45" width="120">'
    '<rect width="100%" height="100%" fill="#ffffff"/></svg>'
)
needs_chromium = pytest.mark.skipif(
    shutil.which("chromium") is None, reason="chromium is not installed"
)


@needs_chromium
def test_a_picture_is_drawn_at_twice_its_size() -> None:
    drawn = draw_png(PICTURE)
    assert drawn.startswith(b"\x89PNG")
    assert struct.unpack(">II", drawn[16:24]) == (240, 90)


def test_without_a_browser_the_option_is_named(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    for act, option in (
        (lambda: draw_png(PICTURE), "--png"),
        (lambda: print_pdf(tmp_path / "page.html", tmp_path / "page.pdf"), "--pdf"),
        (lambda: find_browser("--png"), "--png"),
    ):
        with pytest.raises(UsageError) as caught:
            act()
        assert caught.value.where == option and caught.value.advice


@pytest.mark.parametrize("script", ["exit 3", "exit 0"])
def test_a_browser_that_fails_or_writes_nothing_is_an_error(
    script: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    browser = tmp_path / "chromium"
    browser.write_text(f"#!/bin/sh\n{script}\n")
    browser.chmod(0o700)
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(UsageError) as caught:
        draw_png(PICTURE)
    assert caught.value.where == "--png" and "chromium" in caught.value.what
    old = tmp_path / "page.pdf"
    old.write_bytes(b"of an earlier page")
    with pytest.raises(UsageError):  # an earlier file does not count as the new one
        print_pdf(tmp_path / "page.html", old)
