"""The wheel holds every file of the package, and nothing else; it needs no C compiler."""

from __future__ import annotations

import os
import platform
import shutil
import subprocess
import sys
import tarfile
import zipfile
from pathlib import Path

import pytest
from support.checkout import checkout_files, copy_checkout

KERNELS = {"secagg/protocols/kernels/_ifma.abi3.so", "secagg/protocols/kernels/_masks.abi3.so"}


def build(source: Path, target: Path, *options: str, compiler: str | None = None) -> Path:
    """Build as a release would, with the locked setuptools and without the network."""
    command = [sys.executable, "-m", "build", "--no-isolation", "--outdir", str(target), *options]
    environment = {**os.environ, **({"CC": compiler} if compiler else {})}
    done = subprocess.run(
        command, cwd=source, env=environment, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr
    (path,) = target.iterdir()
    return path


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> zipfile.ZipFile:
    # In a copy: setuptools would otherwise pack what an earlier build left in ./build.
    source = copy_checkout(tmp_path_factory.mktemp("source"))
    return zipfile.ZipFile(build(source, tmp_path_factory.mktemp("wheel"), "--wheel"))


def files(wheel: zipfile.ZipFile) -> set[str]:
    return {name for name in wheel.namelist() if ".dist-info/" not in name}


def test_the_wheel_holds_exactly_the_files_of_the_package(wheel: zipfile.ZipFile) -> None:
    assert files(wheel) - KERNELS == set(checkout_files("secagg"))


@pytest.mark.kernels
def test_the_wheel_holds_the_kernels(wheel: zipfile.ZipFile) -> None:
    if not shutil.which("gcc"):
        pytest.skip("no C compiler")
    if platform.machine() not in ("x86_64", "AMD64"):
        pytest.skip("no AVX-512 IFMA")
    assert files(wheel) >= KERNELS


def test_without_a_compiler_the_source_archive_still_makes_a_wheel(tmp_path: Path) -> None:
    """Fails if the archive lacks a file of the package, or setup.py demands the kernels."""
    source = copy_checkout(tmp_path / "source")
    archive = build(source, tmp_path / "archive", "--sdist")
    with tarfile.open(archive) as opened:
        opened.extractall(tmp_path / "unpacked", filter="data")
    (unpacked,) = (tmp_path / "unpacked").iterdir()
    wheel = build(unpacked, tmp_path / "wheel", "--wheel", compiler="no-such-compiler")
    assert files(zipfile.ZipFile(wheel)) == set(checkout_files("secagg"))


def test_the_wheel_has_types_licence_and_command(wheel: zipfile.ZipFile) -> None:
    (folder,) = {name.split("/")[0] for name in wheel.namelist() if ".dist-info/" in name}
    licence = wheel.read(f"{folder}/licenses/LICENSE").decode()
    assert "Apache License" in licence
    assert "secagg/py.typed" in wheel.namelist()
    assert "secagg = secagg.cli.main:main" in wheel.read(f"{folder}/entry_points.txt").decode()


def test_torch_is_not_a_core_requirement(wheel: zipfile.ZipFile) -> None:
    (name,) = [name for name in wheel.namelist() if name.endswith(".dist-info/METADATA")]
    required = [
        line.removeprefix("Requires-Dist: ")
        for line in wheel.read(name).decode().splitlines()
        if line.startswith("Requires-Dist: ") and "extra ==" not in line
    ]
    assert required
    assert not [line for line in required if line.startswith(("torch", "opacus"))]
