"""Methods that declare that moments are enough: the rotation test.

Each site's records are mixed by an orthogonal matrix that keeps the vector of ones. So number,
means and covariances stay, and every single record changes. A method that reads moments only sends
the same numbers, up to rounding.
"""

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from support.methods.all_methods import CASES, SITES, Asked, Played, job, play, records

from secagg.contracts import MomentsOnly, PublicFacts, SingleRecords, SiteRecords, State, Update
from secagg.core.arrays import Array
from secagg.core.randomness import RandomBytes, seeded_random
from secagg.jobs.job import parse_job
from secagg.jobs.registry import METHODS, make_method
from secagg.models.notears_admm.linear import NotearsAdmm
from secagg.sessions.parties import read_records
from secagg.sessions.planned_job import Planned, plan_job

MOST = 1e-7
"""By which a number may move, if it is above 1 relative to its size.

Mixing itself rounds, and rounds of a method enlarge that. A method that reads single records moves
by its records' size, which is more than 0.1.
"""
MOMENTS_ONLY: dict[str, list[dict[str, Any]]] = {
    "gradient": [{"family": "gaussian", "outcome": "y", "predictors": ["x", "z"]}],
    "moments": [{}, {"centre": "site"}],
    "notears_admm": [
        {},
        {"standardise": False},
        {"solver": "subgradient"},
        {"variables": ["x", "y"], "lags": [["z", "case"]], "standardise": "common"},
    ],
    "local_graphs": [{}, {"combine": "average"}, {"standardise": False}, {"learner": "pc"}],
    "sparse_regression": [{}, {"step": "paper"}, {"scale": "site"}, {"own_eta": True}],
    "sparse_markov": [{}, {"step": "paper"}],
    "sparse_directed": [
        {"errors": "gaussian"},
        {"errors": "gaussian", "ordered": True, "variables": ["z", "x", "y"]},
        {"errors": "gaussian", "scale": "site", "sweeps": 2},
        {"errors": "gaussian", "variables": ["z", "x", "y"], "tiers": [["z"], ["x", "y"]]},
        {"errors": "gaussian", "cycles": False},
    ],
    "fedavg": [{}, {"personal": 0.1}, {"participation": 0.5}, {"intercept": "modelled"}],
    "fedlin_hm1": [{}, {"variance": "site"}, {"scale": "own"}],
    "fedlin_hm2": [{}, {"prior": "ridge"}, {"prior": "lasso"}, {"points": 64}, {"damping": 0.5}],
    "fedlin_full": [{}, {"points": 64}, {"variance": "site"}],
}
RECORDS_TOO: dict[str, list[dict[str, Any]]] = {
    "gradient": [{"family": "binomial"}],
    "sparse_directed": [{}, {"ordered": True}, {"cycles": False}],
    "local_graphs": [{"learner": "notears_mlp", "combine": "average", "threshold": 0}],
    "fedavg": [{"batch": 4}, {"holdout": 0.2}, {"predictors": ["x"], "degree": 2}],
    "fedlin_hm1": [{"batch": 4}],
    "fedlin_hm2": [{"holdout": 0.2}],
    "fedlin_full": [
        {"holdout": 0.2},
        {"family": "binomial", "outcome": "case", "intercept": "modelled"},
    ],
}


@pytest.fixture(autouse=True)
def signs_of_eigenvectors_are_fixed(monkeypatch: pytest.MonkeyPatch) -> None:
    """Rounding may turn an eigenvector, and draws with it, to others of the same distribution."""
    eigh, svd = np.linalg.eigh, np.linalg.svd

    def signs(rows: Array) -> Array:
        found: Array = np.where(rows @ np.sqrt(np.arange(2, 2 + rows.shape[-1])) < 0, -1.0, 1.0)
        return found

    def fixed_eigh(matrix: Array) -> tuple[Array, Array]:
        values, vectors = eigh(matrix)
        return values, vectors * signs(np.swapaxes(vectors, -1, -2))[..., None, :]

    def fixed_svd(matrix: Array, *, full_matrices: bool = True) -> tuple[Array, Array, Array]:
        left, values, right = svd(matrix, full_matrices=full_matrices)
        many = len(values)
        turned = signs(right[:many])
        right[:many] *= turned[:, None]
        left[:, :many] *= turned
        return left, values, right

    monkeypatch.setattr(np.linalg, "eigh", fixed_eigh)
    monkeypatch.setattr(np.linalg, "svd", fixed_svd)


def variants(table: dict[str, list[dict[str, Any]]]) -> list[Any]:
    """Return (name, settings) of each case; `make test` runs those without settings."""
    return [
        pytest.param(name, more, id=f"{name}-{more}", marks=[pytest.mark.oracle] if more else [])
        for name, cases in table.items()
        for more in cases
    ]


