"""Print the tables of docs/reproductions/fedlin.md: HM2 compared with NUTS, and with a mixed model.

    PYTHONPATH=tests:. python -m benchmarks.methods.fedlin_tables nuts [CASE ...]
    PYTHONPATH=tests:. python -m benchmarks.methods.fedlin_tables mixed

Differences of means are in NUTS's posterior standard deviations; +- gives Monte Carlo errors.
"""

from __future__ import annotations

import sys

import numpy as np
from numpy.typing import NDArray
from support.fedlin.mixed_model import apart, mixed, sites_apart
from support.fedlin.nuts_gold import GOLD, POINTS, Compared, compared

Array = NDArray[np.float64]
CASES = ("exams", "exams paper")
"""The same records; log tau ~ N(-3, 4), the method's own, and N(0, 1), the paper's."""


def beside_nuts(names: list[str]) -> None:
    """Print tables of what sites share, without points and with, and one of sites' own."""
    found = {name: compared(name) for name in names or GOLD["cases"]}
    _print_shared("HM2", found)
    _print_shared(f"{POINTS} points", {name: compared(name, points=POINTS) for name in found})
    print("| case | sites' own | means apart: median, worst | ratio of sds: median, worst |")
    print("|---|---|--:|--:|")
    for name, each in found.items():
        for j, term in enumerate(("intercept", *GOLD["cases"][name]["columns"][1:])):
            apart, k = _worst(each.sites.apart[:, j])
            wider, i = _worst(each.sites.wider[:, j])
            print(
                f"| {name} | {term} | {apart:.3f}, {each.sites.apart[k, j]:+.3f} "
                f"± {each.sites.error[k, j]:.3f} | {np.exp(wider):.3f}, "
                f"{np.exp(each.sites.wider[i, j]):.3f} ± {each.sites.error_of_wider[i, j]:.3f} |"
            )
    print("\n| case | HM2: rounds | HM2: seconds | NUTS: seconds |\n|---|--:|--:|--:|")
    for name, each in found.items():
        print(f"| {name} | {each.rounds} | {each.seconds:.0f} | {GOLD['cases'][name]['seconds']} |")


def _print_shared(who: str, found: dict[str, Compared]) -> None:
    print(f"| case | component | {who}: mean (sd) | NUTS: mean (sd) | apart | ratio of sds |")
    print("|---|---|--:|--:|--:|--:|")
    for name, each in found.items():
        phi, told = each.phi, GOLD["cases"][name]["phi"]
        for j, component in enumerate(GOLD["cases"][name]["components"]):
            print(
                f"| {name} | {component} | {phi.mean[j]:.3f} ({phi.sd[j]:.3f}) "
                f"| {told['mean'][j]:.3f} ({told['sd'][j]:.3f}) "
                f"| {phi.apart[j]:+.3f} ± {phi.error[j]:.3f} "
                f"| {np.exp(phi.wider[j]):.3f} ± {phi.error_of_wider[j]:.3f} |"
            )
    print()


def _worst(values: Array) -> tuple[float, int]:
    """Return the median of absolute values, and where the largest is."""
    return float(np.median(np.abs(values))), int(np.argmax(np.abs(values)))


def beside_mixed_model() -> None:
    """Print a table of what sites share, and one of sites' own."""
    hm2, other = {name: compared(name) for name in CASES}, mixed()
    terms = ["intercept", *GOLD["cases"]["exams"]["columns"][1:]]
    priors = [f"HM2, N({a:g}, {b**2:g})" for a, b in (GOLD["cases"][c]["prior"] for c in CASES)]
    print(f"| | MixedLM | {' | apart | '.join(priors)} | apart |\n|---|--:|{'--:|--:|' * 2}")
    for j, term in enumerate(terms):
        cells = [f"{other.fixed[j]:.3f} ({other.error[j]:.3f})"]
        for each in hm2.values():
            cells.append(f"{each.phi.mean[j]:.3f} ({each.phi.sd[j]:.3f})")
            cells.append(f"{apart(each, other)[j]:+.2f}")
        print(f"| mean of {term} | {' | '.join(cells)} |")
    for j, term in enumerate(terms, len(terms)):
        cells = [f"{other.variances[j - len(terms)] ** 0.5:.3f}"]
        for each in hm2.values():
            m, s = each.phi.mean[j], 1.645 * each.phi.sd[j]
            middle, low, high = np.exp(np.array([m, m - s, m + s]) / 2)
            cells += [f"{middle:.3f} ({low:.3f} to {high:.3f})", f"{apart(each, other)[j]:+.2f}"]
        print(f"| sd of {term} between schools | {' | '.join(cells)} |")
    noise = " | | ".join(f"{each.noise:.4f}" for each in hm2.values())
    print(f"| sd of the noise | {other.noise:.4f} | {noise} | |")
    for name, each in hm2.items():
        far = np.abs(sites_apart(each, other))
        told = (f"{t} {np.median(f):.2f}, {f.max():.2f}" for t, f in zip(terms, far.T, strict=True))
        print(f"\n{name}: schools' own, median and worst apart in posterior sds: {'; '.join(told)}")
    full = mixed(independent=False)
    gained = full.likelihood - other.likelihood
    print(f"\nwith a correlation: {full.correlation:.2f}, log likelihood {gained:+.1f}")


if __name__ == "__main__":
    if sys.argv[1:] == ["mixed"]:
        beside_mixed_model()
    else:
        beside_nuts(sys.argv[2:])
