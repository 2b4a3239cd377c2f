"""Any module over sites: known optima, FedAvg step by step, bad modules and bad records."""

from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
import statsmodels.api as sm
from support.methods.networks import job, tables

from secagg.contracts import Result
from secagg.core.randomness import replayable_random
from secagg.errors import DataError, JobError, PolicyRefusal
from secagg.jobs.job import parse_job
from secagg.runs.networks.finished_module import FinishedModuleRun
from secagg.runs.simulate import simulate
from secagg.sessions.parties import read_records
from secagg.sessions.planned_job import plan_job


def torch_tensor(values: np.ndarray) -> Any:
    import torch

    return torch.tensor(values, dtype=torch.float64)


pytestmark = pytest.mark.neural
SCALE = {"x": (0.0, 4.0), "w": (5.0, 5.0), "y": (0.0, 8.0)}


def fitted(data: dict[str, pd.DataFrame], **method: Any) -> Result:
    return simulate(job({"name": "torch_module", **method}), data, random=replayable_random(1))


def scaled(data: dict[str, pd.DataFrame], columns: list[str]) -> np.ndarray:
    pooled = pd.concat(data.values())
    return np.column_stack([(pooled[c] - SCALE[c][0]) / SCALE[c][1] for c in columns])


def test_a_linear_module_is_pooled_least_squares() -> None:
    data = tables()
    found = fitted(
        data, outcome="y", predictors=["x", "w"], module_settings={"hidden": []}, tolerance=1e-9
    )
    X, y = sm.add_constant(scaled(data, ["x", "w"])), scaled(data, ["y"])[:, 0]
    exact = np.linalg.lstsq(X, y, rcond=None)[0]
    # Sums are rounded to 2^-40 at each site, and the search ends at a slope of 1e-9.
    np.testing.assert_allclose(found.arrays["0.weight"][0], exact[1:], atol=1e-7)
    np.testing.assert_allclose(found.arrays["0.bias"], exact[0], atol=1e-7)
    assert found.summary["status"] == "converged"
    assert found.summary["loss"] == pytest.approx(np.mean((y - X @ exact) ** 2) / 2, abs=1e-9)


@pytest.mark.parametrize("outcome", ["case", "kind"])
def test_a_linear_module_with_cross_entropy_is_logistic_regression(outcome: str) -> None:
    data = tables(rows=150)
    found = fitted(
        data, outcome=outcome, predictors=["x", "w"], module_settings={"hidden": []}, tolerance=1e-8
    )
    X, pooled = sm.add_constant(scaled(data, ["x", "w"])), pd.concat(data.values())
    levels = pd.Categorical(pooled[outcome]).codes
    exact = np.asarray(sm.MNLogit(levels, X).fit(disp=0).params)
    weights = np.column_stack([found.arrays["0.bias"], found.arrays["0.weight"]])
    np.testing.assert_allclose((weights - weights[0])[1:].T, exact, atol=1e-5)


def test_frozen_parameters_stay_as_they_are() -> None:
    """The last layer is then least squares on the first one's outputs."""
    data = tables()
    found = fitted(data, outcome="y", module="support.methods.networks:frozen", tolerance=1e-9)
    assert list(found.arrays) == ["2.weight", "2.bias"]
    method = {"name": "torch_module", "outcome": "y", "module": "support.methods.networks:frozen"}
    run = FinishedModuleRun.of(parse_job(job(method)), found)
    features = run.module[:2]  # type: ignore[index]
    pooled = pd.concat(data.values())
    inputs = np.column_stack(
        [(pooled["x"]) / 4, (pooled["w"] - 5) / 5, 2 * pooled["case"] - 1,
         *(np.where(pooled["kind"] == level, 1, -1) for level in "bc")]
    )  # fmt: skip
    assert [v.name for v in run.public.variables][3:] == ["case", "kind=b", "kind=c"]
    hidden = features(torch_tensor(inputs)).detach().numpy()
    exact = sm.OLS(pooled["y"].to_numpy(), sm.add_constant(hidden)).fit().fittedvalues
    np.testing.assert_allclose(run.predict(pooled), exact, atol=1e-4)


def test_the_split_into_sites_does_not_matter_to_fedsgd() -> None:
    data = tables()
    pooled = pd.concat(data.values(), ignore_index=True)
    other = {"p": pooled.iloc[:7], "q": pooled.iloc[7:11], "r": pooled.iloc[11:]}
    one, two = (fitted(d, outcome="y", rounds=10) for d in (data, other))
    for name, block in one.arrays.items():
        np.testing.assert_allclose(block, two.arrays[name], atol=1e-8)


