"""Sparse Bayesian regression: effective draws a second, sweeps a second, and every protocol.

    python -m benchmarks.methods.bench_sparse [--quick]

NUTS needs numpyro (in requirements/test.txt). If it is not installed, only the other rows are run.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping

import numpy as np

from benchmarks.harness import interleave, number, quick_asked, section, table, timed, version
from benchmarks.methods.sparse_cases import Sampled, Sites, sampled, summed_up
from secagg.core.randomness import replayable_random
from secagg.models.numerics.gaussian_draws import inverse_gamma
from secagg.models.sparse_bayes.horseshoe import NoisePrior, Regression, SiteDraw, draw_noise, sweep
from secagg.runs.run import run
from secagg.runs.simulate import simulate

WAYS = {
    "collapsed, L = 1": {"step": "collapsed", "sweeps": 1},
    "collapsed, L = 5": {"step": "collapsed", "sweeps": 5},
    "paper, L = 1": {"step": "paper", "sweeps": 1},
    "paper, L = 5": {"step": "paper", "sweeps": 5},
}
PLAIN = "plain"
PROTOCOLS = (PLAIN, "additive", "masked", "paillier")
NOISE = NoisePrior()


def effective(case: Sites, rounds: int, chains: int, nuts_draws: int) -> str:
    """Return the table of effective sample sizes, a round and a second."""
    found = []
    for way, method in WAYS.items():
        job = {"rounds": rounds, "chains": chains, **method}
        seconds, (_, *draws) = timed(functools.partial(sampled, case, way, 1, **job))
        found.append(summed_up(way, seconds, draws))
    if nuts_draws and version("numpyro"):
        from benchmarks.methods.sparse_nuts import nuts  # noqa: PLC0415  # half a minute of jax

        seconds, draws, lost = nuts(case.simulate(), nuts_draws, chains, 1)
        found.append(summed_up("NUTS, all records in one place", seconds, draws, f"{lost}"))
    first = found[0]
    return table(
        ["way", "seconds", "ESS of theta in 100 rounds: median", "least", "of PIP: least",
         "of log tau: median", "least ESS of theta a second", "collapsed is faster by", "R-hat",
         "divergences", "PIP of the weak effect"],
        [_row(one, first) for one in found],
    )  # fmt: skip


def _row(one: Sampled, first: Sampled) -> list[object]:
    each = 100 / one.rounds
    rate = one.ess.min() / one.seconds
    weak = f"{one.pip.mean[1]:.3f} ± {one.pip.mcse_mean[1]:.3f}"
    return [
        one.way, number(one.seconds), number(each * float(np.median(one.ess))),
        number(each * one.ess.min()), number(each * np.nanmin(one.pip.ess_bulk)),
        number(each * float(np.median(one.log_tau.ess_bulk))), number(rate),
        f"{number(first.ess.min() / first.seconds / rate)} x", f"{one.theta.r_hat.max():.3f}",
        one.extra or "-", weak,
    ]  # fmt: skip


def whole_runs(case: Sites, rounds: int, turns: int) -> str:
    """Return the table of whole simulated runs of one chain."""
    tasks: dict[str, Callable[[], object]] = {
        f"{rounds} rounds of {way}": functools.partial(
            simulate, case.job(rounds=rounds, chains=1, **method), case.tables()
        )
        for way, method in WAYS.items()
    }
    tasks["plain NumPy, raw records, L = 1"] = functools.partial(
        naive, list(case.simulate().values()), rounds
    )
    spreads = interleave(tasks, turns)
    return table(["run", "seconds"], [[name, spread] for name, spread in spreads.items()])


def naive(sites: list[np.ndarray], sweeps: int) -> np.ndarray:
    """Do the sites' part of (3) to (6) of `horseshoe` as a script would: one site, one at a time.

    X'X is made of the records anew in each sweep. theta is 0, t is 1.
    Returns the sites' draws (sweeps, sites, q).
    """
    rng, q = np.random.default_rng(0), sites[0].shape[1] - 1
    theta, t = np.zeros(q), np.ones(q)
    state = [(1.0, np.ones(q), np.ones(q)) for _ in sites]
    drawn = np.zeros((sweeps, len(sites), q))
    for number_ in range(sweeps):
        for k, rows in enumerate(sites):
            s, w, v = state[k]
            y, X = rows[:, 0], rows[:, 1:]
            L = np.linalg.cholesky(X.T @ X / s + np.diag(1 / w))
            half = np.linalg.solve(L, X.T @ y / s + theta / w)
            mine = drawn[number_, k] = np.linalg.solve(L.T, half + rng.standard_normal(q))
            left = y - X @ mine
            s = (1 + left @ left / 2) / rng.standard_gamma(1 + len(y) / 2)
            w = inverse_gamma(1.0, t / v + (mine - theta) ** 2 / 2, rng)
            state[k] = s, w, inverse_gamma(1.0, 1 + t / w, rng)
    return drawn


def throughput(case: Sites, stacks: tuple[int, ...], turns: int) -> str:
    """Return microseconds of a site's sweep by how many are computed at once, against the floor."""
    q = case.predictors
    z = next(iter(case.simulate().values()))
    gram = z.T @ z
    rows: list[list[object]] = []
    for stack in stacks:
        times = max(1, 2000 // stack)
        spreads = interleave(_tasks(gram, len(z), q, stack, times), turns, warm=True)
        each = {name: spread * (1e6 / (times * stack)) for name, spread in spreads.items()}
        rows.append([stack, *each.values(), each["sweep"].over(each["floor"])])
    return table(["sweeps at once", "a sweep, us", "floor, us", "ratio"], rows)


def _tasks(
    gram: np.ndarray, records: int, q: int, stack: int, times: int
) -> Mapping[str, Callable[[], object]]:
    rng = np.random.default_rng(0)
    data = Regression(gram[1:, 1:], gram[1:, 0], gram[0, 0])
    one = np.ones((stack, q))
    theta, t = np.zeros((stack, q)), one

    def sweeps() -> None:
        draw = SiteDraw(one, one[:, 0], one, one)
        for _ in range(times):
            noise = draw_noise((stack, q), records, NOISE, rng)
            draw = sweep(data, draw, theta, t, NOISE, noise)

    K = np.broadcast_to(np.eye(q) + gram[1:, 1:], (stack, q, q)).copy()

    def floor() -> None:
        for _ in range(times):
            np.linalg.cholesky(K)
            draw_noise((stack, q), records, NOISE, rng)

    return {"sweep": sweeps, "floor": floor}


def protocols(case: Sites, rounds: int, sweeps: int) -> str:
    """Return the table of whole runs under every protocol, the same draws bit for bit."""
    rows: list[list[object]] = []
    plain, first = 0.0, b""
    for protocol in PROTOCOLS:
        job = case.job(protocol, rounds=rounds, sweeps=sweeps, chains=1)
        action = functools.partial(run, job, case.tables(), random=replayable_random(1))
        seconds, ran = timed(action)
        draws = ran.result.arrays["draws_theta"].tobytes()
        plain, first = plain or seconds, first or draws
        rows.append([protocol, number(seconds), f"{number(seconds / plain)} x",
                     "the same" if draws == first else "OTHERS"])  # fmt: skip
    return table(["protocol", "seconds", "over plain", "draws"], rows)


def main() -> None:
    quick = quick_asked(__doc__, "few rounds: does it all run?")
    case = Sites()
    section(
        "Sparse Bayesian regression: effective draws",
        f"{case.sites} sites of {case.records} records, {case.predictors} predictors, 4 chains, "
        "simulated in one process; seconds are processor time. ESS is the bulk effective sample "
        "size (Vehtari and others 2021) of 100 rounds of a chain after warmup. For NUTS, it is "
        "that of 100 draws. NUTS (numpyro, one thread) has all records in one place; its seconds "
        "are those of warmup and draws, without compilation.",
        effective(case, 100 if quick else 4000, 4, 0 if quick else 1000),
    )
    section(
        "Sparse Bayesian regression: whole runs of one chain",
        "A simulation (`secagg.runs.simulate`) in one process with protocol plain. The time "
        "includes sampling, encoding, sums and diagnostics; in the last row, a script does the "
        "sites' sampling alone.",
        whole_runs(case, 50 if quick else 1000, 1 if quick else 3),
    )
    section(
        "Sparse Bayesian regression: sweeps",
        "A sweep is one draw of all parameters of one site, regression and chain. The floor is one "
        "Cholesky factor (by LAPACK) and the random numbers (by NumPy), which no implementation "
        "can leave out.",
        throughput(case, (1, 4, 16, 128, 1024), 1 if quick else 5),
    )
    rounds, sweeps = (10, 2) if quick else (1000, 100)
    section(
        "Sparse Bayesian regression: protocols",
        f"{rounds} rounds of {sweeps} sweeps, one chain. All parties are in one process, with "
        "keys, signatures, rules and log. One run of each, one after the other.",
        protocols(case, rounds, sweeps),
    )


if __name__ == "__main__":
    main()
