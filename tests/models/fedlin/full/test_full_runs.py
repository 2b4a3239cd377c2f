"""`fedlin_full` as a method: its posterior against quadrature, its refusals, its results."""

from typing import Any

import numpy as np
import pandas as pd
import pytest
from scipy.stats import norm
from support.fedlin.full_covariance import statistics
from support.fedlin.written_out import bounds, continuous, fedlin_job, linear_tables, simulated

from secagg.errors import JobError, UsageError
from secagg.jobs.job import parse_job
from secagg.models.fedlin.full import method as full_method
from secagg.models.fedlin.full.method import FedLinFull
from secagg.models.fedlin.full.posterior import SharedDraws
from secagg.models.fedlin.full.prior_influence import width_ratio
from secagg.models.fedlin.full.result import convergence_facts, disagreements
from secagg.models.fedlin.full.site_sums import round_sums
from secagg.models.fedlin.shared_result import Shared
from secagg.models.numerics.natural_gaussian import symmetric
from secagg.reports.fedlin import shared_table
from secagg.sessions.planned_job import plan_job

FULL = {"name": "fedlin_full", "draws": 100}
SCALE, DRAWS = 0.8, 2000


def one_coefficient() -> tuple[dict[str, pd.DataFrame], np.ndarray, np.ndarray]:
    """Return four sites' records with one predictor, their least squares and variances of these."""
    rng, tables, b, C = np.random.default_rng(4), {}, [], []
    for k, (n, theta) in enumerate(zip((8, 40, 15, 5), (0.2, 1.4, 0.9, -0.3), strict=True)):
        x = rng.standard_normal(n)
        y = theta * x + rng.standard_normal(n)
        tables[f"s{k}"] = pd.DataFrame({"x": x, "y": y})
        b.append(x @ y / (x @ x))
        C.append(1 / (x @ x))
    return tables, np.array(b), np.array(C)


