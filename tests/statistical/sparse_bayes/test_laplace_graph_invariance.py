"""Exact invariance of the directed graphs' sampler (Geweke 2004, "Getting it right").

Parameters are drawn from the prior, given that all sites' spectral radii are below 1, and data from
the parameters; then some rounds are run. If every step leaves the posterior as it is, what comes
out has the law of fresh draws. Replicates are the leading axis of all arrays.

mu has a flat prior, from which nothing can be drawn. Differences of records have a law that does
not depend on mu, and are all that the posterior depends on: so their mean is put where it is
independent of everything else.

Paths of all sites' graphs are cases of their own. The same for normal errors, also with noisy
moments, whose exact ones the sites then draw, for sites that lack a column and draw its values, for
graphs whose order is known, and for the prior with a fixed spike. Where sites have no records,
moves of all graphs together are run alone: draws of single graphs, which are right, could hide that
these moves read a wrong prior.
"""

from collections.abc import Sequence
from dataclasses import dataclass, fields, replace
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from secagg.contracts import NoisyMatrix
from secagg.models.numerics.gaussian_draws import inverse_gamma
from secagg.models.sparse_bayes import spike_slab
from secagg.models.sparse_bayes.collapsed_slabs import choose_slabs
from secagg.models.sparse_bayes.horseshoe import NoisePrior, SiteDraw
from secagg.models.sparse_bayes.joint import common_moves, paths
from secagg.models.sparse_bayes.joint.common_moves import choose, exchange_places, in_pairs, propose
from secagg.models.sparse_bayes.joint.paths import advance, begin_path
from secagg.models.sparse_bayes.laplace_graph import (
    GraphDraw,
    Order,
    Redraw,
    draw_graph_noise,
    entry_positions,
    rotation_pairs,
    sweep_graph,
)
from secagg.models.sparse_bayes.latent.graph import (
    begin_latent_graph,
    draw_latent_graph,
    latent_columns,
)
from secagg.models.sparse_bayes.latent.lacking import Lacking, draw_scatter, own_scatter
from secagg.models.sparse_bayes.metropolis.alternatives import pairs_of, score_alternatives
from secagg.models.sparse_bayes.metropolis.entries import ErrorLaw
from secagg.models.sparse_bayes.metropolis.slopes import (
    draw_location_and_scale,
    log_likelihood_and_slopes,
)
from secagg.models.sparse_bayes.normal_graph import scatter_columns
from secagg.models.sparse_bayes.spike_slab import Common, SpikeSlab
from secagg.models.sparse_bayes.sums import paper_update

Array = NDArray[np.float64]
Flags = NDArray[np.bool_]

P = 3
NOISE = NoisePrior(shape=3.0, scale=2.0)
PRIOR = SpikeSlab(a_e=3.0, b_e=0.3)  # moderate effects: or most draws from the prior are refused
FLOOR = 1e-15  # of lambda: none


@dataclass(frozen=True)
class Case:
    """degree: 1: Laplace errors, 2: normal; noise: its deviation in moments; steps: of a path;
    fixed: whether the spike is fixed, and the spread's prior narrower; lacking: whether each site
    lacks a column, the first one the first; ruled_out: by "tiers" or "edge"
    """

    degree: int = 1
    ordered: bool = False
    noise: float = 0.0
    steps: int = 0
    fixed: bool = False
    lacking: bool = False
    ruled_out: str = ""

    @property
    def prior(self) -> SpikeSlab:
        return replace(PRIOR, spike=0.01, spread=0.3) if self.fixed else PRIOR

    @property
    def order(self) -> Order:
        return RULED_OUT.get(self.ruled_out, self.ordered)

    @property
    def entries(self) -> int:
        return len(entry_positions(P, ordered=self.order)[0])


TIERS, NO_EDGE = (~np.eye(P, dtype=bool) for _ in range(2))
TIERS[1:, 0] = NO_EDGE[2, 0] = False  # the first column acts on none; or not on the last
RULED_OUT: dict[str, Order] = {"tiers": TIERS, "edge": NO_EDGE}
ORDERS: dict[int, Order] = {3: True, 4: TIERS, 5: NO_EDGE, 6: False}
"""By number of entries."""


def graphs(theta: Array) -> Array:
    rows, columns = entry_positions(P, ordered=ORDERS[theta.shape[-1]])
    made = np.zeros((len(theta), P, P))
    made[:, rows, columns] = theta
    return made


