"""Who would refuse a job as it stands: `secagg plan` asks rules and ledgers, and changes none."""

import math
import re
from pathlib import Path
from typing import Any

import pytest
from support.privacy.ledger_runs import DELTA, FIVE, folder_with, noised, run
from support.runs.jobs import TOML, raw_job, table
from typer.testing import CliRunner

from secagg.cli.main import app
from secagg.cli.output import show_plan
from secagg.contracts.noise import Adjacency
from secagg.core.key_file import make_key
from secagg.core.randomness import system_random
from secagg.errors import PolicyRefusal
from secagg.evidence.claims.disclosure import UNCHECKED
from secagg.jobs.job import parse_job
from secagg.privacy.accounting.composition import Cap
from secagg.runs import budgets
from secagg.runs.plan import plan_run
from secagg.sessions.planned_job import plan_job

POLICY = "min_sites = 3\nmin_records = 2\n"


def plan(data: Path, key: bytes | None = None, **changed: Any) -> dict[str, Any]:
    settings = {"sites": {"folder": data, "max_rows": 100}, "protocol": {"name": "additive"}}
    return plan_run(plan_job(parse_job(raw_job(**settings | changed))), key)


def refusals(data: Path, key: bytes | None = None, **changed: Any) -> list[str]:
    found: list[str] = plan(data, key, **changed)["refusals"]
    return found


def cap(data: Path, party: str, epsilon: float, dataset: str | None = None) -> None:
    file = data / "ledgers" / f"{party}.ledger"
    limit = Cap(epsilon, DELTA, None, Adjacency.ADD_REMOVE)
    budgets.set_cap(file, None, dataset or party, limit)


def files(place: Path) -> dict[Path, bytes]:
    return {path: path.read_bytes() for path in place.rglob("*") if path.is_file()}


def test_planning_predicts_refusals_and_writes_nothing(tmp_path: Path) -> None:
    data = folder_with(tmp_path)
    before = files(tmp_path)
    assert refusals(data) == refusals(data, privacy=noised()) == []
    assert files(tmp_path) == before
    run(data, privacy=noised())
    cap(data, "a", 0.1)
    before = files(tmp_path)
    assert refusals(data, privacy=noised()) != []
    assert files(tmp_path) == before


@pytest.mark.parametrize(
    ("policy", "changed", "rule"),
    [
        ('methods = ["logistic"]', {}, "methods"),
        ('noise = "required"', {}, "noise"),
        ("min_sites = 6", {}, "min_sites"),
        (
            "[budget]\nepsilon = 1\ndelta = 1e-6\nperiod_epsilon = 9\nperiod_delta = 1e-5",
            {"privacy": noised(2.0)},
            "budget",
        ),
    ],
)
def test_plan_attributes_a_refusal_to_the_site_and_its_rule(
    tmp_path: Path, policy: str, changed: dict[str, Any], rule: str
) -> None:
    """And what plan says, the run does."""
    data = folder_with(tmp_path)
    counts = "min_records = 2\nmin_level_sites = 3\n" if "min_sites" in policy else POLICY
    (data / "c.policy.toml").write_text(f"{counts}{policy}\n")
    planned = plan(data, **changed)
    (line,) = planned["refusals"]
    assert line.startswith(f"c, by its rules: {rule}: ")
    assert list(planned["own_rules"]) == ["c"]
    with pytest.raises(PolicyRefusal) as refused:
        run(data, **changed)
    assert refused.value.where == "c"


def test_plan_predicts_the_refusal_by_a_policy_without_minimums(tmp_path: Path) -> None:
    data = folder_with(tmp_path)
    (data / "c.policy.toml").write_text('methods = ["moments"]\n')
    said = [line.split(": ")[:2] for line in refusals(data)]
    assert said == [["c, by its rules", rule] for rule in ("min_sites", "min_records")]
    with pytest.raises(PolicyRefusal, match=r"c\.policy\.toml"):
        run(data)


def test_plan_states_a_refusal_by_the_jobs_own_rules_once(tmp_path: Path) -> None:
    data = folder_with(tmp_path)
    for release in ({"min_sites": 6, "min_records": 2}, {"min_records": 2}):
        (line,) = refusals(data, release=release)
        assert line.startswith("coordinator: ")


