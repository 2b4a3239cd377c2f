"""Births: declared columns fit the records, and sites are skewed as stated."""

import numpy as np
import pandas as pd
import pytest

from reproductions.data.births import Births, births14, birthwt, bwght2, skewed
from secagg.errors import UsageError
from secagg.jobs.job import parse_job
from secagg.sessions.parties import read_records
from secagg.sessions.planned_job import plan_job


@pytest.mark.data
@pytest.mark.parametrize(("load", "records"), [(births14, 894), (bwght2, 1640), (birthwt, 189)])
def test_a_job_reads_all_records_without_clipping(load, records: int) -> None:  # type: ignore[no-untyped-def]
    births = load()
    assert len(births.table) == records
    job = parse_job({
        "title": "births", "sites": {"max_rows": 2000}, "columns": births.columns,
        "method": {"name": "moments", "analyses": [{"kind": "describe"}]},
        "release": {"min_sites": 2, "min_records": 1},
    })  # fmt: skip
    planned = plan_job(job, {"a": births.table, "b": births.table})
    rows = read_records(planned, planned.sources["a"])
    assert len(rows.values) == records and not rows.incomplete and not rows.outside.any()


def made(n: int = 900) -> Births:
    rng = np.random.default_rng(1)
    table = pd.DataFrame({"kind": rng.integers(0, 2, n), "number": np.arange(n)})
    of_kind = {
        "site1": ("ones", lambda t: t["kind"] == 1),
        "site2": ("zeros", lambda t: t["kind"] == 0),
    }
    return Births(table, {}, of_kind)


def test_parts_are_disjoint_skewed_and_the_same_for_a_seed() -> None:
    sites, public = skewed(made(), 5, site_records=200, public_records=300)
    numbers = pd.concat([*sites.values(), public])["number"]
    assert numbers.is_unique and len(public) == 300
    # Three to one among as many ones as zeros: 3/4, less as the ones are used up
    assert sites["site1"]["kind"].mean() > 0.62 and sites["site2"]["kind"].mean() < 0.45
    assert abs(public["kind"].mean() - 0.5) < 4 * 0.03
    again, _ = skewed(made(), 5, site_records=200, public_records=300)
    other, _ = skewed(made(), 6, site_records=200, public_records=300)
    assert sites["site1"].equals(again["site1"]) and not sites["site1"].equals(other["site1"])


def test_too_few_births_are_refused() -> None:
    with pytest.raises(UsageError):
        skewed(made(500), 1, site_records=200, public_records=101)
