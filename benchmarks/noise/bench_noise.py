"""Integer noise: the exact sampler, the fast sampler, and a floor.

    python -m benchmarks.noise.bench_noise [--quick]

The floor is noise without protection: NumPy's normal numbers in floating point, rounded. The
samplers draw the discrete Gaussian; its standard deviation is in units of one. Random bytes
come from the operating system, or from the expansion of a seed, as at a site.
"""

from __future__ import annotations

from fractions import Fraction

import numpy as np

from benchmarks.harness import Spread, interleave, quick_asked, section, table
from secagg.core.randomness import RandomBytes, replayable_random, system_random
from secagg.privacy.sampling import batched_gaussian
from secagg.privacy.sampling.discrete_gaussian import discrete_gaussian

BITS = (2, 20, 40, 55)
"""log2 of the standard deviations"""
ROUNDS = 7
SOURCES: dict[str, RandomBytes] = {"system": system_random, "seed": replayable_random(1)}

Row = tuple[str, str, Spread, Spread, Spread, Spread]


def row(bits: int, source: str, exact: int, fast: int, rounds: int) -> Row:
    """Time `exact` draws of the one and `fast` draws of the other, a table made anew, the floor."""
    variance, random = Fraction(4**bits), SOURCES[source]
    generator = np.random.default_rng(1)
    taken = interleave(
        {
            "exact": lambda: [discrete_gaussian(variance, random) for _ in range(exact)],
            "table": lambda: batched_gaussian._table.__wrapped__(variance),
            "fast": lambda: batched_gaussian.fast_gaussian(variance, fast, random),
            "floor": lambda: np.rint(generator.normal(0, 2.0**bits, fast)).astype(np.int64),
        },
        rounds,
        warm=True,
    )
    million = 1e6 / fast
    return (
        f"2^{bits}",
        source,
        taken["exact"] * (1e6 / exact),
        taken["table"] * 1e3,
        taken["fast"] * (1e3 * million),
        taken["fast"].over(taken["floor"]),
    )


def main() -> None:
    quick = quick_asked(__doc__, "small sizes, once")
    exact, fast, rounds = (100, 10_000, 1) if quick else (5_000, 1_000_000, ROUNDS)
    rows = [row(bits, source, exact, fast, rounds) for source in SOURCES for bits in BITS]
    head = ("sigma", "bytes from", "exact, us a draw", "table, ms", "fast, ms a million", "x floor")
    section(
        "Noise on integers",
        "The fast sampler needs a table, made once for each variance. The floor is the time of "
        "NumPy's normal numbers, rounded. These are drawn in floating point and not from a "
        "cryptographic generator.",
        table(head, rows),
    )


if __name__ == "__main__":
    main()
