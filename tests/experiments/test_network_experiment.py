"""An experiment with networks: its baselines, and a run with noise, computed in other ways."""

from pathlib import Path

import numpy as np
import pandas as pd
import pytest
import statsmodels.api as sm
from scipy.stats import mannwhitneyu, norm

from secagg.errors import UsageError
from secagg.experiments.experiment import Planned, plan_experiment
from secagg.experiments.records import bootstrap, read_tables
from secagg.experiments.runner.cells import code_version, compute
from secagg.experiments.runner.experiment import Done
from secagg.experiments.runner.types import Numbers
from secagg.experiments.summary import as_csv
from secagg.experiments.sweep import read_sweep

pytestmark = pytest.mark.neural
JOB = """title = "Two columns"
[sites]
folder = "data"
max_rows = 400
[columns]
x = { type = "continuous", low = -6, high = 6 }
y = { type = "continuous", low = -12, high = 12 }
[method]
name = "fedngm"
hidden = []
linear_penalty = 0
count_fit = false
[protocol]
name = "masked"
[release]
min_sites = 2
min_records = 5
"""
SWEEP = """title = "A network"
job = "job.toml"
repeat = 2
[keys]
"method.edges" = "all"
"method.standardise" = false
[axes]
"privacy.epsilon" = [4]
[[lines]]
name = "every round"
"privacy.delta" = 1e-5
"privacy.placement" = "round"
"method.rounds" = 3
"""
MODULE = JOB.replace(
    'name = "fedngm"\nhidden = []\nlinear_penalty = 0\ncount_fit = false',
    'name = "torch_module"\noutcome = "y"\nmodule_settings = { hidden = [] }',
).replace(
    "[method]",
    """case = { type = "binary" }
kind = { type = "categorical", levels = ["a", "b", "c"] }
[method]""",
)
MODULES = SWEEP.replace("job.toml", "module.toml").replace(
    '"method.edges" = "all"\n"method.standardise" = false', '"method.outcome" = "y"'
)
VOTES = """title = "A network with votes"
job = "job.toml"
repeat = 2
[axes]
"release.min_records" = [5]
"""


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder, rng = tmp_path_factory.mktemp("networks"), np.random.default_rng(3)
    (folder / "data").mkdir()
    for site in ("ada", "bea", "cleo"):
        x = rng.normal(0, 1, 200)
        table = pd.DataFrame({"x": x, "y": 2 * x + rng.normal(0, 1, 200)})
        table["case"] = (rng.logistic(size=200) < x).astype(int)
        table["kind"] = np.array(list("abc"))[np.digitize(x + rng.normal(0, 1, 200), [-1, 1])]
        table.to_csv(folder / "data" / f"{site}.csv", index=False)
    (folder / "job.toml").write_text(JOB)
    (folder / "study.toml").write_text(SWEEP)
    (folder / "votes.toml").write_text(VOTES)
    (folder / "module.toml").write_text(MODULE)
    (folder / "modules.toml").write_text(MODULES)
    return folder


@pytest.fixture(scope="module")
def planned(folder: Path) -> Planned:
    return plan_experiment(read_sweep(folder / "study.toml"))


def baselines_of(planned: Planned) -> Numbers:
    cell = planned.baselines[0.0][1]
    outcome = compute(cell, code_version(cell.task))
    assert outcome.numbers is not None, outcome.failed
    return outcome.numbers


@pytest.fixture(scope="module")
def baselines(planned: Planned) -> Numbers:
    return baselines_of(planned)


@pytest.fixture(scope="module")
def halves(planned: Planned) -> tuple[pd.DataFrame, pd.DataFrame]:
    """The records of the first run, and those that took no part."""
    drawn, others = bootstrap(read_tables(planned.reference), 1)
    numbers = (pd.concat(each.values())[["x", "y"]].astype(float) for each in (drawn, others))
    return next(numbers), next(numbers)


def test_nothing_learned_is_each_column_on_its_own(
    baselines: Numbers, halves: tuple[pd.DataFrame, pd.DataFrame]
) -> None:
    drawn, others = halves
    logs = norm.logpdf(others, drawn.mean(), drawn.std(ddof=0)).sum(axis=1)
    assert baselines["nothing learned"]["neg_log_pl"] == pytest.approx(-logs.mean(), abs=2e-3)


def test_without_noise_it_is_each_column_given_the_other(
    baselines: Numbers, halves: tuple[pd.DataFrame, pd.DataFrame]
) -> None:
    (drawn, others), total = halves, 0.0
    for one, other in (("x", "y"), ("y", "x")):
        fit = sm.OLS(drawn[one], sm.add_constant(drawn[[other]])).fit()
        mean = fit.predict(sm.add_constant(others[[other]]))
        sd = np.sqrt(np.mean(fit.resid**2))
        total -= float(norm.logpdf(others[one], mean, sd).mean())
    for name in ("no noise", "pooled"):
        assert baselines[name] == {"neg_log_pl": pytest.approx(total, abs=2e-3)}
    alone = baselines["each site alone"]
    assert alone["sites"] == 3 and total < alone["neg_log_pl"] < total + 0.1


