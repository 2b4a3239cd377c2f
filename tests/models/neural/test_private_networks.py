"""Networks with differential privacy, as whole runs: in the sum, and at the sites."""

import copy
import importlib.util
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from support.methods.networks import job, tables

from secagg.contracts import SiteRecords
from secagg.core.randomness import replayable_random
from secagg.errors import CapabilityError, JobError, PeerError, PolicyRefusal
from secagg.evidence.integrity import verify_folder
from secagg.jobs.job import parse_job
from secagg.models.neural.local_fit import fit_privately, local_training
from secagg.models.neural.module_learner import module_learner
from secagg.models.neural.ngm.method import FedNgm
from secagg.models.neural.torch_module import BUILT_IN
from secagg.runs.networks.finished_module import FinishedModuleRun
from secagg.runs.run import run
from secagg.sessions.parties import read_records
from secagg.sessions.planned_job import plan_job

pytestmark = pytest.mark.neural
TORCH = {"name": "torch_module", "outcome": "y", "predictors": ["x"], "rounds": 6,
         "module_settings": {"hidden": []}}  # fmt: skip
NGM = {"name": "fedngm", "edges": [["x", "y"], ["x", "case"]], "standardise": False,
       "hidden": [2], "rounds": 6}  # fmt: skip
SAMPLED = {"sampling_rate": 0.5}
ALONE = NGM | {"learn_from": "samples", "local_steps": 5, "samples": 40}


def own(module: str) -> dict[str, Any]:
    """Return the settings of one of the tests' modules; it reads all columns but the outcome."""
    name = f"support.methods.networks:{module}"
    return {"module": name, "module_settings": {}, "predictors": None}


def private(
    method: dict[str, Any], placement: str, epsilon: float = 8.0, **more: Any
) -> dict[str, Any]:
    privacy = {"placement": placement, "epsilon": epsilon, "delta": 1e-5, **more}
    return job(method, "masked", privacy=privacy) | {"release": {"min_sites": 3, "min_records": 20}}


@pytest.mark.parametrize(
    ("method", "placement"),
    [(TORCH, "round"), (TORCH | SAMPLED, "round"), (NGM | SAMPLED, "round"), (ALONE, "site"),
     (ALONE | SAMPLED, "site")],
    ids=["network", "network of samples", "graph", "alone", "alone of samples"],
)  # fmt: skip
def test_a_private_run_is_written_and_verified(
    method: dict[str, Any], placement: str, tmp_path: Path
) -> None:
    found = run(private(method, placement), tables(3), out=tmp_path / "run")
    assert verify_folder(tmp_path / "run").failed is None
    assert "losses" not in found.result.summary or placement == "site"
    page = (tmp_path / "run" / "report.html").read_text("utf-8")
    assert "e⁸" in page
    sampled = "sampling_rate" in method
    assert ("Probability that a record takes part" in page) == sampled
    assert ("Poisson" in page) == sampled


def test_much_noise_changes_the_parameters_and_little_does_not() -> None:
    """With little noise the estimate is near that of least squares of scaled columns."""
    data = tables(3, rows=150)
    method = TORCH | {"rounds": 150, "optimiser": "sgd", "learning_rate": 0.5, "clip": 2.0}
    quiet, loud = (
        run(
            private(method, "round", epsilon=epsilon), data, random=replayable_random(3)
        ).result.arrays["0.weight"][0, 0]
        for epsilon in (20.0, 0.5)
    )
    pooled = pd.concat(data.values())
    slope = np.polyfit(pooled["x"] / 4, pooled["y"] / 8, 1)[0]
    # epsilon 20: mu is 3.5, over 150 rounds .28 a round; the sum of 450 gradients clipped to 2 has
    # noise of 2 / .28 = 7, or 9 where one of three sites may collude, so their mean .02. A step of
    # .5 adds .01. In 1 / (1 - .94^2) = 9 steps of curvature .06 x 2 this grows to .03.
    assert abs(quiet - slope) < 0.15
    assert abs(loud - slope) > 2 * abs(quiet - slope)


