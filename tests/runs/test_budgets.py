"""`secagg budget`: where it looks, what it shows, and whose cap it sets."""

import json
import math
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console
from support.privacy.ledger_runs import DELTA, FIVE, folder_with, noised, run
from support.runs.jobs import TOML

from secagg.cli import main, output
from secagg.cli.output import terminal
from secagg.contracts.noise import Adjacency
from secagg.core.randomness import replayable_random
from secagg.errors import JobError, PolicyRefusal, UsageError
from secagg.privacy.accounting.calibration import EXACT
from secagg.privacy.accounting.composition import FREE, Cap
from secagg.runs import budgets, ledger_history
from secagg.sessions.session_ledgers import open_ledger

CAP = Cap(1.0, DELTA, None, Adjacency.ADD_REMOVE)
AMPLE = "[budget]\nperiod_epsilon = 100\nperiod_delta = 0.1\n"


def job_beside(place: Path) -> Path:
    job = place / "job.toml"
    job.write_text(TOML)
    return job


def command(monkeypatch: Any, capsys: Any, *args: str) -> str:
    monkeypatch.setattr("sys.argv", ["secagg", *args])
    with pytest.raises(SystemExit) as ended:
        main.main()
    assert not ended.value.code, capsys.readouterr().err
    return str(capsys.readouterr().out)


def printed(monkeypatch: Any, capsys: Any, *args: str) -> str:
    """Return what a command prints, with runs of blanks as one."""
    return " ".join(command(monkeypatch, capsys, *args).split())


def test_the_budget_commands_show_set_and_list_budgets(
    tmp_path: Path, monkeypatch: Any, capsys: Any
) -> None:
    data = folder_with(tmp_path)
    run(data, privacy=noised())
    run(data)
    where = str(data / "ledgers")
    shown = {r["party"]: r for r in json.loads(command(monkeypatch, capsys, "budget", "show",
                                                       where, "--json"))}  # fmt: skip
    assert shown["a"]["releases"] == 4 and shown["a"]["exact"] == 2
    assert shown["a"]["epsilon_add_remove"] is None  # no bound: exact sums were released
    assert "no bound no bound" in printed(monkeypatch, capsys, "budget", "show", where)
    set_ = ("budget", "set", f"{where}/a.ledger", "--epsilon", "3", "--delta", "1e-6")
    assert "epsilon 3" in command(monkeypatch, capsys, *set_, "--days", "365")
    lines = command(monkeypatch, capsys, "budget", "history", where)
    assert "epsilon 3 at delta 1e-06 in 365 days" in lines
    assert "allowed: min_sites" in lines and "seed" not in lines


# --- setting a cap ---


def test_a_cap_is_set_by_job_file_before_the_first_run(tmp_path: Path) -> None:
    data, job = folder_with(tmp_path), job_beside(tmp_path)
    (data / "c.policy.toml").write_text(
        f'min_sites = 3\nmin_records = 2\ndataset = "the register"\n{AMPLE}'
    )
    row = budgets.set_cap(job, "c", None, CAP)
    assert (row["party"], row["dataset"]) == ("c", "the register")
    assert [path.name for path in (data / "ledgers").iterdir()] == ["the register.ledger"]
    with pytest.raises(PolicyRefusal, match="'the register'"):
        run(data, privacy=noised(2.0))
    run(data, privacy=noised(0.9))


def test_a_cap_is_set_by_ledger_file(tmp_path: Path) -> None:
    data = folder_with(tmp_path)
    file = data / "ledgers/a.ledger"
    for path, dataset in ((file, None), (data / "ledgers/aa.ledger", "a")):  # it might be misspelt
        with pytest.raises(UsageError):
            budgets.set_cap(path, None, dataset, CAP)
    assert not (data / "ledgers").exists()
    budgets.set_cap(file, None, "a", CAP)
    with pytest.raises(PolicyRefusal):
        run(data, privacy=noised(2.0))
    assert budgets.set_cap(file, None, None, CAP)["dataset"] == "a"  # now it is known
    run(data, privacy=noised(0.5))
    for party, dataset in (("b", "bb"), ("b", "B "), ("coordinator", "all site")):
        with pytest.raises(UsageError):  # a misspelt name: no run would read the cap
            budgets.set_cap(data / "ledgers", party, dataset, CAP)
    assert budgets.set_cap(data / "ledgers", "b", "b", CAP)["caps"]