def test_plan_predicts_that_no_column_can_vary_at_enough_sites(tmp_path: Path) -> None:
    """Also of numbers alone, which have no levels."""
    data = folder_with(tmp_path)
    numbers = {k: v for k, v in raw_job()["columns"].items() if v["type"] == "continuous"}
    job = {"columns": numbers, "method": {"name": "moments"},
           "release": {"min_sites": 3, "min_records": 2, "min_level_sites": 6}}  # fmt: skip
    (line,) = refusals(data, **job)
    assert line.startswith("coordinator: ") and "min_level_sites" in line
    with pytest.raises(PolicyRefusal, match="min_level_sites"):
        run(data, **job)


def test_plan_predicts_cohort_refusals_by_all_ledgers(tmp_path: Path) -> None:
    data = folder_with(tmp_path)
    run(data)
    (data / "e.csv").rename(data / "e.away")
    said = refusals(data)
    assert [line.partition(":")[0] for line in said] == [
        "coordinator", *(f"{name}, by its ledger" for name in FIVE[:4])
    ]  # fmt: skip
    assert all("= e" in line for line in said)


def test_plan_predicts_budget_refusals_and_states_the_remainder(tmp_path: Path) -> None:
    data = folder_with(tmp_path)
    (data / "c.policy.toml").write_text(
        POLICY + "[budget]\nperiod_epsilon = 2\nperiod_delta = 1e-6\nperiod_days = 30\n"
        'adjacency = ["add_remove"]\n'
    )
    cap(data, "b", 3.0)
    fresh = plan(data, privacy=noised(1.5))
    assert fresh["refusals"] == []
    assert [(row["site"], round(row["left"], 2)) for row in fresh["budgets"]] == [
        ("b", 3.0), ("c", 2.0)
    ]  # fmt: skip
    run(data, privacy=noised(1.5))
    then = plan(data, privacy=noised(1.5))
    (line,) = then["refusals"]
    assert line.startswith("c, by its budget: data set 'c': ")
    left = {row["site"]: row["left"] for row in then["budgets"]}
    assert plan(data, privacy=noised(left["c"] * 0.999))["refusals"] == []
    run(data, privacy=noised(left["c"] * 0.999))


def test_plan_names_the_sites_without_a_budget(tmp_path: Path) -> None:
    data = folder_with(tmp_path)
    assert plan(data)["no_budget"] == []  # an exact job
    (data / "c.policy.toml").write_text("profile = 3\n")
    assert plan(data, privacy=noised())["no_budget"] == ["a", "b", "d", "e"]
    cap(data, "b", 3.0)
    assert plan(data, privacy=noised())["no_budget"] == ["a", "d", "e"]
    (data / "d.policy.toml").write_text(POLICY)
    planned = plan(data, privacy=noised())
    assert planned["no_budget"] == ["a", "e"] and "budget.set" in planned["refusals"][0]


def test_plan_checks_the_budget_for_all_rounds(tmp_path: Path) -> None:
    data = folder_with(tmp_path)
    gradient = {"name": "gradient", "outcome": "sex", "predictors": ["age"], "family": "binomial",
                "rounds": 10}  # fmt: skip
    job = {"method": gradient, "privacy": noised(2.0, placement="round")}
    cap(data, "a", 1.9)  # eight of ten rounds would fit
    assert len(refusals(data, **job)) == 1
    cap(data, "a", 2.1)
    assert refusals(data, **job) == []
    assert len(refusals(data)) == 1  # exact sums fit no cap


def test_plan_checks_the_coordinators_own_cap(tmp_path: Path) -> None:
    data = folder_with(tmp_path)
    cap(data, "coordinator", 1.0, "all sites")
    assert refusals(data, privacy=noised(0.9)) == []
    (line,) = refusals(data, privacy=noised(1.1))
    assert line.startswith("data set 'all sites': ")


