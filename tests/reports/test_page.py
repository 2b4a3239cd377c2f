"""The report says what the facts say, for every method and protocol, whatever names it is given."""

import base64
import hashlib
import itertools
import json
import re
from collections.abc import Callable
from functools import partial
from typing import Any

import pytest
from support.runs.reports import (
    HOSTILE,
    HOSTILE_COLUMN,
    HOSTILE_LEVEL,
    METHODS,
    PROTOCOLS,
    Page,
    banners,
    copied,
    hostile_run,
    job,
    noised_run,
    page_of,
    small_run,
    tables,
    written,
)

from secagg.contracts import Result
from secagg.evidence.numbers import counted, size
from secagg.evidence.run_files import finite
from secagg.reports.page import render
from secagg.reports.summary import MANY_CLIPPED
from secagg.runs.run import Run

EVERY = [(method, protocol) for method in METHODS for protocol in PROTOCOLS]
PAGES: dict[str, Callable[[], Run]] = {
    **{" ".join(names): partial(small_run, *names) for names in EVERY},
    **{f"sparse_{kind}": partial(small_run, f"sparse_{kind}", protocol) for kind, protocol in (
        ("regression", "additive"), ("markov", "plain"), ("directed", "plain"))},
    **{name: partial(noised_run, name) for name in ("sum", "site", "round")},
}  # fmt: skip


def changed(method: str = "logistic", protocol: str = "additive") -> tuple[dict[str, Any], Result]:
    """Return facts and result of a run that a test may change."""
    return copied(small_run(method, protocol))


def numbers(text: str) -> list[float]:
    """Return the numbers written in a text."""
    found = re.findall(r"−?\d[\d,]*\.?\d*", text)
    return [float(n.replace("−", "-").replace(",", "")) for n in found]


def numbers_beside(page: str, name: str) -> list[float]:
    """Return the numbers in the first table row whose heading begins with a name."""
    row = re.search(rf'<tr><th scope="row">{re.escape(name)}(?=[< ]).*?</th>(.*?)</tr>', page, re.S)
    assert row is not None, name
    return numbers(Page(row.group(1)).text)


def closest(text: str, value: float) -> float:
    """Return how far the nearest number written in a text is from a value."""
    return min(abs(number - value) for number in numbers(text))


@pytest.mark.parametrize("finished", PAGES.values(), ids=PAGES)
class TestEveryPage:
    def test_every_page_is_well_formed_and_accessible(self, finished: Callable[[], Run]) -> None:
        source = page_of(finished())
        page = Page(source)
        assert page.wrong == [] and page.named("html") == [{"lang": "en"}]
        for landmark in ("h1", "header", "nav", "main", "footer"):
            assert len(page.named(landmark)) == 1
        assert all(th.get("scope") for th in page.named("th"))
        for table in re.findall(r"<table.*?</table>", source, re.S):
            assert "<caption>" in table or table.startswith('<table class="sign">')
        for svg in re.findall(r"<svg class=.*?</svg>", source, re.S):
            assert 'aria-hidden="true"' in svg or ('role="img"' in svg and "<title>" in svg)
        levels = [int(level) for level in re.findall(r"<h([1-6])", source)]
        assert all(b <= a + 1 for a, b in itertools.pairwise(levels))

    def test_a_page_loads_no_external_resources(self, finished: Callable[[], Run]) -> None:
        source = page_of(finished())
        page = Page(source)
        assert "http:" not in source and "https:" not in source and "url(" not in source
        links = [tag["href"] for tag in page.named("a")]
        ids = {attributes["id"] for _, attributes in page.tags if "id" in attributes}
        assert links and all(str(link)[1:] in ids and str(link)[0] == "#" for link in links)
        for tag, attributes in page.tags:
            assert tag not in ("script", "link", "iframe", "img", "object", "form", "base")
            assert not {"src", "style", "srcset", "action"} & set(attributes)
            assert not any(name.startswith("on") for name in attributes)
        style = re.search(r"<style>(.*?)</style>", source, re.S)
        assert style is not None
        digest = base64.b64encode(hashlib.sha256(style.group(1).encode()).digest()).decode()
        policies = [tag["content"] for tag in page.named("meta") if "http-equiv" in tag]
        assert policies == [
            f"default-src 'none'; style-src 'sha256-{digest}'; base-uri 'none'; form-action 'none'"
        ]

    def test_a_page_depends_only_on_its_folder(self, finished: Callable[[], Run]) -> None:
        facts, result = copied(finished())
        first = render(facts, result)
        parts = [json.loads(json.dumps(finite(part))) for part in (facts, result.summary)]
        assert render(parts[0], Result(parts[1])) == first == render(facts, result)


