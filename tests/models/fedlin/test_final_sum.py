"""The last sum of FedLin's methods: which sites are in it, what it is said to tell, and to whom."""

from typing import Any

import numpy as np
import pytest
from support.fedlin.written_out import bounds, linear_tables, simulated, told

from secagg.contracts import PublicFacts, Variable
from secagg.errors import UsageError
from secagg.models.fedlin.fedavg import FedAvg
from secagg.models.fedlin.hm2 import FedLinHm2

METHODS: list[dict[str, Any]] = [
    {"name": "fedlin_hm1", "rounds": 3, "degree": 3, "predictors": ["x0"]},
    {"name": "fedlin_hm1", "rounds": 3, "intercept": "modelled", "holdout": 0.2},
    {"name": "fedavg", "rounds": 3, "personal": 0.3},
    {"name": "fedlin_hm2", "rounds": 3, "draws": 100, "prior": "ridge"},
]


@pytest.mark.parametrize("sizes", [(30, 0, 12, 0, 20), (30, 0, 12)])
@pytest.mark.parametrize("method", METHODS, ids=str)
def test_means_over_sites_count_only_sites_with_records(
    method: dict[str, Any], sizes: tuple[int, ...]
) -> None:
    """Mean and deviation of their own slopes; of two sites no deviation, which would be theirs."""
    tables = linear_tables(sizes)
    result, own = simulated(method, bounds(tables), tables)
    model = result.summary["errors"][0]["model"]
    here = sum(n > 0 for n in sizes)
    assert result.summary["sites_with_records"] == here
    assert result.summary["sites"] == len(sizes)
    slopes = np.array([told(own[s], model)[1:] for s, table in tables.items() if len(table)])
    rows = [row for row in result.summary["across_sites"] if row["term"] != "intercept"]
    for j, row in enumerate(rows):
        size = float(np.abs(slopes[:, j]).max())
        assert row["own_units"]["mean"] == pytest.approx(slopes[:, j].mean(), abs=1e-12 * size)
        if here == 2:
            assert row["sd"] is row["own_units"]["sd"] is None
            continue
        sd = slopes[:, j].std(ddof=1)  # 2^-26: the root of sums in steps of 2^-56, and rounding
        assert row["own_units"]["sd"] == pytest.approx(sd, abs=1e-6 * size)


def test_selection_counts_exclude_sites_without_records() -> None:
    """Where sites are alike their own results do, by what the others say: that is no finding."""
    tables = linear_tables((60, 0, 40, 0, 50, 70, 45), spread=0.02)
    method = {"name": "fedlin_hm2", "draws": 400, "log_tau_mean": -6.0}
    result, own = simulated(method, bounds(tables), tables)
    included = {
        site: [row["included"] for row in each.summary["coefficients"][1:]]
        for site, each in own.items()
    }
    assert any(any(included[site]) for site, table in tables.items() if not len(table))
    here = [included[site] for site, table in tables.items() if len(table)]
    told_ = [row["included"] for row in result.summary["across_sites"]]
    assert told_ == np.sum(here, axis=0).tolist()


@pytest.mark.parametrize("sites", [2, 3])
@pytest.mark.parametrize("holdout", [0.0, 0.2])
@pytest.mark.parametrize("kind", [FedAvg, FedLinHm2])
def test_the_last_sum_has_the_declared_fields(
    kind: type[FedAvg] | type[FedLinHm2], holdout: float, sites: int
) -> None:
    """With two sites no squares: with the mean they would be each one's coefficients."""
    variables = tuple(Variable(name, name, 0.0, 1.0) for name in "yx")
    public = PublicFacts(variables, ("y", "x"), 10, tuple(f"s{k}" for k in range(sites)))
    stage = kind(outcome="y", holdout=holdout).stages(public)[-1]
    found = {field.name for field in stage.spec}
    assert ("squares" in found) == ("of their squares" in stage.sees) == (sites > 2)
    assert ("held" in found) == ("held out" in stage.sees) == (holdout > 0)
    assert ("included" in found) == ("include" in stage.sees) == (kind is FedLinHm2)


# --- what leaves too few records ----------------------------------------------------------------


@pytest.mark.parametrize("intercept", ["site", "modelled"])
def test_a_holdout_that_leaves_too_few_records_is_named_in_the_error(intercept: str) -> None:
    """One record a site has no deviation from its own mean; one column is all but constant."""
    tables = linear_tables((30, 12, 20))
    columns = bounds(tables)
    if intercept == "modelled":  # a rare 1, held out
        tables = {site: table.assign(x0=0.0) for site, table in tables.items()}
        tables["s000"].loc[29, "x0"] = 1.0
    method = {"name": "fedavg", "holdout": 0.99, "holdout_rows": "last", "intercept": intercept}
    with pytest.raises(UsageError) as raised:
        simulated(method, columns, tables)
    assert "method.holdout" in raised.value.line()
    assert ("own means" in raised.value.what) == (intercept == "site")


def test_a_constant_column_is_not_attributed_to_the_holdout() -> None:
    tables = {s: table.assign(x0=0.5) for s, table in linear_tables((30, 12)).items()}
    with pytest.raises(UsageError) as raised:
        simulated({"name": "fedavg"}, bounds(linear_tables((30, 12))), tables)
    assert "holdout" not in str(raised.value)


def test_a_holdout_that_leaves_no_residuals_is_named_in_the_error() -> None:
    tables = linear_tables((6, 6, 6))
    method = {"name": "fedlin_hm1", "holdout": 0.5}
    with pytest.raises(UsageError) as raised:
        simulated(method, bounds(tables), tables)
    assert "hold out less" in raised.value.advice
