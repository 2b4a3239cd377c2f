"""`import secagg` and `secagg --help` answer at once: heavy libraries load when they are used."""

from __future__ import annotations

import subprocess
import sys

import pytest

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
