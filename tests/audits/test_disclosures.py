"""What methods state about their sums against what the attacks find.

A method that says that its sums are pooled must pass `identified_share`. Each attack that a method
names must exist, apply to it, and succeed on records that suit it.
"""

from typing import Any

import pandas as pd
import pytest
from support.methods.all_methods import CASES, SITES
from support.methods.all_methods import job as regression_job
from support.methods.all_methods import records as regression_records
from support.methods.regressions import REGRESSIONS
from support.runs.audited import job, tables
from support.runs.reports import NEURAL

from secagg.audits.audit import audit_job
from secagg.audits.catalogue import ATTACKS
from secagg.audits.contract import Verdict
from secagg.audits.views import Who
from secagg.contracts import DisclosureKind
from secagg.jobs.job import Named
from secagg.jobs.registry import METHODS, make_method

REGRESSION = {"outcome": "x2", "predictors": ["x0", "x1"]}
CHAINS = {"rounds": 40, "warmup": 10, "chains": 4}
SETTINGS: dict[str, dict[str, Any]] = {
    "gradient": {**REGRESSION, "family": "gaussian", "rounds": 3},
    "one_step": REGRESSION,
    "notears_admm": {"variables": ["x0", "x1"]},
    "notears_mlp_admm": {"variables": ["x0", "x1"], "hidden": 2},
    "local_graphs": {"learner": "notears", "combine": "average"},
    "sparse_regression": {**REGRESSION, **CHAINS},
    "sparse_markov": CHAINS,
    "fedavg": {**REGRESSION, "rounds": 3},
    "fedlin_hm1": REGRESSION,
    "fedlin_hm2": {**REGRESSION, "rounds": 40},
    "fedlin_full": {**REGRESSION, "draws": 100},
    "torch_module": {"outcome": "x2", "predictors": ["x0", "x1"], "rounds": 3,
                     "module_settings": {"hidden": [3]}},
    "fedngm": {"hidden": [2], "rounds": 3, "edges": "all"},
    "fedngr": {"hidden": [3], "rounds": 3, "refit_rounds": 3},
}  # fmt: skip


OF_CONTRACT = {*REGRESSIONS, "tables"}
"""Methods with the settings and records of the contract tests, as they need columns with levels."""


def named(name: str) -> Named:
    return Named.model_validate(
        {"name": name, **SETTINGS.get(name, CASES[name] if name in OF_CONTRACT else {})}
    )


SHOWN = [
    (name, attack) for name in METHODS for attack in make_method(named(name)).disclosure.attacks
]


def marked(name: str, *more: Any) -> Any:
    return pytest.param(name, *more, marks=[pytest.mark.neural] if name in NEURAL else [])


def records(name: str, attack: str) -> dict[str, pd.DataFrame]:
    """Return records that suit an attack."""
    if attack == "gradient_inversion":
        return tables(2, 3, rows=2)
    if name in OF_CONTRACT:
        return {site: regression_records(i, 90) for i, site in enumerate(SITES)}
    data = tables(3, 3)
    if attack == "sparse_invented":
        data["s1"]["x1"] = 0.5  # constant at this site only
    return data


def made_job(name: str) -> dict[str, Any]:
    if name in OF_CONTRACT:
        return regression_job(name, "masked")
    raw = job({"name": name, **SETTINGS.get(name, {})}, 3)
    if name == "notears_mlp_admm":  # few records, which a study would not allow
        raw["release"] = {"min_sites": 2, "min_records": 1, "min_level_sites": 1}
    return raw


def test_methods_name_attacks_of_the_catalogue() -> None:
    assert {attack for _, attack in SHOWN} <= set(ATTACKS)
    solvable = [n for n in METHODS if _kind(n) is DisclosureKind.SOLVABLE]
    assert solvable and {n for n, _ in SHOWN} >= set(solvable)


def _kind(name: str) -> DisclosureKind:
    return make_method(named(name)).disclosure.kind


@pytest.mark.parametrize("name", [marked(n) for n in METHODS if _kind(n) is DisclosureKind.POOLED])
def test_what_is_said_to_be_pooled_identifies_no_site(name: str) -> None:
    audit = audit_job(
        made_job(name), records(name, ""), attacks=["identified_share"], views=[Who.COORDINATOR]
    )
    assert audit.attacked[0].verdict is Verdict.NO_LEAK_FOUND


@pytest.mark.attack
@pytest.mark.parametrize(("name", "attack"), [marked(*each) for each in SHOWN])
def test_attacks_that_a_method_names_succeed(name: str, attack: str) -> None:
    audit = audit_job(made_job(name), records(name, attack), attacks=[attack])
    assert Verdict.LEAK in {each.verdict for each in audit.attacked}
