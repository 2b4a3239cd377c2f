"""A coordinator of a sparse linear method that chooses its message, and so isolates one site.

In a round a site draws (`secagg.models.sparse_bayes.horseshoe`), with w and s of the round before,

    theta_k ~ N(C (X'y / s + theta / w), C),  C = (X'X / s + 1 / w)^-1                           (1)
    s ~ (b_s + |y - X theta_k|^2 / 2) / Gamma(a_s + n / 2)                                       (2)

and sends P = X'(s I + X W X')^-1 X and r = P b, b being its least squares. After an honest first
round, whose theta follows from the public seed, the coordinator sends a theta that is 0 but for a
huge theta_j. If column j varies at a site, theta_kj is huge by (1) and s by (2): of the order of
theta_j^2. So its P <= X'X / s is nearly 0. If column j is constant there, theta_kj does not change
the fit, and the site sends P and r as always. If this is so at one site only, the sums are this
site's P and r, and b = P^-1 r without column j. That it is one site, the attacker sees: P^-1 r is
then the same in all chains, though P is drawn anew.

The message has an ordinary form, and a site does not know the sums from which an honest coordinator
would have drawn. `scale`, `records` and t are those of the honest run.

Not shown: anything about sites at which every column varies. Then all contributions become small
together, because s of each site is about theta' X'X theta / n. The attack then says that it does
not apply. Nor does it find the site's name or, by this message alone, the scale of its X'X.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from secagg.audits.attacks.samplers.gibbs_view import (
    NOT_SPARSE,
    relative_error,
    site_regressions,
    sparse_method,
)
from secagg.audits.contract import Attack, Finding, Limit, Truth
from secagg.audits.views import View, Who
from secagg.core.arrays import Array
from secagg.models.sparse_bayes.base import DRAWS
from secagg.models.sparse_bayes.sums import full

_HUGE = 1e8
"""theta_j. A site where column j varies sends P of the order n / 1e16, or more after a large w."""
_SAME = 1e-3  # of P^-1 r in all chains, relative; that of two sites together varies as P does
_LEAST = 1e-6  # of the ordinary P, of which the sum of other sites' P is far less


@dataclass(frozen=True)
class Isolated:
    """The least squares of one site, of one regression without column `without` (positions)."""

    regression: int
    without: int
    coefficients: Array


class SparseInvented(Attack):
    """Send the message for each column, and solve the sums."""

    name: ClassVar[str] = "sparse_invented"
    title: ClassVar[str] = (
        "A chosen message of a sparse method, by which one site remains in the sum"
    )
    source: ClassVar[str] = "the module's text; secagg.models.sparse_bayes.regression"
    knows: ClassVar[str] = "the method's settings; it chooses its messages"
    views: ClassVar[tuple[Who, ...]] = (Who.DISHONEST,)
    metric: ClassVar[str] = "least_squares_error"
    meaning: ClassVar[str] = "largest relative error of the least squares of an isolated site"

    def why_not(self, view: View) -> str:
        """Return why it does not apply."""
        method = sparse_method(view)
        if method is None:
            return NOT_SPARSE
        if method.step != "collapsed":
            return "for step collapsed"
        if view.open_session is None or not any(seen.stage == DRAWS for seen in view.rounds):
            return "no sites to ask"
        return view.why_noise_hides

    def limit(self, view: View) -> Limit:
        """Return the limit."""
        return Limit(0.1, errors=True)

    def run(self, view: View, rng: np.random.Generator) -> list[Isolated]:
        """Return what was isolated."""
        assert view.open_session is not None
        seen = {each.stage: each for each in reversed(view.rounds)}  # the first of each stage
        honest, found = seen[DRAWS].message, list[Isolated]()
        _, regressions, q = honest["theta"].shape
        usual = np.max(np.abs(seen[DRAWS].total["P"]))
        for j in range(q):
            theta = np.zeros_like(honest["theta"])
            theta[..., j] = _HUGE
            ask = view.open_session()
            for first in view.rounds[: view.rounds.index(seen[DRAWS]) + 1]:
                ask(first.stage, first.message)
            sums = ask(DRAWS, {**honest, "theta": theta})
            for i in range(regressions):
                P, r = full(sums["P"][:, i], q), sums["r"][:, i]
                if np.max(np.abs(P)) < _LEAST * usual:
                    continue
                keep = np.delete(np.arange(q), j)
                part = P[:, keep][:, :, keep]
                each = np.linalg.pinv(part, rcond=_LEAST, hermitian=True) @ r[:, keep, None]
                b = each[..., 0].mean(axis=0)
                if relative_error(each[..., 0], np.broadcast_to(b, each.shape[:2])) < _SAME:
                    found.append(Isolated(i, j, b))
        return found

    def score(self, guess: list[Isolated], view: View, truth: Truth) -> Finding:
        """Return the largest error, each with the site that fits best."""
        if not guess:
            return Finding.impossible("every column varies at every site, or at several not")
        own = {site: site_regressions(view, truth.sites[site]) for site in view.sites}
        isolated, baselines = list[dict[str, object]](), list[float]()
        for each in guess:
            grams = {site: rows[each.regression] for site, rows in own.items()}
            keep = np.delete(np.arange(len(each.coefficients) + 1), each.without)
            b = {
                site: np.linalg.pinv(one.gram[np.ix_(keep, keep)], hermitian=True) @ one.cross[keep]
                for site, one in grams.items()
            }
            errors = {site: relative_error(each.coefficients, true) for site, true in b.items()}
            site = min(errors, key=lambda name: errors[name])
            pooled = np.linalg.pinv(sum(one.gram for one in grams.values()), hermitian=True)
            guessed = pooled @ sum(one.cross for one in grams.values())
            baselines.append(relative_error(guessed[keep], b[site]))
            isolated.append({"site": site, "column": each.without, "error": errors[site]})
        worst = max(float(str(one["error"])) for one in isolated)
        return Finding.exact(worst, max(baselines), isolated=isolated)
