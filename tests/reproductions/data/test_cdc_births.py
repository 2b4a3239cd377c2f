"""The CDC's linked births: both formats, codes, causes, unknown values, and files that differ."""

from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from support.experiments.cdc_files import UNKNOWN, birth, made_births, write_csv, write_fixed_width

from reproductions.data import cdc_births
from reproductions.data.cdc_births import cause_of, cdc_file
from secagg.errors import UsageError
from secagg.jobs.job import parse_job
from secagg.sessions.parties import read_records
from secagg.sessions.planned_job import plan_job


def test_both_formats_have_the_same_births(tmp_path: Path) -> None:
    made = made_births(60)
    one = cdc_births.cdc_births(write_fixed_width(tmp_path, made))
    other = cdc_births.cdc_births(write_csv(tmp_path, made))
    pd.testing.assert_frame_equal(one.table, other.table)
    assert one.table["brthwgt"].tolist() == [float(each["brthwgt"]) for each in made]
    dead = [each["aged"] != "" for each in made]
    assert (one.table["cause"] != "alive").tolist() == dead and any(dead)


def test_codes_become_levels(tmp_path: Path) -> None:
    first = birth(mager="14", pay="3", me_rout="3", mracehisp="4", dplural="3", sex="M",
                  cig_rec="Y", bmi="32.1", aged="000", ucod="P072")  # fmt: skip
    table = cdc_births.cdc_births(write_fixed_width(tmp_path, [first, birth()])).table
    expected = {"mager": 14, "pay": "none", "me_rout": "assisted", "mracehisp": "other",
                "dplural": "multiple", "sex": "male", "cig_rec": "yes", "bmi": 32.1,
                "cause": "short gestation", "dmar": "married", "meduc": 6}  # fmt: skip
    assert {name: table[name][0] for name in expected} == expected
    assert table["cause"][1] == "alive"


@pytest.mark.parametrize("name", UNKNOWN)
def test_births_with_unknown_values_are_left_out(name: str, tmp_path: Path) -> None:
    made = [birth(), birth(**{name: UNKNOWN[name]}), birth(mager="20")]
    table = cdc_births.cdc_births(write_fixed_width(tmp_path, made)).table
    assert table["mager"].tolist() == [31, 20]


def test_causes_are_ranges_of_codes() -> None:
    codes = {"Q000": "congenital malformations", "Q999": "congenital malformations",
             "P070": "short gestation", "P08": "other cause", "R95": "sudden infant death",
             "W75": "unintentional injuries", "X59": "unintentional injuries",
             "X60": "other cause", "P53": "other cause", "P549": "neonatal haemorrhage",
             "I42": "circulatory diseases", "": "other cause"}  # fmt: skip
    assert cause_of(pd.Series(list(codes))).tolist() == list(codes.values())


def test_a_job_reads_all_births_without_clipping(tmp_path: Path) -> None:
    found = cdc_births.cdc_births(write_csv(tmp_path, made_births(50)))
    job = parse_job({
        "title": "births", "sites": {"max_rows": 100}, "columns": found.columns,
        "method": {"name": "moments", "analyses": [{"kind": "describe"}]},
        "release": {"min_sites": 2, "min_records": 1},
    })  # fmt: skip
    planned = plan_job(job, {"a": found.table, "b": found.table})
    rows = read_records(planned, planned.sources["a"])
    assert len(rows.values) == 50 and not rows.incomplete and not rows.outside.any()
    for _, kind in found.kinds.values():
        assert 0 < np.mean(kind(found.table)) < 1


def test_files_that_differ_are_refused(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=cdc_births.FIXED_WIDTH):
        cdc_file(tmp_path)
    path = write_fixed_width(tmp_path, made_births(3))
    assert cdc_file(tmp_path) == path
    path.write_text(path.read_text()[:-5])
    with pytest.raises(UsageError, match="one length"):
        cdc_births.cdc_births(path)
    path.write_text("short\n" * 4)
    with pytest.raises(UsageError, match="1371"):
        cdc_births.cdc_births(path)
    csv = tmp_path / cdc_births.CSV[0]
    csv.write_text("mager,pay\n30,1\n")
    with pytest.raises(UsageError, match="no column"):
        cdc_births.cdc_births(csv)
    with pytest.raises(UsageError, match="no birth"):
        cdc_births.cdc_births(write_csv(tmp_path, [birth(mager="99")]))