def quadrature(
    b: np.ndarray, C: np.ndarray, scale: float = SCALE, at: tuple[float, ...] = (0.05, 0.5, 0.95)
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return quantiles of mu, of the sd between sites, and each theta_k's mean.

    On a grid of the sd; given it, mu is normal, and the half-t density is written out.
    """
    sd = np.linspace(1e-4, 25, 40_000)
    V = sd[:, None] ** 2 + C
    P = np.sum(1 / V, axis=1)
    m = np.sum(b / V, axis=1) / P
    log = -(np.log(V).sum(axis=1) + np.log(P) + np.sum(b**2 / V, axis=1) - P * m**2) / 2
    weights = np.exp(log - log.max()) * (1 + (sd / scale) ** 2 / 2) ** -1.5
    weights /= weights.sum()
    shares = np.array(at)
    of_sd = np.interp(shares, np.cumsum(weights), sd)
    mu = np.linspace(-10, 10, 8001)
    inside = np.cumsum(weights[::20]) / np.sum(weights[::20])
    assert inside[-1] == pytest.approx(1)
    density = sum(
        w * norm.cdf(mu, mean, s)
        for w, mean, s in zip(weights[::20], m[::20], P[::20] ** -0.5, strict=True)
    )
    of_mu = np.interp(shares, density / density[-1], mu)
    shrink = sd[:, None] ** 2 / V
    return of_mu, of_sd, weights @ (shrink * b + (1 - shrink) * m[:, None])


@pytest.mark.oracle
@pytest.mark.parametrize("points", [0, 2000])
def test_the_posterior_of_one_coefficient_is_that_of_quadrature(points: int) -> None:
    """Four sites of 5 to 40 records. With points, errors are of draws only.

    The probability below an exact quantile has a standard error of root(p (1 - p) / n) with n
    independent draws; chains give a third as many. As if designs were equal, it was off by up to
    0.03, and a site's mean by a quarter of its sd (0.04): they are far from equal here.
    """
    tables, b, C = one_coefficient()
    method = {**FULL, "scale": "own", "intercept": "none", "noise_sd": 1.0, "points": points,
              "sd_scale": SCALE, "draws": DRAWS, "tolerance": 1e-6}  # fmt: skip
    result, own = simulated(method, {c: continuous(-8, 8) for c in ("x", "y")}, tables)
    of_mu, of_sd, theta = quadrature(b, C)
    drawn = {"mu": result.arrays["draws_mu"][:, 0],
             "sd": np.sqrt(result.arrays["draws_covariance"][:, 0, 0])}  # fmt: skip
    for name, exact in (("mu", of_mu), ("sd", of_sd)):
        for share, end in zip((0.05, 0.5, 0.95), exact, strict=True):
            error = np.sqrt(share * (1 - share) / (DRAWS / 3))
            off = abs(np.mean(drawn[name] < end) - share)
            assert off < 4.5 * error + (0 if points else 0.03), (name, share)
    for k, site in enumerate(sorted(own)):
        (_, row) = own[site].summary["coefficients"]
        assert row["full"] == pytest.approx(theta[k], abs=0.02 if points else 0.06)
        assert row["low"] < row["full"] < row["high"]
    assert result.summary["converged"]

    tables = linear_tables((12, 15, 9), 2)
    two = {name: tables[name] for name in ("s000", "s001")}
    with pytest.raises(JobError) as few:
        plan_job(parse_job(fedlin_job(FULL, bounds(two))), two)
    assert few.value.where == "sites"
    for table in tables.values():
        table["x1"] = 2 * table["x0"]
    with pytest.raises(UsageError) as collinear:
        simulated({**FULL, "noise_sd": 0.3}, bounds(tables), tables)
    assert collinear.value.where == "analysis"


def test_sites_without_records_do_not_count_and_have_the_distribution_of_all() -> None:
    tables = linear_tables((30, 25, 40, 20), 2)
    whole, _ = simulated(FULL, bounds(tables), tables)
    empty = {**tables, "s900": tables["s000"][:0]}
    found, own = simulated(FULL, bounds(tables), empty)
    for key in ("draws_mu", "draws_covariance"):
        np.testing.assert_allclose(found.arrays[key], whole.arrays[key], rtol=1e-6)
    mean = found.arrays["draws_mu"].mean(axis=0)
    row = own["s900"].summary["coefficients"][1]
    slope = found.summary["shared"][0]
    assert row["full"] == pytest.approx(
        mean[0] * slope["estimate"] / np.median(found.arrays["draws_mu"][:, 0]), rel=1e-9
    )


def test_results_name_components_tests_and_units() -> None:
    tables = linear_tables((30, 25, 40, 20), 2)
    result, _ = simulated({**FULL, "points": 100}, bounds(tables), tables)
    components = [row["component"] for row in result.summary["shared"]]
    assert components == ["mu[x0]", "mu[x1]", "log tau[x0]", "log tau[x1]", "log sigma^2",
                          "correlation[x0, x1]"]  # fmt: skip
    assert all(row["low"] < row["estimate"] < row["high"] for row in result.summary["shared"])
    tests = {row["name"]: row["p"] for row in result.summary["tests"]}
    assert tests["sites agree on all coefficients"] < 1e-6  # their sd is 1, of errors 0.05
    assert len(tests) == 6 and all(0 <= p <= 1 for p in tests.values())
    assert 1 < result.summary["points"]["effective"] <= 100
    site, _ = simulated({**FULL, "variance": "site"}, bounds(tables), tables)
    names = [row["name"] for row in site.summary["tests"]]
    assert not any(name.startswith("sites agree") for name in names)
    assert "log sigma^2" not in [row["component"] for row in site.summary["shared"]]


@pytest.mark.parametrize(
    "settings",
    [{"rounds": 1}, {"draws": 99}, {"points": 10}, {"level": 1.0}, {"sd_scale": 0.0},
     {"sd_scale": None, "scale": "own"}, {"points": 1601}, {"points": 10**7}, {"seed": -1}],
)  # fmt: skip
def test_settings_out_of_range_are_refused(settings: dict[str, Any]) -> None:
    tables = linear_tables((12, 15, 9), 2)
    key = next(iter(settings))
    with pytest.raises(JobError) as refused:
        plan_job(parse_job(fedlin_job({**FULL, **settings}, bounds(tables))), tables)
    assert refused.value.where == f"method.{key}"


@pytest.mark.oracle
def test_the_default_prior_is_in_pooled_units_and_its_influence_is_that_of_other_runs() -> None:
    """One predictor, four sites: quadrature has the widths with half and twice the scale.

    The tolerance is five standard errors of a width's ratio on the same 1000 draws (0.03, from
    repetitions with other seeds).
    """
    rng, tables = np.random.default_rng(8), {}
    for k in range(4):
        x = rng.standard_normal(30)
        tables[f"s{k}"] = pd.DataFrame({"x": x, "y": (0.3 + 0.2 * k) * x + rng.standard_normal(30)})
    method = {**FULL, "noise_sd": 1.0, "draws": 1000}
    result, _ = simulated(method, {c: continuous(-9, 9) for c in ("x", "y")}, tables)
    in_mg = {name: table.assign(x=1000 * table["x"]) for name, table in tables.items()}
    other, _ = simulated(method, {"x": continuous(-9000, 9000), "y": continuous(-9, 9)}, in_mg)
    one, same = (found.summary["shared"][0] for found in (result, other))
    for end in ("low", "estimate", "high"):  # equal up to Monte Carlo error
        assert 1000 * same[end] == pytest.approx(one[end], abs=0.1 * (one["high"] - one["low"]))
    unit = result.summary["outcome_deviation"] / np.sqrt(
        np.mean([np.var(table["x"]) for table in tables.values()])
    )
    centred = [(t["x"] - t["x"].mean(), t["y"] - t["y"].mean()) for t in tables.values()]
    b = np.array([x @ y / (x @ x) for x, y in centred])
    C = np.array([1 / (x @ x) for x, _ in centred])
    widths = {}
    for factor in (0.5, 1.0, 2.0):
        (low, _, high), _, _ = quadrature(b, C, 0.25 * factor * unit, (0.025, 0.5, 0.975))
        widths[factor] = high - low
    prior = result.summary["prior"]
    assert prior["sd_scale"] == 0.25
    assert prior["half"] == pytest.approx(widths[0.5] / widths[1.0], abs=0.15)
    assert prior["twice"] == pytest.approx(widths[2.0] / widths[1.0], abs=0.15)
    assert prior["half"] < 1 < prior["twice"]


def test_few_draws_repeated_do_not_tell_the_influence_of_the_prior() -> None:
    """As `points` leaves them if most have no weight: 100 of 100 tell, 25 do not, and 1 neither."""
    rng = np.random.default_rng(3)
    mu, A = rng.standard_normal((100, 2)), rng.standard_normal((100, 5, 2))
    Sigma = np.einsum("nij,nik->njk", A, A)
    for distinct in (100, 25, 1):
        kept = np.arange(100) % distinct
        ratio = width_ratio(SharedDraws(mu[kept], Sigma[kept], np.ones(100)), 1.0, 1.1, 0.95)
        assert (ratio is not None) == (distinct == 100)


def test_the_monte_carlo_error_of_the_priors_influence_is_that_of_repetitions() -> None:
    """Of 100 sets of 1000 draws; the bootstrap is known to be 1.3 times too large here."""
    found = []
    for seed in range(100):
        rng = np.random.default_rng([5, seed])
        sd = np.sqrt(rng.gamma(2.0, 0.5, size=(1000, 1)))
        shared = SharedDraws(sd * rng.standard_normal((1000, 1)), sd[..., None] ** 2, np.ones(1000))
        ratio = width_ratio(shared, 0.25, 0.5, 0.95)
        assert ratio is not None
        found.append(ratio)
    ratios, errors = np.transpose(found)
    assert np.sqrt(np.mean(errors**2)) == pytest.approx(1.3 * np.std(ratios), rel=0.3)


def test_correlations_that_only_the_prior_decides_are_not_in_the_tables() -> None:
    """Forty sites tell one of almost 1; four of them, whose errors are larger, hardly do."""
    rng, many = np.random.default_rng(4), {}
    for k in range(40):
        X, own = rng.standard_normal((40, 2)), rng.standard_normal()
        y = X @ [own, own + 0.1 * rng.standard_normal()] + 0.05 * rng.standard_normal(40)
        many[f"s{k:03}"] = pd.DataFrame({"x0": X[:, 0], "x1": X[:, 1], "y": y})
    few = {k: table.assign(y=table["y"] + 9 * rng.standard_normal(40)) for k, table in many.items()}
    few = {k: few[k] for k in list(few)[:4]}
    for tables, shown in ((few, False), (many, True)):
        summary = simulated(FULL, bounds(tables), tables)[0].summary
        row = next(r for r in summary["shared"] if r["component"] == "correlation[x0, x1]")
        assert row["told"] is shown
        assert (row["name"] in [cells[0] for cells in shared_table(summary)[1]]) is shown
        assert any("correlations" in note for note in summary["notes"]) is not shown


def test_an_interval_and_a_test_that_contradict_each_other_have_a_note() -> None:
    """Exactly then: of four means, two are judged alike by both."""
    ends = {"a": (-1.0, 2.0), "b": (0.1, 2.0), "c": (-1.0, 2.0), "d": (0.1, 2.0)}
    p = {"a": 0.01, "b": 0.2, "c": 0.2, "d": 0.01}
    rows = [Shared("mu", term, 0, 0, low, high, 1) for term, (low, high) in ends.items()]
    tests = [{"name": f"the mean of {term} is 0", "p": value} for term, value in p.items()]
    notes = disagreements(tests, rows, 0.95)
    assert [note.split("mean of ")[1][0] for note in notes] == ["a", "b"]
    assert disagreements(tests, rows, 0.995)[0].startswith("The interval of the mean of b")
    assert disagreements([], rows, 0.95) == []


@pytest.mark.parametrize(("points", "effective", "told"), [
    (64, 60.0, False), (64, 20.0, True), (1000, 99.0, True), (1000, 150.0, None),
])  # fmt: skip
def test_designs_are_said_to_differ_by_the_share_of_effective_points(
    points: int, effective: float, told: bool | None
) -> None:
    state = {"effective": effective, "r_hat": 1.0, "arrived": True, "distance": 0.0}
    notes = convergence_facts(FedLinFull(outcome="y", points=points), state)["notes"]
    assert ["designs differ" in note for note in notes] == ([] if told is None else [told])


def test_what_is_shown_are_quantiles_of_the_draws_at_the_level() -> None:
    tables = linear_tables((30, 25, 40, 20), 2)
    method = {**FULL, "scale": "own", "intercept": "none", "noise_sd": 1.0, "level": 0.6,
              "sd_scale": 0.5}  # fmt: skip
    result, _ = simulated(method, bounds(tables), tables)
    mu, Sigma = result.arrays["draws_mu"], result.arrays["draws_covariance"]
    sd = np.sqrt(np.diagonal(Sigma, axis1=1, axis2=2))
    correlation = Sigma[:, 0, 1] / sd.prod(axis=1)
    drawn = [*mu.T, *sd.T, correlation]
    for row, values in zip(result.summary["shared"], drawn, strict=True):
        shown = [row["low"], row["estimate"], row["high"]]
        np.testing.assert_allclose(shown, np.quantile(values, [0.2, 0.5, 0.8]), rtol=1e-3)


def test_sums_of_log_likelihoods_tell_differences_between_points_only(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    sent = list[dict[str, np.ndarray]]()
    monkeypatch.setattr(full_method, "within_range", lambda update: sent.append(update) or update)
    tables = linear_tables((30, 25, 40), 2)
    simulated({**FULL, "points": 64}, bounds(tables), tables)
    levels = [update["level"] for update in sent if "level" in update]
    assert len(levels) == 3
    assert all(abs(v.mean()) < 1e-9 * np.abs(v).max() for v in levels)


@pytest.mark.oracle
def test_a_sites_intercept_varies_with_the_drawn_residual_variance() -> None:
    """With centred predictors, its variance is E[sigma^2] / n.

    Three sites of four records have six degrees of freedom, so E[r] is about 1.5. The relative
    standard error of a variance of 1000 draws is 6 % here (kurtosis 6).
    """
    rng, tables = np.random.default_rng(2), {}
    x = np.array([-1.5, -0.5, 0.5, 1.5])
    for k in range(3):
        tables[f"s{k}"] = pd.DataFrame({"x": x, "y": (1 + 0.1 * k) * x + rng.standard_normal(4)})
    columns = {c: continuous(-9, 9) for c in ("x", "y")}
    result, own = simulated({**FULL, "draws": 1000}, columns, tables)
    ratio = result.arrays["draws_variance_ratio"].mean()
    assert 1.3 < ratio < 1.7
    variance = result.summary["noise_sd"] ** 2 * ratio / 4
    for each in own.values():
        assert each.summary["coefficients"][0]["sd"] ** 2 == pytest.approx(variance, rel=0.25)


def test_rounds_end_by_the_largest_change_in_units_of_the_estimates_variances() -> None:
    """Two rounds of the coordinator; Sigma may fall, and columns may have any unit."""
    rng, scales = np.random.default_rng(5), np.array([1.0, 1000.0])
    data = [(rng.standard_normal((20, 2)), rng.standard_normal(20)) for _ in range(5)]
    found = []
    for unit in (np.ones(2), scales):
        method = FedLinFull(outcome="y", sd_scale=1.0, tolerance=1e-9)
        Sigma, pairs = 0.5 * np.outer(unit, unit) * np.eye(2), np.triu_indices(2)
        state = {"status": "fit", "round": 0, "mu": np.zeros(2), "spread": np.zeros(3),
                 "Sigma": Sigma[pairs], "used": 5}  # fmt: skip
        sites = [statistics(X / unit, y, 1.0) for X, y in data]
        each = [round_sums(site, np.zeros(2), np.zeros((2, 2)), Sigma) for site in sites]
        total = {name: np.sum([one[name] for one in each], axis=0) for name in each[0]}
        state = method.advance(state, total, 5)
        moved = symmetric(state["Sigma"], 2) - Sigma
        T = 5 * np.linalg.inv(symmetric(total["precision"], 2))
        expected = np.max(np.abs(moved) / np.sqrt(np.outer(np.diagonal(T), np.diagonal(T))))
        assert np.min(moved) == -np.max(np.abs(moved))  # the largest change is downwards
        found.append((state["distance"], expected))
    for distance, expected in found:
        assert distance == pytest.approx(expected, rel=1e-9)


def test_summaries_are_those_of_the_draws_and_of_the_sites() -> None:
    """The noise's sd, moments on the unconstrained scale, and how many sites include a term."""
    tables = linear_tables((30, 25, 40, 20), 2, spread=0.1, noise=1.0)
    result, own = simulated({**FULL, "draws": 100, "level": 0.8}, bounds(tables), tables)
    rows = {row["component"]: row for row in result.summary["shared"]}
    variance = result.arrays["noise"] * result.arrays["draws_variance_ratio"]
    unit = result.summary["outcome_deviation"]
    row = rows["log sigma^2"]
    shown = [row["low"], row["estimate"], row["high"]]
    ends = unit * np.quantile(variance, [0.1, 0.5, 0.9]) ** 0.5
    np.testing.assert_allclose(shown, ends, rtol=1e-2)
    Sigma = result.arrays["draws_covariance"]
    drawn = {"log sigma^2": np.log(variance), "log tau[x0]": np.log(Sigma[:, 0, 0]),
             "mu[x1]": result.arrays["draws_mu"][:, 1]}  # fmt: skip
    for name, values in drawn.items():
        assert rows[name]["mean"] == pytest.approx(values.mean(), rel=1e-9)
        assert rows[name]["sd"] == pytest.approx(values.std(ddof=1), rel=1e-9)
    for term in ("x0", "x1"):
        (across,) = [row for row in result.summary["across_sites"] if row["term"] == term]
        mine = [r for each in own.values() for r in each.summary["coefficients"]
                if r["term"] == term]  # fmt: skip
        assert across["included"] == sum(row["included"] for row in mine)
        means = [row["full"] for row in mine]
        assert across["own_units"]["mean"] == pytest.approx(np.mean(means), rel=1e-6)


def test_sites_whose_predictors_do_not_vary_do_not_count() -> None:
    tables = linear_tables((30, 25, 40, 20), 1)
    for site in ("s000", "s001"):
        tables[site]["x0"] = 1.0
    with pytest.raises(UsageError) as few:
        simulated(FULL, bounds(tables), tables)
    assert "only 2 of the sites" in few.value.what