def test_a_cap_needs_one_ledger_and_one_data_set(tmp_path: Path) -> None:
    data, job = folder_with(tmp_path), job_beside(tmp_path)
    for path, party in ((job, None), (job, "aa"), (data, "a")):
        with pytest.raises(UsageError):
            budgets.set_cap(path, party, None, CAP)
    budgets.set_cap(job, "a", None, CAP)
    with pytest.raises(UsageError, match="'b'"):
        budgets.set_cap(data, "b", None, CAP)
    with closing(open_ledger(data / "ledgers/a.ledger")) as ledger:
        ledger.set_caps("old", [CAP])
    with pytest.raises(UsageError, match="'a', 'old'"):
        budgets.set_cap(data / "ledgers/a.ledger", None, None, CAP)


# --- what is shown ---


def test_show_lists_the_caps_of_a_policy(tmp_path: Path) -> None:
    data = folder_with(tmp_path)
    (data / "c.policy.toml").write_text(
        "min_sites = 3\nmin_records = 2\n[budget]\nperiod_epsilon = 4\nperiod_delta = 1e-6\n"
        'adjacency = ["add_remove"]\n'
    )
    job = job_beside(tmp_path)
    run(data, privacy=noised())
    caps = {row["party"]: row["caps"] for row in budgets.show(job)}
    assert [cap["epsilon"] for cap in caps["c"]] == [4.0] and caps["a"] == []
    assert 2.9 < caps["c"][0]["left"] < 4.0
    assert list(caps) == [*FIVE, "coordinator"]
    assert [row["party"] for row in budgets.show(data)] == sorted(caps)


def test_show_names_sites_as_in_the_job_and_omits_none(tmp_path: Path) -> None:
    data, job = folder_with(tmp_path), job_beside(tmp_path)
    policy = data / "c.policy.toml"
    policy.write_text('min_sites = 3\nmin_records = 2\ndataset = "register"\n')
    run(data)
    shown = {row["party"]: row["dataset"] for row in budgets.show(job)}
    assert shown == {**{n: n for n in FIVE}, "c": "register", "coordinator": "all sites"}
    policy.unlink()
    (data / "e.csv").unlink()
    assert {row["party"] for row in budgets.show(job)} == {*"abde", "register", "coordinator"}


def test_two_sites_of_one_data_set_have_one_ledger(tmp_path: Path) -> None:
    data, job = folder_with(tmp_path), job_beside(tmp_path)
    for name in "cd":
        (data / f"{name}.policy.toml").write_text(
            f'min_sites = 3\nmin_records = 2\ndataset = "register"\n{AMPLE}'
        )
    for name in "cd":
        assert budgets.set_cap(job, name, None, CAP)["party"] == name
    assert [row["party"] for row in budgets.show(job)] == ["c"]
    run(data, privacy=noised(0.5))
    assert [row["party"] for row in budgets.show(job)] == [*"abce", "coordinator"]
    both = [row for row in ledger_history.history(job, "c") if row["kind"] == "entry"]
    assert {row["party"] for row in both} == {"c", "d"}
    assert both == [row for row in ledger_history.history(job, "d") if row["cost"]]
    for name, most in (("c", 50), ("d", 30)):
        (data / f"{name}.policy.toml").write_text(
            'min_sites = 3\nmin_records = 2\ndataset = "register"\n[budget]\n'
            f'period_epsilon = {most}\nperiod_delta = 1e-5\nadjacency = ["add_remove"]\n'
        )
    caps = {row["party"]: row["caps"] for row in budgets.show(job)}["c"]
    assert [cap["epsilon"] for cap in caps] == [1.0, 50.0, 30.0]  # the ledger's, and both policies'


