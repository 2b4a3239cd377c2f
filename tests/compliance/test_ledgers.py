"""What a report says of all releases in the ledgers together, and of small cells."""

import hashlib
import json
import math
import shutil
from pathlib import Path
from typing import Any

import pytest
from scipy.stats import norm
from support.runs.compliance import content, statements
from support.runs.jobs import raw_job, tables

import secagg
from secagg.compliance.evidence import AllEvidence
from secagg.compliance.first_page import first_page
from secagg.compliance.report_folder import verify_report, write_report
from secagg.compliance.sections.ledgers import totals
from secagg.core.randomness import replayable_random
from secagg.errors import EvidenceError
from secagg.evidence.numbers import rounded_up
from secagg.privacy.accounting.gaussian_dp import gaussian_epsilon
from secagg.runs.ledger_history import history

PRIVATE = {"placement": "sum", "epsilon": 2.0, "delta": 1e-5, "record_norm": 1.5}


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Runs `a`, `b` and `c` with noise, and their ledgers."""
    place = tmp_path_factory.mktemp("private")
    for name in "abc":
        run(place, name, privacy=PRIVATE)
    return place


def run(place: Path, name: str, data: Any = None, **changes: Any) -> None:
    sites = {"max_rows": 100, "ledgers": str(place / "ledgers")}
    job = raw_job(protocol={"name": "masked"}, sites=sites) | {"title": name}
    secagg.run(job | changes, data or tables(60), out=place / name)


def together(*runs: Path, ledgers: Path, out: Path) -> str:
    write_report(out, runs, ledgers=ledgers)
    return str(content(out)["first_page"]["together"])


def of_ledgers(report: Path) -> list[dict[str, Any]]:
    return [s for s in statements(report).values() if "ledger" in s["topic"]]


def test_the_total_is_composed_and_not_the_sum_of_epsilons(place: Path, tmp_path: Path) -> None:
    write_report(tmp_path / "r", [place / n for n in "abc"], ledgers=place / "ledgers")
    mu = json.loads((place / "a" / "run.json").read_text())["privacy"]["mu"]
    together = rounded_up(gaussian_epsilon(math.sqrt(3) * mu, 1e-5))
    claim = content(tmp_path / "r")["first_page"]["claim"]
    assert (
        f"3 runs on these records together bound the effect of one record by ε {together}" in claim
    )
    right = math.ceil(100 * norm.cdf(math.sqrt(3) * mu / 2))
    assert f"at most {right} of 100 right guesses" in claim
    assert "not in this report" not in claim and "ε 6 " not in claim
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
    said = content(tmp_path / "r")["first_page"]["together"]
    assert "1 run on these records released sums without noise" in said
    assert said in (tmp_path / "r" / "report.html").read_text()
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
    assert found["levels and columns at few sites"]["status"] == "evidence attached"


def test_without_levels_there_are_no_cells(tmp_path: Path) -> None:
    job = raw_job(protocol={"name": "masked"})
    del job["columns"]["sex"], job["columns"]["grade"]
    secagg.run(job, tables(60), out=tmp_path / "run")
    write_report(tmp_path / "r", [tmp_path / "run"])
    found = {s["topic"]: s for s in statements(tmp_path / "r").values()}
    assert "No column has levels" in found["cells"]["text"]
    assert found["levels and columns at few sites"]["status"] == "evidence attached"


def test_runs_on_other_records_are_not_counted(tmp_path: Path) -> None:
    """The coordinator's ledger has the runs of all sites that it ever worked with."""
    run(tmp_path, "a", privacy=PRIVATE)
    run(tmp_path, "b", {f"other_{site}": t for site, t in tables(60).items()}, privacy=PRIVATE)
    said = together(tmp_path / "a", ledgers=tmp_path / "ledgers", out=tmp_path / "r")
    assert said.startswith("The attached ledgers list no other run on these records.")
    assert "incomplete" not in said
    for site in tmp_path.glob("ledgers/[!c]*.ledger"):
        site.unlink()
    said = together(tmp_path / "a", ledgers=tmp_path / "ledgers", out=tmp_path / "s")
    assert said.startswith("The attached ledgers list no other run") and "are missing" in said


def test_ledgers_that_are_not_attached_are_named(place: Path, tmp_path: Path) -> None:
    (tmp_path / "one").mkdir()
    shutil.copy2(place / "ledgers" / "coordinator.ledger", tmp_path / "one")
    said = together(place / "a", ledgers=tmp_path / "one", out=tmp_path / "r")
    assert "3 runs of these sites, of which 2 are not in this report, together bound" in said
    assert "The ledgers of north, south and west are missing or incomplete" in said
    shutil.copy2(place / "ledgers" / "north.ledger", tmp_path / "one")
    said = together(place / "a", ledgers=tmp_path / "one", out=tmp_path / "s")
    assert "The ledgers of south and west are missing" in said


