"""`import secagg` and `secagg --help` answer at once: heavy libraries load when they are used."""

import subprocess
import sys
from pathlib import Path

import pytest
from support.methods.fitted_ngms import ngm_folder

HEAVY = ["torch", "matplotlib", "pandas", "scipy", "phe", "networkx", "sklearn", "causallearn"]


@pytest.mark.parametrize(
    "statement",
    [
        "import secagg",
        "import secagg.contracts, secagg.jobs.registry",
        "from secagg.cli.main import app\nfrom typer.testing import CliRunner\n"
        "assert CliRunner().invoke(app, ['--help']).exit_code == 0",
    ],
    ids=["import secagg", "contracts and registry", "secagg --help"],
)
def test_no_heavy_library_is_loaded(statement: str) -> None:
    """In a fresh interpreter, since pytest's own has loaded them for other tests."""
    program = (
        "import sys, time\n"
        "start = time.perf_counter()\n"
        f"{statement}\n"
        "print(time.perf_counter() - start)\n"
        f"print(*[name for name in {HEAVY!r} if name in sys.modules])\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=True
    )
    seconds, loaded = done.stdout.split("\n")[:2]
    print(f"{float(seconds):.3f} s")  # shown by `pytest -rP`; not asserted, since machines differ
    assert loaded == ""


def test_importing_models_directly_is_refused() -> None:
    """`import models` from a checkout would load everything twice, under two names; it says so."""
    done = subprocess.run(
        [sys.executable, "-c", "import models"], capture_output=True, text=True, check=False
    )
    assert done.returncode == 1
    assert done.stderr.strip().endswith("ImportError: import secagg.models, not models")


def test_a_fitted_network_is_used_without_torch(tmp_path: Path) -> None:
    program = (
        "import sys\n"
        "from secagg.runs.networks.finished_ngm import FinishedNgmRun\n"
        "from secagg.evidence.run_folder import RunFolder\n"
        f"run = FinishedNgmRun.read(RunFolder.open_finished({str(ngm_folder(tmp_path / 'r'))!r}))\n"
        "print(len(run.sample(5)), len(run.query({}, ['x'])['columns']), 'torch' in sys.modules)\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=True
    )
    assert done.stdout == "5 1 False\n"
