"""Voting and averaging in real sessions, against direct computation."""

from typing import Any

import numpy as np
import pytest
from support.runs.jobs import raw_job

import secagg
from secagg.contracts import PublicFacts, SiteRecords, Variable
from secagg.core.randomness import system_random
from secagg.errors import JobError
from secagg.models.common.pooled_moments import Moments
from secagg.models.graphs.job_result import SHRUNK_NOTE
from secagg.models.graphs.notears import notears
from secagg.models.local_graphs.learners import Learner, average, fit_sites, vote
from secagg.models.local_graphs.method import STAGE, LocalGraphs
from secagg.runs.site_baselines import fit_site_only
from secagg.sessions.fixed_point import decode, encode
from secagg.sessions.sum_plan import plan_sum

pytestmark = pytest.mark.usefixtures("causal_learn")
NAMES = ("a", "b", "c", "d")
HALF = 64.0  # of the bounds, about 0: scaling to [-1, 1] and back changes no bit
COLUMNS = {name: {"type": "continuous", "low": -HALF, "high": HALF} for name in NAMES}
PROTOCOLS: tuple[dict[str, Any], ...] = ({"name": "plain"}, {"name": "additive"})


def site(n: int, seed: int) -> dict[str, np.ndarray]:
    """A chain a > b > c > d."""
    rows = np.random.default_rng(seed).normal(size=(n, 4))
    for j in range(1, 4):
        rows[:, j] += 1.5 * rows[:, j - 1]
    return dict(zip(NAMES, rows.T + 1, strict=True))


def sites(*sizes: int) -> dict[str, dict[str, np.ndarray]]:
    return {f"site{k}": site(n, k) for k, n in enumerate(sizes)}


def parts_of(data: dict[str, dict[str, np.ndarray]]) -> list[np.ndarray]:
    return [np.column_stack([columns[name] for name in NAMES]) for columns in data.values()]


def run(data: Any, protocol: dict[str, Any] = PROTOCOLS[0], **settings: Any) -> Any:
    job = raw_job(
        columns=COLUMNS,
        method={"name": "local_graphs", **settings},
        protocol=protocol,
        release={"min_sites": 2, "min_records": 1},
    )
    return secagg.run(job, data).result


def public_of(**changed: Any) -> PublicFacts:
    facts = {
        "variables": tuple(Variable(name, name, 0.0, HALF) for name in NAMES),
        "columns": NAMES,
        "max_rows": 100,
        "sites": ("site0", "site1", "site2"),
    }
    return PublicFacts(**{**facts, **changed})


def own_weights(rows: np.ndarray) -> np.ndarray:
    """One site's NOTEARS, standardised, with moments computed here."""
    centred = rows - rows.mean(axis=0)
    moments = Moments(NAMES, len(rows), rows.mean(axis=0), centred.T @ centred)
    weights = notears(moments, few_records=True).weights
    assert weights is not None
    return weights


@pytest.fixture(scope="module")
def weights() -> list[np.ndarray]:
    """Three sites' NOTEARS, which do not agree."""
    return [own_weights(rows) for rows in parts_of(sites(30, 4, 6))]


# --- against brute force ------------------------------------------------------------------------


def test_votes_are_counted(weights: list[np.ndarray]) -> None:
    data = sites(30, 4, 6)
    result = run(data, PROTOCOLS[1])
    graphs = [np.abs(each) > 0.3 for each in weights]
    assert len({g.tobytes() for g in graphs}) > 1  # the sites do not agree
    votes = np.sum(graphs, axis=0)
    assert np.array_equal(result.arrays["votes"], votes)
    assert np.array_equal(result.arrays["directed"], votes >= 2)
    assert not result.arrays["undirected"].any()
    assert result.summary["diagnostics"] == {"sites": 3, "abstained": 0}
    assert result.summary["method"] == "notears-vote"
    edges = {(e["from"], e["to"]) for e in result.summary["edges"]}
    assert edges == {(NAMES[i], NAMES[j]) for i, j in np.argwhere(votes >= 2)}
    listed = {(v["from"], v["to"]): v["sites"] for v in result.summary["votes"]}
    assert listed == {(NAMES[i], NAMES[j]): votes[i, j] for i, j in np.argwhere(votes)}
    counts = list(listed.values())  # including edges without a majority
    assert counts == sorted(counts, reverse=True) and counts[-1] < 2
    assert result.summary["status"] == "converged"
    assert SHRUNK_NOTE not in result.summary["notes"]  # a vote has no weights


