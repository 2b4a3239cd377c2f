"""Pages as PDF and pictures as PNG, drawn by a browser without a window, if one is installed."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import tempfile
from collections.abc import Sequence
from pathlib import Path

from secagg.errors import InternalError, UsageError

_BROWSERS = ("chromium", "chromium-browser", "google-chrome", "chrome", "microsoft-edge")
_SECONDS = 120
_SCALE = 2  # pixels of a PNG for each one of a picture


def find_browser(option: str) -> str:
    """Return the path of a browser. Raises `UsageError` that names the option if there is none."""
    browser = next((found for name in _BROWSERS if (found := shutil.which(name))), None)
    if browser is None:
        advice = f"Install one ({', '.join(_BROWSERS[:3])}), or use yours on the page."
        raise UsageError(option, "needs a browser of the Chromium family", advice)
    return browser


def print_pdf(page: Path, out: Path) -> None:
    """Print a page into a new file. Raises `UsageError` without a browser, or if it fails."""
    options = ["--no-pdf-header-footer", f"--print-to-pdf={out}"]
    _call("--pdf", page, out, options)


def draw_png(picture: str) -> bytes:
    """Return a PNG file of an SVG picture at twice its size.

    picture: one of this package, whose viewBox says how large it is
    Raises `UsageError` without a browser, or if it fails.
    """
    size = re.search(r'viewBox="0 0 (\d+) (\d+)"', picture)
    if size is None:
        raise InternalError("picture", "has no size")
    with tempfile.TemporaryDirectory(prefix="secagg-png-") as folder:
        page, out = Path(folder) / "picture.html", Path(folder) / "picture.png"
        page.write_text(
            '<!doctype html><meta charset="utf-8"><style>body{margin:0}svg{display:block}</style>'
            + picture,
            encoding="utf-8",
        )
        options = [
            f"--window-size={size[1]},{size[2]}", f"--force-device-scale-factor={_SCALE}",
            "--hide-scrollbars", f"--screenshot={out}",
        ]  # fmt: skip
        _call("--png", page, out, options)
        return out.read_bytes()


def _call(option: str, page: Path, out: Path, options: Sequence[str]) -> None:
    """Have a browser make a file from a page. Raises `UsageError` that names the option."""
    browser = find_browser(option)
    name = Path(browser).name
    out.unlink(missing_ok=True)
    with tempfile.TemporaryDirectory(prefix="secagg-browser-") as profile:
        command = [
            browser, "--headless", "--disable-gpu", f"--user-data-dir={profile}", *options,
            page.absolute().as_uri(),
        ]  # fmt: skip
        if _is_root():
            command.insert(1, "--no-sandbox")  # its sandbox refuses to run for this user
        try:
            subprocess.run(command, check=True, capture_output=True, timeout=_SECONDS)  # noqa: S603  # a fixed program, no shell
        except (OSError, subprocess.SubprocessError) as error:
            what = f"{name} could not draw {page.name}"
            raise UsageError(option, what, "Use a browser by hand.") from error
    if not out.is_file():
        raise UsageError(option, f"{name} wrote no file", "Use a browser by hand.")


def _is_root() -> bool:
    return getattr(os, "geteuid", lambda: 1)() == 0
