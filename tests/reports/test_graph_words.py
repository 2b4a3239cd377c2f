"""What page and terminal say of a graph: titles, units, votes, how arrows may be read."""

import functools
import io
from dataclasses import replace
from typing import Any

import pytest
from rich.console import Console
from support.runs.reports import TRUTH, Page, banners, job, page_of, tables, written

from secagg.cli.output.analyses import show_analysis
from secagg.contracts import Method, ResultTable, TableKind
from secagg.jobs.design_matrix import public_facts
from secagg.jobs.job import parse_job
from secagg.models.local_graphs.method import LocalGraphs
from secagg.models.moments.method import PooledMoments
from secagg.models.notears_admm.linear import NotearsAdmm
from secagg.models.notears_admm.mlp import NotearsMlpAdmm
from secagg.models.notears_admm.result import CONVERGED
from secagg.reports.results import Block, blocks
from secagg.reports.svg.graph import judged
from secagg.runs.run import Run

NAMES = ["x", "y", "z", "x2"]
CAUSES = "do not read arrows as causes"


@functools.cache
def run_of(name: str) -> Run:
    """Return a run over four sites; not to be changed."""
    methods: dict[str, dict[str, Any]] = {
        "admm": {"name": "notears_admm", "variables": NAMES},
        "votes": {"name": "local_graphs", "variables": NAMES, "standardise": True, "truth": TRUTH},
        "twice": {
            "name": "moments",
            "analyses": [
                {"kind": "notears", "variables": NAMES, "penalty": 0.1},
                {"kind": "notears", "variables": NAMES, "penalty": 0.2, "standardise": False},
                {"kind": "golem", "variables": NAMES},
            ],
        },
    }
    return written(job("moments", "plain", simulation={}) | {"method": methods[name]}, tables(4))


def blocks_of(name: str) -> list[Block]:
    """Return its analyses."""
    return blocks(run_of(name).facts, run_of(name).result.summary)


def shown(block: Block) -> str:
    """Return what the terminal shows of an analysis."""
    out = io.StringIO()
    show_analysis(Console(file=out, width=400), block, {}, {}, noised=False)
    return out.getvalue()


@pytest.fixture(scope="module", autouse=True)
def runs() -> None:
    """Run all jobs first: no test is as slow as the first one that needs a run."""
    for name in ("admm", "votes", "twice"):
        run_of(name)


def test_agreement_of_sites_is_not_called_an_optimum() -> None:
    text = Page(page_of(run_of("admm"))).text
    (block,) = blocks_of("admm")
    assert block.usable and block.title in text
    assert block.table.converged in text and "Converged" not in text


def test_a_caution_comes_before_the_graph() -> None:
    """First on the terminal, among the banners of the page, and instead of the word of success."""
    run = run_of("admm")
    caution = "not a local optimum: by far"
    notes = [caution, *run.result.summary["notes"]]
    summary = {**run.result.summary, "caution": caution, "notes": notes}
    doubtful = replace(run, result=replace(run.result, summary=summary))
    plain, page = Page(page_of(run)), Page(page_of(doubtful))
    assert CONVERGED in plain.text and CONVERGED not in page.text
    assert len(banners(page_of(doubtful))) == len(banners(page_of(run))) + 1
    assert page.text.count(caution) == 2  # in the banner, and at the graph
    analysis = page_of(doubtful).index('id="analysis-1"')
    assert "Read it with caution" in page_of(doubtful)[:analysis]
    assert analysis < page_of(doubtful).index(caution) < page_of(doubtful).index('class="drawing"')
    (block,) = blocks(run.facts, summary)
    first, rest = shown(block).split("\n", 1)
    assert caution in first and caution not in rest and "edges (" in rest


def test_analyses_by_one_method_are_distinguished() -> None:
    text, blocks = Page(page_of(run_of("twice"))).text, blocks_of("twice")
    settings = [
        "standardise yes, penalty 0.1, threshold 0.3",
        "standardise no, penalty 0.2, threshold ebic",
        "",
    ]
    assert [block.settings for block in blocks] == settings
    for block in blocks:
        assert block.settings in block.title and block.title in text
        assert f"{block.title}: edges (" in shown(block)


def test_weights_have_units_and_arrows_have_a_warning() -> None:
    standardised, own, golem = (block.table for block in blocks_of("twice"))
    assert standardised.weights == golem.weights == "standard deviations"
    assert own.weights == "the columns' own units"
    assert standardised.caption != own.caption
    text = Page(page_of(run_of("twice"))).text
    for table in (standardised, own):
        assert CAUSES in table.caption
        assert f"{table.caption}." in text and f"Weights: {table.weights}" in text


@pytest.mark.parametrize(
    ("method", "linear"),
    [
        (PooledMoments(analyses=({"kind": "pc"},)), False),
        (PooledMoments(analyses=({"kind": "golem", "equal_variances": True},)), True),
        (LocalGraphs(learner="ges"), False),
        (LocalGraphs(learner="notears_mlp"), False),
        (LocalGraphs(), True),
        (NotearsMlpAdmm(), False),
        (NotearsAdmm(variant="paper"), True),
    ],
)
def test_captions_state_the_assumptions_behind_arrows(method: Method, linear: bool) -> None:
    public = public_facts(parse_job(job("moments", "plain")), ("a", "b"))
    (table,) = method.tables(public)
    assert table.kind is TableKind.GRAPH
    assert (CAUSES in table.caption) == linear
    assert ("assumes that no common cause is left out" in table.caption) != linear


