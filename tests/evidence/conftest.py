"""A run folder that a test may change."""

import shutil
from pathlib import Path

import pytest
from support.runs.jobs import small_job, tables

from secagg.runs.run import run


@pytest.fixture(scope="module")
def written(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("run") / "folder"
    rules = {"min_sites": 2, "min_records": 2}  # fewer than all three: so the cohort could change
    run(small_job(protocol={"name": "additive"}, release=rules), tables(), out=folder)
    return folder


@pytest.fixture
def folder(written: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(written, tmp_path / "copy"))
