"""The jobs, commands and statements of the documentation are right."""

import configparser
import json
import math
import pkgutil
import re
import runpy
import shlex
import shutil
import tomllib
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from support.methods.regressions import REGRESSIONS
from support.runs.checkout import ROOT
from support.runs.reports import job, tables
from typer.testing import CliRunner

from secagg.audits.audit import audit_job
from secagg.audits.catalogue import make_attacks
from secagg.audits.contract import Limit, Verdict
from secagg.audits.limits import read_limits
from secagg.cli.main import app
from secagg.compliance.form import read_form
from secagg.experiments.sweep import points, read_sweep
from secagg.jobs.design_matrix import public_facts
from secagg.jobs.job import parse_job
from secagg.jobs.registry import METHODS, PROTOCOLS, make_method, make_protocol
from secagg.models.moments.analyses import build_analysis
from secagg.privacy.accounting.composition import Cap, Cost, affordable
from secagg.privacy.accounting.events import Gaussian
from secagg.privacy.accounting.gaussian_dp import gaussian_mu
from secagg.privacy.policy.site_policy import parse_policy
from secagg.runs.simulate import simulate, simulate_sites
from secagg.sessions.homes.home import HomeSettings

DOCS = ROOT / "docs"
EXAMPLES = [path.read_text(encoding="utf-8") for path in (ROOT / "examples").glob("*/*.toml")]
POLICIES = DOCS / "how-to" / "policies.md"  # its blocks are policies: tests/privacy/policy
LIMITS = DOCS / "how-to" / "audit.md"
SWEEP, FORM = DOCS / "how-to" / "experiment.md", DOCS / "how-to" / "report.md"


def read(page: str) -> str:
    return (DOCS / page).read_text(encoding="utf-8")


def toml_blocks(page: Path) -> list[str]:
    return re.findall(r"^```toml\n(.*?)^```$", page.read_text(encoding="utf-8"), re.M | re.S)


BLOCKS = [
    pytest.param(
        page,
        text,
        id=f"{page.relative_to(DOCS)}-{i}",
        marks=[pytest.mark.neural] if page.stem == "torch_module" else [],  # builds a network
    )
    for page in sorted(DOCS.rglob("*.md"))
    if page not in (POLICIES, LIMITS, SWEEP, FORM)
    for i, text in enumerate(toml_blocks(page))
]


