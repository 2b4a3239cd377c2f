"""In CI a test that needs the browser or the real data must run: there, its skip is a failure.

A user without Chromium sees such tests skipped. CI sets SECAGG_REQUIRE_BROWSER and
SECAGG_REQUIRE_DATA, so that a missing install step cannot pass for a green run.
"""

from __future__ import annotations

import os
from collections.abc import Generator

import pytest

REQUIRED = {
    marker: variable
    for marker, variable in {
        "browser": "SECAGG_REQUIRE_BROWSER",
        "data": "SECAGG_REQUIRE_DATA",
    }.items()
    if os.environ.get(variable)
}


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(
    item: pytest.Item,
) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """Turn the skip of a required test into a failure; an expected failure stays one."""
    report = yield
    required = [marker for marker in REQUIRED if item.get_closest_marker(marker)]
    if report.skipped and required and not hasattr(report, "wasxfail"):
        _fail(report, f"{REQUIRED[required[0]]} is set")
    return report


@pytest.hookimpl(wrapper=True)
def pytest_make_collect_report() -> Generator[None, pytest.CollectReport, pytest.CollectReport]:
    """Fail a module that skips itself whole: which markers its tests have is not known then."""
    report = yield
    if report.skipped and REQUIRED:
        _fail(report, f"{' and '.join(REQUIRED.values())} set, and a whole module")
    return report


def _fail(report: pytest.TestReport | pytest.CollectReport, why: str) -> None:
    report.outcome = "failed"
    report.longrepr = f"{why}, but was skipped: {report.longreprtext}"
