"""Ledgers over runs: budgets add up, cohorts are compared, decisions are on record."""

from contextlib import nullcontext
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from support.privacy.ledger_runs import DELTA, FIVE, folder_with, noised, run
from support.runs.jobs import raw_job, table

import secagg
from secagg.contracts.noise import Adjacency
from secagg.core.key_file import make_key
from secagg.core.randomness import replayable_random, system_random
from secagg.errors import PolicyRefusal
from secagg.jobs.job import parse_job
from secagg.privacy.accounting.composition import Cap
from secagg.privacy.accounting.gaussian_dp import gaussian_epsilon, gaussian_mu
from secagg.runs import budgets, ledger_history
from secagg.sessions.coordinator import Coordinator
from secagg.sessions.planned_job import plan_job
from secagg.sessions.session import open_session


def spent(data: Path, party: str, delta: float = DELTA) -> float:
    (row,) = [row for row in budgets.show(data / "ledgers") if row["party"] == party]
    assert row["delta"] == delta
    return float(row["epsilon_add_remove"])


# --- differencing ---


def test_a_release_that_would_expose_a_site_is_refused(tmp_path: Path) -> None:
    """k = 3 of 5 sites: e alone is the difference of two cohorts; the history says which."""
    data = folder_with(tmp_path)
    run(data)
    with pytest.raises(PolicyRefusal) as refused:
        run(data, ("a", "b", "c", "d"))
    assert "= e" in refused.value.what or " e:" in refused.value.what
    with pytest.raises(PolicyRefusal):
        run(data, ("a", "b", "c"))  # d and e together: 2 sites, and k is 3
    run(data)  # the same cohort as before adds nothing


def test_a_sites_ledger_refuses_if_the_coordinators_is_missing(tmp_path: Path) -> None:
    data = folder_with(tmp_path)
    run(data)
    (data / "ledgers/coordinator.ledger").unlink()
    with pytest.raises(PolicyRefusal) as refused:
        run(data, ("a", "b", "c", "d"))
    assert refused.value.where == "a"
    rows = [r for r in ledger_history.history(data / "ledgers") if "REFUSED" in r["text"]]
    assert {row["party"] for row in rows} == {"a", "b", "c", "d"}
    assert "cohorts" in rows[0]["text"] and "e" in rows[0]["text"].split("=")[1]


@pytest.mark.parametrize(
    ("first", "second", "policy", "allowed"),
    [
        ("abc", "def", "", True),  # all six are their sum: nothing new
        ("abcd", "cdef", "", False),  # with all six: c + d alone, 2 sites
        ("abc", "abc", 'cohorts = "fixed"', False),
    ],
)
def test_a_run_over_all_six_after_two_cohorts_follows_the_policy(
    tmp_path: Path, first: str, second: str, policy: str, allowed: bool
) -> None:
    names = (*FIVE, "f")
    data = folder_with(tmp_path, names)
    if policy:
        (data / "a.policy.toml").write_text(f"min_sites = 3\nmin_records = 2\n{policy}\n")
    run(data, tuple(first))
    run(data, tuple(second))
    with nullcontext() if allowed else pytest.raises(PolicyRefusal):
        run(data, names)


# --- budgets ---


def test_jobs_on_one_data_set_compose(tmp_path: Path) -> None:
    data = folder_with(tmp_path)
    for _ in range(4):
        run(data, privacy=noised())
    mu = gaussian_mu(1.0, DELTA * (1 - 1e-3)) * 4**0.5
    assert spent(data, "a") == pytest.approx(gaussian_epsilon(mu, DELTA), rel=1e-3)
    assert spent(data, "coordinator") == pytest.approx(spent(data, "a"), rel=1e-6)


def test_a_cap_refuses_and_states_the_remaining_budget(tmp_path: Path) -> None:
    data = folder_with(tmp_path)
    run(data, privacy=noised())
    budgets.set_cap(data / "ledgers", "b", None, Cap(1.5, DELTA, None, Adjacency.ADD_REMOVE))
    with pytest.raises(PolicyRefusal) as refused:
        run(data, privacy=noised(1.2))
    left = float(refused.value.advice.split("epsilon ")[1].split(" ")[0])
    before = spent(data, "b")
    with pytest.raises(PolicyRefusal):
        run(data, privacy=noised(left * 1.02))
    assert spent(data, "b") == before  # a refusal costs nothing
    run(data, privacy=noised(left))
    assert spent(data, "b") == pytest.approx(1.5, rel=1e-2)


