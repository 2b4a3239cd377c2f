"""Whole runs under differential privacy: what leaves has noise, of the size that was stated."""

import ast
import json
import math
import sqlite3
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from support.methods.short_chains import short_chains
from support.protocols.keys import quick_keys
from support.runs.checkout import ROOT
from support.runs.jobs import as_csv, raw_job, table, tables, write_job

import secagg
from secagg.core.randomness import replayable_random, system_random
from secagg.errors import CapabilityError, DataError, JobError
from secagg.jobs.job import parse_job
from secagg.models.common.clipped_moments import CONSTANT
from secagg.models.common.site_confounding import POOLED_NOISED_NOTE
from secagg.models.moments.method import PooledMoments
from secagg.privacy.ledger.ledger import Ledger
from secagg.sessions import fixed_point
from secagg.sessions.planned_job import plan_job
from secagg.sessions.session import Session, open_session
from secagg.sessions.session_ledgers import query_digest

__all__ = ["quick_keys", "short_chains"]  # fixtures

HIDING = ("additive", "masked", "paillier", "threshold_paillier")
DELTA = 1e-6


def private(placement: str = "sum", protocol: str = "additive", **changed: Any) -> dict[str, Any]:
    """Return a small job of moments under differential privacy."""
    settings = {"placement": placement, "epsilon": 8.0, "delta": DELTA} | changed
    more = {"key_bits": 2048} if "paillier" in protocol else {}
    return raw_job(privacy=settings, protocol={"name": protocol, **more})


def sums(session: Session) -> Iterator[tuple[str, np.ndarray]]:
    """Play a session; yield each stage's decoded sum, all fields in one vector."""
    step = session.coordinator.start()
    while not step.done:
        if step.state.total is not None:
            stage = step.state.stage
            fields, _ = fixed_point.decode(session.planned.plans.of(stage), step.state.total)
            yield stage, np.concatenate([values.reshape(-1) for values in fields.values()])
        step = session.coordinator.advance(step.state, session.engine.exchange(step.requests))
    session.close()


def played(raw: dict[str, Any], seed: int | None = None) -> dict[str, np.ndarray]:
    random = system_random if seed is None else replayable_random(seed)
    return dict(sums(open_session(plan_job(parse_job(raw), tables()), random)))


@pytest.mark.parametrize("protocol", HIDING)
@pytest.mark.usefixtures("quick_keys")
def test_noise_works_under_every_protocol(protocol: str) -> None:
    """Beyond 8 standard deviations, or within 1e-9 of zero: a false alarm in 10^7 runs."""
    raw = private("sum", protocol, colluding=int(protocol != "paillier"))
    noise = plan_job(parse_job(raw), tables()).public.noise["moments"]
    sd = math.sqrt(noise.sum_variance(3, noise.site_variance(3)))
    added = np.abs(played(raw)["moments"] - exactly_clipped(raw)) / np.sqrt(noise.weights) / sd
    assert np.all(added < 8) and np.all(added > 1e-9)


def test_without_a_placement_a_run_has_the_same_noise_and_the_same_refusals(tmp_path: Path) -> None:
    """Its plan names the placement, and a site that wants noise of its own refuses."""
    named, short = private("sum"), private("sum")
    del short["privacy"]["placement"]
    expected = played(named, 3)
    for stage, total in played(short, 3).items():
        np.testing.assert_array_equal(total, expected[stage])
    folder = write_job(tmp_path / "files").parent / "data"
    (folder / "north.policy.toml").write_text(
        'min_sites = 3\nmin_records = 2\nnoise = "own"\n[budget]\nepsilon = 9.0\ndelta = 1e-5\n'
        "period_epsilon = 9.0\nperiod_delta = 1e-5\n"
    )
    short["sites"]["folder"] = str(folder)
    plan = secagg.plan(short)
    assert plan["differential_privacy"]["placement"] == "sum"
    assert any(r.startswith("north") and "'own' requires" in r for r in plan["refusals"])


@pytest.mark.statistical
@pytest.mark.parametrize("placement", ["sum", "site"])
def test_the_noise_has_the_stated_variance(placement: str) -> None:
    """100 runs of 15 moments: a chi-square of 1500 degrees of freedom, 6 sigma either way."""
    raw = private(placement, epsilon=8.0)
    planned = plan_job(parse_job(raw), tables())
    noise = planned.public.noise["moments"]
    stated = noise.sum_variance(3, noise.site_variance(3))
    exact = exactly_clipped(raw)
    found = np.array([played(raw, seed)["moments"] for seed in range(100)]) - exact
    found /= np.sqrt(noise.weights)
    freedom = found.size
    ratio = float((found**2).sum()) / (freedom * stated)
    assert abs(ratio - 1) < 6 * math.sqrt(2 / freedom)
    assert abs(found.mean()) < 6 * math.sqrt(stated / freedom)


