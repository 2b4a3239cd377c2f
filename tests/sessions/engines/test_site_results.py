"""The own results of sites: each in the site's own folder, and nowhere else."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from support.crashes.nursery import nursery, quick_starts

import secagg
from secagg.contracts import Result
from secagg.core.randomness import replayable_random
from secagg.errors import JobError
from secagg.models.sparse_bayes.linear_rounds import SparseLinear
from secagg.runs.simulate import simulate_sites

__all__ = ["nursery", "quick_starts"]  # fixtures
METHOD = {"name": "sparse_regression", "outcome": "y", "rounds": 12, "chains": 2}
EFFECTS = {"a": 3.0, "b": -3.0}


def sites() -> dict[str, pd.DataFrame]:
    """Two sites whose effects are opposite: each finds its own."""
    rng = np.random.default_rng(0)
    return {
        name: pd.DataFrame({"x": x, "y": EFFECTS[name] * x + 0.1 * rng.normal(size=60)})
        for name in EFFECTS
        for x in [rng.normal(size=60)]
    }


def job(method: dict[str, Any] = METHOD, **changed: Any) -> dict[str, Any]:
    return {
        "title": "t",
        "sites": {"max_rows": 100},
        "columns": {key: {"type": "continuous", "low": -16, "high": 16} for key in "xy"},
        "method": method,
        "protocol": {"name": "plain"},
        "release": {"min_sites": 2, "min_records": 1, "min_level_sites": 1},
    } | changed


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "data").mkdir()
    for name, table in sites().items():
        table.to_csv(tmp_path / "data" / f"{name}.csv", index=False)
    return tmp_path / "data"


def slope(summary: dict[str, Any]) -> float:
    return float(summary["regressions"][0]["coefficients"][0]["mean"])


def test_each_site_has_its_own_result_in_one_process() -> None:
    ran = secagg.run(job(), sites(), random=replayable_random(1))
    assert set(ran.own) == {"a", "b"}
    assert slope(ran.own["a"].summary) > 0.5 and slope(ran.own["b"].summary) < -0.5
    _, simulated = simulate_sites(job(), sites(), random=replayable_random(1))
    assert {k: v.summary for k, v in simulated.items()} == {
        k: v.summary for k, v in ran.own.items()
    }


@pytest.mark.parametrize("engine", ["memory", "processes"])
@pytest.mark.usefixtures("quick_starts")
def test_a_site_result_is_written_beside_the_sites_ledger(folder: Path, engine: str) -> None:
    asked = job(sites={"max_rows": 100, "folder": str(folder)}, engine={"name": engine})
    out = folder.parent / "out"
    ran = secagg.run(asked, out=out)
    session = ran.facts["session"]
    for name, effect in EFFECTS.items():
        path = folder / "ledgers" / f"{name}.{session[:8]}.json"
        assert path.stat().st_mode & 0o777 == 0o600
        content = json.loads(path.read_text())
        assert (content["site"], content["session"]) == (name, session)
        assert content["records_here"] == 60
        assert np.sign(slope(content)) == np.sign(effect)
    told = b"".join(path.read_bytes() for path in out.iterdir())
    assert b"records_here" not in told
    assert set(ran.own) == (set(EFFECTS) if engine == "memory" else set())


def test_an_unwritable_site_result_does_not_end_the_run(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked = job(sites={"max_rows": 100, "folder": str(folder)})
    first = secagg.run(asked, random=replayable_random(3))
    written = folder / "ledgers" / f"a.{first.facts['session'][:8]}.json"
    written.unlink()
    written.mkdir()  # in its place
    again = secagg.run(asked, random=replayable_random(3))
    assert again.facts["session"] == first.facts["session"]
    assert any(written.name in remark for remark in again.remarks)
    assert set(again.own) == {"a", "b"}
    with monkeypatch.context() as patch:  # nor can nan in JSON
        nan = Result({"records_here": float("nan")})
        patch.setattr(SparseLinear, "site_result", lambda *_: nan)
        failed = secagg.run(asked)
    session = failed.facts["session"][:8]
    assert any(f"b.{session}.json" in remark for remark in failed.remarks)
    assert not (folder / "ledgers" / f"b.{session}.json").exists()


def test_a_site_result_states_its_units_and_the_common_effects() -> None:
    own = secagg.run(job(), sites(), random=replayable_random(1)).own["a"].summary
    assert "pooled within sites" in own["notes"][0]
    row = own["regressions"][0]["coefficients"][0]
    assert 2.5 < row["own_units"]["mean"] < 3.5  # the effect there, in y's units for one of x
    assert abs(row["common"]["mean"]) < row["mean"]
    few = {"a": sites()["a"], "b": sites()["b"].head(2)}
    left = secagg.run(job(), few, random=replayable_random(1)).own
    assert len(left["a"].summary["notes"]) == 1
    assert "prior" in left["b"].summary["notes"][1]
    one = {"a": sites()["a"], "b": sites()["b"].head(1)}
    row = secagg.run(job(), one).own["b"].summary["regressions"][0]["coefficients"][0]
    assert row["mean"] is row["sd"] is None and row["common"]["mean"] is not None


def test_site_alone_is_refused_for_methods_with_site_results() -> None:
    with pytest.raises(JobError):
        secagg.run(job(simulation={"site_alone": True}), sites())


def test_other_methods_write_no_site_results(folder: Path) -> None:
    asked = job({"name": "moments"}, sites={"max_rows": 100, "folder": str(folder)})
    assert secagg.run(asked).own == {}
    assert not list((folder / "ledgers").glob("*.json"))