@pytest.mark.parametrize(("method", "protocol"), EVERY)
class TestEveryRun:
    def test_a_page_states_every_fact(self, method: str, protocol: str) -> None:
        facts, result = changed(method, protocol)
        page = Page(render(facts, result))
        for row in facts["traffic"]:
            counts = [row[k] for k in ("sent", "sent_bytes", "received", "received_bytes")]
            line = [row["role"], row["parties"], facts["protocol"]["sees"][row["role"]]]
            assert " ".join(map(str, [*line, *(f"{n:,}" for n in counts)])) in page.text
        for row in facts["phases"]:
            direction = f"{row['phase']} {row['kind']} {row['role']}"
            assert f"{direction} {row['messages']:,} {row['bytes']:,} " in page.text
            drawn = f"{row['phase']}: {counted(row['messages'], 'message')}, {size(row['bytes'])}"
            assert drawn in page.text
        assert page.text.index("4 sites each holds") < page.text.index("coordinator sends")
        first, *later = facts["releases"]  # the count, then rounds of one stage, which are alike
        assert f"{first['round']} {first['stage']} 4 3 opened {first['seq'] + 1} " in page.text
        ends = [f"{later[0]['round']}", f"{later[0]['seq'] + 1}"]
        if len(later) > 1:
            ends = [f"{ends[0]} to {later[-1]['round']}", f"{ends[1]} to {later[-1]['seq'] + 1}"]
        how = f"{len(later)} sums opened" if len(later) > 1 else "opened"
        assert f"{ends[0]} {later[0]['stage']} 4 3 {how} {ends[1]} " in page.text
        for site in facts["cohort"]:
            assert f"{site} {len(facts['releases'])} of {len(facts['releases'])} 3" in page.text
        for party in facts["roster"]:
            assert f"{party['name']} {party['role']} {party['verify_key'][:16]}" in page.text
        for name, version in facts["versions"].items():
            assert f"{name} {version}" in page.text
        text = facts["method"]["disclosure"]["text"]
        for sentence in (*facts["protocol"]["unprotected"], text):
            assert sentence in page.text
        assert facts["log"]["head"] in page.text
        assert "secagg verify DIR --head HEAD" in page.text
        assert f"{result.summary['records']:,} complete" in page.text
        for key, value in facts["method"]["settings"].items():
            if isinstance(value, str):
                assert f"method.{key} {value}" in page.text

    def test_a_page_states_the_proof_of_every_field(self, method: str, protocol: str) -> None:
        facts, result = changed(method, protocol)
        text = Page(render(facts, result)).text
        assert "THE CHECK FAILS" not in text
        for stage in facts["plan"]:
            for field in stage["fields"]:
                spare = stage["ring_bits"] - field["sum_bits"]
                kind = {"psd": "sums of squares and products"}.get(field["kind"], field["kind"])
                start = f"{field['name']} {kind} {field['values']:,} {field['bound']:,.0f}"
                assert re.search(rf"{re.escape(start)} .*? {field['sum_bits']} {spare} 0 ", text)