def radius(theta: Array) -> Array:
    return np.abs(np.linalg.eigvals(graphs(theta))).max(axis=-1)


def at(part: Any, chosen: Any) -> Any:
    """Return the replicates chosen of all arrays of a dataclass."""
    return type(part)(*(getattr(part, field.name)[chosen] for field in fields(part)))


def joined(parts: Sequence[Any]) -> Any:
    made = [[getattr(part, field.name) for part in parts] for field in fields(parts[0])]
    return type(parts[0])(*(np.concatenate(values) for values in made))


def fresh(
    replicates: int, sites: int, case: Case, rng: np.random.Generator
) -> tuple[Common, list[GraphDraw]]:
    """Draw all parameters from the prior; all of a draw again where a site's graph blows up."""
    found: list[list[Any]] = []
    while sum(len(each[0].rho) for each in found) < replicates:
        common, drawn = unrestricted(replicates, sites, case, rng)
        kept = np.all([radius(site.theta) < 1 for site in drawn], axis=0)
        found.append([at(part, kept) for part in (common, *drawn)])
    common, *drawn = (at(joined(parts), slice(replicates)) for parts in zip(*found, strict=True))
    return common, drawn


def unrestricted(
    replicates: int, sites: int, case: Case, rng: np.random.Generator
) -> tuple[Common, list[GraphDraw]]:
    wide = (replicates, case.entries)
    prior = case.prior
    rho = rng.beta(prior.a_r, prior.b_r, replicates)
    g = (rng.random(wide) < rho[:, None]).astype(float)
    eta = np.broadcast_to(inverse_gamma(prior.a_e, np.full((replicates, 1), prior.b_e), rng), wide)
    theta = rng.standard_normal(wide) * np.sqrt(np.where(g > 0, eta, prior.narrow(eta)))
    tau = prior.spread * np.abs(rng.standard_cauchy(wide))
    drawn = []
    for _ in range(sites):
        w = (tau * np.abs(rng.standard_cauchy(wide))) ** 2
        mine = theta + np.sqrt(w) * rng.standard_normal(wide)
        b = inverse_gamma(NOISE.shape, np.full((replicates, P), NOISE.scale), rng)
        b = b ** (1 / case.degree)
        drawn.append(GraphDraw(mine, b, w, inverse_gamma(1.0, 1 + tau**2 / w, rng)))
    return Common(theta, tau**2, np.ones(wide), eta, g, rho, g), drawn


def statistics(common: Common, sites: list[GraphDraw]) -> Array:
    """Return bounded or light-tailed statistics of all parameters, (statistics, replicates)."""
    theta, t = np.tanh(common.theta), np.log(common.t)
    found = [
        theta[:, 0], np.abs(theta[:, 0]), theta[:, 1] * theta[:, -1], t[:, 0], t[:, 1] ** 2,
        np.log(common.eta[:, 0]), common.g[:, 0], common.rho, t[:, -1] * np.abs(theta[:, -1]),
    ]  # fmt: skip
    for site in sites:
        w, graph = np.log(site.w), graphs(site.theta)
        away = np.tanh(site.theta - common.theta)
        found += [
            away[:, 0], away[:, -1] ** 2, np.log(site.b[:, 0]), np.log(site.b[:, 2]) ** 2, w[:, 0],
            w[:, 1] * t[:, 1], np.log(site.v[:, 0]), np.tanh(site.theta[:, 2]) * theta[:, 2],
            radius(site.theta), np.tanh(np.linalg.det(np.eye(P) - graph)),
            np.tanh(graph[:, 0, 1] * graph[:, 1, 0]), np.abs(graph[:, 2, 1]) < site.b[:, 1],
            np.abs(np.tanh(site.theta)).sum(axis=-1),
        ]  # fmt: skip
    return np.array(found)


def latent_of(Y: Array, case: Case, rng: np.random.Generator) -> Any:
    """Return exact moments as the first ones, and noisy ones; n and sums have hardly any noise."""
    z = np.concatenate([np.ones_like(Y[:, :1]), Y], axis=1)
    M = z @ np.swapaxes(z, 1, 2)
    variance = np.full((P + 1, P + 1), 1e-12)
    variance[1:, 1:] = case.noise**2 * (1 + np.eye(P))
    E = np.triu(rng.standard_normal(M.shape) * np.sqrt(variance))
    latent = begin_latent_graph(NoisyMatrix(M[0], variance), (len(Y), case.entries))
    X, at = np.linalg.cholesky(M), np.arange(P + 1)
    X[:, at, at] = np.log(X[:, at, at])
    return {**latent, "X": X, "released": M + E + np.swapaxes(np.triu(E, 1), 1, 2)}