def test_fedavg_with_one_full_step_is_gradient_descent() -> None:
    data = tables(rows=30)
    X, y = scaled(data, ["x"]), scaled(data, ["y"])[:, 0]
    start = fitted(data, outcome="y", predictors=["x"], module_settings={"hidden": []},
                   optimiser="sgd", learning_rate=1e-12, rounds=1)  # fmt: skip
    beta = np.array([start.arrays["0.weight"][0, 0], start.arrays["0.bias"][0]])
    design = np.column_stack([X[:, 0], np.ones(len(X))])
    for _ in range(3):
        beta = beta - 0.2 * design.T @ (design @ beta - y) / len(y)
    found = fitted(data, outcome="y", predictors=["x"], module_settings={"hidden": []}, rounds=3,
                   algorithm="fedavg", local_learning_rate=0.2)  # fmt: skip
    got = [found.arrays["0.weight"][0, 0], found.arrays["0.bias"][0]]
    np.testing.assert_allclose(got, beta, atol=1e-9)


def test_fedavg_with_batches_learns() -> None:
    data = tables(rows=100)
    found = fitted(data, outcome="y", algorithm="fedavg", rounds=20, epochs=3, batch=20,
                   local_learning_rate=0.3, local_optimiser="sgd")  # fmt: skip
    losses = found.summary["losses"]
    assert losses[-1] < 0.5 * losses[0] and len(losses) == found.summary["rounds"] == 20


def test_a_long_update_is_shortened_and_counted() -> None:
    data = tables()
    given = {"outcome": "y", "algorithm": "fedavg", "rounds": 2, "local_learning_rate": 0.3}
    free, clipped = fitted(data, **given), fitted(data, **given, clip=1e-3)
    assert free.summary["shortened_updates"] == 0
    assert clipped.summary["shortened_updates"] == 6  # three sites, two rounds
    start = fitted(data, **given | {"rounds": 1, "learning_rate": 1e-12})
    moved = sum(np.sum((clipped.arrays[n] - start.arrays[n]) ** 2) for n in start.arrays)
    assert np.sqrt(moved) <= 2e-3 + 1e-9


@pytest.mark.parametrize(
    ("factory", "settings"),
    [
        ("support.methods.networks:batch_norm", {}),
        ("support.methods.networks:batch_mean", {}),
        ("support.methods.networks:all_frozen", {}),
        ("support.methods.networks:lazy", {}),
        ("support.methods.networks:dropout", {}),
        ("support.methods.networks:wrong_shape", {}),
        ("support.methods.networks:no_parameters", {}),
        ("support.methods.networks:not_a_module", {}),
        ("support.methods.networks:failing", {}),
        ("support.methods.networks:missing", {}),
        ("support.methods.networks", {}),
        ("no_such_package.here:net", {}),
        ("support.methods.networks:COLUMNS", {}),
        ("support.methods.networks:linear", {"unknown": 3}),
        ("secagg.models.neural.built_in:mlp", {"hidden": [0]}),
        ("secagg.models.neural.built_in:mlp", {"activation": "step"}),
    ],
)
def test_a_bad_module_is_refused_before_data_is_read(
    factory: str, settings: dict[str, Any]
) -> None:
    with pytest.raises(JobError) as caught:
        fitted({"a": pd.DataFrame(), "b": pd.DataFrame()}, outcome="y", module=factory,
               module_settings=settings)  # fmt: skip
    assert caught.value.where.startswith("method.")


@pytest.mark.parametrize(
    ("key", "value"),
    [("rounds", 0), ("loss", "cross_entropy"), ("clip", 0.0),
     ("learning_rate", float("nan")), ("momentum", 1.0), ("outcome", "z"), ("predictors", ["y"]),
     ("batch", 0), ("seed", -1)],
)  # fmt: skip
def test_settings_out_of_range_are_refused(key: str, value: Any) -> None:
    with pytest.raises(JobError) as caught:
        fitted(tables(), **{"outcome": "y", key: value})
    assert caught.value.where == f"method.{key}"


@pytest.mark.parametrize("hidden", [[5000, 5000], [10_001]])
def test_too_large_a_network_is_refused_before_it_is_summed(hidden: list[int]) -> None:
    method = {"name": "torch_module", "outcome": "y", "module_settings": {"hidden": hidden}}
    with pytest.raises(JobError):
        plan_job(parse_job(job(method)), tables())


def test_lbfgs_is_refused_with_fedavg() -> None:
    with pytest.raises(JobError):
        fitted(tables(), outcome="y", algorithm="fedavg", optimiser="lbfgs")


def test_without_torch_the_job_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("importlib.util.find_spec", lambda _: None)
    with pytest.raises(JobError) as caught:
        fitted(tables(), outcome="y")
    assert "secagg[neural]" in str(caught.value)


def test_a_module_that_cannot_be_pickled_works() -> None:
    found = fitted(tables(), outcome="y", module="support.methods.networks:closure", rounds=2)
    assert found.summary["rounds"] == 2


@pytest.mark.parametrize("optimiser", ["lbfgs", "adam"])
def test_a_loss_that_is_not_finite_stops_at_the_site(optimiser: str) -> None:
    with pytest.raises(DataError):
        fitted(tables(), outcome="y", module="support.methods.networks:root", optimiser=optimiser)


