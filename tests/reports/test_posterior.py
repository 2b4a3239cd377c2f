"""The page of a sparse Bayesian model: its prior beside its PIPs, its pictures true to its numbers.

Numbers are those of `Result.summary`, which `tests/models/sparse_bayes/test_result.py` checks.
"""

import io
import re
from typing import Any, ClassVar

import pytest
from rich.console import Console
from support.runs.reports import SPARSE, Page, copied, job, page_of, small_run, tables, written

from secagg.cli.output.analyses import show_analysis
from secagg.cli.output.posterior import sampler_cells, show_posterior
from secagg.contracts import Result
from secagg.evidence.numbers import fixed
from secagg.models.common.posterior_summary import UNKNOWN_CONVERGENCE
from secagg.reports.names import shown_columns
from secagg.reports.page import render
from secagg.reports.posterior import (
    MAX_LISTED,
    WITHHELD,
    mean_and_interval,
    of_graph,
    of_regression,
    pairs_of,
    prior_in_words,
    sampler_in_words,
    unit_analysed,
    widths_in_words,
)
from secagg.reports.results import blocks
from secagg.reports.svg.heat_map import bar_picture, heat_picture

METHODS = {"sparse_regression": "additive", "sparse_markov": "plain", "sparse_directed": "plain"}


def run_of(method: str) -> Any:
    return small_run(method, METHODS[method])


def summary_of(method: str) -> dict[str, Any]:
    return copied(run_of(method))[1].summary


def converged_page(method: str) -> str:
    facts, result = copied(run_of(method))
    return render(facts, Result(result.summary | {"converged": True}))


def shown_of(summary: dict[str, Any]) -> dict[str, Any]:
    method = next(name for name in METHODS if name.replace("_", "-") in summary["method"])
    (block,) = blocks(run_of(method).facts, summary)
    columns = run_of("sparse_regression").facts["job"]["columns"]
    return of_regression(block, columns) if "coefficients" in summary else of_graph(block)


@pytest.mark.parametrize("method", METHODS)
class TestPage:
    def test_the_page_states_prior_draws_and_releases(self, method: str) -> None:
        text, summary = Page(converged_page(method)).text, summary_of(method)
        for words in (prior_in_words, widths_in_words, sampler_in_words, unit_analysed):
            assert words(summary) in text
        assert run_of(method).facts["method"]["disclosure"]["text"] in text
        assert "Monte Carlo error" in text

    def test_an_unconverged_result_is_reported_as_unusable(self, method: str) -> None:
        facts, result = copied(run_of(method))
        for converged in (True, False):
            page = render(facts, Result(result.summary | {"converged": converged}))
            assert ("Do not use these estimates" in page) is not converged


class TestRegression:
    def test_every_number_is_on_the_page(self) -> None:
        text = Page(page_of(run_of("sparse_regression"))).text
        for row in summary_of("sparse_regression")["coefficients"]:
            assert f"{row['term']} " in text
            assert f"{fixed(row['pip'], 3)} ± {fixed(row['pip_mcse'], 3)}" in text
            assert f"{fixed(row['r_hat'], 3)} {int(row['ess_bulk']):,} / " in text

    def test_own_units_are_shown_only_if_available(self) -> None:
        summary = summary_of("sparse_regression")
        assert shown_of(summary)["own"]
        for row in summary["coefficients"]:
            del row["own_units"]
        assert not shown_of(summary)["own"]

    def test_likely_terms_are_filled_and_others_hollow(self) -> None:
        summary = summary_of("sparse_regression")
        for row, pip in zip(summary["coefficients"], [0.5, 0.49] * 5, strict=False):
            row["pip"] = pip
        drawn = [line["picture"] for line in shown_of(summary)["forest"]["terms"]]
        assert ["hollow" in picture for picture in drawn] == [False, True] * (len(drawn) // 2) + [
            False
        ] * (len(drawn) % 2)

    def test_all_terms_are_on_one_scale(self) -> None:
        """The widest of all intervals reaches farthest; the same width is drawn as wide."""
        summary = summary_of("sparse_regression")
        for row in summary["coefficients"]:
            row |= {"mean": 0.1, "low": -0.1, "high": 0.3}
        summary["coefficients"][0] |= {"mean": 0.0, "low": -1.0, "high": 1.0}
        terms = shown_of(summary)["forest"]["terms"]
        first, second = (str(line["picture"]) for line in terms[:2])
        ends = [re.findall(r'x1="([\d.]+)%" x2="([\d.]+)%"', one)[0] for one in (first, second)]
        (low, high), (narrow_low, narrow_high) = (map(float, pair) for pair in ends)
        # written to 0.01 per cent
        assert narrow_high - narrow_low == pytest.approx(0.2 * (high - low), abs=0.02)

    def test_own_units_of_logarithms_are_labelled(self) -> None:
        facts, _ = copied(run_of("sparse_regression"))
        (block,) = blocks(facts, summary_of("sparse_regression"))
        columns = run_of("sparse_regression").facts["job"]["columns"]
        assert "log(" not in of_regression(block, columns)["own_unit"]
        of_x = columns | {"x": columns["x"] | {"transform": "log"}}
        assert "one unit of log(x)" in of_regression(block, of_x)["own_unit"]
        facts["job"]["columns"]["y"]["transform"] = "log"
        (block,) = blocks(facts, summary_of("sparse_regression"))
        of_y = shown_columns(facts["job"]["columns"])
        assert of_regression(block, of_y)["own_unit"].startswith("of log(y) for one unit")


