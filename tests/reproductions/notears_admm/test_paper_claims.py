"""What Ng and Zhang state of their figures, typed by hand from section 6, against the module."""

import pytest

from reproductions.harness.figures import Comparison, Panel, Place
from reproductions.notears_admm.paper_claims import remarks_of, stated_of, statements_of

SITES = (2, 4, 8, 16, 32, 64)
PANELS = {
    1: [Panel("K = 10", "variables d", (10, 20, 50, 100))],
    2: [Panel(f"d = {d}", "sites K", SITES) for d in (10, 20, 50)],
    3: [Panel(name, "sites K", SITES) for name in ("raw values", "standardised", "logarithms")],
    4: [Panel("d = 20", "sites K", (2, 4, 8, 16))],
}

# Figure, words that only this statement has, number of comparisons, the metric and one comparison:
# (panel, column, method) of the smaller mean, then of the larger.
STATEMENTS = [
    # 6.1: "NOTEARS-ADMM performs the best across different number of variables,
    (1, "performs best", 12, "shd", ("K = 10", 50, "admm-paper"), ("K = 10", 50, "average")),
    # and the difference of SHD grows as the number of variables increases." (See below.)
    (1, "difference of SHD grows", 3, "shd",
     ("K = 10", 100, "admm-paper"), ("K = 10", 100, "voting")),
    # "It also has relatively high TPRs [...], compared to the other baselines"
    (1, "Its TPR is above", 12, "tpr", ("K = 10", 10, "best"), ("K = 10", 10, "admm-paper")),
    # "NOTEARS-Avg has lower SHDs than NOTEARS-Voting"
    (1, "NOTEARS-Avg has lower", 4, "shd", ("K = 10", 20, "average"), ("K = 10", 20, "voting")),
    # "NOTEARS-Best has high SHDs owing to high FDRs."
    (1, "high FDRs", 12, "fdr", ("K = 10", 20, "voting"), ("K = 10", 20, "best")),
    # "[PC-Voting and FGES-Voting] have worse SHDs and TPRs than those of NOTEARS-ADMM"
    (1, "worse SHDs", 8, "shd", ("K = 10", 100, "admm-paper"), ("K = 10", 100, "ges-voting")),
    (1, "worse TPRs", 8, "tpr", ("K = 10", 10, "pc-voting"), ("K = 10", 10, "admm-paper")),
    # 6.2: "As the number of clients K increases, the TPRs of NOTEARS-Voting, NOTEARS-Avg, and
    # NOTEARS-Best quickly deteriorate, leading to high SHDs."
    (2, "deteriorate", 9, "tpr", ("d = 20", 64, "best"), ("d = 20", 2, "best")),
    (2, "leading to high SHDs", 9, "shd", ("d = 20", 2, "voting"), ("d = 20", 64, "voting")),
    # "although the TPRs of NOTEARS-ADMM also decrease with a larger K,
    (2, "decreases, too", 3, "tpr", ("d = 50", 64, "admm-paper"), ("d = 50", 2, "admm-paper")),
    # they are still relatively high as compared to those of the other baselines."
    (2, "still high", 9, "tpr", ("d = 10", 64, "average"), ("d = 10", 64, "admm-paper")),
    # "with 50 variables, NOTEARS-Voting, NOTEARS-Avg, and NOTEARS-Best have better SHDs than
    # NOTEARS-ADMM when there are only 2 or 4 clients"
    (2, "At d = 50", 6, "shd", ("d = 50", 4, "voting"), ("d = 50", 4, "admm-paper")),
    # 6.3: "the performance of NOTEARS-Voting, NOTEARS-Avg, and NOTEARS-Best degrades much as the
    # number of clients increases,
    (3, "degrade with more sites (SHD at K = 64 above K = 2; raw", 3, "shd",
     ("raw values", 2, "average"), ("raw values", 64, "average")),
    (3, "above K = 2; standardised", 3, "shd",
     ("standardised", 2, "voting"), ("standardised", 64, "voting")),
    (3, "above K = 2; logarithms", 3, "shd", ("logarithms", 2, "best"), ("logarithms", 64, "best")),
    # whereas NOTEARS-ADMM has an improved [...] performance across different number of clients."
    (3, "Voting, Avg and Best; raw", 18, "shd",
     ("raw values", 8, "admm-paper"), ("raw values", 8, "voting")),
    (3, "Voting, Avg and Best; standardised", 18, "shd",
     ("standardised", 2, "admm-paper"), ("standardised", 2, "best")),
    (3, "Voting, Avg and Best; logarithms", 18, "shd",
     ("logarithms", 64, "admm-paper"), ("logarithms", 64, "average")),
    # "NOTEARS-ADMM has lower SHDs than those of NOTEARS-AllData"
    (3, "NOTEARS-AllData (raw", 6, "shd",
     ("raw values", 4, "admm-paper"), ("raw values", 4, "notears-alldata")),
    (3, "NOTEARS-AllData (standardised", 6, "shd",
     ("standardised", 64, "admm-paper"), ("standardised", 64, "notears-alldata")),
    (3, "NOTEARS-AllData (logarithms", 6, "shd",
     ("logarithms", 2, "admm-paper"), ("logarithms", 2, "notears-alldata")),
    # 6.4: "NOTEARS-MLP-ADMM outperforms the other baselines
    (4, "outperforms", 12, "shd", ("d = 20", 16, "mlp-admm"), ("d = 20", 16, "mlp-best")),
]  # fmt: skip