def test_a_site_out_of_range_is_not_left_out_of_a_sum() -> None:
    """The coordinator chooses parameters at which all sites but one fail: it gets no sum."""
    data = tables()
    data["site2"] = data["site2"].assign(x=0.0)
    method = {"name": "torch_module", "outcome": "y", "predictors": ["x"]}
    wide = {"module_settings": {"hidden": [8], "activation": "gelu"}}
    planned = plan_job(parse_job(job(method | wide)), data)
    weights = np.full(8, 30.0)  # the largest that are accepted; the loss is small only where x is
    theta = np.concatenate([weights, np.zeros(8), weights, np.zeros(1)])
    for name, source in planned.sources.items():
        rows = read_records(planned, source)
        arguments = "train", rows, {"theta": theta}, {}, planned.public, replayable_random(1)
        if name == "site2":
            planned.method.contribute(*arguments)
        else:
            with pytest.raises(DataError):
                planned.method.contribute(*arguments)


def test_a_search_does_not_end_on_a_plateau_above_its_best_value() -> None:
    found = fitted(tables(), outcome="y", module="support.methods.networks:plateau")
    assert min(found.summary["losses"]) == pytest.approx(found.summary["loss"], abs=1e-9)


@pytest.mark.parametrize("rounds", [5, 6, 17])
def test_the_loss_is_that_of_the_returned_parameters(rounds: int) -> None:
    settings = {"outcome": "kind", "module_settings": {"hidden": [2]}}
    found = fitted(tables(), **settings, rounds=rounds)
    again = fitted(tables(), **settings, rounds=300)
    assert found.summary["loss"] == min(found.summary["losses"])
    assert found.summary["loss"] in again.summary["losses"]


def test_sites_with_few_records_and_columns_without_variation() -> None:
    """One record, none, a constant column, a level never seen, more parameters than records."""
    data = tables(4, rows=6)
    data["site1"], data["site2"] = data["site1"].iloc[:1], data["site2"].iloc[:0]
    data = {name: table.assign(w=3.0, kind="a") for name, table in data.items()}
    for outcome in ("y", "kind", "case"):
        found = fitted(data, outcome=outcome, rounds=30, module_settings={"hidden": [50]})
        assert found.summary["parameters"] > 13
        assert all(np.isfinite(block).all() for block in found.arrays.values())


def test_no_record_at_all_is_an_error() -> None:
    data = {name: table.iloc[:0] for name, table in tables().items()}
    with pytest.raises(DataError):
        fitted(data, outcome="y")


def test_an_incomplete_record_is_left_out() -> None:
    data = tables()
    holed = {name: table.copy() for name, table in data.items()}
    holed["site0"].loc[4, "x"] = np.nan
    without = {**data, "site0": data["site0"].drop(index=4)}
    one, two = (fitted(d, outcome="y", rounds=3) for d in (holed, without))
    np.testing.assert_array_equal(one.arrays["0.weight"], two.arrays["0.weight"])


def test_a_site_with_other_columns_is_refused() -> None:
    data = tables()
    data["site1"] = data["site1"].drop(columns="w")
    with pytest.raises(DataError):
        fitted(data, outcome="y")


def test_a_step_that_is_too_long_ends_with_advice() -> None:
    with pytest.raises(DataError) as caught:
        fitted(tables(), outcome="y", optimiser="sgd", learning_rate=1e4)
    assert caught.value.advice


def policy_file(folder: Path, text: str) -> None:
    folder.mkdir()
    for name, table in tables().items():
        table.to_csv(folder / f"{name}.csv", index=False)
    (folder / "site1.policy.toml").write_text(text)


@pytest.mark.parametrize(
    ("module", "listed", "refused"),
    [
        ("support.methods.networks:linear", "", True),
        ("support.methods.networks:linear", 'modules = ["support.methods.networks:linear"]', False),
        ("support.methods.networks:linear", 'modules = ["support.methods.networks:linear2"]', True),
        ("support.methods.networks:linear", 'modules = ["any"]', False),
        ("secagg.models.neural.built_in:mlp", "", False),
        ("secagg.models.neural.built_in:imported", "", True),
    ],
)
def test_a_site_imports_only_code_that_its_policy_lists(
    tmp_path: Path, module: str, listed: str, refused: bool
) -> None:
    """The coordinator writes the job, so a name in it could run any code that is installed."""
    policy_file(tmp_path / "data", f"min_sites = 2\nmin_records = 1\n{listed}\n")
    raw = job({"name": "torch_module", "outcome": "y", "module": module}) | {
        "sites": {"folder": str(tmp_path / "data"), "max_rows": 200}
    }
    if not refused:
        plan_job(parse_job(raw))
        return
    with pytest.raises(PolicyRefusal) as caught:
        plan_job(parse_job(raw))
    assert caught.value.where == "site1"