def test_noise_costs_likelihood(planned: Planned, baselines: Numbers) -> None:
    cell = planned.runs["every round"][4.0][1]
    outcome = compute(cell, code_version(cell.task))
    assert outcome.numbers is not None, outcome.failed
    assert outcome.numbers["run"]["neg_log_pl"] > baselines["no noise"]["neg_log_pl"] + 0.1


def test_pooled_records_vote_alone(folder: Path) -> None:
    """With two votes needed, one party's network would have no edge."""
    found = baselines_of(plan_experiment(read_sweep(folder / "votes.toml")))
    assert {name: found[name]["shd"] for name in ("no noise", "pooled", "nothing learned")} == {
        "no noise": 0.0, "pooled": 0.0, "nothing learned": 1.0,
    }  # fmt: skip
    assert found["pooled"]["neg_log_pl"] == pytest.approx(found["no noise"]["neg_log_pl"], abs=0.01)


def test_a_network_needs_records_that_took_no_part(folder: Path) -> None:
    (folder / "same.toml").write_text(SWEEP + '[records]\ndraw = "same"\n')
    with pytest.raises(UsageError) as caught:
        plan_experiment(read_sweep(folder / "same.toml"))
    assert caught.value.where == "records.draw"


def test_a_job_whose_baselines_are_refused_is_refused(folder: Path) -> None:
    text = SWEEP.replace("[keys]\n", '[keys]\n"method.sampling_rate" = 0.5\n')
    (folder / "rate.toml").write_text(text)
    with pytest.raises(UsageError) as caught:
        plan_experiment(read_sweep(folder / "rate.toml"))
    assert "sampling_rate" in caught.value.line()


@pytest.mark.parametrize("study", ["study", "modules"])
def test_each_site_alone_with_opacus_is_a_line_of_its_own(folder: Path, study: str) -> None:
    planned = plan_experiment(read_sweep(folder / f"{study}.toml"))
    cell = planned.runs["every round: each site alone with Opacus"][4.0][1]
    one, two = (compute(cell, code_version(cell.task)).numbers for _ in range(2))
    assert one is not None and one == two
    (found,) = one.values()
    assert 3.9 < found["epsilon"] <= 4 and found["rounds"] == found["bytes sent by each site"] == 0
    outcome = compute(
        planned.runs["every round"][4.0][1], code_version("secagg.experiments.one_run")
    )
    assert outcome.numbers is not None and set(outcome.numbers["run"]) - set(found) == {
        "bytes sent by each coordinator"
    }
    rows = as_csv(planned, Done({cell: compute(cell, code_version(cell.task))}, (), 0.0))
    assert "every round: each site alone with Opacus,4,1,epsilon," in rows


@pytest.mark.parametrize("keys", ['adjacency" = "replace', 'placement" = "none'])
def test_opacus_trains_only_what_it_protects(folder: Path, keys: str) -> None:
    text = MODULES.replace('"privacy.placement" = "round"', f'"privacy.{keys}"')
    if "none" in keys:
        text = text.replace('"privacy.epsilon" = [4]', '"release.min_records" = [5]')
        text = text.replace('"privacy.delta" = 1e-5\n', "")
    else:
        text += '"privacy.placement" = "round"\n'
    (folder / "other.toml").write_text(text)
    assert set(plan_experiment(read_sweep(folder / "other.toml")).runs) == {"every round"}


@pytest.mark.parametrize(("outcome", "metric"), [("y", "unexplained"), ("case", "auc"),
                                                 ("kind", "log_loss")])  # fmt: skip
def test_a_module_is_measured_on_other_records(folder: Path, outcome: str, metric: str) -> None:
    """Linear ones, fitted and measured by statsmodels and scipy."""
    text = MODULES.replace('"method.outcome" = "y"', f'"method.outcome" = "{outcome}"')
    text = text.replace("[keys]\n", '[keys]\n"method.predictors" = ["x"]\n')
    (folder / "linear.toml").write_text(text)
    planned = plan_experiment(read_sweep(folder / "linear.toml"))
    found = baselines_of(planned)
    drawn, others = (pd.concat(t) for t in bootstrap(read_tables(planned.reference), 1))
    X, new = (sm.add_constant(each[["x"]].astype(float)) for each in (drawn, others))
    if metric == "unexplained":
        fit = sm.OLS(drawn["y"].astype(float), X).fit()
        truth = others["y"].astype(float)
        expected = np.var(truth - fit.predict(new)) / np.var(truth)
    else:
        codes, true = (pd.Categorical(each[outcome]).codes for each in (drawn, others))
        shares = sm.MNLogit(codes, X).fit(disp=0).predict(new).to_numpy()
        if metric == "auc":
            cases, rest = shares[true == 1, 1], shares[true == 0, 1]
            expected = mannwhitneyu(cases, rest).statistic / (len(cases) * len(rest))
        else:
            expected = -np.mean(np.log(shares[np.arange(len(true)), true]))
    for name in ("no noise", "pooled"):
        assert found[name] == {metric: pytest.approx(expected, rel=1e-3)}
    assert "nothing learned" not in found