def test_plan_notes_releases_that_may_have_been_paid_already(tmp_path: Path) -> None:
    data = folder_with(tmp_path)
    run(data, privacy=noised(placement="site"))
    cap(data, "a", 0.5)
    planned = plan(data, privacy=noised(placement="site"))
    assert planned["refusals"] == []
    (line,) = planned["possible_refusals"]
    assert line.startswith("a, by its budget, unless")
    job = tmp_path / "job.toml"
    privacy = '\n[privacy]\nplacement = "site"\nepsilon = 1.0\ndelta = 1e-6\n'
    job.write_text(TOML + privacy)
    done = CliRunner().invoke(app, ["plan", str(job)], catch_exceptions=False)
    assert done.exit_code == 0 and line in done.stdout
    run(data, privacy=noised(placement="site"))


def test_plan_checks_the_coordinators_key(tmp_path: Path) -> None:
    data = folder_with(tmp_path)
    own = make_key(tmp_path / "key", "coordinator", system_random).public.verify_key
    listed = f'[keys]\ncoordinators = ["{own.hex()}"]\n'
    (data / "c.policy.toml").write_text(POLICY + 'protocols = ["any"]\n' + listed)
    (line,) = refusals(data)
    assert line.startswith("c, by its rules: keys: ") and line.endswith("run with --key")
    assert refusals(data, own) == []
    assert len(refusals(data, bytes(32))) == 1
    job = tmp_path / "job.toml"
    job.write_text(TOML)
    shown = [
        CliRunner().invoke(app, ["plan", str(job), *more], catch_exceptions=False).stdout
        for more in ([], ["--key", str(tmp_path / "key")])
    ]
    assert ["will be refused: c, by its rules" in out for out in shown] == [True, False]


@pytest.mark.parametrize("placement", ["sum", "site"])
def test_plan_predicts_what_the_ledgers_will_have_spent(tmp_path: Path, placement: str) -> None:
    """Against the ledgers after the run, for every party and under a cap."""
    data = folder_with(tmp_path)
    settings = {"protocol": {"name": "additive"}, "sites": {"folder": data, "max_rows": 100}}
    cap(data, "a", 9.0)
    before = dict.fromkeys((*FIVE, "coordinator"), 0.0)
    for epsilon in (1.0, 2.0):
        job = settings | {"privacy": noised(epsilon, placement=placement)}
        found = plan(data, **job)
        rows = {row["party"]: row for row in found["totals"]}
        assert {party: row["before"] for party, row in rows.items()} == before
        assert all(row["job"] == pytest.approx(epsilon, rel=1e-3) for row in rows.values())
        assert {row["repeats"] for row in rows.values()} == {False}
        assert {row["at_most"] for row in rows.values()} == {placement == "site" and epsilon == 2.0}
        run(data, **job)
        then = budgets.show(data, found["differential_privacy"]["delta"])
        spent = {row["party"]: row for row in then}
        assert {party: row["after"] for party, row in rows.items()} == {
            party: pytest.approx(row["epsilon_add_remove"], rel=1e-9)
            for party, row in spent.items()
        }
        (limit,) = found["budgets"]
        assert limit["site"] == "a"
        assert limit["after"] == pytest.approx(spent["a"]["caps"][0]["spent"], rel=1e-9)
        before = {party: row["after"] for party, row in rows.items()}


def test_without_noise_or_ledgers_there_is_no_total(tmp_path: Path) -> None:
    data = folder_with(tmp_path)
    assert plan(data)["totals"] == []
    run(data)
    rows = plan(data, privacy=noised())["totals"]
    assert {(row["before"], row["after"]) for row in rows} == {(math.inf, math.inf)}
    job = parse_job(raw_job(privacy=noised(), protocol={"name": "additive"}))
    in_memory = plan_job(job, {name: table(0) for name in FIVE})
    assert plan_run(in_memory)["totals"] == []


