"""A module passed in Python: its copy is trained, and predictions are in the columns' own units."""

import threading
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
import statsmodels.api as sm
from support.methods.networks import COLUMNS, job, linear, tables

import secagg
from secagg.core.randomness import replayable_random
from secagg.errors import DataError, JobError, UsageError
from secagg.evidence.run_folder import RunFolder
from secagg.jobs.job import parse_job
from secagg.runs.estimators.fedmodule import FedModule
from secagg.runs.networks.finished_module import FinishedModuleRun
from secagg.runs.simulate import simulate

DECLARED: dict[str, Any] = {"columns": COLUMNS, "seed": 1}


@pytest.mark.neural
def test_a_linear_module_predicts_as_pooled_least_squares() -> None:
    from torch import nn

    given, data = nn.Linear(2, 1), tables()
    before = given.weight.detach().clone()
    model = FedModule(
        given, outcome="y", predictors=("x", "w"), settings={"tolerance": 1e-9}, **DECLARED
    ).fit_sites(data)
    pooled = pd.concat(data.values())
    X = sm.add_constant(pooled[["x", "w"]])
    exact = sm.OLS(pooled["y"], X).fit().predict(X)
    # Sums are rounded to 2^-40 at each site, and the search ends at a slope of 1e-9.
    np.testing.assert_allclose(model.predict(pooled), exact, atol=1e-5)
    assert (given.weight == before).all()  # the user's module is not changed
    assert model.module_.weight.shape == (1, 2)
    far = pd.DataFrame({"x": [9.0], "w": [50.0]})  # outside the bounds: not clipped
    assert model.predict(far)[0] > exact.max() + 3


@pytest.mark.parametrize(
    "module",
    [linear, partial(linear), "support.methods.networks:linear"],
    ids=["function", "partial", "name"],
)
@pytest.mark.neural
def test_a_factory_is_told_the_shapes(module: Any) -> None:
    data = tables()
    model = FedModule(module, outcome="kind", **DECLARED).fit_sites(data)
    shares = model.predict_proba(data["site0"])
    assert list(shares.columns) == ["a", "b", "c"] and len(shares) == 60
    np.testing.assert_allclose(shares.sum(axis=1), 1, atol=1e-12)
    best = model.predict(data["site0"])
    assert list(best) == list(shares.idxmax(axis=1))
    assert (best == data["site0"]["kind"]).mean() > 0.5
    with pytest.raises(UsageError):
        FedModule(module, outcome="y", **DECLARED).fit_sites(data).predict_proba(data["site0"])


@pytest.mark.neural
def test_training_begins_at_the_modules_own_parameters() -> None:
    from torch import nn

    given = nn.Linear(4, 1)
    settings = {"rounds": 1, "optimiser": "sgd", "learning_rate": 1e-12}
    data = {name: table.drop(columns="kind") for name, table in tables().items()}
    columns = {name: column for name, column in COLUMNS.items() if name != "kind"}
    predictors = ("x", "w", "case")
    with pytest.raises(JobError) as caught:  # four inputs, three variables
        FedModule(
            given, outcome="y", predictors=predictors, columns=columns, settings=settings
        ).fit_sites(data)
    assert caught.value.where == "method.module"
    model = FedModule(nn.Linear(3, 1), outcome="y", columns=columns, settings=settings)
    model.fit_sites(data)
    first = model.module.weight.detach().double().numpy()
    np.testing.assert_allclose(model.module_.weight.detach().numpy(), first, atol=1e-9)


@pytest.mark.neural
def test_a_module_that_cannot_be_copied_is_the_users_error() -> None:
    from torch import nn

    module = nn.Linear(4, 1)
    module.lock = threading.Lock()
    with pytest.raises(UsageError) as caught:
        FedModule(module).fit_sites(tables())
    assert caught.value.where == "module" and caught.value.advice
    with pytest.raises(UsageError):
        FedModule(3).fit_sites(tables())  # type: ignore[arg-type]


@pytest.mark.neural
def test_records_to_predict_are_complete() -> None:
    data = tables()
    model = FedModule(linear, outcome="y", predictors=("x",), **DECLARED).fit_sites(data)
    with pytest.raises(DataError):
        model.predict(pd.DataFrame({"x": [1.0, np.nan]}))
    with pytest.raises(DataError):
        model.predict(pd.DataFrame({"w": [1.0]}))


@pytest.mark.neural
def test_a_finished_run_is_read_from_its_folder(tmp_path: Path) -> None:
    raw = job({"name": "torch_module", "outcome": "case", "rounds": 3}, "masked")
    done = secagg.run(raw, tables(), out=tmp_path / "run")
    read = FinishedModuleRun.read(RunFolder.open_finished(tmp_path / "run"))
    one = FinishedModuleRun.of(parse_job(raw), done.result).predict_proba(tables()["site1"])
    pd.testing.assert_frame_equal(one, read.predict_proba(tables()["site1"]))
    other = parse_job(job({"name": "moments"}))
    with pytest.raises(UsageError):
        FinishedModuleRun.of(other, done.result)


@pytest.mark.neural
def test_the_logarithm_of_an_outcome_is_undone() -> None:
    columns = {"x": COLUMNS["x"], "y": {"type": "continuous", "low": 0.1, "high": 60,
                                        "transform": "log"}}  # fmt: skip
    data = {n: pd.DataFrame({"x": t["x"], "y": np.exp(t["x"] / 2)}) for n, t in tables().items()}
    raw = job(
        {"name": "torch_module", "outcome": "y", "module": "support.methods.networks:linear"},
        columns=columns,
    )
    found = simulate(raw, data, random=replayable_random(1))
    run = FinishedModuleRun.of(parse_job(raw), found)
    x = pd.DataFrame({"x": [0.0, 1.0]})
    np.testing.assert_allclose(run.predict(x), np.exp(x["x"] / 2), rtol=1e-3)
