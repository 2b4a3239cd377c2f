"""A coordinator that states more in run.json, during the run, than its job gives.

All sites countersign the log, which has only the digest of these facts. So every signature holds.
"""

from pathlib import Path
from typing import Any

import pytest
from support.runs.jobs import small_job, tables
from support.runs.run_folders import bad

from secagg.evidence.integrity import verify_folder
from secagg.runs import facts as run_facts
from secagg.runs.run import run

RULES = {"min_sites": 2, "min_records": 2}
NOISE = {"placement": "sum", "epsilon": 1.0, "delta": 1e-6, "colluding": 1}


@pytest.mark.parametrize(
    ("path", "value"),
    [
        (("protocol", "hides_from_coordinator"), True),
        (("protocol", "unprotected"), []),
        (("method", "disclosure", "text"), "Nothing."),
        (("privacy", "delta_for_discreteness"), 0.0),
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

    noise = {"privacy": NOISE} if path[0] == "privacy" else {}
    protocol = {"name": "additive" if noise else "plain"}
    job = small_job(protocol=protocol, release=RULES, **noise)
    run(job, tables(), out=tmp_path / "honest")
    verify_folder(tmp_path / "honest")
    monkeypatch.setattr(run_facts, "facts", dishonest)
    run(job, tables(), out=tmp_path / "run")
    assert told != [value]
    error = bad(tmp_path / "run")
    assert error.where == "run.json" and repr(path[0]) in error.what
