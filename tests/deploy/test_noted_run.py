"""What the coordinator's log says of a run that an engine started."""

from pathlib import Path

import pytest
from support.crashes.consortium import Consortium
from support.runs.jobs import SITES

from secagg.deploy.noted_run import RunFailed, run_noted
from secagg.evidence.integrity import verify_folder
from secagg.sessions.homes.home import Home


def lead(made: Consortium) -> Home:
    home = made.homes["coordinator"]
    run_noted(home, made.job.model_dump_json(), made.call, "fake", "noted")
    return home


def test_the_log_has_the_head_that_verify_asks_for(tmp_path: Path) -> None:
    home = lead(Consortium.of(tmp_path))
    folder = home.folder / "runs" / "noted"
    found = verify_folder(folder)
    assert found.head in (home.folder / "log.txt").read_text()
    assert verify_folder(folder, found.head) == found


def test_the_log_names_all_sites_that_refuse_with_their_codes_only(tmp_path: Path) -> None:
    made = Consortium.of(tmp_path)
    for name in SITES[:2]:
        rules = made.homes[name].folder / "policy.toml"
        rules.write_text('min_sites = 3\nmin_records = 2\nmethods = ["logistic"]\n')
    with pytest.raises(RunFailed):
        lead(made)
    log = (made.homes["coordinator"].folder / "log.txt").read_text()
    assert all(name in log for name in SITES[:2]) and log.count("(policy)") == 2
    assert SITES[2] not in log and "logistic" not in log


def test_the_log_says_that_a_run_begins_and_that_its_process_was_ended(tmp_path: Path) -> None:
    made = Consortium.of(tmp_path)

    def ends(consortium: Consortium, party: str, message: bytes) -> bytes:
        raise SystemExit(1)

    made.before = ends
    with pytest.raises(SystemExit):
        lead(made)
    first, *_, last = (made.homes["coordinator"].folder / "log.txt").read_text().splitlines()
    assert "noted: begins" in first
    assert "SystemExit" in last and "Submit the same folder again" in last