def test_training_at_the_sites_is_the_same_again_for_the_same_records(tmp_path: Path) -> None:
    """The noise comes from the site's ledger; a repeated job costs nothing."""
    folder = tmp_path / "data"
    folder.mkdir()
    for name, table in tables(3).items():
        table.to_csv(folder / f"{name}.csv", index=False)
        budget = "[budget]\nperiod_epsilon = 9.0\nperiod_delta = 1e-4\n"
        budget += 'adjacency = ["add_remove"]\n'
        (folder / f"{name}.policy.toml").write_text(f"min_sites = 3\nmin_records = 20\n{budget}")
    raw = private(ALONE, "site") | {"sites": {"folder": str(folder), "max_rows": 200}}
    one, two = (run(raw).result for _ in range(2))
    for name, block in one.arrays.items():
        np.testing.assert_array_equal(block, two.arrays[name])
    other = copy.deepcopy(raw)
    other["method"]["seed"] = 1  # another network: another training, which is paid for
    with pytest.raises(PolicyRefusal):
        run(other)


@pytest.mark.parametrize(
    ("method", "placement", "error"),
    [
        (TORCH | {"algorithm": "fedavg"}, "round", JobError),
        (TORCH | {"optimiser": "lbfgs"}, "round", JobError),
        (TORCH | {"sampling_rate": 0.0}, "round", JobError),
        (TORCH | {"sampling_rate": 1.5}, "round", JobError),
        (TORCH, "site", CapabilityError),
        (TORCH, "sum", CapabilityError),
        (NGM | {"standardise": True}, "round", JobError),
        (NGM | {"edges": "votes"}, "round", JobError),
        (ALONE, "round", CapabilityError),
        (ALONE | {"site_weights": "records"}, "site", JobError),
        (ALONE | {"public_sites": ["site0"]}, "site", JobError),
        (ALONE | {"rounds": 0}, "site", JobError),
        (ALONE | {"local_steps": 0}, "site", JobError),
        (ALONE | {"algorithm": "fedavg", "batch": 0}, "site", JobError),
        (ALONE | {"algorithm": "fedavg", "optimiser": "lbfgs"}, "site", JobError),
        (ALONE | {"momentum": 5.0}, "site", JobError),
    ],
)
def test_what_noise_cannot_cover_is_refused_before_data_is_read(
    method: dict[str, Any], placement: str, error: type[Exception]
) -> None:
    with pytest.raises(error):
        plan_job(parse_job(private(method, placement)), tables(3))


@pytest.mark.parametrize(
    ("module", "layer", "replacement"),
    [("batch_norm", "BatchNorm1d", "GroupNorm(1, 5"), ("signal", "BatchNorm1d", "GroupNorm(8, 8"),
     ("recurrent", "LSTM", "DPLSTM")],
)  # fmt: skip
def test_a_layer_that_opacus_refuses_is_named_with_its_replacement(
    module: str, layer: str, replacement: str
) -> None:
    """Before any record is read."""
    raw = private(TORCH | own(module), "round")
    with pytest.raises(JobError) as caught:
        plan_job(parse_job(raw), {"a": pd.DataFrame(), "b": pd.DataFrame(), "c": pd.DataFrame()})
    assert caught.value.where == "method.module"
    assert layer in caught.value.what and replacement in caught.value.advice


def test_without_opacus_a_module_of_the_user_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    found = importlib.util.find_spec
    monkeypatch.setattr(
        "importlib.util.find_spec", lambda name: None if name == "opacus" else found(name)
    )
    plan_job(parse_job(private(TORCH, "round")), tables(3))  # secagg's own module needs no check
    with pytest.raises(JobError) as caught:
        plan_job(parse_job(private(TORCH | own("linear"), "round")), tables(3))
    assert "opacus" in caught.value.what


@pytest.mark.parametrize("module", ["batch_norm", "signal", "recurrent", "levels"])
def test_a_module_is_trained_with_noise_after_the_fix(module: str) -> None:
    """Its predictions go with the outcome: 450 independent pairs have a correlation of +- 0.05."""
    data = tables(3, rows=150)
    settings = {"replace_layers": True, "rounds": 40, "learning_rate": 0.05}
    raw = private(TORCH | own(module) | settings, "round", epsilon=20.0)
    found = run(raw, data, random=replayable_random(3))
    pooled = pd.concat(data.values())
    predicted = FinishedModuleRun.of(parse_job(raw), found.result).predict(pooled)
    assert np.corrcoef(predicted, pooled["y"])[0, 1] > 0.2


