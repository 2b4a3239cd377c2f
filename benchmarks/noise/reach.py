"""How far records may reach in moments relative to typical ranges: error by k, and the rule's k.

    python -m benchmarks.noise.reach [--draws 200] [--studies nhefs ...] [--constant 0.75]
        [--factor 2] [--moved 0.75]     # wrong typical ranges

For each study (`benchmarks.noise.studies`) and epsilon, moments of its records, shortened at k
(`secagg.jobs.typical_ranges`), get normal noise of the planned variance (delta 1e-5, five sites,
one colluding), and least squares is computed from their repair. The error is the root mean square
of (estimate less least squares without noise) over draws and slopes, in standard deviations. `bias`
is that without noise. Sampling error is that of classical intervals without noise. `bounds` is the
error of records relative to bounds, with the default norm and with the best of several in
hindsight (those of `benchmarks.noise.regressions`).
"""

from __future__ import annotations

import argparse
import math
from dataclasses import dataclass, replace

import numpy as np
import pandas as pd

from benchmarks.noise.regressions import NORMS, exact, own_units, planned, unclipped
from benchmarks.noise.studies import STUDIES, Study
from secagg.contracts import PublicFacts, RecordCount
from secagg.contracts.noise import Clip
from secagg.core.arrays import Array
from secagg.jobs.design_matrix import read_rows
from secagg.jobs.typical_ranges import CONSTANT, reach
from secagg.models.common.clipped_moments import moments_sensitivity, records_moments
from secagg.models.common.noisy_moments import noisy_moments, repaired
from secagg.privacy.clipping import choose_whole_clip
from secagg.sessions.planned_job import Planned

SITES = 5
REACHES = (1.0, 1.25, 1.5, 2.0, 2.5, 3.0)


@dataclass(frozen=True)
class Regression:
    """A study's records, planned with typical ranges, and least squares without noise."""

    plan: Planned
    table: pd.DataFrame
    slopes: Array
    unit: Array
    rows: list[int]
    half: Array

    def errors(self, upper: Array, public: PublicFacts, sd: float) -> Array:
        """Return the errors of the slopes from one release; sd: of its noise off the diagonal."""
        assert public.clip is not None
        counted = RecordCount(float(len(self.table)), 100.0)
        noisy = noisy_moments(upper, public, sd**2, counted, public.clip.constant)
        *of_x, of_y = self.rows
        M, at = repaired(noisy).matrix, [0, *of_x]
        theta = np.linalg.solve(M[np.ix_(at, at)], M[at, of_y])[1:]
        return np.asarray(self.unit * (self.half[of_y] * theta / self.half[of_x] - self.slopes))


def guessed(name: str, factor: float, moved: float) -> Study:
    """Return the study with wrong typical ranges of its numbers."""
    study, columns = STUDIES[name]("gaussian"), {}
    for each, column in study.columns.items():
        columns[each] = dict(column)
        if column["type"] == "continuous":
            low, high = (math.log(x) if "transform" in column else x for x in column["typical"])
            middle, half = (low + high) / 2 + moved * (high - low) / 2, factor * (high - low) / 2
            ends = [middle - half, middle + half]
            if "transform" in column:
                ends = [math.exp(x) for x in ends]
            columns[each]["typical"] = list(np.clip(ends, column["low"], column["high"]))
    return replace(study, columns=columns)


def regression(study: Study, epsilon: float) -> tuple[Regression, float]:
    """Return the regression, and its sampling error."""
    plan = planned(study, "moments, typical", epsilon, SITES, 0.0)
    X, y, slopes = own_units(*unclipped(study, study.table), study)
    b, classical = exact(X, y, "gaussian")
    unit = X[:, 1:].std(axis=0) / y.std()
    names = [v.name for v in plan.public.variables]
    rows = [1 + names.index(each) for each in (*slopes, study.outcome)]
    half = np.array([1.0, *(v.half_range for v in plan.public.variables)])
    table = study.table.reset_index(drop=True)
    return Regression(plan, table, b, unit, rows, half), root_mean_square(unit * classical)


