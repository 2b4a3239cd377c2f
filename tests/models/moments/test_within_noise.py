"""Moments about sites' own noisy means: bounds, what is corrected, and whole runs."""

from typing import Any

import numpy as np
import pandas as pd
import pytest
from scipy.spatial.distance import pdist
from support.runs.jobs import raw_job

import secagg
from secagg.contracts import PublicFacts, RecordCount, SiteRecords
from secagg.core.arrays import Array
from secagg.core.randomness import seeded_random
from secagg.errors import SecaggError
from secagg.jobs.design_matrix import read_rows
from secagg.jobs.job import Job, parse_job
from secagg.models.common.clipped_moments import moments_sensitivity
from secagg.models.common.noisy_moments import noisy_moments
from secagg.models.common.site_confounding import HIDDEN
from secagg.models.moments.within_noise import centred_moments, own_means, without_doubt
from secagg.sessions.planned_job import plan_job

SITES = ("a", "b", "c", "d")
FIT = {"kind": "ols", "outcome": "y", "predictors": ["x"]}
COLUMN = {"type": "continuous", "low": -20, "high": 20, "typical": [-1, 1]}


def raw(analyses: Any = (FIT,), column: Any = COLUMN, **privacy: Any) -> dict[str, Any]:
    terms = {"epsilon": 4.0, "delta": 1e-5, "expected_records": 4000}  # "round" is the default
    return raw_job(
        columns={"x": column, "y": column}, protocol={"name": "masked"},
        method={"name": "moments", "centre": "site", "analyses": list(analyses)},
        privacy=terms | privacy, sites={"max_rows": 10_000},
    )  # fmt: skip


def shifted(records: int) -> dict[str, pd.DataFrame]:
    """Return sites whose levels of x and y go in opposite directions; the slope within is 1/2."""
    rng, found = np.random.default_rng(3), {}
    for k, site in enumerate(SITES):
        x = rng.normal(k, 1, records)
        found[site] = pd.DataFrame({"x": x, "y": 0.5 * x - 2 * k + rng.normal(0, 1, records)})
    return found


def planned(**privacy: Any) -> tuple[Job, PublicFacts]:
    job = parse_job(raw(**privacy))
    return job, plan_job(job, shifted(1)).public


def rows_of(job: Job, public: PublicFacts, values: Array) -> SiteRecords:
    return read_rows(job.columns, pd.DataFrame(values, columns=["x", "y"]), public, "a")


@pytest.mark.parametrize("epsilon", [0.01, 4.0])
def test_whatever_the_means_no_record_moves_the_sums_by_more_than_the_claim(epsilon: float) -> None:
    job, public = planned(epsilon=epsilon)
    rng, claim = np.random.default_rng(1), moments_sensitivity(public.clip, 2)
    most = np.zeros(4)
    for _ in range(150):
        values = rng.choice([-20.0, -1.0, 0.0, 1.0, 20.0], (8, 2)) * rng.uniform(0, 1, (8, 1))
        means = rng.normal(size=2) * 10 ** rng.uniform(-3, 1)
        rows = rows_of(job, public, values)
        parts = [rows.part(i, i + 1) for i in range(8)]
        totals = [_total(part, public) for part in parts]
        moments = [centred_moments(part, means, public.clip) for part in parts]
        moments = [each / np.sqrt(claim.weights) for each in moments]
        for i, (found, add, replace) in enumerate(
            ((totals, 1.0, 2.0), (moments, claim.add, claim.replace))
        ):
            added = np.linalg.norm(found, axis=1).max() / add
            replaced = pdist(np.array(found)).max() / replace
            assert added <= 1 and replaced <= 1
            most[2 * i : 2 * i + 2] = np.maximum(most[2 * i : 2 * i + 2], [added, replaced])
    assert most[[0, 2, 3]].min() > 0.99 and most[1] > 0.7  # constants have one sign


def _total(rows: SiteRecords, public: PublicFacts) -> Array:
    """Return the sum to which a site adds noise, as it asks for so many numbers of noise."""
    seen = list[Array]()
    own_means(rows, public.clip, lambda n: _Catch(n, seen), 0.0)
    return seen[0]


class _Catch:
    """Stands for noise, and notes what it is added to."""

    __array_ufunc__ = None

    def __init__(self, numbers: int, seen: list[Array]) -> None:
        self.numbers, self.seen = numbers, seen

    def __mul__(self, other: float) -> "_Catch":
        return self

    def __radd__(self, other: Array) -> Array:
        assert len(other) == self.numbers
        self.seen.append(other)
        return other


