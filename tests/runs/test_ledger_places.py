"""Where ledgers lie, who may choose it, and what happens where there is no place for one."""

import stat
from pathlib import Path
from typing import Any

import pytest
from support.privacy.ledger_runs import FIVE, folder_with, noised, run
from support.runs.jobs import raw_job, tables

import secagg
from secagg.errors import JobError, PolicyRefusal, UsageError


def test_ledgers_are_private_and_beside_the_records(tmp_path: Path) -> None:
    data = folder_with(tmp_path)
    run(data)
    files = sorted((data / "ledgers").iterdir())
    assert [f.name for f in files] == sorted(f"{n}.ledger" for n in (*FIVE, "coordinator"))
    assert {stat.S_IMODE(f.stat().st_mode) for f in files} == {0o600}
    assert stat.S_IMODE((data / "ledgers").stat().st_mode) == 0o700


def test_ledgers_are_kept_in_the_jobs_folder_for_them(tmp_path: Path) -> None:
    data = folder_with(tmp_path)
    sites = {"folder": data, "max_rows": 100, "ledgers": tmp_path / "elsewhere"}
    run(data, sites=sites)
    assert not (data / "ledgers").exists() and len(list((tmp_path / "elsewhere").iterdir())) == 6


def test_a_job_cannot_move_the_ledger_of_a_site_with_a_policy(tmp_path: Path) -> None:
    data = folder_with(tmp_path)
    (data / "b.policy.toml").write_text("min_sites = 3\nmin_records = 2\n")
    run(data, sites={"folder": data, "max_rows": 100, "ledgers": tmp_path / "elsewhere"})
    assert [p.name for p in (data / "ledgers").iterdir()] == ["b.ledger"]


def test_a_renamed_file_of_a_named_data_set_keeps_its_ledger(tmp_path: Path) -> None:
    data = folder_with(tmp_path)
    policy = 'min_sites = 3\nmin_records = 2\ndataset = "the register"\n[budget]\n'
    (data / "b.policy.toml").write_text(f"{policy}period_epsilon = 9\nperiod_delta = 1e-5\n")
    run(data, privacy=noised())
    (data / "b.csv").rename(data / "z.csv")
    (data / "b.policy.toml").rename(data / "z.policy.toml")
    assert (data / "ledgers/the register.ledger").exists()
    with pytest.raises(PolicyRefusal, match="b - z"):  # another name is another site
        run(data, ("a", "c", "d", "e", "z"), privacy=noised())


def test_a_job_cannot_bypass_the_policy_beside_a_table(tmp_path: Path) -> None:
    data = folder_with(tmp_path)
    (data / "a.policy.toml").write_text("min_sites = 3\nmin_records = 2\n")
    sites = {"table": data / "a.csv", "site_column": "grade", "max_rows": 100}
    with pytest.raises(JobError, match="policy"):
        run(data, sites=sites)


def test_tables_from_python_leave_no_ledger(tmp_path: Path, monkeypatch: Any) -> None:
    monkeypatch.chdir(tmp_path)
    secagg.run(raw_job(), tables())
    assert list(tmp_path.iterdir()) == []


def test_without_a_writable_ledger_folder_the_run_is_refused(tmp_path: Path) -> None:
    data = folder_with(tmp_path)
    (data / "ledgers").write_text("a file in the way")
    with pytest.raises(UsageError, match="ledgers"):
        run(data)


def test_a_damaged_ledger_stops_the_run(tmp_path: Path) -> None:
    data = folder_with(tmp_path)
    run(data)
    path = data / "ledgers/b.ledger"
    path.write_bytes(path.read_bytes()[:-1000])
    with pytest.raises(Exception, match="damaged"):
        run(data)