class TestResult:
    def test_logistic_results_are_on_the_page(self) -> None:
        facts, result = changed()
        page = render(facts, result)
        for term in result.summary["terms"]:
            error, odds = term["std_error"], term["odds_ratio"]
            shown = numbers_beside(page, term["term"])
            exact, steps = [odds, term["odds_low"], term["odds_high"]], [odds * error / 20] * 3
            if (scale := term["per_sd"]) and term["term"] in facts["job"]["columns"]:
                exact += [scale["odds_ratio"], scale["odds_low"], scale["odds_high"]]
                steps += [scale["odds_ratio"] * error * scale["sd"] / 20] * 3
            # half a step of the error's second digit is at most 1/20 of the error
            exact += [term["estimate"], error, term["statistic"]]
            steps += [error / 20] * 2 + [0.005]
            assert len(shown) == len(exact) + 1
            for number, value, step in zip(shown, exact, steps, strict=False):
                assert abs(number - value) <= step * 1.001
            assert abs(shown[-1] - term["p_value"]) <= max(0.05 * term["p_value"], 1e-4)
        text = Page(page).text
        assert f"log-likelihood −{-result.summary['log_likelihood']:.1f}" in text
        assert f"BIC {result.summary['bic']:.1f}" in text

    def test_site_alone_results_are_marked_as_simulated(self) -> None:
        facts, result = changed()
        text = Page(render(facts, result)).text
        for own in result.summary["simulation"]["site_alone"].values():
            assert f"n = {own['n']}" in text
            for term in own["terms"][1:]:
                assert (
                    closest(text, term["odds_ratio"]) <= term["odds_ratio"] * term["std_error"] / 5
                )
        assert "only a simulation can show" in text
        banner = "Simulation: results of single sites are shown"
        assert (False, banner) in banners(render(facts, result))
        del result.summary["simulation"]
        without = Page(render(facts, result)).text
        assert "imulation" not in without.replace("simulation.site_alone", "")

    def test_within_site_results_show_no_means(self) -> None:
        method = {"name": "moments", "centre": "site", "analyses": [{"kind": "describe"}]}
        finished = written(
            job("moments", "additive", simulation={}) | {"method": method}, tables(4)
        )
        page = Page(page_of(finished))
        assert page.wrong == []
        assert "Column Std. deviation Correlation with column" in page.text

    def test_every_analysis_of_moments_is_shown(self) -> None:
        facts, result = changed("moments")
        turned = result.summary["simulation"]["site_alone"]["site 0"]["analyses"][4]["edges"][0]
        turned["from"], turned["to"] = turned["to"], turned["from"]
        page = render(facts, result)
        text = Page(page).text
        describe, ols, ridge, lasso, notears, golem = result.summary["analyses"]
        for column in describe["columns"]:
            assert closest(text, column["mean"]) <= column["sd"] / 20
        for fit, place in ((ols, 2), (ridge, 3)):
            own = page[page.index(f'id="analysis-{place}"') :]
            for term in fit["terms"]:
                step = term["std_error"] / 20 * 1.001
                exact = [term[key] for key in ("estimate", "std_error", "ci_low", "ci_high")]
                for shown, value in zip(numbers_beside(own, term["term"]), exact, strict=False):
                    assert abs(shown - value) <= step
        for term in lasso["terms"]:
            assert closest(text, term["estimate"]) <= abs(term["estimate"]) / 1000
        for edge in (*notears["edges"], *golem["edges"]):
            assert f"{edge['from']} {edge['to']} {edge['kind']} " in text
            assert closest(text, edge["weight"]) <= abs(edge["weight"]) / 100
        assert f"reversed: {notears['score']['reversed']}" in text
        for site, own in result.summary["simulation"]["site_alone"].items():
            found = own["analyses"][4]
            pairs = [{(e["from"], e["to"]) for e in graph["edges"]} for graph in (found, notears)]
            score = f"{found['score']['shd']} {found['score']['tpr']:.2f}"
            assert f"{site} {len(pairs[0])} {len(pairs[0] & pairs[1])} {score}" in text
        for note in ols["notes"]:
            assert note in text

    def test_units_and_reference_levels_are_shown(self) -> None:
        text = Page(page_of(small_run("logistic", "plain"))).text
        assert "x in mm" in text
        assert "group=b against a" in text

    def test_separation_is_on_the_first_page(self) -> None:
        facts, result = changed()
        summary = result.summary | {"converged": False, "status": "separated"}
        summary["notes"] = ["No finite estimate exists: x separates the outcomes."]
        page = render(facts, Result(summary))
        assert (False, "A result that must not be used") in banners(page)
        assert "Do not use these estimates: separated" in page
        assert '<table class="forest">' not in page

    def test_a_site_without_an_estimate_is_named_once_above_the_plot(self) -> None:
        facts, result = changed()
        alone = result.summary["simulation"]["site_alone"]
        alone["site 0"] = {"failed": "site 0: only one outcome occurs"}
        alone["site 1"] |= {"converged": False, "notes": ["x separates the outcomes."]}
        page = render(facts, result)
        before, plot = page[: page.index('class="forest"')], page[page.index('class="forest"') :]
        assert "site 0: only one outcome occurs" in before and "x separates the outcomes." in before
        assert ">site 2 <" in plot and ">site 0 <" not in plot and ">site 1 <" not in plot

    def test_clipping_is_reported_on_the_first_page(self) -> None:
        facts, result = changed()
        result.summary["contributions_clipped"]["newton"]["gradient"] = 1234
        page = render(facts, result)
        assert (False, "Contributions were clipped") in banners(page)
        assert "1,234 contributed numbers" in page

    def test_bounds_that_clip_many_values_are_on_the_first_page(self) -> None:
        """Above 1 % of the rows: 1 of them may be far out."""
        facts, result = changed()
        assert not any(title == MANY_CLIPPED for _, title in banners(render(facts, result)))
        outside, rows = result.summary["values_outside_bounds"], result.summary["records"]
        assert rows > 100
        outside["x"] = 1
        assert not any(title == MANY_CLIPPED for _, title in banners(render(facts, result)))
        outside["y"] = rows - 7
        page = render(facts, result)
        assert (False, MANY_CLIPPED) in banners(page)
        assert f"“y” at least {rows - 7}. " in Page(page).text

    def test_a_method_without_a_table_shows_its_single_numbers(self) -> None:
        facts, result = changed()
        facts["method"]["tables"][0] |= {"kind": "numbers", "title": "Votes"}
        own = {"method": "voting", "agreement": 0.875}
        kept = ("records", "incomplete_records", "values_outside_bounds", "contributions_clipped")
        summary = own | {key: result.summary[key] for key in kept}
        text = Page(render(facts, Result(summary))).text
        assert "agreement 0.8750" in text and "Votes" in text


