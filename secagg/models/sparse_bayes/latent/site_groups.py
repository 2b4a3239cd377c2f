"""Sites whose rounds are computed together, and the columns on which their sweeps work.

Sites with equally many records are computed together. A site that draws data, exact moments or
values of columns that it lacks, is computed alone: it has data of its own in each chain.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np

from secagg.contracts import State, Update
from secagg.core.arrays import Array
from secagg.models.sparse_bayes.horseshoe import NoisePrior
from secagg.models.sparse_bayes.laplace_graph import (
    GraphDraw,
    Order,
    Redraw,
    allowed_entries,
    redrawn_scales,
)
from secagg.models.sparse_bayes.latent.graph import draw_latent_graph, latent_columns
from secagg.models.sparse_bayes.latent.lacking import Lacking
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
        alone = "latent" in site or "lacked" in site
        groups.setdefault((n, i if alone else -1), []).append(i)
    found: dict[int, tuple[Update, State]] = {}
    for (n, _), members in groups.items():
        answers = answer([sites[i] for i in members], [rngs[i] for i in members], n)
        found |= dict(zip(members, answers, strict=True))
    return [found[i] for i in range(len(sites))]


def columns_of_group(sites: Sequence[State], replicas: int) -> Array:
    """Return the columns of each chain, one site's after another's: a copy, (chains, p, n)."""
    Y = np.repeat(np.array([site["Y"] for site in sites]), replicas, axis=0)
    if "lacked" in sites[0]:
        Y[:, sites[0]["lacked"]] = sites[0]["values"]
    return Y


def redraw_of_group(
    sites: Sequence[State],
    known: Order,
    law: ErrorLaw,
    prior: NoisePrior,
    rng: np.random.Generator,
) -> Redraw | None:
    """Return the step that draws the columns that a site lacks; None if it lacks none."""
    if "lacked" not in sites[0]:
        return None
    allowed = allowed_entries(sites[0]["Y"].shape[0], known)
    return Lacking(sites[0]["lacked"], allowed, law, prior, rng).redraw


def law_of_group(sites: Sequence[State], degree: int, records: int, heat: Array) -> ErrorLaw:
    """Return the law of the errors of sites with this number of records."""
    if "lacked" not in sites[0]:
        return ErrorLaw(degree, records, heat)
    full = np.zeros(sites[0]["Y"].shape[0], dtype=bool)
    full[sites[0]["lacked"]] = True
    return ErrorLaw(degree, records, heat, full)


def move_latent(
    site: State,
    draw: GraphDraw,
    theta: Array,
    t: Array,
    prior: NoisePrior,
    law: ErrorLaw,
    rng: np.random.Generator,
    known: Order,
    *,
    warmup: int,
) -> tuple[State, GraphDraw]:
    """Return a site's exact moments, and the draws moved with them, before a round's sweeps.

    warmup: number of this round, counted from 1; 0 after warmup
    """
    latent, factors = site["latent"], 1 / site["unit"]
    draw = redrawn_scales(latent_columns(latent, factors), draw, prior, law, rng, known)
    return draw_latent_graph(
        latent, factors, law.contrasts, draw, theta, t, prior, rng, warmup=warmup, ordered=known
    )
