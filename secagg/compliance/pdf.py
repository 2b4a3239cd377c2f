"""The report as a PDF, printed by a browser without a window, if one is installed."""

from __future__ import annotations

import os
import shutil
import subprocess
import tempfile
from pathlib import Path

from secagg.errors import UsageError

_BROWSERS = ("chromium", "chromium-browser", "google-chrome", "chrome", "microsoft-edge")
_SECONDS = 120


def print_pdf(page: Path, out: Path) -> None:
    """Print a page into a new file. Raises `UsageError` without a browser, or if it fails."""
    browser = next((found for name in _BROWSERS if (found := shutil.which(name))), None)
    if browser is None:
        advice = f"Install one ({', '.join(_BROWSERS[:3])}), or print the page from yours."
        raise UsageError("--pdf", "needs a browser of the Chromium family", advice)
    with tempfile.TemporaryDirectory(prefix="secagg-pdf-") as profile:
        command = [
            browser, "--headless", "--disable-gpu", "--no-pdf-header-footer",
            f"--user-data-dir={profile}", f"--print-to-pdf={out}", page.absolute().as_uri(),
        ]  # fmt: skip
        if _is_root():
            command.insert(1, "--no-sandbox")  # its sandbox refuses to run for this user
        try:
            subprocess.run(command, check=True, capture_output=True, timeout=_SECONDS)  # noqa: S603  # a fixed program, no shell
        except (OSError, subprocess.SubprocessError) as error:
            what = f"{Path(browser).name} could not print the page"
            raise UsageError("--pdf", what, "Print the page from a browser.") from error
    if not out.is_file():
        raise UsageError("--pdf", f"{Path(browser).name} wrote no file", "Print it yourself.")


def _is_root() -> bool:
    return getattr(os, "geteuid", lambda: 1)() == 0
