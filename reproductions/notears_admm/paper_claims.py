"""The claims of Ng and Zhang (AISTATS 2022) about their figures, in words and in numbers.

The paper shows its results as pictures; its text contains only four numbers (section 6.2). Claims
in words become comparisons of means, which `harness.paired_comparison` tests seed by seed. Words
such as "close" or "stable" cannot be tested; for them we report the differences in question.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace

from reproductions.harness.figures import (
    Comparison,
    Panel,
    Place,
    PublishedValue,
    Remark,
    Statement,
)

_ONE_SUM = "(Not in the paper: one secure sum of moments, compared with ADMM's rounds.)"
_FAST = "(Not in the paper: the variant `fast`, compared with the paper's settings.)"
LOCAL = ("voting", "average", "best")
ADMM = "admm-paper"
RUNS = 30  # the paper's runs per mean
DECIMALS = 2  # of the numbers in its text


def stated_of(number: int, panels: Sequence[Panel]) -> tuple[PublishedValue, ...]:
    """Return the paper's numbers for places in these panels."""
    published = {ADMM: 0.78, "voting": 0.05, "average": 0.25, "best": 0.33}
    return tuple(
        PublishedValue("tpr", Place(panel.name, 64, method), value, RUNS, DECIMALS)
        for panel in panels
        if number == 2 and panel.name == "d = 20" and 64 in panel.columns
        for method, value in published.items()
    )


def statements_of(number: int, panels: Sequence[Panel]) -> tuple[Statement, ...]:
    """Return the paper's claims about a figure that these panels can test."""
    claims = {1: _figure_1, 2: _figure_2, 3: _figure_3, 4: _figure_4}[number](panels)
    return tuple(statement for statement in claims if statement.comparisons)


def remarks_of(number: int, panels: Sequence[Panel]) -> tuple[Remark, ...]:
    """Return the claims about a figure that cannot be tested, and our own additions."""
    remarks = {
        1: [
            Remark(
                "The TPRs of NOTEARS-ADMM are close to those of NOTEARS-AllData.",
                "tpr",
                _between(ADMM, "notears-alldata", panels),
            ),
            Remark(_ONE_SUM, "shd", _between("notears-alldata", ADMM, panels)),
            Remark(_FAST, "shd", _between("admm-fast", ADMM, panels)),
        ],
        2: [Remark(_FAST, "shd", _between("admm-fast", ADMM, panels))],
        3: [
            Remark(
                "NOTEARS-ADMM has a stable performance across numbers of sites.",
                "shd",
                _last_minus_first(ADMM, panels),
            )
        ],
        4: [
            Remark(
                "NOTEARS-MLP-ADMM has a much stable performance across numbers of sites,",
                "shd",
                _last_minus_first("mlp-admm", panels),
            ),
            Remark(
                "which is close to that of NOTEARS-MLP-AllData.",
                "shd",
                _between("mlp-admm", "mlp-alldata", panels),
            ),
        ],
    }
    return tuple(remark for remark in remarks.get(number, []) if remark.differences)


def _between(method: str, other: str, panels: Sequence[Panel]) -> tuple[tuple[Place, Place], ...]:
    return tuple(
        (Place(panel.name, column, method), Place(panel.name, column, other))
        for panel in panels
        for column in panel.columns
    )


def _last_minus_first(method: str, panels: Sequence[Panel]) -> tuple[tuple[Place, Place], ...]:
    return tuple(
        (Place(panel.name, panel.columns[-1], method), Place(panel.name, panel.columns[0], method))
        for panel in panels
        if len(panel.columns) > 1
    )


def _figure_1(panels: Sequence[Panel]) -> Iterator[Statement]:
    yield Statement(
        "NOTEARS-ADMM performs best (lower SHD than Voting, Avg and Best) at every d.",
        _below("shd", ADMM, LOCAL, panels),
    )
    yield Statement(
        "The difference of SHD grows with d (from the smallest d to the largest).",
        tuple(_growing("shd", ADMM, LOCAL, panels)),
    )
    yield Statement(
        "Its TPR is above those of Voting, Avg and Best.", _above("tpr", ADMM, LOCAL, panels)
    )
    yield Statement(
        "NOTEARS-Avg has lower SHDs than NOTEARS-Voting.",
        _below("shd", "average", ["voting"], panels),
    )
    yield Statement(
        "NOTEARS-Best has high FDRs (above those of ADMM, Voting and Avg).",
        _above("fdr", "best", [ADMM, "voting", "average"], panels),
    )
    yield Statement(
        "PC-Voting and FGES-Voting have worse SHDs than NOTEARS-ADMM.",
        _below("shd", ADMM, ["pc-voting", "ges-voting"], panels),
    )
    yield Statement(
        "PC-Voting and FGES-Voting have worse TPRs than NOTEARS-ADMM.",
        _above("tpr", ADMM, ["pc-voting", "ges-voting"], panels),
    )