class TestDigits:
    ROW: ClassVar = {
        "mean": 0.12345, "low": -1.2345, "high": 1.4567, "sd": 0.61,
        "mcse_mean": 0.002, "mcse_low": 0.17, "mcse_high": 0.03,
    }  # fmt: skip

    def test_digits_are_limited_by_deviation_and_error(self) -> None:
        """0.61 asks two decimals; an end with an error of 0.17 has one."""
        assert mean_and_interval(self.ROW) == ("0.12", "−1.2 to 1.46")

    def test_errors_are_converted_to_own_units_with_the_interval(self) -> None:
        own = {key: self.ROW[key] / 100 for key in ("mean", "low", "high", "sd")}
        row = {**self.ROW, "own_units": own}
        assert mean_and_interval(row, in_own_units=True) == ("0.0012", "−0.012 to 0.0146")

    def test_without_a_deviation_the_error_sets_the_digits(self) -> None:
        row = {**self.ROW, "mean": None, "sd": None, "median": 0.1239, "mcse_median": 0.002}
        assert mean_and_interval(row, centre="median") == ("0.124", "−1.2 to 1.46")

    def test_the_smallest_effective_size_and_largest_r_hat_are_shown(self) -> None:
        rows = [
            {"ess_bulk": 1250.9, "ess_tail": None, "r_hat": 1.2},
            {"ess_bulk": 2000.0, "ess_tail": None, "r_hat": 1.0},
        ]
        assert sampler_cells(rows) == ("1.200", "1,250 / –")


