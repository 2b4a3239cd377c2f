"""What conftest.py adds: marks by folder, no skips where they are not allowed."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

SKIPS = """
import pytest

@pytest.fixture
def browser():
    pytest.skip("no Chromium")

@pytest.mark.browser
def test_in_a_fixture(browser): ...

@pytest.mark.data
@pytest.mark.skipif(True, reason="no data")
def test_by_a_mark(): ...

@pytest.mark.data
def test_in_the_body():
    pytest.skip("no data")

@pytest.mark.data
@pytest.mark.xfail(strict=True)
def test_that_is_expected_to_fail():
    assert False

@pytest.mark.kernels
def test_on_another_processor():
    pytest.skip("no AVX-512 IFMA")

def test_unmarked():
    pytest.skip("another reason")
"""
MARKED = """
import pytest

def test_without_a_mark(): ...

@pytest.mark.smoke
def test_smoke():
    pytest.skip("not here")
"""
WHOLE_MODULE = "import pytest\npytest.importorskip('no_such_module')\n"


@pytest.mark.parametrize(
    ("variables", "outcome"),
    [
        ([], "6 skipped, 1 xfailed"),
        (["SECAGG_REQUIRE_BROWSER"], "4 skipped, 1 xfailed, 2 errors"),
        (["SECAGG_REQUIRE_KERNELS"], "5 skipped, 1 xfailed, 1 error"),
        (["SECAGG_REQUIRE_DATA"], "1 failed, 3 skipped, 1 xfailed, 2 errors"),
    ],
)
def test_required_tests_may_not_skip(tmp_path: Path, variables: list[str], outcome: str) -> None:
    (tmp_path / "test_skips.py").write_text(SKIPS)
    (tmp_path / "test_module.py").write_text(WHOLE_MODULE)
    done = pytest_in(tmp_path, "--continue-on-collection-errors", **dict.fromkeys(variables, "1"))
    assert outcome in done.stdout.splitlines()[-1]
    assert (done.returncode == 0) == (not variables)
    if not variables:
        assert "\nnot run here: 2 tests (no data), 1 tests (" in done.stdout


def test_tests_have_the_mark_of_their_folder(tmp_path: Path) -> None:
    for folder in ("unit", "system"):
        (tmp_path / folder).mkdir()
        (tmp_path / folder / f"test_{folder}.py").write_text(MARKED)
    for args, outcome in (
        ([], "2 passed, 2 skipped"),
        (["-m", "default"], "1 passed, 2 skipped, 1 deselected"),
        (["-m", "system"], "1 passed, 1 skipped, 2 deselected"),
    ):
        done = pytest_in(tmp_path, *args)
        assert outcome in done.stdout.splitlines()[-1]


def pytest_in(folder: Path, *args: str, **variables: str) -> subprocess.CompletedProcess[str]:
    """Run pytest on a folder of tests, with the conftest.py of these."""
    shutil.copy(Path(__file__).parents[1] / "conftest.py", folder)
    marks = ["data", "browser", "default", "kernels", "smoke", "system"]
    (folder / "pytest.ini").write_text("\n    ".join(["[pytest]\nmarkers =", *marks]))
    env = {k: v for k, v in os.environ.items() if not k.startswith("SECAGG_")}
    return subprocess.run(
        [sys.executable, "-m", "pytest", "-p", "no:cacheprovider", *args],
        cwd=folder, env=env | variables, capture_output=True, text=True, check=False,
    )  # fmt: skip
