"""A method is one place: its own module and one line of the registry, and everything knows it."""

import json
from pathlib import Path

import numpy as np
import pytest
from support.runs.reports import Page, banners, job, page_of, tables
from typer.testing import CliRunner

from secagg.cli.main import app
from secagg.errors import JobError
from secagg.evidence.claims.disclosure import MAY_REVEAL
from secagg.evidence.integrity import verify_folder
from secagg.jobs import registry
from secagg.runs.plan import plan
from secagg.runs.run import Run, run

METHOD = {"name": "upper_share", "column": "x"}


@pytest.fixture(autouse=True)
def registered(monkeypatch: pytest.MonkeyPatch) -> None:
    """Add the one line."""
    line = ("support.methods.toy_method", "UpperShare")
    monkeypatch.setitem(registry.METHODS, "upper_share", line)


def finished(protocol: str = "plain", out: Path | None = None) -> Run:
    """Return a run over four sites, each of which is also shown alone."""
    return run(job("moments", protocol) | {"method": METHOD}, tables(4), out=out)


def test_a_new_method_gives_the_same_result_under_every_protocol() -> None:
    """Oracle: numpy on all records at once."""
    everything = np.concatenate([table["x"] for table in tables(4).values()])
    for protocol in ("plain", "masked"):
        result = finished(protocol).result
        assert result.arrays["share"] == np.mean(everything > 0)
        assert set(result.summary["simulation"]["site_alone"]) == set(tables(4))


def test_the_report_shows_a_new_methods_title_disclosure_and_table(tmp_path: Path) -> None:
    done = finished("masked", tmp_path / "run")
    page = page_of(done)
    text = Page(page).text
    assert "Method Share of high values (upper_share)" in text
    assert "share of high values above the middle of the bounds" in text
    assert (False, MAY_REVEAL) in banners(page)
    assert (
        "The method's sums together determine: How many pooled records have a high value." in text
    )
    assert "sites are asked once" in text
    assert "A second run over other sites shows their part by subtraction." in text
    assert verify_folder(tmp_path / "run").failed is None


def test_the_plan_and_the_list_show_a_new_method() -> None:
    planned = plan(job("moments", "masked") | {"method": METHOD}, tables(4))
    assert planned["disclosure"]["text"] == "How many pooled records have a high value."
    assert MAY_REVEAL in planned["warnings"]
    assert [stage["stage"] for stage in planned["stages"]] == ["cohort", "share"]
    listed = CliRunner().invoke(app, ["list", "methods", "--json"])
    assert listed.exit_code == 0, listed.output
    assert "upper_share" in json.dumps(json.loads(listed.output))


def test_a_new_method_explains_its_unknown_settings() -> None:
    with pytest.raises(JobError) as refused:
        plan(job("moments", "plain") | {"method": {**METHOD, "threshold": 0.5}}, tables(4))
    assert refused.value.where == "method.threshold"
    assert refused.value.what == "upper_share cuts at the middle of the bounds"
