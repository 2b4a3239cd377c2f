"""Sites whose rounds are computed together, and moves of exact moments before their sweeps.

Sites with equally many records are computed together. A site that draws exact moments is computed
alone: it has data of its own in each chain.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np

from secagg.contracts import State, Update
from secagg.core.arrays import Array
from secagg.models.sparse_bayes.horseshoe import NoisePrior
from secagg.models.sparse_bayes.laplace_graph import GraphDraw, redrawn_scales
from secagg.models.sparse_bayes.latent.graph import draw_latent_graph, latent_columns
from secagg.models.sparse_bayes.metropolis.entries import ErrorLaw


def in_groups(
    sites: Sequence[State],
    records: Sequence[int],
    rngs: Sequence[np.random.Generator],
    answer: Callable[
        [Sequence[State], Sequence[np.random.Generator], int], Sequence[tuple[Update, State]]
    ],
) -> list[tuple[Update, State]]:
    """Return each site's answer. Sites with as many records are computed together.

    answer: of such sites, given their memories, generators and number of records
    """
    groups: dict[tuple[int, int], list[int]] = {}
    for i, (site, n) in enumerate(zip(sites, records, strict=True)):
        groups.setdefault((n, i if "latent" in site else -1), []).append(i)
    found: dict[int, tuple[Update, State]] = {}
    for (n, _), members in groups.items():
        answers = answer([sites[i] for i in members], [rngs[i] for i in members], n)
        found |= dict(zip(members, answers, strict=True))
    return [found[i] for i in range(len(sites))]


def move_latent(
    site: State,
    draw: GraphDraw,
    theta: Array,
    t: Array,
    prior: NoisePrior,
    law: ErrorLaw,
    rng: np.random.Generator,
    *,
    warmup: int,
) -> tuple[State, GraphDraw]:
    """Return the exact moments, and the draws moved with them, before a round's sweeps."""
    latent, factors = site["latent"], 1 / site["unit"]
    draw = redrawn_scales(latent_columns(latent, factors), draw, prior, law, rng)
    return draw_latent_graph(
        latent, factors, law.contrasts, draw, theta, t, prior, rng, warmup=warmup
    )
