"""Regressions under central noise on pooled records, by peers: error beside secagg's over sums.

    python -m benchmarks.peers.private_regressions tune FILE
    python -m benchmarks.peers.private_regressions run FILE [--draws 20] [--studies nhefs ...]
        [--families gaussian binomial] [--epsilons 0.5 1 2 4] [--peers adassp ...]
    python -m benchmarks.peers.private_regressions table FILE --ours REGRESSIONS

REGRESSIONS is a file of `benchmarks.noise.regressions`, whose draws have the same records. Delta is
1e-5; adding or removing one record is protected. diffprivlib protects replacing one, at the 2
epsilon that this implies. Peers see all records in one place, and their number is public.

What peers know of the columns: their bounds, scaled to [-1, 1] ("bounds"), or their typical centres
and spreads, in whose units records are shortened to `norm` times the root of the number of
predictors, and outcomes to `bound` ("typical"), both from benchmarks/noise/studies.py.

    adassp      Wang 2018, in benchmarks/peers/private_least_squares.py
    cross       least squares from noisy cross products: AdaSSP without its ridge. What OpenDP's
                vector Gaussian mechanism gives (its own LinearRegression, Theil and Sen's, has one
                predictor only)
    tukey       Amin and others 2023; 0 if its check fails
    functional  diffprivlib's LinearRegression
    objective   diffprivlib's LogisticRegression
    dp_sgd      Opacus
    rounds      noisy gradient rounds over secagg's sums, with the mean of late iterates: no peer,
                but what a method of many rounds could reach
    zero        all slopes 0

`tune` runs three draws at every setting of every peer. `run` then runs two settings: the one that
is best on `simulated` (by epsilon and family), and the one that is best on the study itself, in
hindsight; the table has the error with the latter in brackets. None of the peers has intervals. The
error is that of `benchmarks.noise.regressions`: the root mean square over draws and slopes of
(estimate less fit without noise), standardised. A fit that fails counts as 0.
"""

from __future__ import annotations

import argparse
import math
from collections import defaultdict
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from benchmarks.harness import store_row, stored_rows
from benchmarks.noise.regressions import (
    exact,
    own_units,
    resampled,
    root_mean_square,
    unclipped,
)
from benchmarks.noise.studies import STUDIES, Study
from benchmarks.peers.private_least_squares import adassp, tukey_em
from benchmarks.peers.private_libraries import (
    dp_sgd,
    functional_mechanism,
    objective_perturbation,
    shortened,
)
from benchmarks.peers.private_rounds import gradient_rounds
from secagg.models.one_step.columns import Columns
from secagg.sessions.planned_job import Planned

Floats = NDArray[np.float64]
DELTA = 1e-5
TUNING = 3  # draws
PEERS = ("zero", "adassp", "cross", "tukey", "functional", "objective", "dp_sgd", "rounds")


@dataclass(frozen=True)
class Records:
    """Pooled records, standardised by what is public.

    z: shape (n, p); y: shape (n,); low, high: of each predictor; own: a slope of these units times
    this is in the columns' own units
    """

    z: Floats
    y: Floats
    low: Floats
    high: Floats
    own: Floats

    def limited(self, norm: float) -> tuple[Floats, float]:
        """Return the design with its constant, and the largest norm of a row."""
        most = norm * math.sqrt(self.z.shape[1])
        return np.column_stack([np.ones(len(self.z)), shortened(self.z, most)]), math.hypot(1, most)


def records(study: Study, plan: Planned, scaled: Floats, know: str) -> Records:
    """Return the records; scaled: as the product scales them, without clipping."""
    of = Columns.of(study.outcome, tuple(study.predictors), study.family, plan.public,
                    own_centres=False)  # fmt: skip
    most = np.array([v.max_abs for v in of.variables])
    u = np.clip(scaled[:, of.positions], -most, most)
    centre, spread = (of.centre, of.spread) if know == "typical" else (0 * most, most)
    v, low, high = (u - centre) / spread, (-most - centre) / spread, (most - centre) / spread
    in_own, y, of_y = spread * of.half_ranges, v[:, -1], spread[-1] * of.half_ranges[-1]
    if study.family == "binomial":
        y, of_y = (u[:, -1] > 0).astype(np.float64), 1.0
    return Records(v[:, :-1], y, low[:-1], high[:-1], of_y / in_own[:-1])