def _figure_2(panels: Sequence[Panel]) -> Iterator[Statement]:
    yield Statement(
        "With more sites the TPRs of Voting, Avg and Best deteriorate (K = 64 below K = 2),",
        tuple(c for m in LOCAL for c in _from_few_to_many("tpr", m, panels, falls=True)),
    )
    yield Statement(
        "leading to high SHDs (K = 64 above K = 2).",
        tuple(c for m in LOCAL for c in _from_few_to_many("shd", m, panels, falls=False)),
    )
    yield Statement(
        "The TPR of NOTEARS-ADMM decreases, too (K = 64 below K = 2),",
        tuple(_from_few_to_many("tpr", ADMM, panels, falls=True)),
    )
    yield Statement(
        "and is still high compared with Voting, Avg and Best (at K = 64).",
        _above("tpr", ADMM, LOCAL, panels, (64,)),
    )
    yield Statement(
        "At d = 50 Voting, Avg and Best have better SHDs than NOTEARS-ADMM for K = 2 and 4.",
        _above("shd", ADMM, LOCAL, [p for p in panels if p.name == "d = 50"], (2, 4)),
    )


def _figure_3(panels: Sequence[Panel]) -> Iterator[Statement]:
    for panel in panels:
        yield Statement(
            f"Voting, Avg and Best degrade with more sites (SHD at K = 64 above K = 2; "
            f"{panel.name}).",
            tuple(c for m in LOCAL for c in _from_few_to_many("shd", m, [panel], falls=False)),
        )
        yield Statement(
            f"NOTEARS-ADMM has an improved performance across numbers of sites (SHD below those "
            f"of Voting, Avg and Best; {panel.name}).",
            _below("shd", ADMM, LOCAL, [panel]),
        )
        yield Statement(
            f"NOTEARS-ADMM has lower SHDs than NOTEARS-AllData ({panel.name}).",
            _below("shd", ADMM, ["notears-alldata"], [panel]),
        )


def _figure_4(panels: Sequence[Panel]) -> Iterator[Statement]:
    yield Statement(
        "NOTEARS-MLP-ADMM outperforms Voting, Avg and Best (in SHD).",
        _below("shd", "mlp-admm", [f"mlp-{method}" for method in LOCAL], panels),
    )


def _below(
    metric: str,
    method: str,
    others: Sequence[str],
    panels: Sequence[Panel],
    columns: Sequence[float] | None = None,
) -> tuple[Comparison, ...]:
    """Claim that the method's mean is below each other's, at all columns or at the given ones."""
    return tuple(
        Comparison(metric, Place(panel.name, column, method), Place(panel.name, column, other))
        for panel in panels
        for column in panel.columns
        if columns is None or column in columns
        for other in others
    )


def _above(
    metric: str,
    method: str,
    others: Sequence[str],
    panels: Sequence[Panel],
    columns: Sequence[float] | None = None,
) -> tuple[Comparison, ...]:
    return tuple(
        Comparison(metric, each.larger, each.smaller)
        for each in _below(metric, method, others, panels, columns)
    )


def _from_few_to_many(
    metric: str, method: str, panels: Sequence[Panel], *, falls: bool
) -> Iterator[Comparison]:
    for panel in panels:
        if {2, 64} <= set(panel.columns):
            few, many = (Place(panel.name, K, method) for K in (2, 64))
            yield Comparison(metric, many, few) if falls else Comparison(metric, few, many)


def _growing(
    metric: str, method: str, others: Sequence[str], panels: Sequence[Panel]
) -> Iterator[Comparison]:
    """Claim that the method's advantage over each other is larger in the last column."""
    for panel in panels:
        first, last = panel.columns[0], panel.columns[-1]
        if first == last:
            continue
        for before, after in zip(
            _below(metric, method, others, [panel], (first,)),
            _below(metric, method, others, [panel], (last,)),
            strict=True,
        ):
            yield replace(after, by_more_than=before)
