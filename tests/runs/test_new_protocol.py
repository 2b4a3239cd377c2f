"""A protocol is one place: its own module and one line of the registry."""

import json
from pathlib import Path

import numpy as np
import pytest
from support.methods.short_chains import short_chains
from support.runs.reports import Page, banners, job, page_of, private_job, tables, written
from typer.testing import CliRunner

from secagg.cli.main import app
from secagg.errors import CapabilityError
from secagg.evidence.integrity import verify_folder
from secagg.jobs import registry
from secagg.runs.plan import plan
from secagg.runs.run import run

__all__ = ["short_chains"]  # a fixture


@pytest.fixture(autouse=True)
def registered(monkeypatch: pytest.MonkeyPatch) -> None:
    """Add the one line."""
    monkeypatch.setitem(registry.PROTOCOLS, "pad", ("support.protocols.toy_protocol", "Pad"))


def test_a_new_protocols_sums_have_the_same_bits_as_plain() -> None:
    one, other = (run(job("logistic", name), tables(4)).result for name in ("pad", "plain"))
    for name, values in one.arrays.items():
        np.testing.assert_array_equal(values, other.arrays[name])


def test_the_report_shows_a_new_protocols_texts(tmp_path: Path) -> None:
    raw = job("moments", "pad", simulation={})
    done = run(raw, tables(4), out=tmp_path / "run")
    page = page_of(done)
    text = Page(page).text
    assert "Protocol pad: 4 sites write on one pad" in text
    assert "the pad, with everybody's numbers" in text
    assert "Protocol pad Whoever finds the pad can read it." in text
    assert "protocol pad tolerates in the first sum: whoever has not written yet." in text
    assert (True, "This run protects nothing") in banners(page)
    assert verify_folder(tmp_path / "run").failed is None


def test_the_plan_and_the_list_show_a_new_protocol() -> None:
    planned = plan(job("moments", "pad"), tables(4))
    assert planned["protocol"] == "pad" and planned["in_numbers"] == "4 sites write on one pad"
    listed = CliRunner().invoke(app, ["list", "protocols", "--json"])
    assert listed.exit_code == 0, listed.output
    assert "pad" in json.dumps(json.loads(listed.output))


@pytest.mark.usefixtures("short_chains")
def test_noise_placements_are_checked_against_capabilities() -> None:
    """It hides nothing: noise of all sites together would not do, noise at each site does."""
    with pytest.raises(CapabilityError):
        plan(private_job("sum", "pad"), tables(4, 150))
    page = page_of(written(private_job("site", "pad"), tables(4, 150)))
    assert (False, "Only noise protects: the coordinator saw each site's contribution") in banners(
        page
    )
