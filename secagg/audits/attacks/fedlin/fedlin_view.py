"""What attacks on FedLin's hierarchies share: each site's regression, and attacks on messages."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Mapping
from typing import ClassVar, NamedTuple

import numpy as np

from secagg.audits.contract import Attack, Finding, Limit, Truth
from secagg.audits.site_errors import mean_errors, relative_errors
from secagg.audits.views import SeenRound, View
from secagg.contracts import SiteRecords
from secagg.core.arrays import Array
from secagg.models.fedlin.base import NOISE, ROUNDS, FedLinModel

_POOLED_WEIGHT = 4  # records that the pooled variance counts in a site's own, `variance = "site"`


class Regression(NamedTuple):
    """X'X (d, d), X'y (d,), least squares (d,) and noise variance of a site, in units analysed."""

    gram: Array
    cross: Array
    least: Array
    noise: float


class MessageAttack(Attack):
    """Recover each site's regression from its own messages. A subclass solves those of one site."""

    knows: ClassVar[str] = "the method's settings"
    metric: ClassVar[str] = "coefficient_error"
    meaning: ClassVar[str] = "smallest relative error of a site's least squares"

    @abstractmethod
    def solved(self, alone: View) -> Regression:
        """Return a site's regression, NaN if its frames hold no contributions."""

    def limit(self, view: View) -> Limit:
        """Return the limit."""
        return Limit(0.1, errors=True)

    def run(self, view: View, rng: np.random.Generator) -> dict[str, Regression]:
        """Return the regression of each site."""
        with np.errstate(all="ignore"):
            return {site: self.solved(view.alone(site)) for site in view.readable_sites}

    def score(self, guess: dict[str, Regression], view: View, truth: Truth) -> Finding:
        """Return the error of the site that is recovered best; details: of all, and of X'X, X'y."""
        true = {site: regression_of(view, truth.sites[site]) for site in guess}
        errors = message_errors(guess, true)
        baseline = float(np.min(mean_errors(np.array([each.least for each in true.values()]))))
        return Finding.exact(min(errors["least_errors"].values()), baseline, **errors)


def at_random(method: FedLinModel) -> str:
    """Return why a run depends on random choices of its sites; "" if it does not."""
    some = getattr(method, "participation", 1.0) < 1
    if method.holdout or some or getattr(method, "batch", None) is not None:
        return "sites choose at random which records they use, or when they take part"
    return ""


def stage_rounds(view: View, stage: str = ROUNDS) -> list[SeenRound]:
    """Return the rounds of a stage."""
    return [seen for seen in view.rounds if seen.stage == stage]


def regression_of(view: View, rows: SiteRecords) -> Regression:
    """Return a site's regression, from its records and the units of the run."""
    method, message = view.planned.method, stage_rounds(view)[0].message
    assert isinstance(method, FedLinModel)
    layout = method.layout(view.planned.public)
    X, y = layout.design(rows.values[:, layout.columns], message["centre"], message["scale"])
    own = layout.intercept == "site"
    if own:
        X, y = X - X.mean(axis=0), y - y.mean()
    solved, _, rank, _ = np.linalg.lstsq(X, y, rcond=1e-10)
    least = np.asarray(solved, dtype=np.float64)
    left = max(len(X) - own - int(rank), 0)
    pooled = float(message["noise"][0])
    noise = _site_noise(method, float(np.sum((y - X @ least) ** 2)), left, pooled)
    return Regression(X.T @ X, X.T @ y, least, noise)


def noise_of(alone: View) -> float:
    """Return the noise variance of a site, from its messages (`View.alone`)."""
    method, message = alone.planned.method, stage_rounds(alone)[0].message
    assert isinstance(method, FedLinModel)
    pooled, asked = float(message["noise"][0]), stage_rounds(alone, NOISE)
    if not asked:
        return pooled
    own = asked[0].total
    squares = float(own["residual"][0] * message["scale"][0] ** 2)
    return _site_noise(method, squares, float(own["freedom"][0]), pooled)


def _site_noise(method: FedLinModel, squares: float, freedom: float, pooled: float) -> float:
    """Return the noise variance that a site uses; squares: of its residuals."""
    if method.variance == "pooled" or method.noise_sd is not None or not freedom:
        return pooled
    return (squares + _POOLED_WEIGHT * pooled) / (freedom + _POOLED_WEIGHT)


def message_errors(
    guess: Mapping[str, Regression], true: Mapping[str, Regression]
) -> dict[str, dict[str, float]]:
    """Return the relative errors of each site's least squares, X'X and X'y."""

    def errors(part: Callable[[Regression], Array]) -> dict[str, float]:
        return {
            site: float(relative_errors(part(own)[None], part(true[site])[None])[0, 0])
            for site, own in guess.items()
        }

    return {
        "least_errors": errors(lambda each: each.least),
        "gram_errors": errors(lambda each: each.gram),
        "cross_errors": errors(lambda each: each.cross),
    }