def exactly_clipped(raw: dict[str, Any]) -> np.ndarray:
    """Return M's upper triangle over all sites' records as clipped, as released but for noise."""
    session = open_session(plan_job(parse_job(raw), tables()), system_random)
    u = np.vstack([side.rows.values for side in session.sites.values()])
    session.close()
    z = np.column_stack([np.full(len(u), CONSTANT), u])
    upper: np.ndarray = (z.T @ z)[np.triu_indices(z.shape[1])]
    return upper


def test_records_are_clipped_before_anything_is_computed() -> None:
    planned = plan_job(parse_job(private(record_norm=0.7)), tables())
    session = open_session(planned, system_random)
    for side in session.sites.values():
        norms = np.sqrt((side.rows.values**2).sum(axis=1))
        assert 0.69 < norms.max() <= 0.7
    session.close()


def test_the_noise_of_a_count_is_scaled_for_the_fewest_sites(tmp_path: Path) -> None:
    """The first sum may lose sites in any phase; the sums after it may not."""
    records = {name: table(i) for i, name in enumerate("abcde")}
    raw = private() | {"sites": {"max_rows": 100, "ledgers": tmp_path}}
    noise = plan_job(parse_job(raw), records).public.noise
    secagg.run(raw, records)
    with Ledger.open(tmp_path / "a.ledger", create=False, now=lambda: datetime.now(UTC)) as ledger:
        drawn = {
            line.content["stage"]: line.content["variance"]
            for line in ledger.history("a") if line.kind == "entry"
        }  # fmt: skip
    assert drawn == {
        "cohort": noise["cohort"].site_variance(3), "moments": noise["moments"].site_variance(5),
    }  # fmt: skip
    assert noise["cohort"].site_variance(3) > noise["cohort"].site_variance(5)


def test_a_private_run_writes_no_exact_numbers(tmp_path: Path) -> None:
    run = secagg.run(private(), tables(), out=tmp_path / "out")
    summary = run.result.summary
    assert summary["incomplete_records"] is None and summary["values_outside_bounds"] == {}
    assert summary["contributions_clipped"] == {} and run.facts["seconds"] == {}
    assert summary["records_error"] > 1
    facts = json.loads((tmp_path / "out/run.json").read_text())
    assert facts["privacy"]["epsilon"] == 8.0 and facts["privacy"]["unit"] == "record"


