"""Small runs to report on, and a page taken apart."""

import copy
import functools
import html
import re
import tempfile
from dataclasses import dataclass, field
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from secagg.contracts import Result
from secagg.core.randomness import replayable_random
from secagg.reports.page import render
from secagg.runs.run import Run, run

HOSTILE = "<script>alert(1)</script>"
HOSTILE_COLUMN = "\"'><img src=x onerror=alert(1)>"
HOSTILE_LEVEL = "'\"><svg onload=alert(1)>&lt;"
METHODS = ("logistic", "moments")
SPARSE = {"rounds": 20, "chains": 2}
PROTOCOLS = ("plain", "additive", "paillier")
NAMES = ["x", "y", "z", "x2"]
NEURAL = {"torch_module", "fedngm", "fedngr"}
"""Methods that need torch."""
TRUTH = [["x", "y"], ["y", "z"], ["z", "x2"]]
VOID = frozenset({"br", "hr", "img", "input", "link", "meta"})


def tables(sites: int, rows: int = 60) -> dict[str, pd.DataFrame]:
    """Return records of a chain x -> y -> z with a group and a binary outcome, by site."""
    random = np.random.default_rng(7)
    found = {}
    for i in range(sites):
        n = rows + 10 * i
        x = random.normal(0, 1, n)
        y = 0.9 * x + random.normal(0, 0.5, n)
        z = -0.8 * y + random.normal(0, 0.5, n)
        case = (random.random(n) < 1 / (1 + np.exp(-x))).astype(int)
        table = {"x": x, "y": y, "z": z, "x2": random.normal(0, 1, n)}
        table |= {"group": random.choice(["a", "b", "c"], n), "case": case}
        found[f"site {i}"] = pd.DataFrame(table)
    return found


def job(method: str, protocol: str, **changed: Any) -> dict[str, Any]:
    """Return a job on those tables; top-level keys may be replaced."""
    reals = {c: {"type": "continuous", "low": -9, "high": 9, "unit": "mm"} for c in ("x", "y", "z")}
    reals["x2"] = {"type": "continuous", "low": -9, "high": 9}
    methods: dict[str, dict[str, Any]] = {
        "logistic": {"name": "logistic", "outcome": "case", "predictors": ["x", "group"]},
        "moments": {
            "name": "moments",
            "analyses": [
                {"kind": "describe"},
                {"kind": "ols", "outcome": "y", "predictors": ["x", "group"]},
                {"kind": "ridge", "outcome": "y", "predictors": ["x", "z"]},
                {"kind": "lasso", "outcome": "y", "predictors": ["x", "x2"]},
                {"kind": "notears", "variables": ["x", "y", "z", "x2"], "truth": TRUTH},
                {"kind": "golem", "variables": ["x", "y", "z", "x2"]},
            ],
        },
        "sparse_regression": {"name": "sparse_regression", "outcome": "y", **SPARSE},
        "sparse_markov": {
            "name": "sparse_markov", "variables": ["x", "y", "z", "x2"], "fdr": 0.4, **SPARSE
        },
        "sparse_directed": {
            "name": "sparse_directed", "variables": ["x", "y", "z"], "fdr": 0.4,
            "temperatures": 2, **SPARSE
        },
    }  # fmt: skip
    settings = {"paillier": {"key_bits": 2048}}.get(protocol, {})
    raw = {
        "title": "A small run",
        "sites": {"max_rows": 200},
        "columns": reals
        | {"group": {"type": "categorical", "levels": ["a", "b", "c"]}, "case": {"type": "binary"}},
        "method": methods[method],
        "protocol": {"name": protocol, **settings},
        "release": {"min_sites": 3, "min_records": 5},
        "simulation": {} if method.startswith("sparse") else {"site_alone": True},
    }
    return raw | changed


def written(raw: dict[str, Any], data: dict[str, pd.DataFrame], **options: Any) -> Run:
    """Run a job into a folder that is thrown away, so that its facts are as the page saw them."""
    with tempfile.TemporaryDirectory() as scratch:
        return run(raw, data, out=Path(scratch) / "run", **options)


@functools.cache
def small_run(method: str, protocol: str) -> Run:
    """Return a run over four sites; not to be changed."""
    return written(job(method, protocol), tables(4))


