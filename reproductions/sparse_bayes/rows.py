"""The tables of `sparse_bayes`: fits of real records, compared.

Each number from a sampler is shown with its Monte Carlo error or effective sample size, and each
posterior inclusion probability (PIP) with its prior.
"""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence

import numpy as np

from reproductions.data import heart_disease
from reproductions.harness.network_chart import network_chart
from reproductions.harness.tables import StudyTables, Table
from reproductions.sparse_bayes.tasks import markov_random_field
from reproductions.sparse_bayes.tasks.sampler import CHAINS, MAX_R_HAT, WHOLE_FIT, worst
from secagg.experiments.runner.types import Numbers
from secagg.models.common.posterior_summary import MIN_ESS
from secagg.models.sparse_bayes.markov_random_field import discoveries

ONE, OWN, NARROW = "one slab", "own slabs", "one narrow slab"
PRIORS = {
    ONE: "one slab for all coefficients, eta ~ IG(1, 1)",
    OWN: "one slab for each coefficient, eta_j ~ IG(1, 1)",
    NARROW: "one slab for all coefficients, eta ~ IG(1, 0.1)",
}
LEAST, PARTIAL = "least squares", "partial correlations"
HOSPITALS = ("Cleveland", "Hungary", "Switzerland", "VA Long Beach")
TERMS = [
    term
    for name in heart_disease.COLUMNS
    for term in (
        [f"{name}={level}" for level in heart_disease.CLASSES[name][1][1:]]
        if name in heart_disease.CLASSES
        else [name]
    )
]  # in the order of the columns; stored results are in alphabetical order
MIN_SHOWN_PIP = 0.1  # smallest PIP of a pair in table and picture

HYPER = (
    "Prior: {slab}; c0 = 0.01 (the paper's), all other hyper-parameters 1: a_sigma = b_sigma = "
    "a_rho = b_rho = 1. Records are centred at each site and divided by standard deviations pooled "
    "within sites; the step is `collapsed`, with one sweep per round. The first half of the rounds "
    "is discarded."
)
_PRIORS = HYPER.format(slab="; ".join(f"{label}: {prior}" for label, prior in PRIORS.items()))
MIXING = (
    f"R-hat: rank-normalised and split, from {CHAINS} chains. It should be at most {MAX_R_HAT:g}, "
    f"and effective sample sizes (ESS) at least {MIN_ESS * CHAINS}. Each value is the worse of the "
    "coefficient's and its PIP's. ±: Monte Carlo error."
)

HEART_TITLE = "Maximum heart rate at four hospitals"
HEART_NOTES = (
    "Records: UCI Heart Disease (R. Detrano and others, 1989), CC BY 4.0: Cleveland 303, Hungary "
    "292, Switzerland 116, VA Long Beach 140 complete records in these columns.",
    _PRIORS,
    MIXING,
    f"{LEAST.capitalize()}: with an intercept for each hospital, from one secure sum of moments "
    '(`centre = "site"`); intervals are confidence intervals.',
    "Coefficients are standardised: standard deviations of the outcome per standard deviation of "
    "the predictor, both pooled within hospitals. Intervals are 95 % intervals.",
)

OVARIAN_TITLE = "A Markov random field of 20 genes, from four studies of ovarian cancer"
OVARIAN_NOTES = (
    "Records: 912 patients of four studies (510, 260, 84, 58), public expression data (GEO, TCGA) "
    "from the R package joint.Cox, read from the package survset 0.2.11: one data file is read "
    "and no code (GPL-3) is run. We take the first 20 of its 158 genes in alphabetical order. The "
    "authors of the table chose genes that are associated with relapse, so the graph says nothing "
    "about other genes.",
    _PRIORS,
    MIXING,
    f"Edges of the field: Bayesian false discovery rate {markov_random_field.FDR:g}, for the "
    "union (the larger of a pair's two PIPs) or the intersection (the smaller). Edges by partial "
    "correlations, from the covariance within studies: Benjamini and Hochberg's false discovery "
    f"rate, also {markov_random_field.FDR:g}.",
)

