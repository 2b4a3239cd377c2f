"""The sums of `fedlin_full`, solved for every site's X'X and X'y.

`secagg.audits.attacks.fedlin.full_solved_sums` has the equations. `full_sums` is a coordinator that
only looks. The Sigma of its rounds differ less and less, so late rounds add little, and the
equations determine few sites only. `full_invented` is a dishonest coordinator: it sends covariance
matrices of its choice in the rounds that the job allows. An honest one could have sent them, over
other sites.
"""

from __future__ import annotations

from typing import ClassVar

import numpy as np

from secagg.audits.attacks.fedlin.fedlin_view import stage_rounds
from secagg.audits.attacks.fedlin.full_solved_sums import FullEquations
from secagg.audits.attacks.fedlin.hm2_solved_sums import Moments
from secagg.audits.attacks.fedlin.hm2_sums import SolvedSums
from secagg.audits.views import SeenRound, View, Who
from secagg.contracts import Method, Update
from secagg.models.fedlin.base import ROUNDS
from secagg.models.fedlin.full.method import FedLinFull
from secagg.models.fedlin.hypotheses.agreement import AGREEMENT
from secagg.models.numerics.natural_gaussian import triangle

_POINTS_PER_SITE = 4
_MOST_UNKNOWNS = 15  # beyond, searches take minutes
_LEAST, _MOST = -10.0, -1.0  # log variances between sites: from where X'X is all to where it is not


def _of_full(method: Method) -> str:
    normal = isinstance(method, FedLinFull) and method.family == "gaussian"
    return "" if normal else 'for fedlin_full with family = "gaussian"'


class FullSums(SolvedSums):
    """Solve the sums of a run that follows the protocol."""

    name: ClassVar[str] = "full_sums"
    title: ClassVar[str] = "The sums of fedlin_full, solved for every site's X'X"
    source: ClassVar[str] = "secagg.models.fedlin.full.method"
    most_unknowns: ClassVar[int] = _MOST_UNKNOWNS
    suits = staticmethod(_of_full)

    def run(self, view: View, rng: np.random.Generator) -> Moments:
        """Return the moments of all sites, in any order."""
        seen, (agreed,) = stage_rounds(view), stage_rounds(view, AGREEMENT)
        noise = float(seen[0].message["noise"][0])
        return FullEquations(seen, agreed.total, noise).solve(len(view.sites))

    def control(self, plain: View) -> View:
        """Return the view of one site's contributions, as if they were sums."""
        return plain.alone(plain.sites[0])


class FullInvented(SolvedSums):
    """Send covariance matrices of the coordinator's choice, and solve the answers."""

    name: ClassVar[str] = "full_invented"
    title: ClassVar[str] = "Invented messages of fedlin_full, solved for every site's X'X"
    source: ClassVar[str] = "secagg.models.fedlin.full.method"
    views: ClassVar[tuple[Who, ...]] = (Who.DISHONEST,)
    most_unknowns: ClassVar[int] = _MOST_UNKNOWNS
    suits = staticmethod(_of_full)

    def why_not(self, view: View) -> str:
        """Return why it does not apply."""
        if why := super().why_not(view):
            return why
        return "" if view.open_session else "no site is there to ask"

    def run(self, view: View, rng: np.random.Generator) -> Moments:
        """Return the moments of all sites, in any order."""
        assert view.open_session is not None
        method, ask, sites = view.planned.method, view.open_session(), len(view.sites)
        assert isinstance(method, FedLinFull)
        state, found = method.initial_state(view.planned.public), list[SeenRound]()
        agreed, noise = Update(), 0.0
        while not agreed:
            request = method.next_request(state)
            assert request is not None
            stage, message = request
            if stage == ROUNDS:
                log = rng.uniform(_LEAST, _MOST, len(message["mu"]))
                message = {**message, "Sigma": triangle(np.diag(np.exp(log)))}
                found.append(SeenRound(stage, message, ask(stage, message), {}))
                enough = len(found) == min(_POINTS_PER_SITE * sites, method.rounds)
                state = {**state, "status": AGREEMENT if enough else ROUNDS}
            elif stage == AGREEMENT:
                agreed, noise = ask(stage, message), float(message["noise"][0])
            else:
                state = method.aggregate(state, ask(stage, message), sites)
        return FullEquations(found, agreed, noise).solve(sites)