def settings(peer: str, family: str) -> list[dict[str, Any]]:
    """Return the settings of a peer; none if it does not fit this family."""
    linear = family == "gaussian"
    norms = [{"know": "bounds", "norm": 1.0, "bound": 1.0}]
    norms += [{"know": "typical", "norm": k, "bound": b}
              for k in (0.6, 0.9, 1.3, 1.8) for b in (0.7, 1.2, 2.0, 3.5)]  # fmt: skip
    if peer == "zero":
        return [{"know": "bounds"}]
    if peer in {"adassp", "cross"}:
        return norms if linear else []
    if peer == "tukey":
        return [{"know": "typical", "models": m} for m in (100, 250, 500, 1000, 2000)] * linear
    if peer == "functional":
        found = [{"know": "typical", "norm": k, "bound": k} for k in (0.7, 1.0, 1.5, 2.5)]
        return [norms[0], *found] * linear
    if peer == "objective":
        pairs = [("bounds", 1.0), ("typical", 0.8), ("typical", 1.2)]
        return [{"know": w, "norm": k, "C": C}
                for w, k in pairs for C in (0.03, 0.1, 0.3, 1.0, 10.0)] * (not linear)  # fmt: skip
    if peer == "rounds":
        return [{"know": "typical", "rounds": rounds, "clip": clip, "rate": rate}
                for rounds in (30, 100) for clip in (1.5, 3.0, 5.0)
                for rate in ((0.1, 0.3) if linear else (0.5, 1.5))]  # fmt: skip
    rates = (0.02, 0.05, 0.2) if linear else (0.1, 0.3, 1.5)
    return [{"know": "typical", "steps": steps, "clip": clip, "rate": rate}
            for steps in (100, 400) for clip in (0.5, 1.5, 4.0) for rate in rates]  # fmt: skip


def fitted(
    peer: str, r: Records, family: str, epsilon: float, seed: int, setting: dict[str, Any]
) -> Floats | None:
    """Return the slopes in the records' units, or None if the fit fails."""
    rng, s = np.random.default_rng(seed), {k: v for k, v in setting.items() if k != "know"}
    if peer == "zero":
        return np.zeros(r.z.shape[1])
    if peer in {"adassp", "cross"}:
        X, norm = r.limited(s["norm"])
        y = np.clip(r.y, -s["bound"], s["bound"])
        ridge = peer == "adassp"
        return adassp(X, y, norm, s["bound"], epsilon, DELTA, rng, ridge=ridge)[1:]
    if peer == "tukey":
        if len(r.y) < s["models"] * (r.z.shape[1] + 1):
            return None
        X = np.column_stack([np.ones(len(r.z)), r.z])
        found = tukey_em(X, r.y, s["models"], epsilon, DELTA, rng)
        return None if found is None else found[1:]
    if peer == "functional":
        low, high = np.maximum(r.low, -s["norm"]), np.minimum(r.high, s["norm"])
        return functional_mechanism(r.z, r.y, low, high, s["bound"], 2 * epsilon, seed)
    if peer == "objective":
        norm = s["norm"] * math.sqrt(r.z.shape[1])
        return objective_perturbation(r.z, r.y, norm, 2 * epsilon, s["C"], seed)
    if peer == "rounds":
        return gradient_rounds(r.z, r.y, family, epsilon, DELTA, rng, **s)
    return dp_sgd(r.z, r.y, family, epsilon, DELTA, seed, **s)


Best = dict[tuple[str, str, float, str], str]


def best_settings(rows: list[dict[str, Any]]) -> Best:
    """Return the best setting of the first draws, by study, family, epsilon and peer.

    Of equal ones (TukeyEM's, where all fail), the last: with the most models.
    """
    errors: dict[tuple[str, str, float, str], dict[str, list[Any]]] = defaultdict(
        lambda: defaultdict(list)
    )
    for r in rows:
        if r["draw"] < TUNING:
            key = (r["study"], r["family"], r["epsilon"], r["peer"])
            errors[key][r["setting"]].append(r["error"])
    return {
        key: min(reversed(of), key=lambda s: root_mean_square(of[s])[0])
        for key, of in errors.items()
    }


def measure(args: argparse.Namespace) -> None:
    rows = stored_rows(args.file)
    done = {(r["study"], r["family"], r["peer"], r["setting"], r["epsilon"], r["draw"])
            for r in rows}  # fmt: skip
    tuning = args.what == "tune"
    best = {} if tuning else best_settings(rows)
    for draw in range(TUNING if tuning else args.draws):
        for name in args.studies:
            for family in args.families:
                cells = [
                    (peer, setting, epsilon)
                    for peer in args.peers
                    for setting in settings(peer, family)
                    for epsilon in args.epsilons
                    if (name, family, peer, _words(setting), epsilon, draw) not in done
                    and (
                        tuning
                        or _words(setting)
                        in {best[study, family, epsilon, peer] for study in (name, "simulated")}
                    )
                ]
                if cells:
                    _draw(args.file, name, family, draw, cells)


