"""A site's answers.

With `centre = "site"` a site adds noise of its own to its first sum, and keeps what it finds: the
means of its columns, relative to which it takes all its records from then on, and with a 0/1
outcome its share of ones. If the noise hides its means, it leaves out its records: relative to
others' means, differences between sites would look like effects. The noise is as large as if the
sum were sent. So everything that a site answers later is as private as if these means were known to
everyone: they are a function of a noisy sum, and the bounds of `secagg.models.one_step.releases`
hold for records relative to any means. What leaves the site from its first sum is a function of
that noisy sum: the sum itself, or zeros if it is hidden; the variance of its means' errors; and
whether they are hidden.

Errors of means are e_k of the predictors and f_k of the outcome (of the log odds). Scores at the
slopes b then have the expectation sum_k n_k (e_k f_k - e_k e_k' b). With V = sum_k n_k e_k e_k' / n
and v likewise of e_k f_k, slopes are found as S^-1 ((S - V) b + v), where the scatter S includes V.
So the coordinator takes

    b = (S - V)^-1 (S b - v)                                                                  (1)

at the end, with the expectation of V and v, which sites compute from their noisy sums.

The share of ones s gives the site an offset of its own: log odds s / (1 - s), stretched by the root
of 1 + pi v / 8, as log odds of a mean are nearer to 0 than those at the mean (v: variance of the
linear predictor eta; Zeger, Liang and Albert 1988). An error of this offset would move the slopes,
as the weights p (1 - p) are not centred. So columns are taken relative to their weighted means.
For normal columns with covariance S, by Stein's lemma, these are S b times

    E p (1 - p) (1 - 2 p) / E p (1 - p),   eta ~ N(offset, v),                                (2)

after which the scores of slopes are orthogonal to the offset. S and b come from earlier sums.
"""

from __future__ import annotations

import math
from collections.abc import Mapping

import numpy as np
from scipy.special import expit

from secagg.contracts import Body, SiteRecords, State, Update
from secagg.contracts.facts import IntegerNoise
from secagg.core.arrays import Array
from secagg.errors import PeerError
from secagg.models.common.site_confounding import HIDDEN, MEANS_SEEN
from secagg.models.one_step.columns import CENTRES, LENGTHS, MOMENTS, Columns
from secagg.models.one_step.estimate import Centres
from secagg.models.one_step.releases import Records, centres, lengths, moments, scores

_LARGEST = 1e6  # of an entry of a message
_LEAST_SHARE = 0.001  # and at least the noise of a share
_LARGEST_VARIANCE = 1e3
_FARTHEST_SITE = 5.0  # from the guess: then the errors' variance is below 1
_NODES, _WEIGHTS = np.polynomial.hermite_e.hermegauss(21)


def answer(columns: Columns, stage: str, rows: SiteRecords, message: Body, memory: State) -> Update:
    """Return a site's contribution. Raises `PeerError` for a message that is not valid."""
    p, bits = columns.p, columns.grid_bits
    if memory.get("hidden"):
        rows = rows.part(0, 0)
    if stage == CENTRES:
        return {"centres": _centres(columns, columns.first_values(rows))}
    values, own = rows.values[:, columns.positions], memory.get("centre")
    if stage == MOMENTS:
        first = columns.first_values(rows)
        first = first if own is None else first - own
        return {"products": moments(first, _array(message, "T", (p + 1, p + 1)), bits)}
    T, b = _array(message, "T", (p, p)), _array(message, "b", (p,))
    h = _number(message, "h", 1 / _LARGEST, _LARGEST)
    x, y = values[:, :-1], columns.family.outcomes(values[:, -1], columns.variables[-1])
    if own is not None:
        x = x - own[:-1]
        if columns.binary:
            variance = _number(message, "variance", 0.0, _LARGEST_VARIANCE)
            offset = b[0] + math.sqrt(1 + math.pi / 8 * variance) * memory["log_odds"]
            centre = _weighted_mean(offset, variance) * _array(message, "along", (p - 1,))
            x, b = x - centre, np.array([offset + centre @ b[1:], *b[1:]])
        else:
            y = y - own[-1]
    records = Records(columns.family, x, y, columns.offset(rows))
    if stage == LENGTHS:
        return {"lengths": lengths(records, T, b, h)}
    return {**scores(records, T, b, h, bits)}


def centred(
    columns: Columns, rows: SiteRecords, noise: IntegerNoise | None, variance: float
) -> tuple[Update, State]:
    """Return a site's first sum, and its own means, with `centre = "site"`.

    noise: of the site; None without noise; variance: of a number of it
    """
    total = _centres(columns, rows.values[:, columns.positions])
    if noise is not None:
        total = total + noise(len(total)) * 4.0**-columns.grid_bits
    first, sd = Centres(columns.centre, columns.spread, columns.own_centres), math.sqrt(variance)
    found, records = first.found(total, sd)
    hidden = bool(total[0] < MEANS_SEEN * sd or not total[0])
    memory: State = {"centre": found, "hidden": hidden}
    away = (found - first.centre) / first.spread
    if columns.binary:
        share = float(columns.unscaled(found)[-1])
        error = first.error(total, sd, found, -1)
        least = min(max(columns.half_ranges[-1] * error, _LEAST_SHARE), 0.5)
        share = min(max(share, least), 1 - least)
        memory["log_odds"] = math.log(share / (1 - share))
        away[-1] *= first.spread[-1] * columns.half_ranges[-1] / (share * (1 - share))
    doubt = records * first.errors(total, sd, np.clip(away, -_FARTHEST_SITE, _FARTHEST_SITE))
    known = {
        "centres": total,
        "doubt": doubt[np.triu_indices(columns.p)],
        HIDDEN: np.array([float(hidden)]),
    }
    if hidden:
        known |= {name: np.zeros(len(known[name])) for name in ("centres", "doubt")}
    return known, memory


def _weighted_mean(offset: float, variance: float) -> float:
    """Return (2)."""
    p = expit(offset + math.sqrt(variance) * _NODES)
    weights = _WEIGHTS * p * (1 - p)
    return float((weights * (1 - 2 * p)).sum() / max(weights.sum(), 1e-300))


def _centres(columns: Columns, values: Array) -> Array:
    T = Centres(columns.centre, columns.spread, columns.own_centres).matrix
    return centres(values, T, 2 * columns.grid_bits)


def _array(message: Mapping[str, object], name: str, shape: tuple[int, ...]) -> Array:
    found = message.get(name)
    if not (isinstance(found, np.ndarray) and found.dtype == np.float64 and found.shape == shape):
        raise PeerError("one_step", f"the coordinator's {name} has the wrong shape")
    if not np.all(np.abs(found) <= _LARGEST):  # true for NaN
        raise PeerError("one_step", f"the coordinator's {name} is out of range")
    return found


def _number(message: Mapping[str, object], name: str, low: float, high: float) -> float:
    found = message.get(name)
    if not (isinstance(found, float) and low <= found <= high):
        raise PeerError("one_step", f"the coordinator's {name} is out of range")
    return found