def planned(name: str, settings: dict[str, Any]) -> Planned:
    data = {site: records(i, 40 + i) for i, site in enumerate(SITES)}
    return plan_job(parse_job(job(name, **settings)), data)


def mixed(values: Array, rng: np.random.Generator) -> Array:
    """Return Q values, with Q orthogonal and Q 1 = 1."""
    n = len(values)
    base, _ = np.linalg.qr(np.column_stack([np.ones(n), rng.normal(size=(n, n - 1))]))
    turn, _ = np.linalg.qr(rng.normal(size=(n - 1, n - 1)))
    rest = base[:, 1:]
    found: Array = np.full((n, n), 1 / n) @ values + rest @ turn @ rest.T @ values
    return found


def moved_by_mixing(plan: Planned) -> float:
    """Return by how much contributions move, relative to their size where it is above 1."""
    rng = np.random.default_rng(8)
    rows = [read_records(plan, plan.sources[site]) for site in SITES]
    turned = [replace(each, values=mixed(each.values, rng)) for each in rows]
    assert min(np.abs(a.values - b.values).max() for a, b in zip(rows, turned, strict=True)) > 0.1
    before, after = play(plan, rows), play(plan, turned)
    if len(before.rounds) != len(after.rounds):
        return np.inf
    return max(
        float(np.max(np.abs(one[name] - two[name]) / np.maximum(np.abs(one[name]), 1), initial=0))
        for first, second in zip(before.rounds, after.rounds, strict=True)
        for one, two in zip(
            answers(before, first, first), answers(after, second, first), strict=True
        )
        for name in one
    )


def answers(played: Played, asked: Asked, draws_of: Asked) -> list[Update]:
    """Return the contributions of a round; if the coordinator sent draws, those to other draws.

    Long chains enlarge rounding of the sums without limit, so draws are not compared. Sites must
    answer the same draws with the same numbers.
    """
    if "draws" not in asked.message:
        return asked.updates
    message, stage = asked.message | {"draws": draws_of.message["draws"]}, asked.stage.name
    return [
        played.method.contribute(
            stage, row, message, memory, played.public, seeded_random(bytes(32))
        )[0]
        for row, memory in zip(played.rows, asked.memories, strict=True)
    ]


@pytest.mark.parametrize(("name", "settings"), variants(MOMENTS_ONLY))
def test_contributions_depend_on_moments_only(name: str, settings: dict[str, Any]) -> None:
    plan = planned(name, settings)
    assert isinstance(plan.facts.reads, MomentsOnly)
    assert moved_by_mixing(plan) <= MOST


@pytest.mark.parametrize(("name", "settings"), variants(RECORDS_TOO))
def test_settings_that_need_single_records_say_so(name: str, settings: dict[str, Any]) -> None:
    plan = planned(name, settings)
    assert isinstance(plan.facts.reads, SingleRecords)
    assert moved_by_mixing(plan) > MOST


def reads(name: str, settings: dict[str, Any]) -> MomentsOnly | SingleRecords:
    return make_method(parse_job(job(name, **settings)).method).facts.reads


def test_every_method_that_declares_it_is_tested() -> None:
    declared = {name for name in METHODS if isinstance(reads(name, {}), MomentsOnly)}
    with_settings = {
        name for name in METHODS for found in (reads(name, {}),)
        if isinstance(found, SingleRecords) and found.moments_with_other_settings
    }  # fmt: skip
    # Its noise is in its sums, whatever its family, so it has no noise at the site to offer.
    assert declared | with_settings | {"gradient"} == MOMENTS_ONLY.keys()
    assert MOMENTS_ONLY.keys() <= CASES.keys()


class Peeks(NotearsAdmm):
    """Reads one record more than it should."""

    def contribute(
        self, stage: str, rows: SiteRecords, message: State, memory: State,
        public: PublicFacts, random: RandomBytes,
    ) -> tuple[Update, State]:  # fmt: skip
        update, memory = super().contribute(stage, rows, message, memory, public, random)
        if stage == "consensus":
            update = {"responses": update["responses"] + 1e-6 * float(rows.values[0, 0])}
        return update, memory


def test_a_method_that_peeks_at_a_record_is_caught() -> None:
    plan = planned("notears_admm", {})
    assert isinstance(plan.method, NotearsAdmm)
    peeking = Peeks(variables=plan.method.variables, rounds=plan.method.rounds)
    assert moved_by_mixing(replace(plan, method=peeking)) > 1e-8