def _draw(
    file: Path, name: str, family: str, draw: int, cells: list[tuple[str, dict[str, Any], float]]
) -> None:
    study = STUDIES[name](family)
    table, _ = resampled(study, name, family, draw)
    plan, rows = unclipped(study, table)
    X, y, _ = own_units(plan, rows, study)
    b, _ = exact(X, y, family)
    unit = X[:, 1:].std(axis=0) / (y.std() if family == "gaussian" else 1.0)
    of = {know: records(study, plan, rows.values, know) for know in ("bounds", "typical")}
    for peer, setting, epsilon in cells:
        r = of[setting["know"]]
        seed = draw * len(PEERS) + PEERS.index(peer)
        found = fitted(peer, r, family, epsilon, seed, setting)
        failed = found is None or not bool(np.all(np.isfinite(found)))
        slopes = np.zeros(len(b)) if found is None or failed else found * r.own
        line = {"study": name, "family": family, "peer": peer, "setting": _words(setting),
                "epsilon": epsilon, "draw": draw, "failed": failed,
                "error": (unit * (slopes - b)).tolist()}  # fmt: skip
        store_row(file, line)


def _words(setting: dict[str, Any]) -> str:
    return ", ".join(f"{name} {value}" for name, value in setting.items())


def print_table(args: argparse.Namespace) -> None:
    theirs = stored_rows(args.file)
    best = best_settings(theirs)
    ours = stored_rows(args.ours) if args.ours else []
    for r in ours:  # norms are the settings of moments, and the best of all draws is hindsight
        r["peer"], _, r["setting"] = r["method"].partition(", ")
    rows: dict[tuple[str, str, float, str], dict[str, list[Any]]] = defaultdict(
        lambda: defaultdict(list)
    )
    for r in [*ours, *theirs]:
        if "error" in r:
            key = (r["study"], r["family"], r["epsilon"], r["peer"])
            rows[key][r["setting"]].append(r)
    for family in args.families:
        peers = [p for p in ("one_step", "moments", "gradient", *PEERS)
                 if any(key[1] == family and key[3] == p for key in rows)]  # fmt: skip
        print(f"\n| {family} | epsilon | " + " | ".join(peers) + " |")
        print("|---|--:|" + "--:|" * len(peers))
        draws: dict[str, set[int]] = defaultdict(set)
        for name in STUDIES:
            for epsilon in args.epsilons:
                of = {peer: rows[name, family, epsilon, peer] for peer in peers}
                if not any(of.values()):
                    continue
                cells = []
                for peer, each in of.items():
                    tuned = best.get(("simulated", family, epsilon, peer), "")
                    cells.append(_cell(each, tuned, best.get((name, family, epsilon, peer))))
                    draws[peer].add(len(each[tuned]))
                print(f"| {name} | {epsilon:g} | " + " | ".join(cells) + " |")
        counts = (f"{peer} {min(n)} to {max(n)}" for peer, n in draws.items())
        print("\nDraws: " + ", ".join(counts) + ".")


def _cell(rows: dict[str, list[Any]], tuned: str, hindsight: str | None) -> str:
    """Return the error at the tuned setting, and in brackets at the best in hindsight.

    tuned: "" for a method's default; hindsight: None for the best of all rows
    """
    if not rows:
        return ""
    found = {s: root_mean_square([r["error"] for r in each]) for s, each in rows.items()}
    if hindsight is None:
        hindsight = min(found, key=lambda s: found[s])
    error, se = found[tuned]
    words = f"{_short(error)} ± {_short(se)}" if error < _SHOWN else f"> {_SHOWN}"
    failed = np.mean([r.get("failed", False) for r in rows[tuned]])
    words += f", {failed:.0%} fail" if failed else ""
    return words + (f" ({_short(found[hindsight][0])})" if len(found) > 1 else "")


_SHOWN = 10


def _short(value: float) -> str:
    return (
        f"{value:.2g}" if value >= 1 else f"{value:.4f}"[1:] if value < 0.01 else f"{value:.3f}"[1:]
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("what", choices=["tune", "run", "table"])
    parser.add_argument("file", type=Path)
    parser.add_argument("--draws", type=int, default=20)
    parser.add_argument("--studies", nargs="+", default=list(STUDIES), choices=list(STUDIES))
    parser.add_argument("--families", nargs="+", default=["gaussian", "binomial"])
    parser.add_argument("--epsilons", nargs="+", type=float, default=[0.5, 1.0, 2.0, 4.0])
    parser.add_argument("--peers", nargs="+", default=list(PEERS), choices=list(PEERS))
    parser.add_argument("--ours", type=Path)
    args = parser.parse_args()
    print_table(args) if args.what == "table" else measure(args)


if __name__ == "__main__":
    main()
