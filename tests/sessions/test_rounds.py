"""The round that counts records: small counts, and cells that are too small."""

from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from support.privacy.ledger_runs import folder_with, run
from support.runs.jobs import raw_job

from secagg.contracts import PublicFacts, SiteRecords, Variable
from secagg.errors import PolicyRefusal
from secagg.jobs.data_sources import as_policy
from secagg.jobs.job import parse_job
from secagg.runs import ledger_history
from secagg.sessions.rounds import COHORT, cohort_stage, cohort_update

PUBLIC = PublicFacts(
    (
        Variable("age", "age", 50.0, 50.0),
        Variable("sex", "sex", 0.5, 0.5, indicator=True),
        Variable("sick", "sick", 0.5, 0.5, indicator=True),
    ),
    ("age", "sex", "sick"), 100, ("a", "b"),
)  # fmt: skip


@pytest.mark.parametrize(("minimum", "shown"), [(1, (3, 2, 5)), (3, (3, 0, 5)), (4, (0, 0, 5))])
def test_counts_below_the_minimum_are_sent_as_zero(
    minimum: int, shown: tuple[int, int, int]
) -> None:
    rows = SiteRecords(np.array([[0.1, 1, 1], [0.2, -1, 1.0]]), 3, np.array([2.0, 5.0, 0.0]))
    counts = cohort_update(rows, PUBLIC, cohort_stage(PUBLIC).spec, minimum)
    assert (counts["incomplete"][0], *counts["outside"][:2]) == shown
    assert counts["records"].tolist() == [2]
    assert counts["levels"].tolist() == [1, 1, 2]  # sex, both, sick
    assert counts["varying_sites"].tolist() == [1, 1, 0]
    assert counts["level_sites"].tolist() == [1, 1, 1, 0]  # sex, sick, not sex, not sick


def test_without_indicators_no_levels_are_counted() -> None:
    public = PublicFacts(PUBLIC.variables[:1], ("age",), 100, ("a", "b"))
    assert [field.name for field in cohort_stage(public).spec] == [
        "records",
        "incomplete",
        "outside",
        "varying_sites",
    ]


def test_a_small_cell_ends_the_run_before_the_method_is_asked(tmp_path: Path) -> None:
    data = folder_with(tmp_path)
    with pytest.raises(PolicyRefusal) as caught:
        run(data, release={"min_sites": 3, "min_records": 2, "min_cell_records": 100})
    assert caught.value.where == "coordinator"
    rows = [r for r in ledger_history.history(data / "ledgers") if r["kind"] == "entry"]
    assert {row["content"]["stage"] for row in rows} == {COHORT}


@pytest.mark.parametrize(("fewest", "released"), [(3, {COHORT}), (1, {COHORT, "moments"})])
def test_a_column_that_varies_at_one_site_ends_the_run_before_the_method_is_asked(
    tmp_path: Path, fewest: int, released: set[str]
) -> None:
    """With the rule off, the covariance of this column within sites is that of one site's records.

    It is the positive control.
    """
    data = folder_with(tmp_path)
    tables = {file.stem: pd.read_csv(file) for file in sorted(data.glob("*.csv"))}
    for table in list(tables.values())[1:]:
        table["age"] = 50.0
    for site, table in tables.items():
        table.to_csv(data / f"{site}.csv", index=False)
    release = {"min_sites": 3, "min_records": 2, "min_cell_records": 1, "min_level_sites": fewest}
    method = {"name": "moments", "centre": "site"}
    if fewest > 1:
        with pytest.raises(PolicyRefusal) as caught:
            run(data, release=release, method=method)
        assert caught.value.where == "coordinator"
    else:
        scatter = run(data, release=release, method=method).result.arrays["scatter"]
        (first, *_), size = tables.values(), 40
        own = (first["age"] - first["age"].mean()) @ (first["sex"] == "male")
        np.testing.assert_allclose(scatter[0, :2], [size * first["age"].var(ddof=0), own])
    rows = [r for r in ledger_history.history(data / "ledgers") if r["kind"] == "entry"]
    assert {row["content"]["stage"] for row in rows} == released


@pytest.mark.parametrize(
    ("least", "who", "released"), [(2, "a", set()), (1, "coordinator", {COHORT})]
)
def test_a_column_in_which_one_record_varies_is_refused_before_sites_are_counted(
    tmp_path: Path, least: int, who: str, released: set[str]
) -> None:
    """Otherwise the count would say at how many sites somebody's value is above a bound.

    `constant_columns` and `max_leverage` both refuse. With min_records = 1, the control, neither
    applies, and the sites are counted.
    """
    data = folder_with(tmp_path)
    for path in data.glob("*.csv"):
        table = pd.read_csv(path)
        table["age"] = 50.0
        table.loc[0, "age"] = 99.0 if path.stem == "a" else 50.0
        table.to_csv(path, index=False)
    release = {"min_sites": 3, "min_records": least, "min_cell_records": 1}
    with pytest.raises(PolicyRefusal) as caught:
        run(data, release=release)
    assert caught.value.where == who
    rows = [r for r in ledger_history.history(data / "ledgers") if r["kind"] == "entry"]
    assert {row["content"]["stage"] for row in rows} == released


def test_the_smallest_cell_is_min_records_and_min_sites_unless_set() -> None:
    raw = raw_job(release={"min_sites": 3, "min_records": 7})
    assert as_policy(parse_job(raw).release).min_cell_records == 7
    assert as_policy(parse_job(raw).release).min_level_sites == 3
    raw["release"] |= {"min_cell_records": 4, "min_level_sites": 2}
    assert as_policy(parse_job(raw).release).min_cell_records == 4
    assert as_policy(parse_job(raw).release).min_level_sites == 2