def test_the_plan_command_prints_one_row_for_equal_ledgers(tmp_path: Path) -> None:
    data = folder_with(tmp_path)
    run(data, privacy=noised(2.0))
    job = tmp_path / "job.toml"
    settings = "".join(f"{key} = {value!r}\n" for key, value in noised(2.0).items())
    job.write_text(f"{TOML.replace('plain', 'additive')}\n[privacy]\n{settings}")
    out = CliRunner().invoke(app, ["plan", str(job)], catch_exceptions=False).stdout
    (row,) = [line for line in out.splitlines() if "coordinator" in line and "2.00" in line]
    parties, before, own, _ = re.split(" {2,}", row)
    assert (parties, before, own) == ("a, b, c, d, e and coordinator", "2.00", "2.00")


def test_the_plan_command_prints_each_refusal_on_one_line(tmp_path: Path) -> None:
    data = folder_with(tmp_path)
    cap(data, "a", 3.0)
    run(data, privacy=noised(2.0))
    job = tmp_path / "job.toml"
    job.write_text(TOML)
    done = CliRunner().invoke(app, ["plan", str(job)], catch_exceptions=False)
    assert done.exit_code == PolicyRefusal.exit_code
    assert done.stderr.startswith("secagg: ") and done.stderr.count("\n") == 1
    out = done.stdout.splitlines()
    (refused,) = [line for line in out if line.startswith("will be refused: ")]
    assert refused.endswith(f"{refusals(data, protocol={'name': 'plain'})[0]}")
    (left,) = [line for line in out if line.startswith("epsilon left at a: ")]
    assert left.endswith("of a cap of epsilon 3 at delta 10⁻⁶ for ever (add_remove)")


@pytest.mark.parametrize(("privacy", "said"), [({}, 1), (noised(), 0)])
def test_the_plan_says_once_that_exact_results_tell_more_together(
    privacy: dict[str, Any], said: int, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    planned = plan(folder_with(tmp_path), privacy=privacy)
    show_plan(planned)
    found = [line for line in capsys.readouterr().out.splitlines() if UNCHECKED in line]
    assert len(found) == said
    assert all(line.endswith(planned["disclosure"]["other_runs"]) for line in found)


@pytest.mark.parametrize(("epsilon", "expected", "warned"), [
    (0.01, None, True), (4.0, None, False), (0.01, 10**6, False), (4.0, 13, True),
])  # fmt: skip
@pytest.mark.parametrize("placement", ["site", "sum"])
def test_noise_that_may_end_the_run_is_named(
    placement: str, epsilon: float, expected: int | None, warned: bool
) -> None:
    privacy = {
        "placement": placement, "epsilon": epsilon, "delta": 1e-7, "record_norm": 1.0,
        "expected_records": expected,
    }  # fmt: skip
    method = {"name": "fedavg", "outcome": "age"} if placement == "site" else {"name": "moments"}
    release = {"min_sites": 3, "min_records": 4}  # together 12
    job = parse_job(
        raw_job(privacy=privacy, method=method, release=release, protocol={"name": "additive"})
    )
    found = plan_run(plan_job(job, {name: table(i) for i, name in enumerate("abc")}))
    assert any("number of records has noise" in text for text in found["warnings"]) is warned


GRAPHS: list[dict[str, Any]] = [
    {"name": "notears_admm"},
    {"name": "notears_mlp_admm"},
    {"name": "local_graphs", "learner": "notears"},
    {"name": "moments", "analyses": [{"kind": "notears"}, {"kind": "golem"}]},
]


@pytest.mark.parametrize("method", GRAPHS, ids=lambda method: method["name"])
def test_a_truth_that_the_job_rules_out_is_a_warning_with_the_edge(
    method: dict[str, Any], tmp_path: Path
) -> None:
    """Before any record is read: the run said so only beside its score."""
    data = folder_with(tmp_path)
    edge = {"truth": [["age", "sex=male"]]}
    tiers = {"tiers": [["sex"], ["age"]]}
    forbidden = {"forbidden": [["age", "sex"]]}

    def told(**settings: Any) -> list[str]:
        warnings = plan(data, method=method | settings)["warnings"]
        return [text for text in warnings if "age -> sex=male" in text]

    assert told(**edge) == told(**tiers) == told(truth=[["sex=male", "age"]], **tiers) == []
    assert len(told(**edge, **tiers)) == len(told(**edge, **forbidden)) == 1