def moved_together(
    common: Common, sites: list[GraphDraw], data: list[Array], laws: list[ErrorLaw], case: Case,
    number: int, rng: np.random.Generator,
) -> tuple[Common, list[GraphDraw], Flags]:  # fmt: skip
    """Choose between the present graphs of all and an alternative; b and w are drawn later."""
    pairs, ordered = pairs_of(P, number), case.order
    # as if there were few records, so that shifts are long
    proposed = propose(graphs(common.theta), pairs, 10, rng, ordered=ordered)
    places = exchange_places(pairs, proposed.reversal, P, ordered=ordered)
    others, total = [], np.zeros((len(common.rho), 2 ** len(pairs)))
    for site, Y, law in zip(sites, data, laws, strict=True):
        d = np.take_along_axis(site.theta - common.theta, places, axis=1)
        others.append(
            replace(site, theta=proposed.theta + d, v=np.take_along_axis(site.v, places, 1))
        )
        total += score_alternatives(
            Y, graphs(site.theta), graphs(others[-1].theta), pairs, np.ones((len(Y), 1)), NOISE,
            law, -1e12,
        )[:, 0]  # fmt: skip
    common, _, taken = choose(
        common, {}, proposed, total, pairs, case.prior, rng, p=P, ordered=ordered
    )
    changed = in_pairs(pairs, taken, P, ordered=ordered)
    moved = [
        replace(
            site,
            theta=np.where(changed, other.theta, site.theta),
            v=np.where(changed, other.v, site.v),
        )
        for site, other in zip(sites, others, strict=True)
    ]
    return common, moved, taken


def moved_on_a_path(
    common: Common,
    sites: list[GraphDraw],
    data: list[Array],
    laws: list[ErrorLaw],
    case: Case,
    rng: np.random.Generator,
) -> tuple[Common, list[GraphDraw], Flags]:
    """Move the graphs of all on a path, by slopes that are often clipped; b is drawn later."""
    many, one = len(common.rho), np.ones(len(common.rho))
    rank = np.zeros(many, dtype=np.int64)
    curvature = 300.0 if any(Y.size for Y in data) else 30.0
    steps = {"log_size": np.log([0.6]), "information": np.full((1, case.entries), curvature)}
    path = begin_path(common, steps, rank, rng)
    apart = [site.theta - common.theta for site in sites]
    held = [
        draw_location_and_scale(Y, graphs(site.theta), NOISE, law, rng)
        for site, Y, law in zip(sites, data, laws, strict=True)
    ]
    rows, columns = entry_positions(P, ordered=case.order)
    for _ in range(case.steps + 1):
        total = {"likelihood": np.zeros(many), "slope": np.zeros((many, case.entries))}
        for d, (m, b), Y, law in zip(apart, held, data, laws, strict=True):
            found, slope = log_likelihood_and_slopes(
                Y, graphs(path["theta"] + d), m, b, law, least=-1e12, steepest=8.0
            )
            total["likelihood"] += found
            total["slope"] += slope[:, rows, columns]
        path, log_chance = advance(path, common, total, one, case.prior, steps=case.steps)
    taken = np.log1p(-rng.random(many)) < log_chance
    moved = replace(common, theta=np.where(taken[:, None], path["theta"], common.theta))
    new = [replace(site, theta=moved.theta + d) for site, d in zip(sites, apart, strict=True)]
    return moved, new, taken