def root_mean_square(values: Array) -> float:
    return math.sqrt(float(np.mean(values**2)))


def at_reach(each: Regression, k: float, draws: int, constant: float) -> tuple[float, float, float]:
    """Return the error, its standard error, and the bias."""
    planned_public, size = each.plan.public, len(each.half) - 1
    square = (k / 4) ** 2 * (size + constant**2)
    clip = choose_whole_clip(square, constant / 4, planned_public.max_rows)
    assert clip is not None
    return with_clip(each, clip, draws)


def by_bounds(each: Regression, name: str, epsilon: float, draws: int) -> tuple[float, float]:
    """Return the errors with the default norm, and with the best."""
    plan = planned(STUDIES[name]("gaussian"), "moments", epsilon, SITES, 0.0)
    half = np.array([1.0, *(v.half_range for v in plan.public.variables)])
    again, found = replace(each, plan=plan, half=half), list[float]()
    of_guesses = planned(STUDIES[name]("gaussian"), "one_step", epsilon, SITES, 0.0).public
    size = sum(v.typical_spread**2 + v.typical_centre**2 for v in of_guesses.variables)
    assert plan.public.clip is not None
    for norm in (math.inf, *NORMS):
        square = min(plan.public.clip.squared_norm, norm**2 * size)
        found.append(with_clip(again, replace(plan.public.clip, squared_norm=square), draws)[0])
    return found[0], min(found)


def with_clip(each: Regression, clip: Clip, draws: int) -> tuple[float, float, float]:
    """Return the error, its standard error, and the bias, with noise in proportion to the limit."""
    planned_public, size = each.plan.public, len(each.half) - 1
    assert planned_public.clip is not None
    public, noise = replace(planned_public, clip=clip), planned_public.noise["moments"]
    factor = (
        moments_sensitivity(clip, size).add / moments_sensitivity(planned_public.clip, size).add
    )
    sd = factor * math.sqrt(noise.sum_variance(SITES, noise.site_variance(SITES)))
    read = read_rows(each.plan.job.columns, each.table, public, "s0")
    total, rng = records_moments(read, clip), np.random.default_rng(0)
    row, column = np.triu_indices(size + 1)
    scale = sd * np.where(row == column, math.sqrt(2), 1.0)
    drawn = np.array([
        each.errors(total + scale * rng.normal(size=len(total)), public, sd) for _ in range(draws)
    ])  # fmt: skip
    squares = np.mean(drawn**2, axis=1)
    error = math.sqrt(float(squares.mean()))
    bias = root_mean_square(each.errors(total, public, 1e-9))
    return error, float(squares.std()) / math.sqrt(draws) / (2 * error), bias


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--draws", type=int, default=200)
    parser.add_argument("--studies", nargs="+", default=list(STUDIES), choices=list(STUDIES))
    parser.add_argument("--epsilons", nargs="+", type=float, default=[0.5, 1.0, 2.0, 4.0])
    parser.add_argument("--constant", type=float, default=CONSTANT)
    parser.add_argument("--factor", type=float, default=1.0, help="of typical spreads")
    parser.add_argument("--moved", type=float, default=0.0, help="typical centres, in spreads")
    args = parser.parse_args()
    print("| study | epsilon | sampling error | bounds | error (bias) by k, the rule's in bold |")
    print("|---|--:|--:|--:|---|")
    for name in args.studies:
        for epsilon in args.epsilons:
            study = guessed(name, args.factor, args.moved)
            each, sampling = regression(study, epsilon)
            rule, cells = reach(each.plan.job), []
            assert rule is not None
            for k in sorted({*REACHES, rule}):
                error, se, bias = at_reach(each, k, args.draws, args.constant)
                mark = "**" if k == rule else ""
                cells.append(f"{k:g}: {mark}{error:.4f} ± {se:.4f}{mark} ({bias:.4f})")
            default, best = by_bounds(each, name, epsilon, args.draws)
            before = f"{default:.4f}, {best:.4f}"
            print(f"| {name} | {epsilon:g} | {sampling:.4f} | {before} | {'; '.join(cells)} |")


if __name__ == "__main__":
    main()