def test_weights_are_averaged(weights: list[np.ndarray]) -> None:
    data = sites(30, 4, 6)
    result = run(data, PROTOCOLS[1], combine="average")
    mean = np.mean(weights, axis=0)
    # Each site's weight is rounded once, by at most half a step of 2^-32; float64 adds far less.
    np.testing.assert_allclose(result.arrays["weights"], mean, rtol=0, atol=2.0**-33 * 1.01)
    assert np.array_equal(result.arrays["directed"], np.abs(mean) > 0.3)
    assert "votes" not in result.arrays and "votes" not in result.summary
    assert result.summary["notes"][-1] == SHRUNK_NOTE


@pytest.mark.parametrize(("learner", "abstained"), [("pc", 2), ("ges", 1)])
def test_sites_with_poor_data_abstain_or_contribute(learner: Any, abstained: int) -> None:
    data = sites(60, 50, 40, 70, 80, 1, 3)
    data["site1"]["c"] = np.full(50, 7.3)
    result = run(data, PROTOCOLS[1], learner=learner)
    expected = vote(fit_sites(parts_of(data), Learner(algorithm=learner), NAMES))
    assert np.array_equal(result.arrays["directed"], expected.directed)
    assert np.array_equal(result.arrays["undirected"], expected.undirected)
    assert expected.undirected.any()  # a chain has no collider: nothing identifies its direction
    edges = expected.directed | expected.undirected
    assert np.array_equal(result.arrays["votes"] * 2 > 7, edges)
    assert result.summary["diagnostics"]["abstained"] == abstained


def test_settings_reach_the_sites_and_the_result() -> None:
    data = sites(20, 20)
    result = run(
        data,
        variables=["d", "b", "a"],
        standardise=False,
        penalty=0.3,
        threshold=1.8,
        combine="average",
        truth=[["a", "b"]],
    )
    assert result.summary["truth"] == [["a", "b"]] and "shd" in result.summary["score"]
    parts = [rows[:, [3, 1, 0]] for rows in parts_of(data)]
    fits = fit_sites(parts, Learner(penalty=0.3), ("d", "b", "a"))
    expected = average(fits, 1.8)
    assert 0 < expected.directed.sum() < average(fits, 0.3).directed.sum()
    assert result.summary["names"] == ["d", "b", "a"]
    assert np.array_equal(result.arrays["directed"], expected.directed)
    settings = result.summary["settings"]
    assert settings == {"standardise": False, "penalty": 0.3, "threshold": 1.8}


def test_without_standardising_weights_are_in_own_units() -> None:
    """With a in units a tenth as large, and bounds to match, correlations do not change."""
    method = LocalGraphs(combine="average", standardise=False)
    standardised, columns = LocalGraphs(combine="average"), np.array([0.1, 1, 1, 1])
    rows = SiteRecords(parts_of(sites(40))[0] / HALF, 0, np.zeros(4))
    finer = public_of(
        variables=tuple(
            Variable(name, name, 5.0, HALF / c) for name, c in zip(NAMES, columns, strict=True)
        )
    )

    def weights(method: LocalGraphs, public: PublicFacts) -> np.ndarray:
        update, memory = method.contribute(STAGE, rows, {}, {}, public, system_random)
        assert memory == {}
        return update["edges"]

    assert not np.allclose(weights(method, public_of()), weights(method, finer), atol=0.01)
    own = weights(standardised, public_of())
    # The same correlations but for rounding, which the search's own tolerances (1e-9) exceed.
    np.testing.assert_allclose(weights(standardised, finer), own, rtol=0, atol=1e-6)


