"""The wheel holds every file of the package, and nothing else."""

from __future__ import annotations

import subprocess
import sys
import zipfile
from pathlib import Path

import pytest
from support.checkout import checkout_files, copy_checkout


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> zipfile.ZipFile:
    """Build the wheel as a release would, with the locked setuptools and without the network."""
    # In a copy: setuptools would otherwise pack what an earlier build left in ./build.
    source = copy_checkout(tmp_path_factory.mktemp("source"))
    target = tmp_path_factory.mktemp("wheel")
    build = [sys.executable, "-m", "build", "--wheel", "--no-isolation", "--outdir", str(target)]
    done = subprocess.run(build, cwd=source, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    (path,) = Path(target).glob("*.whl")
    return zipfile.ZipFile(path)


def test_the_wheel_holds_exactly_the_files_of_the_package(wheel: zipfile.ZipFile) -> None:
    packed = {name for name in wheel.namelist() if ".dist-info/" not in name}
    assert packed == set(checkout_files("secagg"))


def test_the_wheel_is_typed_licensed_and_has_its_command(wheel: zipfile.ZipFile) -> None:
    (folder,) = {name.split("/")[0] for name in wheel.namelist() if ".dist-info/" in name}
    licence = wheel.read(f"{folder}/licenses/LICENSE").decode()
    assert "Apache License" in licence
    assert "secagg/py.typed" in wheel.namelist()
    assert "secagg = secagg.cli:main" in wheel.read(f"{folder}/entry_points.txt").decode()


def test_torch_is_no_core_requirement(wheel: zipfile.ZipFile) -> None:
    (name,) = [name for name in wheel.namelist() if name.endswith(".dist-info/METADATA")]
    required = [
        line.removeprefix("Requires-Dist: ")
        for line in wheel.read(name).decode().splitlines()
        if line.startswith("Requires-Dist: ") and "extra ==" not in line
    ]
    assert required
    assert not [line for line in required if line.startswith(("torch", "opacus"))]
