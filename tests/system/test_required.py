"""With SECAGG_REQUIRE_* set, no skip of a browser or data test passes (conftest.py)."""

from __future__ import annotations

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
WHOLE_MODULE = "import pytest\npytest.importorskip('no_such_module')\n"


@pytest.mark.parametrize(
    ("variables", "outcome"),
    [
        ([], "6 skipped, 1 xfailed"),
        (["SECAGG_REQUIRE_BROWSER"], "4 skipped, 1 xfailed, 2 errors"),
        (["SECAGG_REQUIRE_KERNELS"], "5 skipped, 1 xfailed, 1 error"),
        (["SECAGG_REQUIRE_DATA"], "1 failed, 3 skipped, 1 xfailed, 2 errors"),
        (
            ["SECAGG_REQUIRE_BROWSER", "SECAGG_REQUIRE_DATA"],
            "1 failed, 2 skipped, 1 xfailed, 3 errors",
        ),
    ],
)
def test_required_tests_may_not_skip(tmp_path: Path, variables: list[str], outcome: str) -> None:
    shutil.copy(Path(__file__).parents[1] / "conftest.py", tmp_path)
    (tmp_path / "pytest.ini").write_text(
        "[pytest]\nmarkers =\n    data\n    browser\n    default\n    kernels\n"
    )
    (tmp_path / "test_skips.py").write_text(SKIPS)
    (tmp_path / "test_module.py").write_text(WHOLE_MODULE)
    done = subprocess.run(
        [
            sys.executable,
            "-m",
            "pytest",
            "--continue-on-collection-errors",
            "-p",
            "no:cacheprovider",
        ],
        cwd=tmp_path,
        env={k: v for k, v in os.environ.items() if not k.startswith("SECAGG_REQUIRE_")}
        | dict.fromkeys(variables, "1"),
        capture_output=True,
        text=True,
        check=False,
    )
    assert outcome in done.stdout.splitlines()[-1]
    assert (done.returncode == 0) == (not variables)
    if not variables:
        assert "\nnot run here: 2 tests (no data), 1 tests (" in done.stdout