def test_a_site_uses_noisy_means_only() -> None:
    """Their spread over draws is that of the stated noise."""
    job, public = planned()
    rows = rows_of(job, public, np.tile([[0.5, -0.5]], (400, 1)))
    step, rng = 4.0**-public.clip.grid_bits, np.random.default_rng(0)
    sd = 8.0
    draws = np.array([
        own_means(rows, public.clip, lambda n: np.rint(rng.normal(0, sd / step, n)), sd**2)[1]
        for _ in range(500)
    ])  # fmt: skip
    doubt = own_means(rows, public.clip, None, sd**2)[0]["doubt"][0]
    assert draws.mean(axis=0) == pytest.approx([0.125, -0.125], abs=4 * 0.03 / 500**0.5)
    assert np.sqrt(400) * draws.std(axis=0) == pytest.approx(np.sqrt(doubt), rel=0.15)


def test_a_site_whose_means_are_hidden_leaves_out_its_records() -> None:
    """Relative to other means, differences between sites would look like effects."""
    job, public = planned()
    rows = rows_of(job, public, np.tile([[0.5, -0.5]], (3, 1)))
    known, means = own_means(rows, public.clip, None, 8.0**2)
    assert means is None and not known["doubt"].any() and known[HIDDEN] == 1
    assert not centred_moments(rows, means, public.clip).any()


def test_the_squares_of_the_means_errors_are_taken_off() -> None:
    """(2): on average over the sites' noise, squares are those about the means themselves."""
    job, public = planned(epsilon=20.0)
    rng, sites, sd = np.random.default_rng(0), 4, 4.0
    values = rng.normal(0, 1, (100, 2))
    rows = rows_of(job, public, values - values.mean(axis=0))
    step = 4.0**-public.clip.grid_bits
    exact = noisy_moments(
        sites * centred_moments(rows, np.zeros(2), public.clip), public, 1e-9,
        RecordCount(400, 1.0), public.clip.constant,
    ).matrix  # fmt: skip
    found, doubts = [], []
    for _ in range(300):
        drawn = [
            own_means(rows, public.clip, lambda n: np.rint(rng.normal(0, sd / step, n)), sd**2)
            for _ in range(sites)
        ]
        total = np.sum([centred_moments(rows, m, public.clip) for _, m in drawn], axis=0)
        D, b_squares = (sum(u[name] for u, _ in drawn) for name in ("doubt", "squares"))
        doubts.append(float(D[0]))
        noisy = noisy_moments(total, public, 1e-9, RecordCount(400, 1.0), public.clip.constant)
        found.append(without_doubt(noisy, D, float(b_squares[0]), sites))
    squares = np.array([np.diagonal(each.matrix)[1:] for each in found])
    spread = squares.var(axis=0).mean()
    error = np.sqrt(spread / squares.size)
    assert abs(squares.mean() - np.diagonal(exact)[1:].mean()) < 4 * error
    assert 4 * error < 0.5 * np.mean(doubts)  # without the correction it would fail
    stated = np.mean([each.variance[1, 1] for each in found])
    assert spread == pytest.approx(stated, rel=0.3)


def test_a_run_finds_the_slope_within_sites_and_tells_no_means() -> None:
    job = raw([FIT, {"kind": "describe"}, {"kind": "lasso", "outcome": "y", "predictors": ["x"]}])
    found = secagg.run(job, shifted(1000), random=seeded_random(bytes(32))).result
    fit, described, lasso = found.summary["analyses"]
    (slope,) = fit["terms"]
    assert abs(slope["estimate"] - 0.5) < 4 * slope["std_error"] and slope["std_error"] < 0.1
    assert {column["mean"] for column in described["columns"]} == {None}
    assert [term["term"] for term in lasso["terms"]] == ["x"] and "mean" not in found.arrays
    job["method"]["centre"], job["privacy"]["placement"] = "pooled", "sum"
    pooled = secagg.run(job, shifted(1000), random=seeded_random(bytes(32))).result
    assert pooled.summary["analyses"][0]["terms"][1]["estimate"] < 0


@pytest.mark.parametrize(
    ("column", "privacy", "where"),
    [
        ({"type": "continuous", "low": -20, "high": 20}, {}, "method.centre"),
        (COLUMN, {"record_norm": 1.0}, "method.centre"),
        (COLUMN, {"placement": "sum"}, "privacy.placement"),
        (COLUMN, {"person": "p", "records_per_person": 2, "person_norm": 0.2},
         "privacy.person_norm"),
    ],
)  # fmt: skip
def test_a_job_without_a_bound_is_refused(column: Any, privacy: Any, where: str) -> None:
    with pytest.raises(SecaggError) as caught:
        plan_job(parse_job(raw(column=column, **privacy)), shifted(1))
    assert caught.value.where == where