def scores_of_common_moves(case: Case, seed: int) -> Array:
    """Return z of statistics of theta after moves of all graphs together and nothing else.

    A case with steps has paths, others choices of alternatives.
    """
    rng, nobody = np.random.default_rng(seed), np.zeros((6000, P, 0))
    law = ErrorLaw(case.degree, 0)
    common, sites = fresh(len(nobody), 1, case, rng)
    apart = sites[0].theta - common.theta
    for number in range(60 if case.ruled_out else 20):  # a pair of rows in every third
        if case.steps:
            common, sites, _ = moved_on_a_path(common, sites, [nobody], [law], case, rng)
        else:
            common, sites, _ = moved_together(common, sites, [nobody], [law], case, number, rng)
    # differences were held, or have exchanged their places
    np.testing.assert_allclose(
        np.sort(sites[0].theta - common.theta, axis=1), np.sort(apart, axis=1), atol=1e-9
    )
    after, expected = (
        np.concatenate([np.tanh(theta).T, np.abs(np.tanh(theta)).T, np.tanh(3 * theta).T ** 2])
        for theta in (common.theta, fresh(len(nobody), 1, case, rng)[0].theta)
    )
    error = np.sqrt((after.var(axis=1) + expected.var(axis=1)) / len(nobody))
    return np.asarray((after.mean(axis=1) - expected.mean(axis=1)) / error)


def lacking_of(
    Y: Array, h: int, site: GraphDraw, law: ErrorLaw, case: Case, rng: np.random.Generator
) -> tuple[Array, Redraw]:
    """Return the columns of a site that lacks column h, with a first draw of it, and its step."""
    allowed, lacked = np.zeros((P, P), dtype=bool), np.array([h])
    allowed[entry_positions(P, ordered=case.order)] = True
    if case.degree == 1:
        Y = Y.copy()
        Y[:, h] -= Y[:, h].mean(axis=-1, keepdims=True)  # has the law given the rest
    else:
        others = np.delete(Y, h, axis=1)
        Y = np.array([own_scatter(scatter_columns(each.T), lacked) for each in others])
        draw_scatter(Y, graphs(site.theta), site.b, lacked, law, rng)
    return Y, Lacking(lacked, allowed, law, NOISE, rng).redraw


def scores(replicates: int, records: tuple[int, ...], rounds: int, seed: int, case: Case) -> Array:
    """Return z of every statistic: what came out against fresh draws."""
    rng = np.random.default_rng(seed)
    common, sites = fresh(replicates, len(records), case, rng)
    data, latents, redraws = [], [], []
    laws = [ErrorLaw(case.degree, n) for n in records]
    for i, (n, site) in enumerate(zip(records, sites, strict=True)):
        draw = rng.laplace if case.degree == 1 else rng.normal
        e = draw(size=(replicates, P, n)) * site.b[..., None]
        Y = np.linalg.solve(np.eye(P) - graphs(site.theta), e)
        if n:
            Y = Y - Y.mean(axis=-1, keepdims=True)
        if case.degree == 1 and n:
            Y = Y + rng.standard_normal((replicates, P, 1))
        redraws.append(None)
        if case.lacking and n:
            Y, redraws[i] = lacking_of(Y, i, site, laws[i], case, rng)
        data.append(Y)
        latents.append(latent_of(Y, case, rng) if case.noise else {})
    reach = np.full((replicates, case.entries), 0.5)
    moved = np.zeros(2)
    for number in range(rounds):
        sent = []
        if not case.noise:
            common, sites, taken = moved_together(common, sites, data, laws, case, number, rng)
            moved += [taken.sum(), taken.size]
        if case.steps:
            common, sites, taken = moved_on_a_path(common, sites, data, laws, case, rng)
            assert 0.2 < taken.mean() < 0.95
        for i, (n, Y) in enumerate(zip(records, data, strict=True)):
            law, site = laws[i], sites[i]
            if case.noise:
                latents[i], site = draw_latent_graph(
                    latents[i], np.ones(P), n - 1, site, common.theta, common.t, NOISE, rng,
                    warmup=0, ordered=case.order,
                )  # fmt: skip
                Y = latent_columns(latents[i], np.ones(P))  # noqa: PLW2901
            noise = draw_graph_noise(replicates, P, law, NOISE, rng, ordered=case.order)
            pairs = rotation_pairs(P, number, ordered=case.order)
            site, _, _ = sweep_graph(
                Y,
                site,
                reach,
                common.theta,
                common.t,
                NOISE,
                law,
                noise,
                pairs,
                redraws[i],
                case.order,
            )
            held = SiteDraw(site.theta, site.b, site.w, site.v)
            update, _ = paper_update(held, common.theta, common.t, FLOOR)
            sites[i] = site
            sent.append((update["one"], update["d"] * np.sqrt(common.t), update["dd"] * common.t))
        one, d, dd = (np.sum(parts, axis=0) for parts in zip(*sent, strict=True))
        before = common.t
        common, d, dd = choose_slabs(common, one, d, dd, case.prior, rng)
        common = spike_slab.paper(common, one, d, dd, len(records), case.prior, rng)
        for site in sites:  # lambda is held, for the statistics: no sweep begins with w
            site.w[:] *= common.t / before
    assert case.noise or 0.05 < moved[0] / moved[1] < 0.95  # so the moves are tested
    after = statistics(common, sites)
    expected = statistics(*fresh(replicates, len(records), case, rng))
    error = np.sqrt((after.var(axis=1) + expected.var(axis=1)) / replicates)
    error = np.maximum(error, 1e-12)  # an ordered graph has no cycles: radius 0, determinant 1
    return np.asarray((after.mean(axis=1) - expected.mean(axis=1)) / error)


