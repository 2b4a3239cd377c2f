"""What a report says of all releases in the ledgers together, and of small cells."""

from __future__ import annotations

import hashlib
import json
import math
from pathlib import Path
from typing import Any

import pytest
from support.compliance import content, statements
from support.jobs import raw_job, tables

import secagg
from secagg.compliance.report_folder import verify_report, write_report
from secagg.core.randomness import replayable_random
from secagg.errors import EvidenceError
from secagg.privacy.accounting.gaussian_dp import gaussian_epsilon
from secagg.reports.numbers import significant

PRIVATE = {"placement": "sum", "epsilon": 2.0, "delta": 1e-5, "record_norm": 1.5}


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Runs `a`, `b` and `c` with noise, and their ledgers."""
    place = tmp_path_factory.mktemp("private")
    for name in "abc":
        run(place, name, privacy=PRIVATE)
    return place


def run(place: Path, name: str, **changes: Any) -> None:
    sites = {"max_rows": 100, "ledgers": str(place / "ledgers")}
    job = raw_job(protocol={"name": "masked"}, sites=sites) | {"title": name}
    secagg.run(job | changes, tables(60), out=place / name)


def of_ledgers(report: Path) -> list[dict[str, Any]]:
    return [s for s in statements(report).values() if "ledger" in s["topic"]]


def test_the_total_is_composed_and_not_the_sum_of_epsilons(place: Path, tmp_path: Path) -> None:
    write_report(tmp_path / "r", [place / n for n in "abc"], ledgers=place / "ledgers")
    mu = json.loads((place / "a" / "run.json").read_text())["privacy"]["mu"]
    together = significant(gaussian_epsilon(math.sqrt(3) * mu, 1e-5))
    claim = content(tmp_path / "r")["first_page"]["claim"]
    assert (
        f"3 runs on these records together bound the effect of one record by ε {together}" in claim
    )
    assert "not in this report" not in claim and "6.000" not in claim
    for each in of_ledgers(tmp_path / "r"):
        assert each["status"] == "evidence attached" and f"ε {together} (one record" in each["text"]


def test_runs_that_are_not_in_the_report_are_named(place: Path, tmp_path: Path) -> None:
    write_report(tmp_path / "r", [place / "b"], ledgers=place / "ledgers")
    session = json.loads((place / "a" / "run.json").read_text())["session"]
    page = content(tmp_path / "r")["first_page"]
    assert "3 runs on these records, of which 2 are not in this report," in page["together"]
    assert page["together"] in (tmp_path / "r" / "report.html").read_text()
    for each in of_ledgers(tmp_path / "r"):
        assert each["status"] == "needs a person" and session[:16] in each["text"]


@pytest.mark.parametrize("without", ["noise", "secret"])
def test_a_release_that_hides_nothing_leaves_no_bound(tmp_path: Path, without: str) -> None:
    run(tmp_path, "a", privacy=PRIVATE)
    if without == "noise":
        run(tmp_path, "b")
    else:
        sites = {"max_rows": 100, "ledgers": str(tmp_path / "ledgers")}
        job = raw_job(protocol={"name": "masked"}, sites=sites) | {"privacy": PRIVATE}
        secagg.run(job, tables(60), random=replayable_random(1))
    write_report(tmp_path / "r", [tmp_path / "a"], ledgers=tmp_path / "ledgers")
    assert content(tmp_path / "r")["first_page"]["together"] == ""
    for each in of_ledgers(tmp_path / "r"):
        if each["topic"].startswith("ledger of"):  # the coordinator does not know sites' seeds
            assert each["status"] == "needs a person" and "no ε bounds them" in each["text"]


def test_a_run_without_a_line_in_the_ledgers_leaves_no_bound(place: Path, tmp_path: Path) -> None:
    run(tmp_path, "elsewhere", privacy=PRIVATE)
    write_report(tmp_path / "r", [tmp_path / "elsewhere"], ledgers=place / "ledgers")
    page = content(tmp_path / "r")["first_page"]
    assert page["together"] == ""
    assert "ledgers with lines of every run" in {each["text"] for each in page["open"]["missing"]}


def test_a_cost_that_is_no_cost_is_named(place: Path, tmp_path: Path) -> None:
    write_report(tmp_path / "r", [place / "a"], ledgers=place / "ledgers")
    path = tmp_path / "r" / "evidence" / "ledgers.json"
    path.write_text(path.read_text().replace('"law": "gaussian"', '"law": "cauchy"', 1))
    whole = content(tmp_path / "r")
    whole["evidence"]["ledgers.json"] = hashlib.sha256(path.read_bytes()).hexdigest()
    (tmp_path / "r" / "report.json").write_text(json.dumps(whole))
    with pytest.raises(EvidenceError) as caught:
        verify_report(tmp_path / "r")
    assert "ledgers.json" in caught.value.line()


@pytest.mark.parametrize(("asked", "status"), [(10, "evidence attached"), (3, "needs a person")])
def test_small_cells_are_checked(tmp_path: Path, asked: int, status: str) -> None:
    rules = {"min_sites": 3, "min_records": 2, "min_cell_records": asked}
    job = raw_job(protocol={"name": "masked"}, release=rules)
    del job["columns"]["grade"]
    secagg.run(job, tables(60), out=tmp_path / "run")
    write_report(tmp_path / "r", [tmp_path / "run"])
    found = {s["topic"]: s for s in statements(tmp_path / "r").values() if s["id"][:2] == "7."}
    assert found["cells"]["status"] == status and f"at least {asked} (" in found["cells"]["text"]
    assert found["levels at few sites"]["status"] == "evidence attached"


def test_without_levels_there_are_no_cells(tmp_path: Path) -> None:
    job = raw_job(protocol={"name": "masked"})
    del job["columns"]["sex"], job["columns"]["grade"]
    secagg.run(job, tables(60), out=tmp_path / "run")
    write_report(tmp_path / "r", [tmp_path / "run"])
    found = {s["topic"]: s for s in statements(tmp_path / "r").values()}
    assert "levels at few sites" not in found and "No column has levels" in found["cells"]["text"]
