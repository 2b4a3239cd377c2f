"""The wheel holds every file of the package, and nothing else; it needs no C compiler.

Installed in an environment of its own, it runs README's example in a folder outside the clone.
"""

import os
import platform
import re
import shutil
import subprocess
import sys
import sysconfig
import tarfile
import venv
import zipfile
from pathlib import Path

import pytest
from support.runs.checkout import ROOT, checkout_files, copy_checkout

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
def source(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A copy: setuptools would otherwise pack what an earlier build left in ./build."""
    return copy_checkout(tmp_path_factory.mktemp("source"))


@pytest.fixture(scope="module")
def wheel(source: Path, tmp_path_factory: pytest.TempPathFactory) -> zipfile.ZipFile:
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


def test_the_installed_wheel_runs_readmes_example(
    wheel: zipfile.ZipFile, source: Path, tmp_path: Path
) -> None:
    """Its libraries are those of this environment; only the job's path is that of the clone."""
    home, elsewhere = tmp_path / "venv", tmp_path / "elsewhere"
    elsewhere.mkdir()
    venv.create(home, symlinks=True)
    scheme = {"base": str(home), "platbase": str(home)}
    python, site = home / "bin" / "python", Path(sysconfig.get_path("purelib", "venv", scheme))
    libraries = "".join(f"{path}\n" for path in sys.path if path.endswith("site-packages"))
    (site / "libraries.pth").write_text(libraries)
    environment = {k: v for k, v in os.environ.items() if not k.startswith("PYTHON")}

    def run(*command: str | Path) -> str:
        done = subprocess.run(
            command, cwd=elsewhere, env=environment, capture_output=True, text=True, check=False
        )
        assert done.returncode == 0, done.stdout + done.stderr
        return done.stdout

    run(sys.executable, "-m", "pip", "--disable-pip-version-check", "--python", python, "install",
        "--no-index", "--no-deps", "--ignore-installed", str(wheel.filename))  # fmt: skip
    job = "examples/heart-disease/linear.toml"
    (example,) = re.findall(
        r"^```python\n(.*?)^```\n\n```text\n(.*?)^```",
        (ROOT / "README.md").read_text(),
        re.M | re.S,
    )
    program = example[0].replace(job, str(source / job)) + "print(secagg.__file__)\n"
    *shown, place = run(python, "-c", program).splitlines()
    assert shown == example[1].splitlines()
    assert Path(place).is_relative_to(site)
    run(home / "bin" / "secagg", "run", source / job, "--out", "run")  # its report needs templates
    assert "</html>" in (elsewhere / "run" / "report.html").read_text()
    run(home / "bin" / "secagg", "verify", "run")
