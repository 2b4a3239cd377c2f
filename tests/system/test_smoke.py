"""A short run of every method, of every protocol, and with noise: part of `make test`.

Of runs that are killed and resumed, `test_resume.py` has the smoke test.
"""

from pathlib import Path

import pytest
from support.methods.all_methods import SITES, records
from support.methods.all_methods import job as small_job
from support.protocols.keys import quick_keys
from support.runs.reports import NEURAL, job, private_job, tables

from secagg.evidence.integrity import verify_folder
from secagg.jobs.registry import METHODS, PROTOCOLS
from secagg.runs.run import run

__all__ = ["quick_keys"]  # a fixture
pytestmark = pytest.mark.smoke


@pytest.mark.parametrize(
    "method", [pytest.param(m, marks=pytest.mark.neural if m in NEURAL else ()) for m in METHODS]
)
def test_each_method_runs(method: str, tmp_path: Path) -> None:
    data = {site: records(i, 40 + i) for i, site in enumerate(SITES)}
    run(small_job(method, "additive"), data, out=tmp_path / "run")
    check(tmp_path / "run")


@pytest.mark.parametrize("protocol", PROTOCOLS)
@pytest.mark.usefixtures("quick_keys")
def test_each_protocol_runs(protocol: str, tmp_path: Path) -> None:
    raw = job("moments", protocol, simulation={}) | {"method": {"name": "moments"}}
    if "paillier" in protocol:
        raw["protocol"] = {"name": protocol, "key_bits": 2048}
    run(raw, tables(3), out=tmp_path / "run")
    check(tmp_path / "run")


def test_a_run_with_noise_works(tmp_path: Path) -> None:
    run(private_job("round"), tables(4, 150), out=tmp_path / "run")
    check(tmp_path / "run")


def check(folder: Path) -> None:
    assert verify_folder(folder).failed is None
    assert "<h1>" in (folder / "report.html").read_text("utf-8")
