"""Error of slopes with noise once at the site, for limits of a person's records together.

    python -m benchmarks.noise.person_norm --draws 100

Four sites of 300 persons with 10 records each; three predictors with standard deviations of 0.25
between and 0.35 within persons; slopes 0.4, -0.3 and 0.2; an error of 0.3; bounds -1.5 and 1.5;
epsilon 8, delta 1e-6. Slopes are least squares from the sum of the sites' noisy moments, compared
with those of the exact records.
"""

from __future__ import annotations

import argparse
import itertools

import numpy as np
import pandas as pd

from secagg.core.arrays import Array
from secagg.core.randomness import system_random
from secagg.jobs.job import parse_job
from secagg.sessions.parties import read_records
from secagg.sessions.planned_job import Planned, plan_job
from secagg.sessions.site_moments import draw_site_moments

SITES, PERSONS, RECORDS, HALF = "abcd", 300, 10, 1.5
SLOPES = np.array([0.4, -0.3, 0.2])
NAMES = ("x0", "x1", "x2", "y")


def records(rng: np.random.Generator) -> pd.DataFrame:
    """Return the records of one site."""
    between = 0.25 * rng.normal(size=(PERSONS, 1, 3))
    X = (between + 0.35 * rng.normal(size=(PERSONS, RECORDS, 3))).reshape(-1, 3)
    y = X @ SLOPES + 0.3 * rng.normal(size=len(X))
    table = pd.DataFrame(np.column_stack([X, y]), columns=NAMES)
    return table.assign(id=np.repeat(np.arange(PERSONS), RECORDS))


def plan(data: dict[str, pd.DataFrame], record: float | None, person: float | None) -> Planned:
    """Return the plan with these limits; None: no limit."""
    privacy = {
        "placement": "site", "epsilon": 8.0, "delta": 1e-6, "person": "id",
        "person_pinned": True,
        "records_per_person": RECORDS, "record_norm": record, "person_norm": person,
    }  # fmt: skip
    return plan_job(
        parse_job({
            "title": "Persons",
            "sites": {"max_rows": 5000},
            "columns": {n: {"type": "continuous", "low": -HALF, "high": HALF} for n in NAMES},
            "method": {"name": "local_graphs"},  # any that reads moments only
            "protocol": {"name": "plain"},
            "release": {"min_sites": 3, "min_records": 100},
            "privacy": privacy,
        }),
        data,
    )  # fmt: skip


def slopes(moments: Array) -> Array:
    """Return the slopes of the last variable on the others; moments: of (1, variables)."""
    found: Array = np.linalg.solve(moments[:-1, :-1], moments[:-1, -1])[1:]
    return found


def main() -> None:
    """Print the error of each pair of limits."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("--draws", type=int, default=100)
    draws = parser.parse_args().draws
    rng = np.random.default_rng(1)
    data = {site: records(rng) for site in SITES}
    Z = pd.concat(data.values())[list(NAMES)].to_numpy() / HALF
    norms = np.sqrt((Z**2).sum(axis=1).reshape(-1, RECORDS).sum(axis=1))
    print("persons' norms: median, 90 %, largest:", np.quantile(norms, [0.5, 0.9, 1]).round(2))
    Z = np.column_stack([np.ones(len(Z)), Z])
    exact = slopes(Z.T @ Z)
    for record, person in itertools.product((None, 1.2, 0.8), (None, 2.4, 1.8, 1.4)):
        planned = plan(data, record, person)
        rows = [read_records(planned, planned.sources[site]) for site in SITES]
        errors = []
        for _ in range(draws):
            drawn = [draw_site_moments([each], planned.public, system_random) for each in rows]
            off = slopes(np.sum([each.noisy.matrix for each in drawn], axis=0)) - exact
            errors.append(float(off @ off / (exact @ exact)))
        root = float(np.sqrt(np.mean(errors)))
        monte_carlo = np.std(errors) / np.sqrt(draws) / (2 * root)
        print(f"record_norm {record}, person_norm {person}: {root:.3f} +- {monte_carlo:.3f}")


if __name__ == "__main__":
    main()
