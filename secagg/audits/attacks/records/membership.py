"""A11: whether a known person is among the records that a released network was trained on.

Each person's loss at the released parameters is compared with losses at the parameters of *shadow*
runs, with the person among the records and without, in three ways:

    threshold   the loss alone: T = -l(x; theta)  (Yeom and others, CSF 2018)
    LiRA        T = log N(l; m_in, s_in) - log N(l; m_out, s_out), with means of the shadows and
                variances that are common to all persons, as for few shadows (Carlini and others,
                IEEE S&P 2022, algorithm 1 and section VI)
    RMIA        T = log p(x; theta) - log mean p(x; theta'), over all shadows theta', with
                log p = -l / c. c is the mean loss, over all shadows, of persons left out of that
                shadow (Zarifzadeh, Liu and Shokri, ICML 2024, equations 3 and 10). The paper then
                takes the share of the population whose T is smaller by a factor. This share orders
                persons as T does

The finding's number is always the AUC of LiRA. The largest of the three would be too large by
chance. LiRA was chosen on simulated records, with the tests' networks. With 40 records, after 80
rounds the AUC is .97 for LiRA, .94 for the loss and .92 for RMIA; after 200 rounds .98, .99 and
.89. With 200 simulated records instead of 40, RMIA is best (LiRA .69, loss .66, RMIA .72), so all
three are in the details. RMIA is weaker where losses of members are near 0, because one scale c
then suits no person.

Shadow runs. The persons are the records that took part and the others. They are divided at random
into 2 to 10 groups of equal size, and each shadow run leaves out one group, so that about as many
are left as took part. (If fewer than half took part, each shadow run has one group only.) This is
repeated until there are at least 8 shadow runs, and each person is in at least 2 and left out of at
least 2. They are runs of the same method over the same number of sites, with the noise of the job.
All persons are treated alike, before it is known who took part: if the run does not depend on who
took part, the AUC is 1/2.

The attacker knows the whole records of all persons whose membership is in question, and the job.
The released parameters are the same for an outsider and for the coordinator, who also has those of
earlier rounds. The scorer trains the shadows, because an attack gets no records. The scorer uses
the true membership only for the ROC curve. Not covered: methods whose sites train alone, and jobs
whose shadow runs, with those of the control, would take more than about 5 minutes.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import ClassVar

import numpy as np
from numpy.typing import NDArray
from scipy.special import logsumexp
from scipy.stats import norm

from secagg.audits.attacks.records.membership_finding import (
    RATES,
    compared,
    membership_finding,
)
from secagg.audits.attacks.records.released_network import (
    losses,
    network_of,
    trained_on,
    training_work,
)
from secagg.audits.contract import Attack, Finding, Limit, Truth
from secagg.audits.membership import area_under_roc
from secagg.audits.views import View, Who
from secagg.core.arrays import Array

_FEW = 20  # others: the interval then covers 93 %
_SHADOWS = 8
_MOST_PARTS = 10
_MOST_WORK = 1e7  # gradients of single records: 2 minutes for the run, and for the control


class Membership(Attack):
    """Compare losses with those of shadow runs."""

    name: ClassVar[str] = "membership"
    title: ClassVar[str] = "Whether a known person is among the records of a released network"
    source: ClassVar[str] = "Carlini and others (2022); Zarifzadeh and others (2024)"
    knows: ClassVar[str] = "the whole records of the persons in question, and the job"
    views: ClassVar[tuple[Who, ...]] = (Who.OUTSIDER,)
    metric: ClassVar[str] = "membership_auc"
    meaning: ClassVar[str] = "area under the ROC curve; 0.5 is a guess"
    rates: ClassVar[Mapping[str, float]] = RATES

    def why_not(self, view: View) -> str:
        """Return why it does not apply."""
        if network_of(view.planned, view.result) is None:
            return "for the networks of torch_module, fedngm and fedngr"
        return view.why_trained_alone

    def limit(self, view: View) -> Limit:
        """Return the limit."""
        return Limit(0.6)

    def run(self, view: View, rng: np.random.Generator) -> int:
        """Return a seed for the shadow runs."""
        return int(rng.integers(2**63))

    def score(self, guess: int, view: View, truth: Truth) -> Finding:
        """Return the AUC of LiRA; details: of the others."""
        members, others, sites = compared(view, truth)
        if len(others) < _FEW:
            return Finding.impossible(f"fewer than {_FEW} records did not take part")
        persons = np.concatenate([members, others])
        took_part = np.arange(len(persons)) < len(members)
        rng = np.random.default_rng(guess)
        left_out = groups(len(members), len(persons), rng)
        work = sum(training_work(view, float(np.sum(~out))) for out in left_out)
        if work > _MOST_WORK:
            return Finding.impossible(
                f"{len(left_out)} shadow runs of {len(persons)} records take as long as {work:.1g} "
                f"gradients of single records, and at most {_MOST_WORK:.0e} are tried"
            )
        own = losses(view.planned, view.result, persons)
        shadows = np.array([
            losses(view.planned, trained_on(view, persons[~out], rng), persons) for out in left_out
        ])  # fmt: skip
        scores = {
            "threshold": -own,
            "lira": likelihood_ratios(own, shadows, left_out),
            "rmia": relative_likelihoods(own, shadows, left_out),
        }
        of_each = {
            name: list(area_under_roc(each[took_part], each[~took_part], sites))
            for name, each in scores.items()
        }
        lira = scores["lira"]
        return membership_finding(
            lira[took_part], lira[~took_part], 0.0, sites, of_each=of_each, shadows=len(shadows)
        )


def groups(members: int, persons: int, rng: np.random.Generator) -> NDArray[np.bool_]:
    """Return which persons each shadow run leaves out, shape (shadows, persons)."""
    fewer = min(members, persons - members)
    parts = min(max(2, round(persons / fewer)), _MOST_PARTS)
    found: list[NDArray[np.bool_]] = []
    while len(found) < max(_SHADOWS, 2 * parts):
        group = rng.permutation(np.arange(persons) % parts)
        found += [(group == part) == (fewer < members) for part in range(parts)]
    return np.array(found)


def likelihood_ratios(own: Array, shadows: Array, left_out: NDArray[np.bool_]) -> Array:
    """Return LiRA's T of each person, with variances that are common to all."""

    def log_density(among: NDArray[np.bool_]) -> Array:
        mean = np.where(among, shadows, 0).sum(axis=0) / among.sum(axis=0)
        squares = float(np.sum((shadows - mean)[among] ** 2))
        variance = squares / (np.sum(among) - len(own))  # a mean for each person is estimated
        return np.asarray(norm.logpdf(own, mean, max(variance**0.5, 1e-300)))

    return log_density(~left_out) - log_density(left_out)


def relative_likelihoods(own: Array, shadows: Array, left_out: NDArray[np.bool_]) -> Array:
    """Return RMIA's T of each person."""
    c = max(float(np.mean(np.abs(shadows[left_out]))), 1e-300)
    return np.asarray(-own / c - logsumexp(-shadows / c, axis=0))