# The same of what the paper gives no number for: (panel, column, method), less the second.
REMARKS = [
    # 6.1: "relatively high TPRs which are close to those of NOTEARS-AllData"
    (1, "close to those of NOTEARS-AllData", 4, "tpr",
     ("K = 10", 10, "admm-paper"), ("K = 10", 10, "notears-alldata")),
    # ours
    (1, "one secure sum", 4, "shd",
     ("K = 10", 50, "notears-alldata"), ("K = 10", 50, "admm-paper")),
    (1, "`fast`", 4, "shd", ("K = 10", 100, "admm-fast"), ("K = 10", 100, "admm-paper")),
    (2, "`fast`", 18, "shd", ("d = 50", 64, "admm-fast"), ("d = 50", 64, "admm-paper")),
    # 6.3: "[a] stable performance across different number of clients"
    (3, "stable performance", 3, "shd",
     ("standardised", 64, "admm-paper"), ("standardised", 2, "admm-paper")),
    # 6.4: "has a much stable performance across different number of clients,
    (4, "much stable performance", 1, "shd", ("d = 20", 16, "mlp-admm"), ("d = 20", 2, "mlp-admm")),
    # which is close to that of NOTEARS-MLP-AllData"
    (4, "close to that of NOTEARS-MLP-AllData", 4, "shd",
     ("d = 20", 8, "mlp-admm"), ("d = 20", 8, "mlp-alldata")),
]  # fmt: skip


@pytest.mark.parametrize(("number", "words", "many", "metric", "smaller", "larger"), STATEMENTS)
def test_each_statement_is_written_in_words(
    number: int,
    words: str,
    many: int,
    metric: str,
    smaller: tuple[str, int, str],
    larger: tuple[str, int, str],
) -> None:
    [statement] = [s for s in statements_of(number, PANELS[number]) if words in s.words]
    assert len(set(statement.comparisons)) == many == len(statement.comparisons)
    ends = Place(*smaller), Place(*larger)
    [found] = [c for c in statement.comparisons if (c.smaller, c.larger) == ends]
    assert found.metric == metric and (found.by_more_than is None) == ("grows" not in words)


def test_tables_contain_every_statement_and_remark() -> None:
    for number, panels in PANELS.items():
        listed = [words for each, words, *_ in STATEMENTS if each == number]
        assert len(statements_of(number, panels)) == len(listed)
        listed = [words for each, words, *_ in REMARKS if each == number]
        assert len(remarks_of(number, panels)) == len(listed)


def test_the_difference_of_shd_grows_from_the_smallest_d_to_the_largest() -> None:
    [grows] = [s for s in statements_of(1, PANELS[1]) if "grows" in s.words]
    for comparison, other in zip(grows.comparisons, ("voting", "average", "best"), strict=True):
        before, after = (
            Comparison("shd", Place("K = 10", d, "admm-paper"), Place("K = 10", d, other))
            for d in (10, 100)
        )
        assert comparison == Comparison("shd", after.smaller, after.larger, by_more_than=before)


@pytest.mark.parametrize(("number", "words", "many", "metric", "place", "other"), REMARKS)
def test_remarks_name_the_compared_differences(
    number: int,
    words: str,
    many: int,
    metric: str,
    place: tuple[str, int, str],
    other: tuple[str, int, str],
) -> None:
    [remark] = [r for r in remarks_of(number, PANELS[number]) if words in r.words]
    assert remark.metric == metric and len(set(remark.differences)) == many
    assert (Place(*place), Place(*other)) in remark.differences


def test_the_four_numbers_in_the_papers_text_are_compared() -> None:
    """6.2: "with d = 20 variables and K = 64 clients, NOTEARS-ADMM achieves a TPR of 0.78, while
    NOTEARS-Voting, NOTEARS-Avg, and NOTEARS-Best have TPRs of 0.05, 0.25, and 0.33"; of 30 runs.
    """
    found = {
        (s.metric, s.place.panel, s.place.column, s.place.method, s.runs, s.decimals): s.value
        for s in stated_of(2, PANELS[2])
    }
    assert found == {
        ("tpr", "d = 20", 64, "admm-paper", 30, 2): 0.78,
        ("tpr", "d = 20", 64, "voting", 30, 2): 0.05,
        ("tpr", "d = 20", 64, "average", 30, 2): 0.25,
        ("tpr", "d = 20", 64, "best", 30, 2): 0.33,
    }
    assert not any(stated_of(number, PANELS[number]) for number in (1, 3, 4))


def test_a_quick_figure_judges_only_its_own_columns() -> None:
    one_column = [Panel("d = 10", "sites K", (8,))]
    [remark] = remarks_of(4, one_column)
    assert "close" in remark.words and len(remark.differences) == 1
    assert not any("grows" in s.words for s in statements_of(1, one_column))