class TestGraph:
    def test_edges_come_first_and_omitted_pairs_are_counted(self) -> None:
        summary = summary_of("sparse_markov")
        summary["pairs"][-1]["edge"] = True  # whatever its PIP
        shown = shown_of(summary)
        flags = [pair.edge for pair, _ in shown["pairs"]]
        assert flags == sorted(flags, reverse=True) and flags.count(True) == shown["edges"]
        assert shown["omitted"] == 0
        summary["pairs"] *= MAX_LISTED
        left = len(summary["pairs"]) - MAX_LISTED
        assert shown_of(summary)["omitted"] == left
        assert len(shown_of(summary)["pairs"]) == MAX_LISTED

    @pytest.mark.parametrize("method", ["sparse_markov", "sparse_directed"])
    def test_an_undecided_pair_is_marked(self, method: str) -> None:
        facts, result = copied(run_of(method))
        summary = result.summary | {"converged": True}
        rows = summary["pairs" if "pairs" in summary else "arrows"]
        for row in rows:
            row["undecided"] = False  # chains are short
        for undecided in (False, True):
            rows[0].update(edge=False, undecided=undecided)
            assert (">undecided<" in render(facts, Result(summary))) == undecided
            out = Console(file=io.StringIO(), width=200)
            (block,) = blocks(facts, summary)
            show_posterior(out, block)
            printed = out.file.getvalue()  # type: ignore[attr-defined]
            assert (" undecided " in printed) == undecided

    def test_heat_map_cells_agree_with_the_sides(self) -> None:
        summary = summary_of("sparse_markov")
        heat = str(shown_of(summary)["heat"])
        cells = dict(re.findall(r"<title>(\w+, \w+): ([\d.]+)</title>", heat))
        sides = {
            f"{side['outcome']}, {side['predictor']}": f"{side['pip']:.3f}"
            for pair in summary["pairs"]
            for side in pair["sides"]
        }
        assert cells == sides and len(sides) == 4 * 3

    def test_edges_are_drawn_by_their_sign_without_a_head(self) -> None:
        summary = summary_of("sparse_markov")
        for pair, partial in zip(summary["pairs"], (0.5, -0.5, None), strict=False):
            pair |= {"edge": True, "partial_correlation": partial}
        for pair in summary["pairs"][3:]:
            pair["edge"] = False
        shown = shown_of(summary)
        drawn = re.findall(r'class="edge (\w+) undirected"', str(shown["drawing"]))
        assert sorted(drawn) == ["found", "negative", "positive"]
        assert "head" not in str(shown["drawing"])
        assert [(kind, number) for kind, number, _ in shown["legend"]] == [
            ("positive", 1), ("negative", 1), ("found", 1)
        ]  # fmt: skip

    def test_a_graph_without_edges_is_drawn(self) -> None:
        summary = summary_of("sparse_markov")
        for pair in summary["pairs"]:
            pair["edge"] = False
        shown = shown_of(summary)
        assert shown["edges"] == 0 and shown["legend"] == []
        assert "no edges" in shown["drawing"]

    def test_hostile_names_are_escaped(self) -> None:
        data = {site: table.rename(columns={"x": "<b>x"}) for site, table in tables(3).items()}
        raw = job("sparse_markov", "plain", simulation={})
        raw["columns"]["<b>x"] = raw["columns"].pop("x")
        raw["method"] |= {"variables": ["<b>x", "y", "z"], "rounds": 8, "chains": 1}
        run = written(raw, data)
        page = page_of(run)
        assert "<b>x" not in page and "&lt;b&gt;x" in page
        # with one chain, whether it has converged is unknown: a caution, and no R-hat
        assert run.result.summary["converged"] is None
        assert UNKNOWN_CONVERGENCE in page and "Do not use these estimates" not in page
        (block,) = blocks(run.facts, run.result.summary)
        out = io.StringIO()
        show_analysis(Console(file=out, width=400), block, {}, {}, noised=False)
        assert UNKNOWN_CONVERGENCE in out.getvalue()


class TestDirectedGraph:
    def test_heat_map_rows_are_effects(self) -> None:
        summary = summary_of("sparse_directed") | {"converged": True}
        heat = str(shown_of(summary)["heat"])
        cells = dict(re.findall(r"<title>(\w+, \w+): ([\d.]+)</title>", heat))
        arrows = {f"{row['to']}, {row['from']}": f"{row['pip']:.3f}" for row in summary["arrows"]}
        assert cells == arrows and len(arrows) == 3 * 2

    def test_a_cycle_of_two_has_arrow_heads_both_ways(self) -> None:
        summary = summary_of("sparse_directed") | {"converged": True}
        for row in summary["arrows"]:
            row["edge"] = {row["from"], row["to"]} == {"x", "y"}
            row["mean"] = 0.5 if row["from"] == "x" else -0.5
        shown = shown_of(summary)
        drawn = re.findall(r'class="edge (\w+)"', str(shown["drawing"]))
        assert sorted(drawn) == ["negative", "positive"]
        assert str(shown["drawing"]).count('class="head"') == 2
        assert {(p.source, p.target) for p, _ in shown["pairs"][:2]} == {("x", "y"), ("y", "x")}

    def test_the_page_explains_arrows_and_errors(self) -> None:
        text = Page(converged_page("sparse_directed")).text
        assert "Laplace errors of scale b_kj ~ IG(1, 1)" in text
        assert "assumes that no common cause is left out" in text
        summary = summary_of("sparse_directed") | {"converged": True}
        first = summary["arrows"][0]
        assert f"{first['from']} → {first['to']} {first['pip']:.3f} ±" in text

    def test_pips_are_withheld_if_chains_disagree(self) -> None:
        facts, result = copied(run_of("sparse_directed"))
        summary = result.summary | {"converged": False}
        shown = shown_of(summary)
        assert shown["withheld"] and not shown["heat"] and not shown["drawing"]
        text = Page(render(facts, Result(summary))).text
        assert WITHHELD in text
        for row in summary["arrows"]:
            assert f"{row['from']} → {row['to']}" not in text
        out = Console(file=io.StringIO(), width=200)
        (block,) = blocks(facts, summary)
        show_posterior(out, block)
        assert "PIP ±" not in out.file.getvalue()  # type: ignore[attr-defined]


