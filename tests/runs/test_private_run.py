"""Whole runs under differential privacy: what leaves has noise, of the size that was stated."""

from __future__ import annotations

import ast
import itertools
import json
import math
import sqlite3
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from support.checkout import ROOT
from support.jobs import as_csv, raw_job, table, tables
from support.keys import quick_keys
from support.short_chains import short_chains

import secagg
from secagg.core import encoding
from secagg.core.randomness import replayable_random, system_random
from secagg.errors import CapabilityError, DataError, JobError
from secagg.jobs.design_matrix import read_rows
from secagg.jobs.job import parse_job
from secagg.models.common.clipped_moments import CONSTANT, upper_moments
from secagg.models.common.noisy_moments import REPEATED_NOTE
from secagg.models.common.site_levels import POOLED_NOISED_NOTE
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


def test_records_beyond_the_limit_for_a_person_are_left_out() -> None:
    """With everybody's records under four names, four records of each site are left."""
    same = {name: columns | {"id": list("wxyz") * 3} for name, columns in tables().items()}
    own = {name: columns | {"id": list(range(12))} for name, columns in tables().items()}
    raw = private("site", person="id", epsilon=8.0, count_share=0.5)
    raw["release"] = {"min_sites": 3, "min_records": 1}
    few, many = (secagg.run(raw, data).result.summary["records"] for data in (same, own))
    assert few < 24 < many  # 12 and 36, with noise of 1.6


@pytest.mark.usefixtures("short_chains")
@pytest.mark.parametrize("most", [1, 3])
def test_intervals_of_several_records_of_a_person_come_with_a_warning(most: int) -> None:
    ids = {n: {**table(i, 60), "id": np.arange(60) // 3} for i, n in enumerate("abc")}
    ols = [{"kind": "ols", "outcome": "age", "predictors": ["sex"]}]
    raw = private("site", person="id", records_per_person=most, epsilon=20.0)
    found = secagg.run(parse_job(raw | {"method": {"name": "moments", "analyses": ols}}), ids)
    (fit,) = found.result.summary["analyses"]
    assert (REPEATED_NOTE in fit["notes"]) == (most == 3)


def test_a_guarantee_for_persons_needs_more_noise() -> None:
    one, three = (
        plan_job(parse_job(private(person="id", records_per_person=m)), tables()) for m in (1, 3)
    )
    ratio = three.public.noise["moments"].variance / one.public.noise["moments"].variance
    assert ratio == pytest.approx(9.0, rel=1e-9)


def of_persons(records: int = 3, **more: Any) -> dict[str, Any]:
    return private("site", person="id", records_per_person=records, **more)


def test_a_limit_for_a_persons_records_means_less_noise() -> None:
    """In proportion to m (c^2 + Q): the squared norm of a record is at most 2.25 by its bounds."""
    sd = {
        limit: plan_job(parse_job(of_persons(person_norm=limit)), tables())
        .public.noise["moments"].variance ** 0.5
        for limit in (None, 1.5)
    }  # fmt: skip
    squared = sum(
        v.max_abs**2 for v in plan_job(parse_job(of_persons()), tables()).public.variables
    )
    assert sd[1.5] / sd[None] == pytest.approx((0.25 + 1.5**2 / 3) / (0.25 + squared), rel=1e-6)


@pytest.mark.parametrize(("records", "record_norm"), [(3, None), (3, 1.0), (1, 1.0)])
def test_a_limit_without_effect_is_refused(records: int, record_norm: float | None) -> None:
    """It would be another question with the same noise, so it would be charged again."""
    more = {} if record_norm is None else {"record_norm": record_norm}
    clip = plan_job(parse_job(of_persons(records, **more)), tables()).public.clip
    assert clip is not None
    largest = math.sqrt(records * clip.squared_norm)
    assert plan_job(parse_job(of_persons(records, person_norm=largest * 0.999, **more)), tables())
    for limit in (largest * (1 + 1e-12), 9.0):
        with pytest.raises(JobError) as caught:
            plan_job(parse_job(of_persons(records, person_norm=limit, **more)), tables())
        assert caught.value.where == "privacy.person_norm"


@pytest.mark.parametrize("placement", ["sum", "site"])
def test_no_persons_records_move_the_moments_by_more_than_the_noise_allows(placement: str) -> None:
    """Rows of the person lie between others; equal records of full norm come within 1e-3."""
    raw = private(placement, person="id", records_per_person=3, person_norm=1.2, person_pinned=True)
    planned = plan_job(parse_job(raw), tables())
    mechanism = planned.private.mechanisms["moments"] if planned.private else None
    assert mechanism is not None
    noise = mechanism.noise
    sigma = math.sqrt(noise.variance) * 2.0**-noise.fraction_bits

    def moments(frame: pd.DataFrame) -> np.ndarray:
        rows = read_rows(
            planned.job.columns,
            frame,
            planned.public,
            "a",
            "id",
            planned.job.privacy.records_per_person,
        )
        return upper_moments(rows.values, CONSTANT) / np.sqrt(noise.weights)

    others = pd.DataFrame(table(0)).assign(id=[f"p{i // 2}" for i in range(12)])
    moved = []
    for age, sex, grade in itertools.product((0, 50, 90, 100), ("female", "male"), ("low", "high")):
        own = pd.DataFrame({"age": [age] * 5, "sex": sex, "grade": grade, "id": "me"})
        for placed in (range(5), (0, 3, 6, 9, 11), (12, 13, 14, 15, 16)):
            both = others.copy()
            for at, (_, row) in zip(placed, own.iterrows(), strict=True):
                both = pd.concat([both[:at], row.to_frame().T, both[at:]], ignore_index=True)
            moved.append(float(np.linalg.norm(moments(both) - moments(others))))
    assert max(moved) <= mechanism.add * sigma * (1 + 1e-12)
    assert max(moved) == pytest.approx(mechanism.add * sigma, rel=1e-3)


def test_a_limit_for_a_person_needs_persons_and_moments() -> None:
    with pytest.raises(JobError, match="person_norm requires person"):
        parse_job(private(person_norm=1.0))
    raw = private("round", person="id", person_norm=1.0)
    raw["method"] = {"name": "gradient", "family": "gaussian", "outcome": "age",
                     "predictors": ["sex"], "rounds": 2}  # fmt: skip
    with pytest.raises(JobError) as caught:
        plan_job(parse_job(raw), tables())
    assert caught.value.where == "privacy.person_norm"


def test_the_key_of_a_draw_has_the_limit_for_a_person() -> None:
    """A draw of before this setting has its old key."""
    digests = {
        query_digest(parse_job(of_persons(person_norm=limit)), None) for limit in (None, 1.0, 1.5)
    }
    assert len(digests) == 3
    job = parse_job(of_persons())
    columns = [
        [name, column.model_dump(mode="json", exclude={"unit"})]
        for name, column in job.columns.items()
    ]
    before = encoding.digest(["moments", columns, [None, "id", 3]])
    assert query_digest(job, None) == before


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
        return query_digest(parse_job(raw_job(columns=columns)), None)

    assert digest({**base, "age": {**base["age"], "unit": "y"}}) == digest(base)
    others = (
        {**base, "age": {**base["age"], "high": 101}},
        {**base, "sex": {**base["sex"], "levels": ["male", "female"]}},
        dict(reversed(base.items())),
    )
    assert digest(base) not in {digest(columns) for columns in others}