def test_a_replaced_layer_does_not_lose_its_input() -> None:
    """Opacus' own fix makes 8 groups of 8 units: each is one value, and its output is 0."""
    learner = module_learner("support.methods.networks:signal", b"{}", (0, 1), (2,),
                             "squared_error", replace_layers=True)  # fmt: skip
    values = np.random.default_rng(0).uniform(-1, 1, (20, 3))
    outputs = learner.outputs_for(learner.blocks.split(learner.initial(1)), values)
    assert np.std(outputs) > 1e-3


def test_a_sampling_rate_without_noise_is_refused() -> None:
    with pytest.raises(JobError) as caught:
        plan_job(parse_job(job(TORCH | {"sampling_rate": 0.5})), tables(3))
    assert caught.value.where == "method.sampling_rate"


@pytest.mark.parametrize("kind", ["add", "replace"])
def test_one_record_moves_gradient_and_size_by_at_most_the_sensitivity(kind: str) -> None:
    """At the bound: gradients longer than the clip, all in one direction, or in opposite ones."""
    planned = plan_job(parse_job(private(TORCH | {"clip": 0.25}, "round")), tables(3))
    stage, learner = planned.plans.stages["train"], planned.method.learner(planned.public)
    assert stage.sensitivity is not None
    theta, values = np.zeros(learner.blocks.size), np.full((9, len(planned.public.variables)), 0.5)
    y = next(i for i, v in enumerate(planned.public.variables) if v.name == "y")
    values[:4, y] = -0.5

    def summed(records: np.ndarray) -> np.ndarray:
        rows = SiteRecords(records, 0, np.zeros(1))
        update, _ = planned.method.contribute(
            "train", rows, {"theta": theta}, {}, planned.public, replayable_random(1)
        )
        return np.concatenate([update["change"], update["size"]])

    others = np.delete(values, 0, axis=0)
    moved, bound = summed(values) - summed(others), stage.sensitivity.add
    if kind == "replace":
        other = values[:1].copy()
        other[:, y] *= -1
        moved, bound = (
            summed(values) - summed(np.vstack([others, other])),
            stage.sensitivity.replace,
        )
        # Both have the size C / 4, so the bound, which allows for an incomplete record, is not met.
        assert np.linalg.norm(moved) > 0.99 * 2 * 0.25
    assert np.linalg.norm(moved) <= bound
    if kind == "add":
        assert np.linalg.norm(moved) > 0.999 * bound


def test_a_training_alone_has_noise_in_every_number_of_every_step() -> None:
    """And the records of a site with more than max_rows count all, in parts."""
    planned = plan_job(parse_job(private(ALONE, "site")), tables(3))
    method, public = planned.method, planned.public
    assert isinstance(method, FedNgm)
    rounds, asked = method.local_rounds, list[int]()
    module = module_learner(BUILT_IN[0], b'{"hidden":[]}', (0,), (2,), "squared_error")
    start, values = module.initial(1), np.random.default_rng(3).uniform(-0.5, 0.5, (50, 4))
    declared = local_training(rounds, len(start), public)

    def noise(numbers: int) -> np.ndarray:
        asked.append(numbers)
        return np.full(numbers, loud)

    def fit(limit: int) -> np.ndarray:
        facts = replace(public, max_rows=limit)
        return fit_privately(rounds, module, start, values, facts, replayable_random(1), noise)

    loud = 0
    exact = fit(public.max_rows)
    assert sum(asked) == declared.steps * declared.numbers
    np.testing.assert_allclose(fit(20), exact, atol=1e-6)  # 50 records in parts of 20, grid 2^-32
    loud = 2**40  # far more than the sum of the gradients: every step of Adam goes down
    moved = fit(public.max_rows) - start
    np.testing.assert_allclose(moved, moved[0], rtol=1e-3)
    assert moved[0] < -0.05


def test_a_site_does_not_train_with_other_settings_than_the_jobs() -> None:
    """Its ledger knows the job's: a coordinator could otherwise ask for other steps of one draw."""
    planned = plan_job(parse_job(private(ALONE, "site")), tables(3))
    method, public = planned.method, planned.public
    assert isinstance(method, FedNgm)
    rows = read_records(planned, planned.sources["site0"])
    stage, message = method.next_request(method.initial_state(public)) or ("", {})
    random = replayable_random(1)

    def train(sent: dict[str, Any]) -> None:
        method.train(stage, rows, sent, {}, public, random, lambda n: np.zeros(n, dtype=np.int64))

    train(message)
    with pytest.raises(PeerError):
        train(message | {"settings": message["settings"].replace('"seed":0', '"seed":1')})
