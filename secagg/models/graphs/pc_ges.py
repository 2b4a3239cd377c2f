"""PC and GES on pooled moments, through the causal-learn package (optional: secagg[graphs]).

PC: Spirtes and Glymour (1991), in the order-independent "stable" form of Colombo and Maathuis
(JMLR 2014), with Fisher's z test of partial correlations. GES: Chickering (JMLR 2002) with the BIC
(Schwarz 1978) of linear Gaussian networks. Both read the records through n and the correlation
matrix alone (Ng and Zhang, AISTATS 2022, section 4), both return a Markov equivalence class, and
neither depends on the units of the variables.

Both read pooled moments only. They disclose nothing beyond the secure sum that produced them.

How PC gets the moments. causal-learn's `pc` accepts rows of data, or the name of a test in a table
that is global to the process. Artificial rows with the same moments would need n x p numbers and
n > p, and could not handle tests without degrees of freedom. This module therefore calls the three
steps of `pc` itself: skeleton, colliders and Meek's rules. It passes a test object that reads the
correlation matrix.

Background knowledge (`secagg.models.graphs.knowledge`). PC then tests only what the knowledge
leaves open (`KnownTest`), orients what it determines, and applies Meek's four rules; for tiers this
is temporal PC (Petersen, Osler and Ekstrøm, American Journal of Epidemiology 2021). causal-learn's
own option lacks Meek's rule 4 and counts a pair that may not be joined as separated by the empty
set. GES is `secagg.models.graphs.constrained_ges`.

With noise in the moments. Fisher's z is atanh(r) root(n - |S| - 3). Written as r / s, it has the
standard deviation s = r / (atanh(r) root(n - |S| - 3)) of r by chance. Noise adds its variance v
(`secagg.models.common.noisy_partials`, (3)), so the test is r / root(s^2 + v). An edge has to pass
all its tests, so PC leaves out edges that the noise hides among closely related columns. GES has
the score of `secagg.models.graphs.constrained_ges` then; in simulations PC had fewer false edges
and GES found more true ones (docs/math/graphs-under-noise.md).
"""

from __future__ import annotations

import contextlib
import importlib
import importlib.util
import math
import warnings
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from secagg.errors import JobError, UsageError
from secagg.models.common.checks import require_number
from secagg.models.common.noisy_partials import NoisyPartials
from secagg.models.common.pooled_moments import Moments
from secagg.models.graphs.acyclicity import is_acyclic
from secagg.models.graphs.constrained_ges import NoisyBic, TotalScore, bic_score, constrained_ges
from secagg.models.graphs.inputs import RANK_TOLERANCE, graph_input, singular
from secagg.models.graphs.knowledge import Knowledge
from secagg.models.graphs.noise_size import quantile
from secagg.models.graphs.pdag import Edges, orient_by_rules
from secagg.models.graphs.result import GraphFit

PC_NOISE_NOTE = (
    "Each test allows for the noise. Among closely related columns the noise hides edges, so that "
    "two columns are not joined does not show that they are independent."
)
GES_NOISE_NOTE = (
    "Each edge is beyond what noise and chance give in a graph of unrelated columns. Which of "
    "several closely related columns it joins may still be due to the noise."
)
BIDIRECTED_ON_CONFLICT = 1  # causal-learn's uc_priority; the others let column order decide


class PartialCorrelationTest:
    """Fisher's z test of x independent of y given S, from a correlation matrix of n records.

    noisy: the same moments with the noise in them, which the test then allows for
    causal-learn's skeleton search reads `method` and calls the object, which returns p.
    """

    method = "fisherz"

    def __init__(
        self, correlation: NDArray[np.float64], n: int, noisy: NoisyPartials | None = None
    ) -> None:
        self.correlation, self.n, self.noisy = correlation, n, noisy

    def __call__(self, x: int, y: int, given: Sequence[int]) -> float:
        """Return the two-sided p value; 1 (no evidence of an edge) where n - |S| - 3 <= 0."""
        freedom = self.n - len(given) - 3
        if freedom <= 0:
            return 1.0
        index = [x, y, *given]
        block = self.correlation[np.ix_(index, index)]
        if np.linalg.eigvalsh(block)[0] <= RANK_TOLERANCE:
            raise singular("PC", self.n, self.correlation)
        if self.noisy is not None:
            partial, variance = self.noisy.partial(x, y, given)
            size = min(abs(partial), 1 - np.finfo(float).eps)
            chance = size / math.atanh(size) if size else 1.0
            return math.erfc(size / math.sqrt(2 * (chance**2 / freedom + variance)))
        precision = np.linalg.inv(block)
        partial = -precision[0, 1] / math.sqrt(precision[0, 0] * precision[1, 1])
        z = math.sqrt(freedom) * math.atanh(partial)
        return math.erfc(abs(z) / math.sqrt(2))


