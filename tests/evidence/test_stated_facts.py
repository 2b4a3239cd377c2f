"""A coordinator that states more in run.json, during the run, than its job gives.

All sites countersign the log, which has only the digest of these facts. So every signature holds.
"""

from pathlib import Path
from typing import Any

import pytest
from support.runs.jobs import small_job, tables
from support.runs.run_folders import bad
from typer.testing import CliRunner

from secagg.cli.main import app
from secagg.compliance.report_folder import verify_report, write_report
from secagg.errors import EvidenceError
from secagg.evidence import recomputation
from secagg.evidence.integrity import verify_folder
from secagg.evidence.planned_facts import check_claims
from secagg.evidence.released_sums import SUMS_FILE
from secagg.evidence.run_folder import RunFolder
from secagg.runs import facts as run_facts
from secagg.runs.run import run
from secagg.sessions import planned_job

RULES = {"min_sites": 2, "min_records": 2}
NOISE = {
    "placement": "sum", "epsilon": 20.0, "delta": 1e-6, "colluding": 1, "expected_records": 10,
}  # fmt: skip


@pytest.mark.parametrize(
    ("path", "value"),
    [
        (("protocol", "hides_from_coordinator"), True),
        (("protocol", "unprotected"), []),
        (("method", "disclosure", "text"), "Nothing."),
        (("privacy", "delta_for_discreteness"), 0.0),
        (("feasibility", "verdict"), "green"),
        (("title",), "Another analysis"),
        (("consented",), ["north", "south", "west", "everybody"]),
    ],
)
def test_facts_that_do_not_follow_from_the_job_are_found(
    path: tuple[str, ...], value: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    honest, told = run_facts.facts, list[Any]()

    def dishonest(*given: Any) -> dict[str, Any]:
        facts = place = honest(*given)
        for key in path[:-1]:
            place = place[key]
        told.append(place[path[-1]])
        place[path[-1]] = value
        return facts

    noise = {"privacy": NOISE} if path[0] in ("privacy", "feasibility") else {}
    protocol = {"name": "additive" if noise else "plain"}
    job = small_job(protocol=protocol, release=RULES, **noise)
    run(job, tables(), out=tmp_path / "honest")
    verify_folder(tmp_path / "honest")
    monkeypatch.setattr(run_facts, "facts", dishonest)
    run(job, tables(), out=tmp_path / "run")
    assert told != [value]
    error = bad(tmp_path / "run")
    assert error.where == "run.json" and repr(path[0]) in error.what
    with monkeypatch.context() as elsewhere:
        elsewhere.setattr(recomputation, "versions", lambda: {"secagg": "another"})
        assert bad(tmp_path / "run").what == error.what
    (tmp_path / "run" / SUMS_FILE).unlink()
    assert bad(tmp_path / "run").what == error.what
    with pytest.raises(EvidenceError):
        verify_folder(tmp_path / "run", recompute=False)


def test_a_smaller_epsilon_than_the_jobs_is_found_and_rounding_is_not(tmp_path: Path) -> None:
    """Other libraries may compute other last digits of the same guarantee."""
    job = small_job(protocol={"name": "additive"}, release=RULES, privacy=NOISE)
    run(job, tables(), out=tmp_path / "run")
    for factor, same in ((1 + 1e-12, True), (0.999, False)):
        folder = RunFolder.open_finished(tmp_path / "run")
        folder.facts["privacy"]["mechanisms"][-1]["sigma_of_a_site"] *= factor
        if same:
            assert check_claims(folder).done
            continue
        with pytest.raises(EvidenceError) as caught:
            check_claims(folder)
        assert caught.value.where == "run.json"


@pytest.mark.parametrize("without_sums", [False, True])
def test_claims_that_cannot_be_checked_are_named_in_the_verdict(
    without_sums: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = tmp_path / "run"
    run(small_job(release=RULES), tables(), out=folder)
    if without_sums:
        (folder / SUMS_FILE).unlink()
    agreement = planned_job.agreement
    monkeypatch.setattr(
        planned_job, "agreement", lambda planned: agreement(planned) | {"secagg": "another"}
    )
    found = verify_folder(folder)
    assert not found.claims_checked and found.claims_not_checked
    assert found.unchecked == ("the claims of privacy", "the result")
    *_, verdict = CliRunner().invoke(app, ["verify", str(folder)]).stdout.splitlines()
    assert "not checked: the claims of privacy" in verdict and "intact" not in verdict
    report = tmp_path / "report"
    write_report(report, [folder])
    assert len(verify_report(report).runs_not_checked) == 2
    *_, verdict = CliRunner().invoke(app, ["verify", str(report)]).stdout.splitlines()
    assert "intact" not in verdict