def test_a_simulation_shows_each_sites_own_graph() -> None:
    rows = parts_of(sites(40))[0]
    summary = fit_site_only(LocalGraphs(), public_of(), SiteRecords(rows / HALF, 0, np.zeros(4)))
    edges = {(e["from"], e["to"]) for e in summary["edges"]}
    weights = own_weights(rows)
    assert edges == {(NAMES[i], NAMES[j]) for i, j in np.argwhere(np.abs(weights) > 0.3)}


# --- records that are few or bad ------------------------------------------------------------------


def test_the_result_reports_that_no_site_could_learn() -> None:
    result = run(sites(1, 1, 1))
    assert result.summary["edges"] == [] and result.summary["converged"] is False
    assert "3 of 3 sites" in result.summary["notes"][0]
    assert result.summary["status"] == "all sites abstained"


def test_weights_beyond_the_bound_are_clipped_and_counted() -> None:
    """b is 10^8 times a, in own units: 8 digits above what the field carries."""
    rng = np.random.default_rng(0)
    a = rng.uniform(-1, 1, 50)
    b = a + 1e-3 * rng.uniform(-1, 1, 50)
    public = public_of(
        variables=(Variable("a", "a", 0.0, 1.0), Variable("b", "b", 0.0, 1e8)), columns=("a", "b")
    )
    method = LocalGraphs(combine="average", standardise=False)
    (stage,) = method.stages(public)
    rows = SiteRecords(np.column_stack([a, b]), 0, np.zeros(2))
    update, _ = method.contribute(STAGE, rows, {}, {}, public, system_random)
    assert np.abs(update["edges"]).max() == pytest.approx(1e8, rel=1e-3)
    plan = plan_sum(stage.spec, 3)
    total, clipped = decode(plan, encode(plan, update))
    assert clipped.tolist() == [1, 0]
    assert np.abs(total["edges"]).max() == 2.0**20


# --- what is refused before data are read ---------------------------------------------------------


@pytest.mark.parametrize(
    ("settings", "where"),
    [
        ({"combine": "average", "learner": "pc"}, "combine"),
        ({"combine": "average", "learner": "ges"}, "combine"),
        ({"penalty": -1.0}, ""),
        ({"learner": "ges", "penalty": 0.0}, ""),
        ({"threshold": float("inf")}, ""),
        ({"learner": "pc", "alpha": 1.0}, ""),
        ({"learner": "pc", "penalty": 0.1}, "penalty"),
        ({"learner": "pc", "standardise": True}, "standardise"),
        ({"learner": "ges", "threshold": 0.9}, "threshold"),
        ({"learner": "ges", "alpha": 0.05}, "alpha"),
        ({"learner": "notears_mlp", "alpha": 0.5}, "alpha"),
        ({"variables": ("a",)}, "variables"),
        ({"variables": ("a", "z")}, "variables"),
        ({"variables": ("a", "a")}, "variables"),
        ({"truth": (("a", "z"),)}, "truth"),
        ({"truth": (("a", "b"), ("b", "a"))}, "truth"),
    ],
)
def test_impossible_settings_are_refused(settings: dict[str, Any], where: str) -> None:
    with pytest.raises(JobError) as caught:
        LocalGraphs(**settings).stages(public_of())
    assert caught.value.where == f"method.{where}".rstrip(".")


def test_settings_are_limited_to_those_of_the_learner() -> None:
    for learner, had in (
        ("notears", {"standardise": False, "penalty": 0.0, "threshold": 0.0}),
        ("notears_mlp", {"standardise": True, "penalty": 0.2, "threshold": 0.1}),
        ("pc", {"alpha": 0.01}),
        ("ges", {"penalty": 2.0}),
    ):
        assert LocalGraphs(learner=learner, **had).stages(public_of())
