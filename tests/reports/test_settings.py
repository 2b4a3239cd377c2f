"""Which settings the report lists, and what each printed page bears."""

import base64
import hashlib
import re

import pytest
from support.runs.reports import Page, copied, noised_run, page_of, small_run

from secagg.reports.page import render


def privacy_keys(page: str) -> set[str]:
    return set(re.findall(r"<dt><code>privacy\.(\w+)</code></dt>", page))


def test_settings_of_privacy_without_effect_are_not_listed() -> None:
    assert privacy_keys(page_of(small_run("logistic", "plain"))) == {"placement"}
    always = {"placement", "epsilon", "delta", "adjacency", "record_norm", "count_share"}
    assert privacy_keys(page_of(noised_run("sum"))) == always | {"colluding"}
    assert privacy_keys(page_of(noised_run("site"))) == always
    facts, result = copied(noised_run("sum"))
    facts["job"]["privacy"]["person"] = "patient"
    people = {"person", "person_pinned", "records_per_person", "sites_per_person"}
    assert privacy_keys(render(facts, result)) == always | {"colluding"} | people


def test_every_printed_page_bears_the_session_and_its_number() -> None:
    facts, result = copied(small_run("logistic", "plain"))
    (style,) = re.findall(r"<style>(.*?)</style>", render(facts, result), re.S)
    (margins,) = re.findall(r"@page \{.*?\n\}", style, re.S)
    assert facts["session"] in margins and "counter(page)" in margins


@pytest.mark.parametrize("session", ['0" } body { display: none } x { content: "', "</style>"])
def test_a_hostile_session_does_not_leave_its_string(session: str) -> None:
    facts, result = copied(small_run("logistic", "plain"))
    page = render(facts | {"session": session}, result)
    (style,) = re.findall(r"<style>(.*?)</style>", page, re.S)
    plain = render(facts, result)
    (honest,) = re.findall(r"<style>(.*?)</style>", plain, re.S)
    assert style.count("{") == honest.count("{") and style.count('"') == honest.count('"')
    digest = base64.b64encode(hashlib.sha256(style.encode()).digest()).decode()
    assert f"style-src 'sha256-{digest}'" in page
    assert Page(page).wrong == []
