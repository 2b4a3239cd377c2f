"""Claims of FedNGM's text, and the comparisons that test them; and some that it does not make."""

from __future__ import annotations

from collections.abc import Sequence

from reproductions.fedngm.published import (
    MATCH,
    OUTPERFORM,
    PUBLIC_LEVELS,
    PUBLIC_NUMBERS,
)
from reproductions.harness.figures import Comparison, Panel, Place, Remark, Statement

ERRORS = {"age_rmse": "RMSE of gestational age", "weight_rmse": "RMSE of birthweight"}
SCORES = {"auc": "AUC", "macro_precision": "macro precision", "macro_recall": "macro recall"}

SEEN = "Not in the paper: the error of the global NGM is smaller on records seen in training"
UNSEEN = "Not in the paper: federated minus distilled training"
POOLED = "Not in the paper: the global NGM minus least squares or logistic regression"
ALL_PAIRS = "Not in the paper: the same with all pairs as edges"


def claims(
    number: int, panels: Sequence[Panel]
) -> tuple[tuple[Statement, ...], tuple[Remark, ...]]:
    """Return the statements and remarks of a table."""
    places = [(panel.name, column) for panel in panels for column in panel.columns]
    clients = ["own"] if number < 4 else ["site1", "site2", "site3"]

    def pairs(one: str, *others: str) -> list[tuple[Place, Place]]:
        return [(Place(*at, one), Place(*at, other)) for at in places for other in others]

    def smaller(metric: str, words: str, found: Sequence[tuple[Place, Place]]) -> Statement:
        compared = tuple(Comparison(metric, *pair) for pair in found)
        return Statement(f"{words} ({(ERRORS | SCORES)[metric]}).", compared)

    def difference(metric: str, words: str, *pair: str) -> Remark:
        return Remark(f"{words} ({(ERRORS | SCORES)[metric]}).", metric, tuple(pairs(*pair)))

    statements: list[Statement] = []
    if number != 2:
        words = OUTPERFORM if number == 3 else PUBLIC_LEVELS
        below = [(own, best) for best, own in pairs("distilled", *clients)]
        statements += [smaller(metric, words, below) for metric in SCORES]
    if number == 2:
        statements += [
            smaller(metric, SEEN, pairs("distilled-whole", "distilled")) for metric in ERRORS
        ]
    if number == 4:
        statements += [
            smaller(metric, PUBLIC_NUMBERS, pairs("distilled", *clients)) for metric in ERRORS
        ]
    measures = [*(ERRORS if number != 3 else ()), *(SCORES if number != 2 else ())]
    remarks = [difference(metric, MATCH, "distilled", "own") for metric in ERRORS if number == 2]
    remarks += [difference(metric, UNSEEN, "federated", "distilled") for metric in measures]
    remarks += [difference(metric, POOLED, "federated", "linear") for metric in measures]
    remarks += [difference(metric, ALL_PAIRS, "all", "linear") for metric in measures]
    return tuple(statements), tuple(remarks)
