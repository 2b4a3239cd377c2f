"""The report in a real browser: it stays quiet, asks nobody for anything, and fits the screen."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from support.runs.reports import (
    HOSTILE,
    copied,
    hostile_run,
    noised_run,
    page_of,
    small_run,
    void_run,
)

from secagg.reports.page import render
from secagg.runs.run import Run

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
    "sparse": lambda: small_run("sparse_regression", "additive"),
    "field": lambda: small_run("sparse_markov", "plain"),
    "directed": lambda: small_run("sparse_directed", "plain"),
    "hostile": hostile_run,
    "sum": lambda: noised_run("sum"),
    "site": lambda: noised_run("site"),
    "round": lambda: noised_run("round"),
    "void": void_run,
}
PAGE = round(182 / 25.4 * 96), round(267 / 25.4 * 96)
"""A4 less the margins of the page rule, in CSS pixels: (210 - 28) x (297 - 30) mm."""
HEADINGS = [
    "Result", "Questions and sign-off", "Who saw what", "Bounds and bits", "Release decisions",
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


def test_a_report_has_no_errors_or_requests_and_fits_the_screen(
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
    first = "#warning-1" if page.locator("#warning-1").count() else "#result"
    assert page.evaluate("document.activeElement.getAttribute('href')") == first
    assert complaints == []
    assert requests == [report.as_uri()]
    if wide > 1000 and not noised:  # the answer and the result are on the first screen
        assert page.evaluate("document.querySelector('#result').getBoundingClientRect().top") < 600


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
def test_prints_the_questions_and_sign_off_on_one_page(
    browser: Browser, tmp_path: Path, name: str
) -> None:
    path = tmp_path / "report.html"
    path.write_text(page_of(RUNS[name]()), encoding="utf-8")
    page = browser.new_page()
    page.goto(path.as_uri())
    page.emulate_media(media="print")
    page.set_viewport_size({"width": PAGE[0], "height": PAGE[1]})
    height = page.evaluate("document.querySelector('#questions').getBoundingClientRect().height")
    assert height <= 267 / 25.4 * 96
    assert page.evaluate("document.documentElement.scrollWidth") <= 182 / 25.4 * 96 + 1
    page.close()


GRAPHS = ("notears", "golem-nv", "notears-admm-proximal", "notears-mlp-admm-proximal",
          "notears-average", "notears-vote", "pc")  # fmt: skip
VERDICTS = ["true", "reversed", "extra", "missing"]


def graph_page(folder: Path, method: str) -> Path:
    """Write a report of one graph with every verdict, by a method of this name, on longish names.

    An undirected edge is among them where the method has such, and votes where sites voted.
    """
    facts, result = copied(small_run("moments", "additive"))
    graph: dict[str, Any] = result.summary["analyses"][-2]
    names = ["blood_pressure", "cholesterol", "body_mass_index", "smoker=yes", "age_at_entry"]
    ends = [(names[0], names[1]), (names[2], names[1]), (names[3], names[4])]
    edges = [{"from": a, "to": b, "kind": "directed", "weight": -0.123} for a, b in ends]
    if method == "pc":
        edges = [edge | {"weight": None} for edge in edges]
        edges[0]["kind"] = "undirected"
    truth = [[names[0], names[1]], [names[1], names[2]], [names[0], names[4]]]
    graph |= {"method": method, "names": names, "edges": edges, "truth": truth}
    if method == "notears-vote":
        graph["votes"] = [{"from": a, "to": b, "sites": 3} for a, b in ends]
        graph["diagnostics"] |= {"sites": 4}
    result.summary["analyses"] = [graph]
    facts["method"]["tables"] = facts["method"]["tables"][-2:-1]
    del result.summary["simulation"]  # no site has this graph
    path = folder / f"{method}.html"
    path.write_text(render(facts, result), encoding="utf-8")
    return path


@pytest.mark.parametrize("method", GRAPHS)
def test_edges_and_verdicts_are_fully_visible_on_a_desktop(
    browser: Browser, tmp_path: Path, method: str
) -> None:
    page = browser.new_page()
    page.goto(graph_page(tmp_path, method).as_uri())
    boxes = page.locator(".scroll")
    edges = page.get_by_role("region", name="Edges")
    assert edges.locator("td:last-child").all_inner_texts() == VERDICTS
    explained = page.get_by_text("double line: ").count()
    assert explained == edges.get_by_text("undirected", exact=True).count() == (method == "pc")
    sizes = "boxes => boxes.map(b => [b.ariaLabel, b.scrollWidth, b.clientWidth])"
    for width in (1024, 1280, 1920):
        page.set_viewport_size({"width": width, "height": 900})
        assert [box for box in boxes.evaluate_all(sizes) if box[1] > box[2]] == []
    page.set_viewport_size({"width": 320, "height": 900})  # tables scroll, what is above does not
    box = edges.bounding_box()
    caption = edges.locator("caption").bounding_box()
    assert box is not None and caption is not None
    assert caption["width"] <= box["width"]
    page.close()


def test_headings_and_notes_print_on_the_page_of_their_figure(
    browser: Browser, tmp_path: Path
) -> None:
    """Columns of a page's size break by the rules that pages break by, and can be measured."""
    page = browser.new_page()
    page.goto(graph_page(tmp_path, "notears").as_uri())
    page.emulate_media(media="print")
    width, height = PAGE
    split = """([above, width, height]) => {
        const part = document.querySelector('[aria-labelledby=analysis-1]')
        const space = document.createElement('div')
        space.style.height = above + 'px'
        document.body.replaceChildren(space, part)
        Object.assign(document.body.style, {
            columns: width + 'px', columnGap: 0, columnFill: 'auto',
            width: width + 'px', height: height + 'px',
        })
        const kept = ['h3', 'li', '.opening', 'figure'].flatMap(
            chosen => [...part.querySelectorAll(chosen)])
        return kept.flatMap(e => [...e.getClientRects()].map(r => Math.floor(r.left / width)))
    }"""
    found = [page.evaluate(split, [above, width, height]) for above in range(0, height, 40)]
    assert all(len(set(pages)) == 1 for pages in found)
    assert {pages[0] for pages in found} == {0, 1}
    page.close()