class KnownTest:
    """A test that does not ask what is known.

    forbidden, required: (p, p), [i, j] for i -> j. Non-adjacent variables are separated by the
    parents of one of them. So a set that contains a variable which cannot be a parent of x is no
    evidence when the search is at x, nor is any set for a pair with a required edge.
    """

    method = "fisherz"

    def __init__(self, test: PartialCorrelationTest, forbidden: Edges, required: Edges) -> None:
        self.test, self.forbidden = test, forbidden
        self.required, self.joined = required, required | required.T
        self.apart = forbidden & forbidden.T
        self.best: dict[tuple[int, int], tuple[float, tuple[int, ...]]] = {}
        """The largest p of each pair that may not be joined, and its set."""

    def __call__(self, x: int, y: int, given: Sequence[int]) -> float:
        """Return p of x and y given a subset of the neighbours of x; 0 if it is no evidence."""
        if self.joined[x, y] or self.forbidden[list(given), x].any():
            return 0.0
        p = self.test(x, y, given)
        if self.apart[x, y]:
            pair = (min(x, y), max(x, y))
            self.best[pair] = max(self.best.get(pair, (-1.0, ())), (p, tuple(given)))
        return p


def pc(
    moments: Moments,
    *,
    variables: Sequence[str] | None = None,
    alpha: float = 0.05,
    knowledge: Knowledge | None = None,
) -> GraphFit:
    """Learn a Markov equivalence class by PC.

    variables: names to use (None: all); alpha: level of each test, above 0 and below 1
    knowledge: about these variables
    PC orients a collider x -> y <- z if y is in none of the sets that separate x and z, at the size
    at which they were first separated (causal-learn's rule). An edge that two colliders orient in
    opposite directions stays undirected, with a note. Neither rule depends on the order of the
    variables; where the tests contradict one another, Meek's rules still can.
    diagnostics: conflicts, the number of such edges.
    Raises `UsageError` as `graph_input` does; without causal-learn; on linearly dependent variables
    (with no more records than variables: only if one test contains them); on n <= 3, where no test
    has a degree of freedom; on a setting out of range.
    """
    require_number("alpha", alpha, low=np.finfo(float).tiny, below=1)
    data = graph_input(moments, variables, standardise=True)
    data.require_full_rank("PC", few_records=True)
    if data.effective_n <= 3:
        raise UsageError("analysis", f"PC needs more than 3 records, not {data.effective_n}")
    noisy = None if data.noise is None else data.noise.partials
    test = PartialCorrelationTest(data.matrix, data.effective_n, noisy)
    known = None if knowledge is None else knowledge.select(data.names)
    asked = test if known is None else KnownTest(test, known.forbidden, known.required)
    with _quiet():
        steps = [
            _causal_learn(f"utils.PCUtils.{step}")
            for step in ("SkeletonDiscovery", "UCSepset", "Meek")
        ]
        skeleton, unshielded, meek = steps
        graph = skeleton.skeleton_discovery(
            data.matrix,  # read for its number of columns only
            alpha,
            asked,
            stable=True,
            show_progress=False,
        )
        if isinstance(asked, KnownTest):
            directed, undirected, conflict = _known_orientation(graph, asked)
        else:
            graph = unshielded.uc_sepset(graph, BIDIRECTED_ON_CONFLICT)
            directed, undirected, conflict = _edges(meek.meek(graph).G.graph)
    conflicts = int(np.sum(np.triu(conflict)))
    notes: list[str] = []
    if conflicts:
        notes.append(f"edges left undirected because colliders orient them both ways: {conflicts}")
    if noisy is not None:
        notes.append(PC_NOISE_NOTE)
    if not is_acyclic(directed):
        notes.append("the directed edges form a cycle, because the tests contradict one another")
    return GraphFit(
        method="pc",
        names=data.names,
        directed=directed,
        undirected=undirected | conflict,
        weights=None,
        converged=True,
        settings={"alpha": alpha},
        diagnostics={"conflicts": conflicts},
        notes=tuple(notes),
        knowledge=known,
    )