Fits = Mapping[str, Numbers]
Row = Mapping[str, float]


def heart_tables(fits: Fits) -> StudyTables:
    """Return a table that compares the fits, one for each prior, and the hospitals' own results."""
    least = fits[LEAST]
    terms = [term for term in TERMS if term in least]
    compared = Table(
        "PIPs by prior, and least squares",
        ("predictor", *(f"PIP, {prior}" for prior in PRIORS), LEAST, "95 % interval"),
        [
            [
                term,
                *(_pip(fits[prior][term]) for prior in PRIORS),
                f"{least[term]['mean']:.3f}",
                _range(least[term]),
            ]
            for term in terms
        ],
    )
    each = [
        Table(
            f"Coefficients, {prior}",
            ("predictor", "mean", "95 % interval", "PIP", "R-hat", "ESS, bulk", "tail"),
            [coefficient_row(term, fits[prior][term]) for term in terms],
            f"Prior: {words}. {_widths(fits[prior])}",
        )
        for prior, words in PRIORS.items()
    ]
    own = Table(
        "The hospitals' own coefficients",
        ("predictor", "common", *HOSPITALS),
        [
            [
                term,
                f"{fits[ONE][term]['mean']:.2f}",
                *(f"{fits[ONE][hospital][term]:.2f}" for hospital in HOSPITALS),
            ]
            for term in terms
        ],
        f"Posterior means, {ONE}. In a real run these stay at the hospital; here the records are "
        "public.",
    )
    return StudyTables((compared, *each, own))


def ovarian_tables(fits: Fits) -> StudyTables:
    """Return the pairs and edges of all fits, the mixing of the chains, and a picture."""
    names = _genes(fits[PARTIAL])
    pairs = list(itertools.combinations(names, 2))
    edges = _edges(fits, pairs)
    one = fits[ONE]
    shown = sorted(
        (pair for pair in pairs if max(_sides(one, pair)) >= MIN_SHOWN_PIP),
        key=lambda pair: -max(_sides(one, pair)),
    )
    table = Table(
        "Pairs",
        ("pair", "PIP of one side", "of the other", "larger, own slabs", "larger, narrow slab",
         "partial correlation", "edge by it", "R-hat", "smallest ESS"),
        [_pair_row(fits, pair, edge=edges[PARTIAL][pair]) for pair in shown],
        f"Pairs with a PIP of at least {MIN_SHOWN_PIP:g} with {PRIORS[ONE]}.",
    )  # fmt: skip
    counts = Table(
        "Edges",
        ("edges by", "edges", "of these also by partial correlations"),
        [
            [label, str(sum(is_edge.values())), str(sum(e and edges[PARTIAL][p] for p, e in
                                                        is_edge.items()))]
            for label, is_edge in edges.items()
        ],
    )  # fmt: skip
    mixing = Table(
        "Mixing of the chains",
        ("prior", *MIXING_HEAD),
        [[label, *mixing_row(_all_sides(fits[label]), fits[label][WHOLE_FIT])] for label in PRIORS],
    )
    drawn = {
        pair: (max(_sides(one, pair)), fits[PARTIAL][markov_random_field.pair(*pair)]["r"])
        for pair in pairs
        if max(_sides(one, pair)) >= MIN_SHOWN_PIP
    }
    return StudyTables((table, counts, mixing), network_chart(OVARIAN_TITLE, names, drawn))