def test_the_sampler_keeps_the_prior_invariant() -> None:
    # 48 statistics, two-sided: |z| > 4.5 in one of 3000 runs by chance
    z = scores(12_000, (5, 0, 8), rounds=8, seed=2, case=Case())
    assert np.max(np.abs(z)) < 4.5


@pytest.mark.parametrize(
    ("module", "case"),
    [(common_moves, Case()), (common_moves, Case(fixed=True)), (paths, Case(steps=4)),
     (paths, Case(steps=4, fixed=True)), (common_moves, Case(ruled_out="tiers")),
     (common_moves, Case(ruled_out="edge"))],
    ids=str,
)  # fmt: skip
def test_common_moves_alone_keep_it_and_a_halved_prior_is_seen(
    module: Any, case: Case, monkeypatch: pytest.MonkeyPatch
) -> None:
    right = module.log_prior
    # 18 statistics, two-sided: |z| > 4.5 in one of 8000 runs by chance
    assert np.max(np.abs(scores_of_common_moves(case, 5))) < 4.5
    monkeypatch.setattr(module, "log_prior", lambda *read: right(*read) / 2)
    assert np.max(np.abs(scores_of_common_moves(case, 5))) > 7


@pytest.mark.parametrize(
    "case",
    [Case(steps=3), Case(2, steps=3), Case(ordered=True, steps=8), Case(steps=3, fixed=True)],
    ids=str,
)
def test_so_does_it_with_paths(case: Case) -> None:
    z = scores(6000, (5, 0, 8), rounds=8, seed=4, case=case)
    assert np.max(np.abs(z)) < 4.5


@pytest.mark.parametrize(
    "case",
    [Case(degree=2), Case(degree=2, ordered=True), Case(ordered=True),
     Case(degree=2, noise=0.5), Case(degree=2, noise=2.0), Case(2, ordered=True, noise=2.0)],
    ids=str,
)  # fmt: skip
def test_so_do_normal_errors_known_orders_and_noisy_moments(case: Case) -> None:
    """Errors have a variance near 1, so that sums of squares of eight records are near 8."""
    records = (5, 6, 9) if case.noise else (5, 0, 8)
    z = scores(6000, records, rounds=8, seed=3, case=case)
    assert np.max(np.abs(z)) < 4.5


@pytest.mark.parametrize(
    "case",
    [Case(ruled_out="tiers", steps=3), Case(2, ruled_out="tiers"), Case(ruled_out="edge"),
     Case(2, ruled_out="edge", noise=0.5), Case(ruled_out="tiers", lacking=True)],
    ids=str,
)  # fmt: skip
def test_so_do_graphs_without_some_arrows(case: Case) -> None:
    """In tiers two rows rotate; without one edge, none may but those of the common graph."""
    records = (5, 6, 9) if case.noise else (5, 0, 8)
    z = scores(6000, records, rounds=8, seed=7, case=case)
    assert np.max(np.abs(z)) < 4.5


LACKING = [Case(lacking=True, steps=3), Case(2, lacking=True), Case(ordered=True, lacking=True)]


@pytest.mark.parametrize("case", LACKING, ids=str)
@pytest.mark.parametrize("records", [(5, 0, 8), (2, 0, 4)])
def test_so_do_sites_that_lack_a_column(case: Case, records: tuple[int, ...]) -> None:
    """Two records determine less than the two columns that a site has."""
    z = scores(6000, records, rounds=8, seed=6, case=case)
    assert np.max(np.abs(z)) < 4.5