def test_votes_stand_beside_edges() -> None:
    summary = run_of("votes").result.summary
    given = {(v["from"], v["to"]): v["sites"] for v in summary["votes"]}
    edges = judged(summary)
    assert edges and {"missing"} < {edge.verdict for edge in edges}
    assert all(edge.votes == (given.get((edge.source, edge.target), 0),) for edge in edges)
    page = page_of(run_of("votes"))
    assert "Edges, against the stated truth. Weights" not in Page(page).text  # a vote has none
    assert "Edges, against the stated truth. Votes: of 4 sites. Struct" in Page(page).text
    rows = [row for row in page.split("<tr>") if "<td>directed</td>" in row]
    for edge, row in zip(edges, rows, strict=True):
        assert f'<td class="n">{edge.votes[0]}</td>' in row


def test_votes_for_an_undirected_edge_are_shown_by_direction() -> None:
    """A line is a vote for both directions, so each may have its own number."""
    edge = {"from": "a", "to": "b", "kind": "undirected", "weight": None}
    votes = [{"from": "a", "to": "b", "sites": 3}, {"from": "b", "to": "a", "sites": 4}]
    assert [e.votes for e in judged({"edges": [edge], "votes": votes})] == [(3, 4)]
    assert [e.votes for e in judged({"edges": [edge]})] == [()]


@pytest.mark.parametrize("kind", ["directed", "undirected"])
def test_a_score_explains_how_undirected_edges_count(kind: str) -> None:
    edge = {"from": "Raf", "to": "Mek", "kind": kind, "weight": None}
    score = {"shd": 0, "tpr": 1.0, "fdr": 0.0}
    block = Block({"edges": [edge], "score": score}, ResultTable("Graph", TableKind.GRAPH), {})
    text = shown(block)
    assert ("(an undirected edge" in text) == (kind == "undirected")
    assert ("Raf -> Mek\n" in text) == (kind == "directed")


def test_weights_are_shown_on_the_terminal() -> None:
    edges = [
        {"from": "Raf", "to": "Mek", "kind": "directed", "weight": 0.4231},
        {"from": "Mek", "to": "Erk", "kind": "directed", "weight": -1.27},
    ]
    lagged = [{"from": "Erk", "to": "Raf", "lag": 1, "weight": 0.31}]
    summary = {"edges": edges, "lagged_edges": lagged}
    block = Block(summary, ResultTable("n", TableKind.GRAPH), {})
    assert "n: edges (2): Raf -> Mek (0.423), Mek -> Erk (−1.27)\n" in shown(block)
    assert "from earlier steps (1): Erk -> Raf (0.310)\n" in shown(block)


def test_scores_under_noise_stand_beside_edges() -> None:
    """Columns of the tables and words on the terminal, only if the result has the scores."""
    run = run_of("admm")
    summary = run.result.summary
    edges = [e | {"times_noise": 3.04 + i} for i, e in enumerate(summary["edges"])]
    lagged = [{"from": "x", "to": "y", "lag": 1, "weight": 0.5, "times_noise": 8.26}]
    scored = summary | {"edges": edges, "lagged_edges": lagged}
    page = page_of(replace(run, result=replace(run.result, summary=scored)))
    _, *graphs = page.split('aria-label="Edges"')[-1].split("<table")
    first, second = (table.partition("</table>")[0] for table in graphs[:2])
    heading = "Times noise: the weight divided by the standard deviation of the noise in it"
    assert not Page(page).wrong and edges
    for table, numbers in ((first, ["3.0", "4.0"][: len(edges)]), (second, ["8.3"])):
        assert heading in table and '<th scope="col" class="n">Times noise</th>' in table
        assert all(f'<td class="n">{number}</td>' in table for number in numbers)
        assert "Stability" not in table
    assert "Times noise" not in page_of(run)
    (block,) = blocks(run.facts, scored)
    assert "3.0 times its noise)" in shown(block)
    assert "x -> y (0.500, 8.3 times its noise)\n" in shown(block)
    assert "noise" not in shown(blocks_of("admm")[0])


def test_the_stability_stands_beside_edges_and_missing_ones_have_none() -> None:
    run = run_of("votes")
    summary = run.result.summary
    edges = [e | {"stability": 0.6, "stability_either_way": 0.95} for e in summary["edges"]]
    stable = summary | {"edges": edges}
    page = page_of(replace(run, result=replace(run.result, summary=stable)))
    rows = [row for row in page.split("<tr>") if "<td>directed</td>" in row]
    missing = [row for row in rows if "<td>missing</td>" in row]
    assert edges and missing and len(rows) == len(edges) + len(missing)
    for row in rows:
        number = "–" if row in missing else "0.60 / 0.95"
        assert f'<td class="n">{number}</td>' in row
    assert "in this direction / in either direction" in Page(page).text
    assert "Stability" not in page_of(run) and not Page(page).wrong
    (block,) = blocks(run.facts, stable)
    assert "(stability 0.60, in either direction 0.95)" in shown(block)