def _edges(fits: Fits, pairs: Sequence[tuple[str, str]]) -> dict[str, dict[tuple[str, str], bool]]:
    """Return which pairs are edges, by prior and combination, and by partial correlations."""
    edges: dict[str, dict[tuple[str, str], bool]] = {}
    for label in PRIORS:
        for combination, combine in (("union", max), ("intersection", min)):
            pip = np.array([combine(_sides(fits[label], pair)) for pair in pairs])
            selected = discoveries(pip, markov_random_field.FDR).tolist()
            edges[f"{label}, {combination}"] = dict(zip(pairs, selected, strict=True))
        likely = {pair: max(_sides(fits[label], pair)) > 0.5 for pair in pairs}
        edges[f"{label}, a PIP above 0.5"] = likely
    partial = fits[PARTIAL]
    edges[PARTIAL] = {
        pair: bool(partial[markov_random_field.pair(*pair)]["edge"]) for pair in pairs
    }
    return edges


def _genes(partial: Numbers) -> list[str]:
    """Return the genes in alphabetical order, which is also the file's order."""
    pairs = [
        name.split(markov_random_field.PAIR_SEPARATOR) for name in partial if name != WHOLE_FIT
    ]
    return sorted(set(itertools.chain(*pairs)))


def _all_sides(fit: Numbers) -> list[Row]:
    return [row for name, row in fit.items() if name != WHOLE_FIT]


def _both(fit: Numbers, pair: tuple[str, str]) -> tuple[Row, Row]:
    return fit[markov_random_field.side(*pair)], fit[markov_random_field.side(*reversed(pair))]


def _sides(fit: Numbers, pair: tuple[str, str]) -> tuple[float, float]:
    one, other = _both(fit, pair)
    return one["pip"], other["pip"]


def _pair_row(fits: Fits, pair: tuple[str, str], *, edge: bool) -> list[str]:
    one, other = _both(fits[ONE], pair)
    others = [max(_both(fits[label], pair), key=lambda row: row["pip"]) for label in (OWN, NARROW)]
    r_hat, ess = worst([one, other])
    return [
        markov_random_field.pair(*pair), _pip(one), _pip(other), *map(_pip, others),
        f"{fits[PARTIAL][markov_random_field.pair(*pair)]['r']:.2f}", "yes" if edge else "no",
        f"{r_hat:.3f}", f"{ess:.0f}",
    ]  # fmt: skip


MIXING_HEAD = (
    "coefficients", "largest R-hat", f"R-hat above {MAX_R_HAT:g}", "smallest ESS",
    f"ESS below {MIN_ESS * CHAINS}", "slab's sd", "spike's sd",
)  # fmt: skip


def mixing_row(coefficients: Sequence[Row], width: Row) -> list[str]:
    """Return the columns of MIXING_HEAD for the chains of one fit."""
    r_hat, ess = worst(coefficients)
    high_r_hat = sum(row["r_hat"] > MAX_R_HAT for row in coefficients)
    low_ess = sum(min(row["ess_bulk"], row["ess_tail"]) < MIN_ESS * CHAINS for row in coefficients)
    return [
        str(len(coefficients)), f"{r_hat:.3f}", str(high_r_hat), f"{ess:.0f}", str(low_ess),
        f"{width['slab_sd']:.2f}", f"{width['spike_sd']:.3f}",
    ]  # fmt: skip


def _widths(fit: Numbers) -> str:
    width = fit[WHOLE_FIT]
    return (
        f"Median standard deviations: slab {width['slab_sd']:.2f}, spike {width['spike_sd']:.3f}."
    )


def coefficient_row(term: str, row: Row) -> list[str]:
    """Return a coefficient's name, mean, interval, PIP, R-hat and effective sample sizes."""
    return [
        term, _mean(row), _range(row), _pip(row),
        f"{row['r_hat']:.3f}", f"{row['ess_bulk']:.0f}", f"{row['ess_tail']:.0f}",
    ]  # fmt: skip


def _mean(row: Row) -> str:
    return f"{row['mean']:.3f} ± {row['mcse']:.3f}"


def _range(row: Row) -> str:
    return f"{row['low']:.2f} to {row['high']:.2f}"


def _pip(row: Row) -> str:
    return f"{row['pip']:.3f} ± {row['pip_mcse']:.3f}"