def test_an_exact_sum_does_not_fit_any_cap(tmp_path: Path) -> None:
    data = folder_with(tmp_path)
    (data / "c.policy.toml").write_text(
        "min_sites = 3\nmin_records = 2\n"
        '[budget]\nperiod_epsilon = 9\nperiod_delta = 1e-5\nadjacency = ["add_remove"]\n'
    )
    with pytest.raises(PolicyRefusal) as refused:
        run(data)
    assert refused.value.where == "c"
    run(data, privacy=noised(8.0))


def test_only_a_listed_coordinator_key_is_accepted(tmp_path: Path) -> None:
    data = folder_with(tmp_path)
    own = make_key(tmp_path / "key", "coordinator", system_random).public.verify_key.hex()
    (data / "c.policy.toml").write_text(
        f'min_sites = 3\nmin_records = 2\nprotocols = ["any"]\n[keys]\ncoordinators = ["{own}"]\n'
    )
    with pytest.raises(PolicyRefusal, match="coordinators"):
        run(data)
    settings = {"sites": {"folder": data, "max_rows": 100}}
    secagg.run(parse_job(raw_job(**settings)), key=tmp_path / "key")


# --- placement `site`: noised once ---


def test_noise_at_a_site_is_drawn_once(tmp_path: Path) -> None:
    """Another analysis of the same release costs nothing and finds the same numbers."""
    data = folder_with(tmp_path)
    first = run(data, privacy=noised(placement="site"))
    cost = spent(data, "a")
    ridge = {"kind": "ridge", "outcome": "age", "predictors": ["sex"]}
    again = run(
        data, privacy=noised(placement="site"), method={"name": "moments", "analyses": [ridge]}
    )
    assert spent(data, "a") == cost
    assert np.array_equal(first.result.arrays["mean"], again.result.arrays["mean"])
    other = run(data, privacy=noised(1.1, placement="site"))
    assert not np.array_equal(first.result.arrays["mean"], other.result.arrays["mean"])
    assert spent(data, "a") > cost


def test_noise_in_a_sum_is_drawn_anew_in_each_run(tmp_path: Path) -> None:
    data = folder_with(tmp_path)
    means = [run(data, privacy=noised()).result.arrays["mean"].tolist() for _ in range(2)]
    assert means[0] != means[1]


def test_equal_answers_to_different_questions_get_different_noise(tmp_path: Path) -> None:
    """Two columns that are equal at every site: equal noise would say so, with certainty."""
    data = folder_with(tmp_path)
    for path in data.glob("*.csv"):
        lines = path.read_text().splitlines()
        both = [f"{lines[0]},twin", *(f"{line},{line.split(',')[1]}" for line in lines[1:])]
        path.write_text("\n".join(both))
    column = raw_job()["columns"]["sex"]
    found = [
        run(data, privacy=noised(placement="site"), columns={name: column}).result.arrays["mean"]
        for name in ("sex", "twin", "sex")
    ]
    assert found[0] == found[2] != found[1]


def test_replayable_noise_does_not_meet_required_noise(tmp_path: Path) -> None:
    data = folder_with(tmp_path)
    (data / "c.policy.toml").write_text('min_sites = 3\nmin_records = 2\nnoise = "required"\n')
    settings = {"sites": {"folder": data, "max_rows": 100}, "privacy": noised()}
    job = parse_job(raw_job(**settings, protocol={"name": "additive"}))
    with pytest.raises(PolicyRefusal, match="noise"):
        secagg.run(job, random=replayable_random(1))


# --- cohorts that become known at the opening ---


@pytest.mark.parametrize("number", [0, 5])
def test_a_cohort_that_shrank_is_checked_before_it_is_opened(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, number: int
) -> None:
    """Masked sums are opened by the sites; whatever number the coordinator gives the round."""
    raw = raw_job(protocol={"name": "masked"}, sites={"max_rows": 100, "ledgers": tmp_path / "l"})
    records = {name: table(i, 40) for i, name in enumerate("abcdef")}
    begin = Coordinator._begin_sum

    def renumbered(self: Coordinator, state: Any, events: Any) -> Any:
        return begin(
            self, replace(state, round=number) if state.stage == "cohort" else state, events
        )

    monkeypatch.setattr(Coordinator, "_begin_sum", renumbered)
    for lost in (None, "f"):
        session = open_session(plan_job(parse_job(raw), records), system_random)
        step = replace(session.coordinator, earlier=()).start()  # it has forgotten
        try:
            while step.state.total is None:
                consents = step.state.phase == "consent"  # and is lost after it
                asked = {n: r for n, r in step.requests.items() if n != lost or consents}
                step = session.coordinator.advance(step.state, session.engine.exchange(asked))
            assert lost is None
        except PolicyRefusal:
            assert lost == "f"
            why = session.engine.errors["a"]  # type: ignore[union-attr]
            assert isinstance(why, PolicyRefusal) and "= f" in why.what
        finally:
            session.close()