def private_job(placement: str, protocol: str = "additive", **terms: Any) -> dict[str, Any]:
    """Return a job under differential privacy, with so little noise that all analyses succeed."""
    private = {"placement": placement, "epsilon": 12.0, "delta": 1e-6, "record_norm": 1.5}
    raw = job("moments", protocol, simulation={}, privacy=private | terms)
    for name in ("x", "y", "z", "x2"):
        raw["columns"][name] |= {"low": -4, "high": 4}
    fit = {"outcome": "y", "predictors": ["x", "group"]}
    raw["method"]["analyses"] = [{"kind": "describe"}, {"kind": "ols"} | fit]
    if placement == "round":
        raw["method"] = {"name": "gradient", "family": "gaussian", "rounds": 6} | fit
    return raw


@functools.cache
def noised_run(placement: str, protocol: str = "additive", **terms: Any) -> Run:
    """Return a run under differential privacy over four sites; not to be changed."""
    return written(private_job(placement, protocol, **terms), tables(4, 150))


@functools.cache
def void_run() -> Run:
    """Return a run whose noise anybody can draw again."""
    return written(private_job("sum"), tables(4, 150), random=replayable_random(1))


@functools.cache
def hostile_run() -> Run:
    """Return a run whose every name wants to be markup."""
    data = {
        f"{HOSTILE} {name}": table.rename(columns={"x": HOSTILE_COLUMN}).replace(
            {"group": {"b": HOSTILE_LEVEL}}
        )
        for name, table in tables(3).items()
    }
    raw = job("moments", "additive", title=HOSTILE)
    raw["columns"][HOSTILE_COLUMN] = raw["columns"].pop("x") | {"unit": HOSTILE}
    raw["columns"]["group"] = {"type": "categorical", "levels": ["a", HOSTILE_LEVEL, "c"]}
    names = [HOSTILE_COLUMN, "y", "z"]
    raw["method"] = {
        "name": "moments",
        "analyses": [
            {"kind": "describe"},
            {"kind": "ols", "outcome": "y", "predictors": [HOSTILE_COLUMN, "group"]},
            {"kind": "notears", "variables": names, "truth": [names[:2]]},
        ],
    }
    return written(raw, data)


@functools.cache
def replayable_run() -> Run:
    """Return a run that anybody can repeat: it protects nothing."""
    return written(job("logistic", "additive"), tables(3), random=replayable_random(1))


def copied(finished: Run) -> tuple[dict[str, Any], Result]:
    """Return facts and result of a run that a test may change."""
    return copy.deepcopy(finished.facts), Result(copy.deepcopy(finished.result.summary))


def page_of(finished: Run) -> str:
    """Return the report of a run."""
    return render(finished.facts, finished.result)


def banners(page: str) -> list[tuple[bool, str]]:
    """Return (protects nothing, title) of every banner on the whole run."""
    banner = r'<div class="banner(?P<void> void)?(?:" id="warning-\d+)?">\s*<strong>(.*?)</strong>'
    found = [m for m in re.finditer(banner, page) if m["void"] or 'id="' in m[0]]
    return [(bool(m["void"]), html.unescape(m[2])) for m in found]


def statuses(page: str) -> dict[str, str]:
    """Return the status of every question of the first page."""
    rows = re.findall(
        r'<th scope="row">([^<]*\?)<br>.*?<span class="status[^>]*>(.*?)<', page, re.S
    )
    return {html.unescape(asked): status for asked, status in rows}


@dataclass
class Page(HTMLParser):
    """A page taken apart: tags with attributes, text, and whether every tag was closed."""

    source: str
    tags: list[tuple[str, dict[str, str | None]]] = field(default_factory=list)
    texts: list[str] = field(default_factory=list)
    open: list[str] = field(default_factory=list)
    wrong: list[str] = field(default_factory=list)

    def __post_init__(self) -> None:
        super().__init__()
        self.feed(self.source)
        self.close()
        self.wrong += [f"<{tag}> is not closed" for tag in self.open]

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, dict(attrs)))
        if tag in ("td", "th", "dd", "br"):
            self.texts.append(" ")
        if tag not in VOID:
            self.open.append(tag)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, dict(attrs)))

    def handle_endtag(self, tag: str) -> None:
        if not self.open or self.open.pop() != tag:
            self.wrong.append(f"</{tag}> at {self.getpos()} closes nothing")

    def handle_data(self, data: str) -> None:
        if not self.open or self.open[-1] != "style":
            self.texts.append(data)

    @property
    def text(self) -> str:
        """All text, with runs of blanks as one."""
        return " ".join("".join(self.texts).split())

    def named(self, tag: str) -> list[dict[str, str | None]]:
        """Return the attributes of every such tag."""
        return [attributes for name, attributes in self.tags if name == tag]