def test_runs_of_other_sites_add_up_for_persons_but_not_for_records(tmp_path: Path) -> None:
    """A record is at one site; a person may be at one site of each run."""
    first, other = tables(60), {f"other_{site}": t for site, t in tables(60).items()}
    for site in (*first.values(), *other.values()):
        site["who"] = [f"p{i}" for i in range(60)]  # type: ignore[assignment]
    for unit, privacy in (("record", PRIVATE), ("person", PRIVATE | {"person": "who"})):
        place = tmp_path / unit
        place.mkdir()
        run(place, "a", first, privacy=privacy)
        run(place, "b", other, privacy=privacy)
        said = together(place / "a", place / "b", ledgers=place / "ledgers", out=place / "r")
        one = float(said.partition(" by ε ")[2].split()[0])
        assert one == pytest.approx(2.0, abs=0.01) if unit == "record" else one > 2.5


def test_the_same_records_under_two_names_add_up(place: Path, tmp_path: Path) -> None:
    write_report(tmp_path / "r", [place / n for n in "abc"], ledgers=place / "ledgers")
    path = tmp_path / "r" / "evidence" / "ledgers.json"
    rows, claim = json.loads(path.read_text()), content(tmp_path / "r")["first_page"]["claim"]
    last = rows[-1]["session"]
    for row in rows:
        row["dataset"] += " (new)" * (row["session"] == last)
    path.write_text(json.dumps(rows))
    assert first_claim(tmp_path / "r") == claim


def test_a_site_without_lines_of_a_run_that_the_coordinator_has_is_named(
    place: Path, tmp_path: Path
) -> None:
    write_report(tmp_path / "r", [place / "a"], ledgers=place / "ledgers")
    path = tmp_path / "r" / "evidence" / "ledgers.json"
    rows = json.loads(path.read_text())
    last = rows[-1]["session"]
    rows = [row for row in rows if (row["party"], row["session"]) != ("north", last)]
    path.write_text(json.dumps(rows))
    page = first_page(AllEvidence.read(tmp_path / "r"), ())
    assert "The ledger of north is missing or incomplete" in page["together"]


def first_claim(report: Path) -> str:
    return str(first_page(AllEvidence.read(report), ())["claim"])


def test_counts_of_records_are_not_copied_from_ledgers(tmp_path: Path) -> None:
    """A site's entry of exact sums has its number of records, which the sums hide."""
    run(tmp_path, "a")
    path = next((tmp_path / "ledgers").glob("north.ledger"))
    assert any("question" in row["content"] for row in history(path))
    write_report(tmp_path / "r", [tmp_path / "a"], ledgers=tmp_path / "ledgers")
    copied = (tmp_path / "r" / "evidence" / "ledgers.json").read_text()
    assert "question" not in copied and '"records"' not in copied


@pytest.mark.parametrize(("key", "bad"), [("unit", "\x1b[2Jnobody"), ("delta", 1)])
def test_what_no_ledger_has_is_named(place: Path, tmp_path: Path, key: str, bad: object) -> None:
    write_report(tmp_path / "r", [place / "a"], ledgers=place / "ledgers")
    path = tmp_path / "r" / "evidence" / "ledgers.json"
    rows = json.loads(path.read_text())
    rows[0]["content"][key] = bad
    path.write_text(json.dumps(rows))
    with pytest.raises(EvidenceError, match=r"ledgers\.json"):
        totals(AllEvidence.read(tmp_path / "r"))


def test_no_sum_of_epsilons_hides_that_other_runs_were_exact(tmp_path: Path) -> None:
    run(tmp_path, "a", privacy=PRIVATE)
    run(tmp_path, "b", privacy=PRIVATE)
    run(tmp_path, "c")
    write_report(tmp_path / "r", [tmp_path / "a", tmp_path / "b"], ledgers=tmp_path / "ledgers")
    claim = content(tmp_path / "r")["first_page"]["claim"]
    assert claim.endswith("each guarantee is for its run alone.") and "the sums" not in claim


def test_runs_that_protect_different_things_are_not_added_up(tmp_path: Path) -> None:
    data = tables(60)
    for site in data.values():
        site["who"] = [f"p{i}" for i in range(60)]  # type: ignore[assignment]
    run(tmp_path, "a", data, privacy=PRIVATE)
    run(tmp_path, "b", data, privacy=PRIVATE | {"person": "who"})
    said = together(tmp_path / "a", ledgers=tmp_path / "ledgers", out=tmp_path / "r")
    assert "protect different things (person and record)" in said