def _known_orientation(graph: Any, test: KnownTest) -> tuple[Edges, Edges, Edges]:
    """Return directed, undirected and conflicting edges from causal-learn's skeleton."""
    forbidden = test.forbidden | test.required.T
    adjacent = (graph.G.graph != 0) & ~test.apart
    arrow = np.zeros_like(adjacent)
    for x, z in zip(*np.triu(~adjacent, 1).nonzero(), strict=True):
        sets = [test.best[x, z][1]] if test.apart[x, z] and not graph.sepset[x, z] else []
        inside = {y for each in [*(graph.sepset[x, z] or ()), *sets] for y in each}
        for y in np.flatnonzero(adjacent[x] & adjacent[z] & ~forbidden[x] & ~forbidden[z]):
            arrow[[x, z], y] |= y not in inside
    conflict = arrow & arrow.T
    known = adjacent & forbidden.T
    directed = (arrow & ~arrow.T) | known
    undirected = adjacent & ~(directed | directed.T | conflict)
    return *orient_by_rules(directed, undirected, conflict), conflict


def ges(
    moments: Moments,
    *,
    variables: Sequence[str] | None = None,
    penalty: float = 1.0,
    level: float | None = None,
    knowledge: Knowledge | None = None,
) -> GraphFit:
    """Learn a Markov equivalence class by GES.

    variables: names to use (None: all); knowledge: about them
    penalty: factor of the BIC's 1/2 log n per parameter, above 0; 1 gives the BIC
    level: under noise, two-sided level at which one edge is beyond it; None: that of
        `secagg.models.graphs.noise_size` for a graph of unrelated columns
    Raises `UsageError` as `graph_input` does; without causal-learn; on a singular covariance (a
    residual variance of zero has an unbounded score); on a setting out of range.
    """
    require_number("penalty", penalty, low=np.finfo(float).tiny)
    data = graph_input(moments, variables, standardise=True)
    data.require_full_rank("GES")
    known = None if knowledge is None else knowledge.select(data.names)
    nothing = np.zeros(data.matrix.shape, dtype=np.bool_)
    forbidden, required = (nothing, nothing) if known is None else (known.forbidden, known.required)
    if data.noise is not None:
        z = data.noise.z if level is None else quantile(level)
        noisy_score = NoisyBic(data.noise.partials, penalty, z)
        directed, undirected = constrained_ges(noisy_score, forbidden, required)
    elif known is not None:
        score = TotalScore(bic_score(data.matrix, data.effective_n, penalty))
        directed, undirected = constrained_ges(score, forbidden, required)
    else:
        with _quiet():
            search = _causal_learn("search.ScoreBased.GES")
            record = search.ges(
                cov=data.matrix, n=data.effective_n, parameters={"lambda_value": 0.5 * penalty}
            )
        directed, undirected, _ = _edges(record["G"].graph)
    return GraphFit(
        method="ges",
        names=data.names,
        directed=directed,
        undirected=undirected,
        weights=None,
        converged=True,
        settings={"penalty": penalty},
        notes=() if data.noise is None else (GES_NOISE_NOTE,),
        knowledge=known,
    )


def require_causal_learn(where: str) -> None:
    """Raise `JobError` at the setting `where` if causal-learn is not installed.

    The check does not import the package, which takes seconds.
    """
    if importlib.util.find_spec("causallearn") is None:
        raise JobError(
            where, "PC and GES need the package causal-learn", "pip install 'secagg[graphs]'"
        )


def _edges(
    endpoint: NDArray[np.int_],
) -> tuple[NDArray[np.bool_], NDArray[np.bool_], NDArray[np.bool_]]:
    """Return directed, undirected and two-headed edges from causal-learn's endpoint matrix.

    endpoint[i, j] is the mark at i of the edge i - j: 1 an arrow head, -1 a tail, 0 no edge.
    """
    head, tail = endpoint == 1, endpoint == -1
    return tail & head.T, tail & tail.T, head & head.T


def _causal_learn(module: str) -> Any:
    """Import a module of causal-learn; only when needed, because it is optional and slow."""
    try:
        return importlib.import_module(f"causallearn.{module}")
    except ImportError as error:
        raise UsageError(
            "analysis",
            f"PC and GES need the package causal-learn ({error})",
            "pip install 'secagg[graphs]'",
        ) from error


@contextlib.contextmanager
def _quiet() -> Iterator[None]:
    """Ignore the warnings of causal-learn and of the plotting packages that it imports."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        yield