class TestConsent:
    @pytest.mark.parametrize(
        ("signed", "words"),
        [(4, "site 0, site 1, site 2 and site 3 signed consent."),
         (3, "site 0, site 1 and site 2 signed consent; site 3 did not sign and is in no sum."),
         (2, "signed consent; site 2 and site 3 did not sign and are in no sum.")],
    )  # fmt: skip
    def test_signing_and_silent_sites_are_listed(self, signed: int, words: str) -> None:
        facts, result = changed()
        facts["consented"] = facts["consented"][:signed]
        assert words in Page(render(facts, result)).text

    def test_with_noise_no_rule_reads_records_before_a_release(self) -> None:
        for finished, grounds in (
            (noised_run("sum"), "by its rules and its budget."),
            (small_run("logistic", "additive"), "by its rules, its records and its budget."),
        ):
            assert grounds in Page(page_of(finished)).text


class TestHostileNames:
    def test_hostile_names_are_escaped(self) -> None:
        finished = hostile_run()
        page = Page(page_of(finished))
        assert page.wrong == []
        assert not {tag for tag, _ in page.tags} & {"script", "img"}
        assert not any(n.startswith("on") or n == "src" for _, a in page.tags for n in a)
        clean = Page(page_of(small_run("moments", "additive")))
        assert {tag for tag, _ in page.tags} <= {tag for tag, _ in clean.tags} | {"title", "desc"}
        text = page.text
        for site in finished.facts["cohort"]:
            assert site in text and HOSTILE in site
        assert text.count(HOSTILE) > 10
        assert HOSTILE_COLUMN in text
        assert f"group={HOSTILE_LEVEL}" in text

    def test_no_text_of_a_job_can_turn_others_round(self) -> None:
        facts, result = changed()
        facts["job"]["title"] = "safe \u202e001\u202c \u200b\x1b"
        page = render(facts, result)
        assert not set(page) & set("\u202e\u202c\u200b\x1b") and "safe \\u202e001" in page

    def test_hostile_texts_of_peers_are_escaped(self) -> None:
        facts, result = changed()
        why = f"{HOSTILE}: {HOSTILE_COLUMN}"
        facts["trouble"] = [{"event": "rejected", "round": 0, "why": why, "seq": 3}]
        page = Page(render(facts, result))
        assert why in page.text
        assert page.named("script") == page.named("img") == []


def test_a_key_in_a_note_is_set_as_code_and_markup_between_backticks_stays_text() -> None:
    facts, result = changed()
    notes = ["See `linear_inputs`, not `<b>x</b>` or `a b`."]
    page = render(facts, Result({**result.summary, "notes": notes}, result.arrays))
    assert "See <code>linear_inputs</code>, not `&lt;b&gt;x&lt;/b&gt;` or `a b`." in page
