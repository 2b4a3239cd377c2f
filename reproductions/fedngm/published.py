"""The numbers of FedNGM's tables 2 to 4, and the claims of its text.

Chajewska and Shrivastava (2023), section 3.3: 2015's births of the United States, three sites of
some 640,000. Errors of the tables are standard errors over five folds; table 4 has none.
"""

from __future__ import annotations

from collections.abc import Mapping

from reproductions.harness.markdown import table

MATCH = (
    "Private data: the global model is observed to match the performance of the private models on "
    "real-valued variable prediction"
)
OUTPERFORM = (
    "Private data: the global model is observed to significantly outperform private models on "
    "categorical variable prediction"
)
PUBLIC_NUMBERS = (
    "Public data: the global model typically outperforming slightly at least two of the three "
    "client models on real-valued variable prediction"
)
PUBLIC_LEVELS = (
    "Public data: the global model significantly outperforming client models in survival AUC and "
    "macro-averaged precision and recall for cause of death"
)

_NUMBERS = ("age, MAE (weeks)", "age, RMSE", "birthweight, MAE (g)", "birthweight, RMSE")
_LEVELS = (
    "survival, AUC", "AUPR", "cause, micro precision", "micro recall", "macro precision",
    "macro recall",
)  # fmt: skip

TABLE_2 = {
    "client 1, own NGM": (1.453, 2.631, 373.28, 495.24),
    "client 1, global NGM": (1.412, 2.588, 377.93, 492.26),
    "client 2, own NGM": (1.359, 2.392, 379.77, 497.15),
    "client 2, global NGM": (1.366, 2.403, 379.02, 499.78),
    "client 3, own NGM": (1.427, 2.528, 366.47, 479.41),
    "client 3, global NGM": (1.370, 2.494, 366.08, 482.12),
}
TABLE_3 = {
    "client 1, own NGM": (0.728, 0.256, 0.994, 0.994, 0.497, 0.500),
    "client 1, global NGM": (0.797, 0.251, 0.994, 0.994, 0.692, 0.511),
    "client 2, own NGM": (0.735, 0.242, 0.994, 0.995, 0.497, 0.500),
    "client 2, global NGM": (0.799, 0.240, 0.995, 0.995, 0.660, 0.510),
    "client 3, own NGM": (0.732, 0.293, 0.995, 0.995, 0.496, 0.500),
    "client 3, global NGM": (0.795, 0.253, 0.995, 0.995, 0.657, 0.511),
}
TABLE_4 = {
    "client 1's NGM": (1.398, 2.532, 372.28, 489.38, 0.711, 0.272, 0.994, 0.994, 0.497, 0.500),
    "client 2's NGM": (1.283, 2.389, 377.90, 491.84, 0.757, 0.239, 0.994, 0.995, 0.496, 0.500),
    "client 3's NGM": (1.432, 2.542, 377.43, 493.64, 0.775, 0.285, 0.994, 0.995, 0.497, 0.500),
    "global NGM": (1.384, 2.494, 373.29, 492.30, 0.799, 0.241, 0.995, 0.995, 0.674, 0.511),
}


def published(number: int) -> str:
    """Return the paper's table as Markdown, with a sentence before it."""
    rows: Mapping[str, tuple[float, ...]] = (TABLE_2, TABLE_3, TABLE_4)[number - 2]
    head = {2: _NUMBERS, 3: _LEVELS, 4: (*_NUMBERS, *_LEVELS)}[number]
    body = [[name, *(f"{value:g}" for value in values)] for name, values in rows.items()]
    lines = "\n".join(table([f"the paper's table {number}", *head], body)).rstrip()
    return f"The paper's numbers refer to other records, and to larger sites:\n\n{lines}"