@pytest.mark.parametrize(("page", "text"), BLOCKS)
def test_each_toml_block_is_a_valid_job_or_part_of_one(
    page: Path, text: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A part is an excerpt of an example, or completes the page's first job, or an example."""
    if any(text.strip() in example for example in EXAMPLES):
        return
    monkeypatch.setattr("importlib.util.find_spec", lambda _: object())  # needs no causal-learn
    whole = [each for each in toml_blocks(page) if each.startswith("title = ")]
    base = whole[0] if whole else (ROOT / "examples/heart-disease/linear.toml").read_text()
    parsed = parse_job(tomllib.loads(base) | tomllib.loads(text))
    public = public_facts(parsed, ("north", "south", "west"))
    if parsed.method.name == "torch_module":
        monkeypatch.undo()
    assert make_method(parsed.method).stages(public)
    assert make_protocol(parsed.protocol).name == parsed.protocol.name


def test_the_sweep_in_the_page_on_experiments_is_valid(tmp_path: Path) -> None:
    (text,) = toml_blocks(SWEEP)
    (tmp_path / "sweep.toml").write_text(text)
    job = (ROOT / "examples/heart-disease/linear.toml").read_text()
    (tmp_path / "linear.toml").write_text(job)
    assert len(points(read_sweep(tmp_path / "sweep.toml"))) == 12


def test_the_form_in_the_page_on_reports_answers_every_question(tmp_path: Path) -> None:
    (text,) = toml_blocks(FORM)
    (tmp_path / "form.toml").write_text(text)
    form = read_form(tmp_path / "form.toml")
    for table in type(form).model_fields:
        assert all(answer for _, answer in form.questions(table).values()), table


def test_the_files_in_the_page_on_deployment_are_valid_and_agree() -> None:
    page = DOCS / "how-to" / "deploy.md"
    text = page.read_text(encoding="utf-8")
    (policy,) = re.findall(r'^```toml title="policy.toml"\n(.*?)^```$', text, re.M | re.S)
    rules = parse_policy(tomllib.loads(policy), "policy.toml")
    agreed = parse_job(tomllib.loads(toml_blocks(page)[0]))
    assert agreed.method.name in (rules.methods or ())
    assert rules.smallest_cell <= (agreed.release.min_cell_records or 0)
    assert set(agreed.sites.names or ()) == set(re.findall(r"\{name: (\w+), type: client", text))
    site = text[text.index("### `site.toml`") : text.index("### If a site is lost")]
    assert re.findall(r"^\| `(\w+)` \|", site, re.M) == list(HomeSettings.model_fields)


def test_the_limits_of_an_audit_can_be_read(tmp_path: Path) -> None:
    (text,) = toml_blocks(LIMITS)
    (tmp_path / "limits.toml").write_text(text)
    assert read_limits(tmp_path / "limits.toml") == {
        "excess_share": Limit(0.01), "tracing_auc": Limit(0.55), "tpr_at_1pct": Limit(0.02),
    }  # fmt: skip


def test_every_attack_is_in_the_page_of_attacks() -> None:
    text = read("math/attacks.md")
    for attack in make_attacks():
        assert f"`{attack.name}`" in text and f"`{attack.metric}`" in text


def own_study(tmp_path: Path, folder: str) -> Path:
    """Copy the example of the page on own studies, mended in the copy; return its job."""
    copy = shutil.copytree(
        ROOT / "examples/own-study", tmp_path / "study", ignore=lambda *_: {"data"}
    )
    runpy.run_path(str(copy / "mend.py"))
    text = (
        (copy / "stay.toml").read_text("utf-8").replace('folder = "data"', f'folder = "{folder}"')
    )
    (copy / "stay.toml").write_text(text, encoding="utf-8")
    return copy / "stay.toml"


def test_the_page_on_own_studies_quotes_what_the_check_finds(tmp_path: Path) -> None:
    page = read("own-study.md")
    done = CliRunner().invoke(app, ["site", "check", str(own_study(tmp_path, "raw")), "--json"])
    assert done.exit_code == 2
    found = json.loads(done.stdout)["sites"]
    said = [site["problem"] for site in found]
    said += [text for site in found for column in site["columns"] for text in column["remarks"]]
    (quoted,) = re.findall(r"^```text\n(.*?)^```$", page, re.M | re.S)
    for line in quoted.splitlines():
        assert any(line in text for text in said), line
    (cork, _, sligo) = (
        next(each["quartiles"] for each in site["columns"] if each["name"] == "crp")
        for site in found
    )
    told = re.search(r"quartiles\*\*: of `crp`, (.*) in Cork, but (.*) in Sligo,", page)
    assert told is not None
    for numbers, quartiles in zip(told.groups(), (cork, sligo), strict=True):
        assert [float(each) for each in numbers.split(", ")] == pytest.approx(quartiles, rel=0.01)


@pytest.mark.system
def test_the_numbers_of_the_page_on_own_studies_are_those_of_its_runs(tmp_path: Path) -> None:
    page, path = read("own-study.md"), own_study(tmp_path, "data")
    smoker = simulate(path).summary["analyses"][1]["terms"][2]
    told = "{estimate:.2f} days longer ({ci_low:.2f} to {ci_high:.2f})"
    assert f"a smoker stays {told.format(**smoker)}" in page
    for centre, begins in (
        ("pooled", "adds {} days (95 % interval {})"),
        ("site", "it is {} ({})"),
    ):
        done = simulate(path, overrides={"method.centre": centre}).summary["analyses"][1]
        age = next(term for term in done["terms"] if term["term"] == "age")
        interval = "{ci_low:.3f} to {ci_high:.3f}".format(**age)
        assert begins.format(f"{age['estimate']:.3f}", interval) in page
    method, privacy = re.findall(r"--set '((?:method|privacy)=\{.*?\})'", page)
    rows = re.findall(r"^\| (\d) \| (\d+) % \| ([\d.]+) times as long \| (\w+)", page, re.M)
    assert len(rows) == 4
    for epsilon, *told in rows:
        settings = ["--set", method, "--set", privacy.replace("epsilon=2", f"epsilon={epsilon}")]
        done_plan = CliRunner().invoke(app, ["plan", str(path), *settings, "--json"])
        found = json.loads(done_plan.stdout)["differential_privacy"]["feasibility"]
        expected = [f"{100 * found['error']:.0f}", f"{found['widened']:.1f}", found["verdict"]]
        assert expected == told
        assert f"{100 * found['sampling']:.0f} % without any noise" in page


@pytest.mark.attack
def test_the_audit_of_the_page_on_own_studies_finds_what_the_page_says(tmp_path: Path) -> None:
    found = audit_job(own_study(tmp_path, "data"))
    assert found.leaks == () and "Here it finds no leak" in read("own-study.md")
    unclear = {each.label for each in found.attacked if each.verdict is Verdict.INCONCLUSIVE}
    assert unclear == set(re.findall(r"`(\w+)`, is inconclusive", read("own-study.md")))


def test_every_method_and_protocol_has_its_page_or_section_in_the_lists() -> None:
    """README may leave out families of regressions."""
    readme = (ROOT / "README.md").read_text()
    assert {page.stem for page in (DOCS / "methods").glob("*.md")} == {"index", *METHODS}
    for name in METHODS:
        assert f"({name}.md)" in read("methods/index.md")
        assert f"(docs/methods/{name}.md)" in readme or name in REGRESSIONS
    page = read("protocols/index.md")
    assert set(re.findall(r"^## (\w+)$", page, re.M)) == set(PROTOCOLS)
    for name in PROTOCOLS:
        assert f"(#{name})" in page
        assert f"(docs/protocols/index.md#{name})" in readme


def test_links_between_files_are_valid() -> None:
    for page in [*ROOT.glob("*.md"), *DOCS.rglob("*.md"), *(ROOT / "examples").glob("*/*.md")]:
        for link in re.findall(r"\]\((?!https?:|#|mailto:)([^)#\s]+)", page.read_text("utf-8")):
            assert (page.parent / link).exists(), f"{page.name}: {link}"


def test_the_documented_command_for_noise_in_every_round_runs(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    (line,) = re.findall(r'^secagg run (.*"gradient".*)$', read("how-to/private-run.md"), re.M)
    monkeypatch.chdir(ROOT)
    job, out, _, *settings = shlex.split(line)
    assert out == "--out"  # a plan writes no folder
    arguments = ["plan", job, *settings, "--json"]
    done = CliRunner().invoke(app, arguments, catch_exceptions=False)
    guarantee = json.loads(done.stdout)["differential_privacy"]
    assert (guarantee["placement"], guarantee["feasibility"]["verdict"]) == ("round", "green")


def test_the_documented_remaining_budget_is_correct() -> None:
    found = re.search(
        r"a cap of (\d) at delta (1e-6), a job of epsilon (\d) leaves (\d\.\d\d), not 1",
        read("how-to/policies.md"),
    )
    assert found is not None
    cap, delta, spent, left = map(float, found.groups())
    paid = Gaussian(gaussian_mu(spent, delta))
    rest = affordable(Cap(cap, delta), Counter([Cost(paid, paid)]), 0.0, delta)
    assert left == math.floor(100 * rest) / 100


@pytest.mark.parametrize(
    ("name", "begins"),
    [
        ("sparse_regression", r"\*\*A site's own coefficients stay at the site\*\*"),
        ("sparse_directed", "A site's own result has"),
    ],
)
def test_documented_site_files_agree_with_a_run(name: str, begins: str) -> None:
    (told,) = re.findall(rf"^{begins}(.*)$", read(f"methods/{name}.md"), re.M)
    words = set(re.findall(r"`(\w+)`", told)) - {"records_here"}  # added to every such file
    _, kept = simulate_sites(job(name, "plain"), tables(3))
    assert words <= set(re.findall(r'"(\w+)":', json.dumps(kept["site 0"].summary)))


def test_ols_accepts_a_single_variable_as_outcome() -> None:
    """As the table of `ols` says."""
    whole: dict[str, Any] = tomllib.loads(toml_blocks(DOCS / "reference" / "job.md")[0])
    public = public_facts(parse_job(whole), ("north", "south"))
    build_analysis({"kind": "ols", "outcome": "ward=other", "predictors": ["age"]}, public, "here")


def test_the_navigation_has_at_most_40000_words() -> None:
    """Generated parts not counted: they are for looking up. More belongs into docs/evidence.md."""
    (nav,) = re.findall(r"^nav:\n((?: .*\n)*)", (ROOT / "mkdocs.yml").read_text("utf-8"), re.M)
    pages = re.findall(r"([\w/-]+\.md)$", nav, re.M)
    written = (
        re.sub(r"^<!-- (?:keys|sums|pages): .*?^<!-- end -->$", "", read(page), flags=re.M | re.S)
        for page in pages
    )
    assert len(pages) > 40
    assert sum(len(text.split()) for text in written) <= 40_000


def test_the_reference_names_each_public_module_of_the_contract() -> None:
    rules = configparser.ConfigParser()
    rules.read(ROOT / ".importlinter")
    allowed = rules["importlinter:contract:public"]["ignore_imports"].split("\n")
    modules = [line.split(" -> ")[1] for line in allowed if line]
    page = read("reference/api.md")
    assert len(modules) > 20
    assert [name for name in modules if f"`{name}`" not in page and f"::: {name}" not in page] == []


def test_every_part_of_the_code_that_a_page_names_is_there() -> None:
    missing = []
    for page in sorted(DOCS.rglob("*.md")):
        for name in re.findall(r"`(secagg(?:\.\w+)+)[(`]", page.read_text(encoding="utf-8")):
            try:
                pkgutil.resolve_name(name)
            except (ImportError, AttributeError):
                missing.append((page.name, name))
    assert not missing