@pytest.fixture(scope="module")
def found() -> Any:
    """Return a run of the Gaussian surrogate."""
    raw = job("sparse_directed", "plain", simulation={})
    raw["method"] |= {"errors": "gaussian", "rounds": 12}
    return written(raw, tables(3))


class TestGaussianSurrogate:
    def test_pairs_are_shown_once_without_directions(self, found: Any) -> None:
        facts, result = copied(found)
        summary = result.summary | {"converged": True}
        page = Page(render(facts, Result(summary)))
        assert "Gaussian surrogate" in page.text and "partial correlations of the" in page.text
        assert "→" not in page.text and "Laplace" not in page.text
        first = summary["pairs"][0]
        assert f"{' – '.join(first['between'])} {first['pip']:.3f} ±" in page.text
        (block,) = blocks(facts, summary)
        cells = re.findall(r"<title>(\w+), (\w+): ([\d.]+)</title>", str(of_graph(block)["heat"]))
        pips = {frozenset(row["between"]): f"{row['pip']:.3f}" for row in summary["pairs"]}
        assert len(cells) == 6 and all(pips[frozenset(ends)] == pip for *ends, pip in cells)
        out = Console(file=io.StringIO(), width=200)
        show_posterior(out, block)
        printed = out.file.getvalue()  # type: ignore[attr-defined]
        assert "->" not in printed and "means are partial correlations" in printed
        assert " - ".join(first["between"]) in printed

    def test_pips_are_withheld_if_chains_disagree(self, found: Any) -> None:
        facts, result = copied(found)
        text = Page(render(facts, Result(result.summary | {"converged": False}))).text
        assert WITHHELD in text


class TestPictures:
    def test_darker_cells_have_higher_probabilities(self) -> None:
        drawn = heat_picture(["a", "b"], {("a", "b"): 0.25, ("b", "a"): 1.0}, "title")
        assert re.findall(r'fill-opacity="([\d.]+)"', drawn) == ["0.250", "1.000"]
        assert re.findall(r'class="(number[ on]*)"[^>]*>([\d.]+)<', drawn) == [
            ("number", "0.25"), ("number on", "1.00")
        ]  # fmt: skip

    def test_large_heat_maps_omit_numbers_and_shorten_names(self) -> None:
        names = [f"a variable of long name {i}" for i in range(20)]
        drawn = heat_picture(names, {(names[0], names[1]): 0.5}, "title")
        assert 'class="number' not in drawn
        assert "a variable of l…" in drawn and f"<title>{names[3]}</title>" in drawn

    def test_a_bar_is_as_long_as_its_probability(self) -> None:
        assert 'width="62.5%"' in bar_picture(0.625)


def test_texts_name_the_settings() -> None:
    summary = summary_of("sparse_regression")
    assert "η ~ IG(1, 1), one for all" in prior_in_words(summary)
    assert "τ_j ~ C⁺(0, 0.05)" in prior_in_words(summary)
    del summary["prior"]["spike_variance"]  # as with prior = "paper"
    summary["prior"] |= {"own_eta": True, "slab_scale": 0.25, "spike_ratio": 0.001}
    assert "η_j ~ IG(1, 0.25), one for each" in prior_in_words(summary)
    assert "N(0, 0.001 η_j) in the spike" in prior_in_words(summary)
    rounds, chains = SPARSE["rounds"], SPARSE["chains"]
    assert f"{chains} chains of {rounds} rounds" in sampler_in_words(summary)
    assert f"{chains * rounds // 2} draws" in sampler_in_words(summary)
    summary["scale"] = "site"
    assert unit_analysed(summary).endswith("each site's own")


def test_pairs_are_in_the_order_of_the_result() -> None:
    pips = [pair.pip for pair in pairs_of(summary_of("sparse_markov"))]
    assert pips == sorted(pips, reverse=True) and len(pips) == 6
