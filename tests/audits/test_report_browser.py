"""The report in a real browser: it stays quiet, asks nobody for anything, and fits the screen."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from support.reports import HOSTILE, hostile_run, noised_run, page_of, small_run, void_run

from secagg.running import Run

if TYPE_CHECKING:
    from playwright.sync_api import Browser, Page

pytestmark = pytest.mark.browser

CHROMIUM = ("chromium", "chromium-browser", "google-chrome", "chrome")
QUIET = (
    "--no-sandbox",  # tests run as root in containers; the page is our own
    "--headless",
    "--disable-gpu",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--disable-quic",
)
RUNS: dict[str, Callable[[], Run]] = {
    "logistic": lambda: small_run("logistic", "additive"),
    "moments": lambda: small_run("moments", "additive"),
    "plain": lambda: small_run("logistic", "plain"),
    "hostile": hostile_run,
    "sum": lambda: noised_run("sum"),
    "site": lambda: noised_run("site"),
    "round": lambda: noised_run("round"),
    "void": void_run,
}
HEADINGS = [
    "Summary", "Result", "Who saw what", "Bounds and bits", "Release decisions",
    "What is not protected", "Job as run", "Integrity",
]  # fmt: skip
WITH_NOISE = [*HEADINGS[:3], "Differential privacy", *HEADINGS[3:]]


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    executable = next(filter(None, map(shutil.which, CHROMIUM)), None)
    if executable is None:
        pytest.skip(f"no browser on the path: none of {', '.join(CHROMIUM)}")
    sync_api = pytest.importorskip("playwright.sync_api", reason="playwright is not installed")
    with sync_api.sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=executable, args=list(QUIET))
        yield browser
        browser.close()


@pytest.fixture(scope="module", params=RUNS)
def report(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp(request.param) / "report.html"
    path.write_text(page_of(RUNS[request.param]()), encoding="utf-8")
    return path


@pytest.fixture
def noised(report: Path) -> bool:
    """Whether the report is on a run under differential privacy."""
    return report.parent.name.rstrip("0123456789") in ("sum", "site", "round", "void")


@pytest.fixture(params=[(400, "light"), (1280, "dark")], ids=str)
def opened(
    request: pytest.FixtureRequest, browser: Browser, report: Path
) -> Iterator[tuple[Page, list[str], list[str]]]:
    """The open page, everything the browser complained of, and every address it asked for."""
    width, scheme = request.param
    complaints: list[str] = []
    requests: list[str] = []
    context = browser.new_context(viewport={"width": width, "height": 900}, color_scheme=scheme)
    context.on("request", lambda asked: requests.append(asked.url))
    page = context.new_page()
    page.on("console", lambda message: complaints.append(f"{message.type}: {message.text}"))
    page.on("pageerror", lambda error: complaints.append(str(error)))
    page.on("dialog", lambda dialog: complaints.append(f"dialog: {dialog.message}"))
    page.goto(report.as_uri(), wait_until="networkidle")
    yield page, complaints, requests
    context.close()


def test_quiet_alone_and_within_the_screen(
    opened: tuple[Page, list[str], list[str]], report: Path, noised: bool
) -> None:
    page, complaints, requests = opened
    headings = page.locator("h2[id]:not(#sign-title)").all_inner_texts()
    expected = WITH_NOISE if noised else HEADINGS
    assert headings == [f"{i} {name}" for i, name in enumerate(expected, start=1)]
    assert all(page.get_by_role("heading", name=name, exact=True).is_visible() for name in headings)
    wide, screen = page.evaluate("[document.documentElement.scrollWidth, window.innerWidth]")
    assert wide <= screen
    # What is wider than the screen scrolls in its own box, which the keyboard reaches.
    assert page.evaluate(
        "[...document.querySelectorAll('.scroll')].every(b => b.tabIndex === 0 && b.ariaLabel)"
    )
    # Its own style passes its own content policy: --paper, light and dark.
    ground = page.evaluate("getComputedStyle(document.documentElement).backgroundColor")
    dark = page.evaluate("matchMedia('(prefers-color-scheme: dark)').matches")
    assert ground == ("rgb(20, 23, 26)" if dark else "rgb(255, 255, 255)")
    page.keyboard.press("Tab")
    assert page.evaluate("document.activeElement.getAttribute('href')") == "#summary"
    assert complaints == []
    assert requests == [report.as_uri()]


def test_hostile_names_are_shown_and_do_nothing(browser: Browser, tmp_path: Path) -> None:
    path = tmp_path / "report.html"
    path.write_text(page_of(hostile_run()), encoding="utf-8")
    page = browser.new_page()
    page.goto(path.as_uri())
    assert page.title().startswith(HOSTILE)
    assert page.get_by_role("heading", name=HOSTILE, exact=True).is_visible()
    assert page.locator("script, img, [onerror], [onload]").count() == 0
    page.close()


@pytest.mark.parametrize("name", ["logistic", "sum", "site", "round"])
def test_prints_the_summary_and_sign_off_on_one_page(
    browser: Browser, tmp_path: Path, name: str
) -> None:
    path = tmp_path / "report.html"
    path.write_text(page_of(RUNS[name]()), encoding="utf-8")
    page = browser.new_page()
    page.goto(path.as_uri())
    page.emulate_media(media="print")
    # A4 less the margins of the page rule, in CSS pixels: (210 - 28) x (297 - 30) mm
    page.set_viewport_size({"width": round(182 / 25.4 * 96), "height": round(267 / 25.4 * 96)})
    bottom = page.evaluate("document.querySelector('#summary').getBoundingClientRect().bottom")
    assert bottom <= 267 / 25.4 * 96
    assert page.evaluate("document.documentElement.scrollWidth") <= 182 / 25.4 * 96 + 1
    page.close()
