"""Marks by folder, the place of temporary files, and the additional checks of CI.

`make test` runs the tests marked `default`: all that have none of the marks in `REASONS`, and those
marked `smoke`.

Without Chromium, the tests that need it are skipped, without torch those of neural networks, and
without NVFLARE or Flower those over it. CI sets SECAGG_REQUIRE_BROWSER, SECAGG_REQUIRE_DATA,
SECAGG_REQUIRE_KERNELS, SECAGG_REQUIRE_NEURAL and SECAGG_REQUIRE_NVFLARE, under which such skips
fail; so a run cannot succeed if an install step is missing. CI has no Flower. A processor without
the instructions remains a reason to skip.
"""

import importlib.util
import os
import shutil
import signal
import tempfile
from collections import Counter
from collections.abc import Generator
from pathlib import Path

import pytest
from hypothesis import settings

FOLDERS = {
    "attacks": "attack", "benchmarks": "system", "fuzz": "fuzz", "oracles": "oracle",
    "statistical": "statistical", "system": "system",
}  # fmt: skip
"""The mark of every test in a folder below this one."""

REASONS = {*FOLDERS.values(), "browser", "data", "flower", "kernels", "neural", "nvflare"}
"""The marks of tests that `make test` leaves out."""

HAS_TORCH = all(importlib.util.find_spec(name) for name in ("torch", "opacus"))

HAS_NVFLARE = importlib.util.find_spec("nvflare") is not None

HAS_FLOWER = importlib.util.find_spec("flwr") is not None

MEMORY = Path("/dev/shm")  # a file system in memory, on Linux
MIN_SPACE = 1 << 30  # bytes; a complete run needs a tenth of it

EXCUSED = "no AVX-512 IFMA"
REQUIRED = {
    marker: variable
    for marker, variable in {
        "browser": "SECAGG_REQUIRE_BROWSER",
        "data": "SECAGG_REQUIRE_DATA",
        "kernels": "SECAGG_REQUIRE_KERNELS",
        "neural": "SECAGG_REQUIRE_NEURAL",
        "nvflare": "SECAGG_REQUIRE_NVFLARE",
    }.items()
    if os.environ.get(variable)
}


settings.register_profile("thorough", max_examples=300, deadline=None)  # for -m fuzz


def pytest_configure(config: pytest.Config) -> None:
    """Put the temporary folders of a run with workers (-n) into memory, if there is space.

    Ledgers, journals and logs wait for the disk at each entry, which takes minutes in a run. No
    test needs a disk: some tests kill processes, but none stops the computer, and files in memory
    remain when a process dies.

    With TMPDIR set, or without workers, the files are on the disk.
    """
    # A shell starts a background job with SIGINT ignored, and its processes would inherit that.
    signal.signal(signal.SIGINT, signal.default_int_handler)
    workers = config.getoption("numprocesses", None)  # which starts them, and has pytest-xdist
    if (
        workers
        and not hasattr(config, "workerinput")
        and "TMPDIR" not in os.environ
        and _has_space()
    ):
        folder = tempfile.mkdtemp(prefix="secagg-tests-", dir=MEMORY)
        Path(folder).chmod(0o711)  # a test that runs as another user has its own folder in there
        config.add_cleanup(lambda: shutil.rmtree(folder, ignore_errors=True))
        os.environ["TMPDIR"] = tempfile.tempdir = folder


def _has_space() -> bool:
    """Whether the tests can write files there and execute them."""
    if not os.access(MEMORY, os.W_OK | os.X_OK):
        return False
    stats = os.statvfs(MEMORY)
    return stats.f_bavail * stats.f_frsize >= MIN_SPACE and not stats.f_flag & os.ST_NOEXEC


@pytest.hookimpl(tryfirst=True)  # before -m selects
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Mark each test with the mark of its folder, or as one that `make test` runs."""
    here = Path(__file__).parent
    for item in items:
        if reason := FOLDERS.get(item.path.relative_to(here).parts[0]):
            item.add_marker(reason)
        marks = {mark.name for mark in item.iter_markers()}
        if "neural" in marks and not HAS_TORCH:
            item.add_marker(pytest.mark.skip("torch is not installed: make neural"))
        if "nvflare" in marks and not HAS_NVFLARE:
            item.add_marker(pytest.mark.skip("NVFLARE is not installed: make deploy-demo"))
        if "flower" in marks and not HAS_FLOWER:
            item.add_marker(pytest.mark.skip("Flower is not installed: make flower-demo"))
        if "smoke" in marks or not marks & REASONS:
            item.add_marker("default")


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(
    item: pytest.Item,
) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """Turn the skip of a required test into a failure; an expected failure stays one."""
    report = yield
    required = [marker for marker in REQUIRED if item.get_closest_marker(marker)]
    excused = hasattr(report, "wasxfail") or _reason(report) == EXCUSED
    if report.skipped and required and not excused:
        _fail(report, f"{REQUIRED[required[0]]} is set")
    return report


@pytest.hookimpl(wrapper=True)
def pytest_make_collect_report() -> Generator[None, pytest.CollectReport, pytest.CollectReport]:
    """Fail a module that skips all its tests: the marks of its tests are then unknown."""
    report = yield
    if report.skipped and REQUIRED:
        _fail(report, f"{' and '.join(REQUIRED.values())} set, and a whole module")
    return report


def _fail(report: pytest.TestReport | pytest.CollectReport, why: str) -> None:
    report.outcome = "failed"
    report.longrepr = f"{why}, but was skipped: {report.longreprtext}"


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """Print in one line which tests were skipped, and why."""
    skipped = Counter(_reason(report) for report in terminalreporter.stats.get("skipped", []))
    if skipped:
        counts = ", ".join(f"{count} tests ({reason})" for reason, count in skipped.most_common())
        terminalreporter.write_line(f"not run here: {counts}")


def _reason(report: pytest.TestReport | pytest.CollectReport) -> str:
    *_, message = report.longrepr if isinstance(report.longrepr, tuple) else [report.longreprtext]
    return str(message).removeprefix("Skipped: ")