def test_the_show_command_prints_what_show_returns(
    tmp_path: Path, monkeypatch: Any, capsys: Any
) -> None:
    data = folder_with(tmp_path)
    run(data, privacy=noised(2.0))
    file = data / "ledgers/a.ledger"
    (row,) = budgets.show(file, 1e-9)
    add, replace = (row[f"epsilon_{adjacency.value}"] for adjacency in Adjacency)
    assert add < replace
    shown = printed(monkeypatch, capsys, "budget", "show", str(file), "--delta", "1e-9")
    assert f"{add:.2f}" in shown and f"{replace:.2f}"[:3] in shown
    narrow = Console(record=True, width=72, quiet=True)
    narrow.quiet = False
    monkeypatch.setattr(terminal, "standard_output", lambda: narrow)
    output.show_budget([row | {"party": "coordinator of long name", "dataset": "a name as long"}])
    assert "add_remove" in narrow.export_text()
    monkeypatch.undo()
    budgets.set_cap(file, None, None, Cap(3.0, DELTA, None, Adjacency.ADD_REMOVE))
    (cap,) = budgets.show(file)[0]["caps"]
    assert cap["left"] > 3.0 - cap["spent"] + 0.5  # epsilons do not add up: 2.4 against 1
    shown = printed(monkeypatch, capsys, "budget", "show", str(file))
    assert f"{cap['spent']:.2f}"[:3] in shown and f"{cap['left']:.2f}"[:3] in shown


def test_show_supports_other_deltas_and_accountants(tmp_path: Path) -> None:
    data = folder_with(tmp_path)
    run(data, privacy=noised(2.0))
    (file,) = data.glob("ledgers/a.ledger")
    (brief,), (full,) = budgets.show(file, 1e-9), budgets.show(file, 1e-9, in_full=True)
    assert brief == {key: value for key, value in full.items() if key != "in_full"}
    for adjacency in Adjacency:
        other, of_all = full["in_full"][adjacency.value], full[f"epsilon_{adjacency.value}"]
        assert dict(other["curve"])[1e-9] == pytest.approx(of_all, rel=1e-12)
        assert of_all < other["rdp"] < other["zcdp"]
    assert dict(full["in_full"]["add_remove"]["curve"])[DELTA] == pytest.approx(2.0, rel=1e-3)
    for delta in (0.0, 1.0, float("nan")):
        with pytest.raises(UsageError):
            budgets.show(file, delta)


def test_history_states_the_cost_of_each_release(tmp_path: Path) -> None:
    data = folder_with(tmp_path)
    run(data, privacy=noised(2.0))
    paid = [row for row in ledger_history.history(data, "a") if row["cost"] is not None]
    assert [row["content"]["stage"] for row in paid] == ["cohort", "moments"]
    (one,) = [row for row in budgets.show(data) if row["party"] == "a"]
    for row in paid:
        assert row["cost"]["delta"] == DELTA
        assert 0 < row["cost"]["epsilon_add_remove"] < one["epsilon_add_remove"]
        assert f"{row['cost']['epsilon_add_remove']:.3g} (add_remove)" in row["text"]
    run(data)
    exact = ledger_history.history(data, "a")[-1]
    assert exact["cost"]["epsilon_add_remove"] == math.inf and "epsilon inf" not in exact["text"]


def test_history_marks_free_repeats_and_replayable_noise(tmp_path: Path) -> None:
    data = folder_with(tmp_path)
    for _ in range(2):
        run(data, privacy=noised(placement="site"))
    again = [row for row in ledger_history.history(data, "a") if row["kind"] == "use"]
    assert len(again) == 2 and all(row["cost"] is None for row in again)
    assert [row["content"]["stage"] for row in again] == ["cohort", "moments"]
    run(data, privacy=noised(), random=replayable_random(1))
    last = ledger_history.history(data, "a")[-1]
    assert "void" in last["text"]
    assert last["content"]["cost"] == EXACT.plain()


def test_history_calls_no_sum_of_noisy_moments_exact(tmp_path: Path) -> None:
    """Each site pays for its moments; what is computed from them costs nothing more."""
    data = folder_with(tmp_path)
    method = {"name": "fedavg", "outcome": "age", "predictors": ["sex"], "rounds": 2}
    for _ in range(2):
        run(data, method=method, privacy=noised(placement="site"))
    rows = ledger_history.history(data)
    free = [row for row in rows if row["content"].get("cost") == FREE.plain()]
    assert {row["kind"] for row in free} == {"entry", "use"}
    assert {row["party"] for row in free} == {*FIVE, "coordinator"}
    assert not [row for row in rows if "exact" in row["text"]]
    assert not [row for row in free if "epsilon" in row["text"]]
    run(data)
    assert "exact" in ledger_history.history(data, "a")[-1]["text"]


