"""Draw the picture of a report on the front page: `.venv/bin/python docs/report_picture.py`.

It runs the logistic regression of the four hospitals and takes the top of its report.html. It needs
a browser of the Chromium family.
"""

from __future__ import annotations

import shutil
import sys
import tempfile
from pathlib import Path

from playwright.sync_api import sync_playwright

import secagg
from secagg.core.browser import find_browser

ROOT = Path(__file__).parents[1]
EXAMPLE = ROOT / "examples" / "heart-disease"
WIDTH, HEIGHT = 1000, 705  # up to the end of what is said of the sites


def main(out: Path) -> None:
    """Write the picture into a file."""
    with tempfile.TemporaryDirectory() as folder, sync_playwright() as driver:
        shutil.copytree(
            EXAMPLE, folder, dirs_exist_ok=True, ignore=shutil.ignore_patterns("ledgers")
        )
        secagg.run(Path(folder) / "logistic.toml", out=Path(folder) / "run")
        browser = driver.chromium.launch(executable_path=find_browser("--browser"))
        page = browser.new_page(viewport={"width": WIDTH, "height": HEIGHT})
        page.goto((Path(folder) / "run" / "report.html").as_uri())
        page.screenshot(path=out)
        browser.close()


if __name__ == "__main__":
    main(Path(sys.argv[1]) if sys.argv[1:] else ROOT / "docs" / "assets" / "report.png")
