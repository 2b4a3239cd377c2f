"""FedNGM as an estimator: scikit-learn's manners, and a fit from end to end."""

import networkx as nx
import numpy as np
import pandas as pd
import pytest

from secagg.errors import UsageError
from secagg.runs.estimators.fedngm import FedNGM

SETTINGS = {"edges": [["x", "y"], ["y", "case"]], "hidden": [], "rounds": 25}


def tables(sites: int = 3, n: int = 200) -> dict[str, pd.DataFrame]:
    """x - y - case: y = 2 x + noise of sd 1; case is likelier for large y."""
    rng, found = np.random.default_rng(0), {}
    for i in range(sites):
        x = rng.normal(50, 3, n)
        y = 2 * x + rng.normal(size=n)
        case = np.where(rng.random(n) < 1 / (1 + np.exp(-(y - 100) / 4)), "yes", "no")
        found[f"s{i}"] = pd.DataFrame({"x": x, "y": y, "case": case})
    return found


@pytest.fixture(scope="module")
def fitted() -> FedNGM:
    pytest.importorskip("torch")
    given = tables()
    given["s0"].loc[3, "x"] = np.nan
    return FedNGM(settings=SETTINGS, seed=1).fit_sites(given)


@pytest.mark.neural
def test_the_graph_and_notes_are_of_the_fit(fitted: FedNGM) -> None:
    assert nx.utils.edges_equal(fitted.graph_.edges, [("x", "y"), ("y", "case")])
    notes = " ".join(fitted.result_.summary["notes"])
    assert "1 of 600 rows" in notes and "give `columns`" in notes


@pytest.mark.neural
def test_predictions_use_what_is_known(fitted: FedNGM) -> None:
    table = pd.DataFrame({"x": [45.0, 55.0], "y": [None, None]}, index=["a", "b"])
    found = fitted.predict(table, ["y", "case"])
    assert list(found.index) == ["a", "b"] and list(found["case"]) == ["no", "yes"]
    np.testing.assert_allclose(found["y"].astype(float), [90, 110], atol=0.6)
    shares = fitted.predict_proba(table, "case")
    assert list(shares.columns) == ["no", "yes"] and shares.loc["b", "yes"] > 0.8
    np.testing.assert_array_equal(fitted.predict_proba(table, "case"), shares)  # by the seed
    with pytest.raises(UsageError) as caught:
        fitted.predict_proba(table, "y")
    assert caught.value.where == "predict_proba"


@pytest.mark.neural
def test_samples_have_the_tables_moments_and_correlation(fitted: FedNGM) -> None:
    records = pd.concat(tables().values())
    found, n = fitted.sample(5000, decimals={"x": 1}), len(records)
    for name in ("x", "y"):
        sd = records[name].std()
        assert abs(found[name].mean() - records[name].mean()) < 3 * sd / np.sqrt(n)
        assert abs(found[name].std() / sd - 1) < 3 / np.sqrt(2 * n)
    r, s = (np.corrcoef(t["x"], t["y"])[0, 1] for t in (records, found))
    assert abs(np.arctanh(r) - np.arctanh(s)) < 3 / np.sqrt(n)
    assert abs((found["case"] == "yes").mean() - (records["case"] == "yes").mean()) < 0.02
    assert fitted.score_samples(found[:5]).shape == (5,)