def test_clip_counts_stay_at_the_site(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each site has two moments beyond their bound: told without noise, and not with it."""
    honest = PooledMoments.contribute

    def beyond(*args: Any) -> Any:
        update, memory = honest(*args)
        update["moments"][-2:] = 1e6
        return update, memory

    monkeypatch.setattr(PooledMoments, "contribute", beyond)

    def clipped(raw: dict[str, Any]) -> list[float]:
        session = open_session(plan_job(parse_job(raw), tables()), system_random)
        step = session.coordinator.start()
        while step.state.total is None or step.state.stage != "moments":
            step = session.coordinator.advance(step.state, session.engine.exchange(step.requests))
        _, counts = fixed_point.decode(session.planned.plans.of("moments"), step.state.total)
        session.close()
        return [float(count) for count in counts]

    assert clipped(private() | {"privacy": {}}) == [6.0]
    for placement in ("sum", "site"):
        assert clipped(private(placement)) == [0.0]


def test_noise_seeds_never_leave_the_ledgers(tmp_path: Path) -> None:
    """Whoever has it takes that site's noise away: not in the run's folder, nor on the wire."""
    raw = private() | {"sites": {"max_rows": 100, "ledgers": tmp_path / "ledgers"}}
    secagg.run(raw, tables(), out=tmp_path / "out")
    seeds = [
        seed
        for file in (tmp_path / "ledgers").iterdir()
        for (seed,) in sqlite3.connect(file).execute("SELECT seed FROM lines WHERE seed NOT NULL")
        if seed
    ]
    assert len(seeds) == 6  # two releases of three sites; the coordinator has none
    written = b"".join(path.read_bytes() for path in (tmp_path / "out").iterdir())
    for seed in seeds:
        assert seed not in written and seed.hex().encode() not in written


@pytest.mark.usefixtures("short_chains")
def test_secrets_are_drawn_only_from_the_random_argument() -> None:
    """Pitfall 2: numpy's generators are for simulations; what protects draws from `RandomBytes`."""
    places = [ROOT / "secagg" / part for part in ("privacy", "protocols", "sessions")]
    files = [file for place in places for file in place.rglob("*.py")]
    assert len(files) > 40
    for file in files:
        for node in ast.walk(ast.parse(file.read_text(encoding="utf-8"))):
            named = node.attr if isinstance(node, ast.Attribute) else ""
            imported = [a.name for a in node.names] if isinstance(node, ast.Import) else []
            assert named not in ("default_rng", "RandomState"), file
            assert not {"random", "secrets", "numpy.random"} & set(imported), file


def test_requests_to_sites_contain_no_exact_count() -> None:
    """The number of records that later requests carry is the noisy one."""
    planned = plan_job(parse_job(private(epsilon=4.0)), tables())
    sessions = (open_session(planned, system_random) for _ in range(8))
    counts = {dict(sums(session))["cohort"][0] for session in sessions}
    assert len(counts) == 8 and all(count != 36 for count in counts)


LOGISTIC = {"name": "logistic", "outcome": "sex", "predictors": ["age"]}  # has no bound


@pytest.mark.parametrize(
    ("raw", "kind"),
    [
        (private("sum", "plain"), CapabilityError),
        (private("sum", "paillier"), CapabilityError),  # with colluding = 1
        (private("round"), CapabilityError),
        (private() | {"method": LOGISTIC}, CapabilityError),
        (private(delta=1e-300), JobError),
        (private(record_norm=1e-12), JobError),
        (private("sum", colluding=3), JobError),
        (private() | {"simulation": {"site_alone": True}}, JobError),
        (private() | {"release": {"min_records": 2}}, JobError),
        (private(delta=0.4), JobError),
        (private(epsilon=1e-13, delta=1e-12), JobError),
        (private() | {"sites": {"max_rows": 2**40}}, JobError),
        (private(records_per_person=2), JobError),
        (private(epsilon=None), JobError),
        (private(person="nobody"), DataError),
    ],
)
def test_unsuitable_private_jobs_are_refused_before_any_release(
    raw: dict[str, Any], kind: type[Exception]
) -> None:
    with pytest.raises(kind):
        secagg.run(raw, tables())


def test_gradient_rounds_run_under_noise() -> None:
    method = {
        "name": "gradient", "family": "binomial", "outcome": "sex", "predictors": ["age"],
        "rounds": 5,
    }  # fmt: skip
    run = secagg.run(private("round", epsilon=8.0) | {"method": method}, tables())
    assert run.facts["rounds"] == 6
    (mechanism,) = [m for m in run.facts["privacy"]["mechanisms"] if m["stage"] == "gradient"]
    assert mechanism["releases"] == 5
    with pytest.raises(CapabilityError):
        secagg.run(private("sum") | {"method": method}, tables())


@pytest.mark.usefixtures("short_chains")
def test_penalised_analyses_under_noise_give_no_intervals() -> None:
    of = {"outcome": "age", "predictors": ["sex"]}
    analyses = [{"kind": "ols", **of}, {"kind": "ridge", **of}]
    method = {"name": "moments", "analyses": analyses}
    summary = secagg.run(private(epsilon=8.0) | {"method": method}, tables()).result.summary
    ols, ridge = summary["analyses"]
    assert all(term["ci_low"] < term["ci_high"] for term in ols["terms"])
    assert all(term["ci_low"] is term["std_error"] is None for term in ridge["terms"])
    *_, left_out, pooled = ridge["notes"]
    assert "left out" in left_out and ols["notes"][-1] == pooled == POOLED_NOISED_NOTE


def test_a_site_adds_the_same_noise_after_a_crash(tmp_path: Path) -> None:
    """A site that answers a request anew, from its state before, adds the noise of its ledger."""
    data = tmp_path / "data"
    data.mkdir()
    for i, name in enumerate("abc"):
        (data / f"{name}.csv").write_text(as_csv(table(i)), encoding="utf-8")
    raw = private("site", "plain") | {"sites": {"folder": data, "max_rows": 100}}
    session = open_session(plan_job(parse_job(raw)), system_random)
    step = session.coordinator.start()
    step = session.coordinator.advance(step.state, session.engine.exchange(step.requests))
    party = session.engine.parties["a"]  # type: ignore[union-attr]
    request, before = step.requests["a"], party.first_state()
    first, again = party.handle(request, before), party.handle(request, before)
    assert first.error is None and again.reply == first.reply
    session.close()
    (data / "ledgers/a.ledger").unlink()
    without = party.handle(request, before)
    session.close()
    assert without.error is None and without.reply != first.reply


def test_a_columns_unit_is_not_part_of_the_question() -> None:
    """It is for the reader only; bounds, levels and the order of columns are part of it."""
    base = raw_job()["columns"]

    def digest(columns: dict[str, Any]) -> bytes:
        plan = plan_job(parse_job(raw_job(columns=columns)), tables())
        return query_digest(plan.job, plan.facts, None)

    assert digest({**base, "age": {**base["age"], "unit": "y"}}) == digest(base)
    others = (
        {**base, "age": {**base["age"], "high": 101}},
        {**base, "sex": {**base["sex"], "levels": ["male", "female"]}},
        dict(reversed(base.items())),
    )
    assert digest(base) not in {digest(columns) for columns in others}
