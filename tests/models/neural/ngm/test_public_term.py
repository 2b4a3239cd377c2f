"""Public records in the training: as a further site's, weighted, and what the sums then hold."""

from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from support.methods.networks import job, tables

import secagg
from secagg.contracts import Result
from secagg.core.randomness import replayable_random
from secagg.errors import JobError
from secagg.evidence.integrity import verify_folder
from secagg.jobs.job import load_job, parse_job
from secagg.runs.plan import plan
from secagg.runs.simulate import simulate

pytestmark = pytest.mark.neural
DATA = tables(rows=60)
PUBLIC = tables(rows=40, seed=9)[next(iter(DATA))]
EXACT: dict[str, Any] = {
    "name": "fedngm", "edges": [["x", "y"], ["w", "y"], ["x", "case"]], "hidden": [],
    "standardise": False, "penalty": 0.0, "linear_penalty": 0.0, "tolerance": 1e-8,
    "least_gain": 0.0, "rounds": 400, "count_fit": False,
}  # fmt: skip


def with_public(records: pd.DataFrame, **method: Any) -> dict[str, Any]:
    cells = {str(name): [str(cell) for cell in records[name]] for name in records}
    return job({**EXACT, **method}) | {"public": {"records": cells}}


def fitted(raw: dict[str, Any], data: dict[str, pd.DataFrame] = DATA) -> Result:
    return simulate(raw, data, random=replayable_random(1))


def assert_equal_fits(one: Result, other: Result) -> None:
    for name in ("linear.weight", "output.bias", "log_sd"):
        np.testing.assert_allclose(one.arrays[name], other.arrays[name], atol=2e-5)


def test_the_fit_is_that_of_a_further_site_with_these_records() -> None:
    """Equation 3: at weight 2, of one with every record twice; at 0, of none."""
    found = fitted(with_public(PUBLIC))
    assert found.summary["public_records"] == len(PUBLIC)
    assert found.summary["records"] == sum(map(len, DATA.values()))
    assert_equal_fits(found, fitted(job(EXACT), {**DATA, "zz": PUBLIC}))
    twice = pd.concat([PUBLIC, PUBLIC], ignore_index=True)
    twofold = fitted(with_public(PUBLIC, public_weight=2.0))
    assert_equal_fits(twofold, fitted(job(EXACT), {**DATA, "zz": twice}))
    alone = fitted(job(EXACT))
    assert_equal_fits(fitted(with_public(PUBLIC, public_weight=0.0)), alone)
    assert np.max(np.abs(found.arrays["output.bias"] - alone.arrays["output.bias"])) > 1e-3


def test_samples_of_the_sites_are_joined_by_public_records() -> None:
    short = {"learn_from": "samples", "samples": 200, "rounds": 100}
    near = fitted(with_public(PUBLIC, **short, public_weight=1e4))
    own = fitted(job(EXACT), {"a": PUBLIC, "b": PUBLIC})
    far = fitted(job({**EXACT, **short}))
    distance = [np.linalg.norm(each.arrays["output.bias"] - own.arrays["output.bias"])
                for each in (near, far)]  # fmt: skip
    assert distance[0] < 0.02 * distance[1]


def test_the_job_has_the_records_of_its_file_and_the_run_follows_from_it(tmp_path: Path) -> None:
    (tmp_path / "data").mkdir()
    for name, table in DATA.items():
        table.to_csv(tmp_path / "data" / f"{name}.csv", index=False)
    PUBLIC.to_csv(tmp_path / "public.csv", index=False)
    raw = job({**EXACT, "rounds": 5}) | {"public": {"file": str(tmp_path / "public.csv")}}
    raw["sites"] = {"max_rows": 200, "folder": str(tmp_path / "data")}
    done = secagg.run(raw, out=tmp_path / "run", random=replayable_random(1))
    assert done.result.summary["public_records"] == len(PUBLIC)
    (tmp_path / "public.csv").unlink()
    assert verify_folder(tmp_path / "run").recomputed


def test_they_are_planned() -> None:
    warnings = plan(parse_job(with_public(PUBLIC)), DATA)["warnings"]
    assert any(str(len(PUBLIC)) in text and "ublic" in text for text in warnings)


def test_without_them_the_agreement_is_as_before() -> None:
    assert "public" not in parse_job(job(EXACT)).agreed
    agreed = parse_job(with_public(PUBLIC)).agreed
    assert len(agreed["public"]["records"]["x"]) == len(PUBLIC)
    assert parse_job(agreed).agreed == agreed


@pytest.mark.parametrize(
    ("method", "cells", "where"),
    [
        ({"name": "moments"}, {}, "public"),
        ({**EXACT, "algorithm": "fedavg"}, {}, "method.algorithm"),
        ({**EXACT, "public_weight": -1.0}, {}, "method.public_weight"),
        (EXACT, {"x": None}, "public"),
        (EXACT, {"x": "tall"}, "public"),
        (EXACT, {"x": ""}, "public"),
    ],
)
def test_what_cannot_be_used_is_refused(
    method: dict[str, Any], cells: dict[str, Any], where: str
) -> None:
    raw = with_public(PUBLIC) | {"method": method}
    for name, cell in cells.items():
        column = raw["public"]["records"].pop(name)
        if cell is not None:
            raw["public"]["records"][name] = [cell] * len(column)
    with pytest.raises(JobError) as caught:
        plan(parse_job(raw), DATA)
    assert caught.value.where == where


@pytest.mark.parametrize("text", [None, "", "x,y\n", "x,x\n1,2\n", "x,y\n1\n"])
def test_a_file_that_cannot_be_read_is_refused(text: str | None, tmp_path: Path) -> None:
    if text is not None:
        (tmp_path / "public.csv").write_text(text)
    path = tmp_path / "job.toml"
    path.write_text(
        'title = "A job"\n[sites]\nmax_rows = 9\n[columns]\nx = { type = "binary" }\n'
        '[method]\nname = "fedngm"\n[public]\nfile = "public.csv"\n'
    )
    with pytest.raises(JobError) as caught:
        load_job(path)
    assert caught.value.where == "public.file"