def test_history_is_filtered_by_party_session_and_refusal(tmp_path: Path) -> None:
    data = folder_with(tmp_path)
    run(data)
    with pytest.raises(PolicyRefusal):
        (data / "ledgers/coordinator.ledger").unlink()
        run(data, FIVE[:4])
    everything = ledger_history.history(data)
    sessions = list(dict.fromkeys(row["session"] for row in everything))
    assert len(sessions) == 2
    of_first = ledger_history.history(data, session=sessions[0][:6])
    assert of_first == [row for row in everything if row["session"] == sessions[0]] != []
    assert ledger_history.history(data, "b") == [row for row in everything if row["party"] == "b"]
    refused = ledger_history.history(data, refused=True)
    assert refused == [row for row in everything if "REFUSED" in row["text"]]
    assert {row["session"] for row in refused} == {sessions[1]}
    assert ledger_history.history(data, "e", refused=True) == []
    with pytest.raises(UsageError, match="'bb'"):
        ledger_history.history(data, "bb")


def test_the_history_command(tmp_path: Path, monkeypatch: Any, capsys: Any) -> None:
    data = folder_with(tmp_path)
    run(data, privacy=noised())
    ask = ("budget", "history", str(data / "ledgers"), "--party", "a")
    assert "(add_remove)" in command(monkeypatch, capsys, *ask)
    nothing = command(monkeypatch, capsys, *ask, "--refused", "--session", "[b]zz")
    assert "'a'" in nothing and "'[b]zz'" in nothing and nothing.count("\n") == 1
    assert json.loads(command(monkeypatch, capsys, *ask, "--session", "x", "--json")) == []


def test_a_missing_ledger_or_job_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="no ledger"):
        budgets.show(folder_with(tmp_path))
    with pytest.raises(JobError):
        budgets.show(tmp_path / "missing.toml")


def test_history_adds_up_the_releases_of_a_session(
    tmp_path: Path, monkeypatch: Any, capsys: Any
) -> None:
    """By root of squares, as the job was planned; not line by line."""
    data = folder_with(tmp_path)
    names = [run(data, privacy=noised(2.0)).facts["session"], run(data).facts["session"]]
    shown = [
        printed(monkeypatch, capsys, "budget", "history", str(data / "ledgers"), "--session", name)
        for name in names
    ]
    for party in (*FIVE, "coordinator"):
        assert f"session {names[0][:8]} cost {party} epsilon 2 (add_remove), " in shown[0]
        assert f"session {names[1][:8]} cost {party} no finite epsilon for 2" in shown[1]
    assert names[1][:8] not in shown[0] and shown[0].count("releases together") == 6


@pytest.mark.parametrize(("given", "shown"), [(None, 1e-4), (1e-7, 1e-7)])
def test_the_jobs_delta_is_the_default(tmp_path: Path, given: float | None, shown: float) -> None:
    data = folder_with(tmp_path)
    run(data, privacy=noised())
    job = job_beside(tmp_path)
    job.write_text(TOML + '\n[privacy]\nplacement = "sum"\nepsilon = 2.0\ndelta = 1e-4\n')
    assert {row["delta"] for row in budgets.show(job, given)} == {shown}
    assert {row["delta"] for row in budgets.show(data / "ledgers")} == {budgets.DELTA}


def test_jobs_of_different_units_are_named(tmp_path: Path, monkeypatch: Any, capsys: Any) -> None:
    """Their epsilons are added up as if all were for a record; for a person that is too little."""
    data = folder_with(tmp_path)
    for site in FIVE:
        path = data / f"{site}.csv"
        head, *rows = path.read_text().splitlines()
        named = [f"{row},p{i}" for i, row in enumerate(rows)]
        path.write_text("\n".join([f"{head},who", *named, ""]))
    run(data, privacy=noised())
    where = str(data / "ledgers")
    assert {tuple(row["units"]) for row in budgets.show(data / "ledgers")} == {("record",)}
    assert "different units" not in printed(monkeypatch, capsys, "budget", "show", where)
    run(data, privacy=noised(person="who", records_per_person=2))
    rows = {row["party"]: row["units"] for row in budgets.show(data / "ledgers")}
    assert set(rows) == {*FIVE, "coordinator"}
    assert all(units == ["person", "record"] for units in rows.values())
    assert "different units" in printed(monkeypatch, capsys, "budget", "show", where)
