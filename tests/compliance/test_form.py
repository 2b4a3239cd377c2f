"""What a person typed: placeholders are no answers, and answers are held against the runs."""

import json
from pathlib import Path
from typing import Any

import pytest
from support.runs.compliance import content, experiment, statements
from support.runs.jobs import raw_job, tables

import secagg
from secagg.compliance.form import Form, read_form
from secagg.compliance.placeholders import is_placeholder
from secagg.compliance.report_folder import write_report

PRIVATE = {"placement": "sum", "epsilon": 4, "delta": 1e-5, "record_norm": 1.5}
KEYS = [(t, k) for t in Form.model_fields for k in Form().questions(t)]

EMPTY = (
    "-", "--", "—", "–", "…", "...", ".", "?", "???", "/", "_", "n/a", "N/A", "N. A.", "na", "none",
    "None.", "NONE", "nil", "null", "TBD", "t.b.d.", "tba", "todo", "To do!", "(tbd)", "x", "xxx",
    "XXXX", "aaaa", "000", "unknown", "pending", "not applicable", "To be decided", "fill in",
    "<the number of the permit>", "[permit]", "{{ permit }}", " ", "\t\n", "\u200b", "\u3164",
    "\u00a0", "no idea", "asdf", "lorem ipsum", "ｎ／ａ", "k. A.", "*", "¯", "placeholder",
    "entfällt", "Néant", "sans objet", "aucun", "noch offen", "n/a (none)", "Not applicable yet.",
    "to be determined later", "Click or tap here to enter text.", "12345",
)  # fmt: skip
ANSWERS = (
    "EK 12/2026", "1", "8", "One.", "Austria", "No. 7", "A 0", "Nobody but the board.",
    "None of the columns is needed twice.", "x-ray records", "Test centre North", "N/A 2026/3",
    "(Site A) and (site B)", "42", "5.8", "To be decided by the board.", "A type 2 register",
)  # fmt: skip


@pytest.mark.parametrize("typed", EMPTY)
def test_a_placeholder_is_no_answer(typed: str) -> None:
    assert is_placeholder(typed)


@pytest.mark.parametrize("typed", ANSWERS)
def test_a_short_answer_is_one(typed: str) -> None:
    assert not is_placeholder(typed)


@pytest.mark.parametrize("key", ["aggregators", "processors"])
def test_none_is_an_answer_where_there_may_be_none(tmp_path: Path, key: str) -> None:
    table = "trust" if key == "aggregators" else "purpose"
    (tmp_path / "form.toml").write_text(f'[{table}]\n{key} = "None."\n')
    assert read_form(tmp_path / "form.toml").questions(table)[key][1] == "None."


@pytest.mark.parametrize(("table", "key"), KEYS)
def test_the_question_itself_is_no_answer(tmp_path: Path, table: str, key: str) -> None:
    question = Form().questions(table)[key][0].replace("\n", " ")
    (tmp_path / "form.toml").write_text(f"[{table}]\n{key} = {json.dumps(question)}\n")
    assert read_form(tmp_path / "form.toml").questions(table)[key][1] == ""


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Runs: masked without noise, additive with aggregators, masked with noise, and for persons."""
    place = tmp_path_factory.mktemp("runs")
    data = tables(60)
    secagg.run(raw_job(protocol={"name": "masked"}), data, out=place / "masked")
    protocol = {"name": "additive", "aggregators": 3}
    secagg.run(raw_job(protocol=protocol), data, out=place / "additive")
    noisy = raw_job(protocol={"name": "masked"}, privacy=PRIVATE)
    secagg.run(noisy, data, out=place / "private")
    for table in data.values():
        table["who"] = [f"p{i // 2}" for i in range(60)]  # type: ignore[assignment]
    persons = PRIVATE | {"person": "who", "records_per_person": 3}
    secagg.run(raw_job(protocol={"name": "masked"}, privacy=persons), data, out=place / "persons")
    return place


def reported(
    runs: Path, name: str, tmp_path: Path, key: str, answer: str | None, **more: Any
) -> Any:
    """Return the statement about a key of the form in the report of a run."""
    table, _, topic = key.partition("/")
    form = tmp_path / "form.toml"
    form.write_text("" if answer is None else f"[{table}]\n{topic} = {json.dumps(answer)}\n")
    write_report(tmp_path / "report", [runs / name], form=form, **more)
    topic = topic.replace("_", " ")
    (found,) = [
        s for s in statements(tmp_path / "report").values()
        if s["topic"] == topic and (
            "form.toml" in {e["file"] for e in s["evidence"]} or s["text"].startswith("Not filled")
            or "aggregator" in s["text"]
        )
    ]  # fmt: skip
    return found


@pytest.mark.attack
@pytest.mark.parametrize("typed", ["-", "n/a", "TBD", "?", "xxx", "<permit>", "\u3164"])
def test_a_permit_that_is_a_placeholder_is_missing_everywhere(
    runs: Path, tmp_path: Path, typed: str
) -> None:
    found = reported(runs, "private", tmp_path, "purpose/permit", typed)
    assert found["status"] == "evidence missing" and found["evidence"] == []
    report = content(tmp_path / "report")
    assert report["first_page"]["permit"] == "" and "permit" in report["first_page"]["open"]["form"]
    assert report["first_page"]["open"]["answers"] == 0


def test_an_answer_is_stated_by_a_person(runs: Path, tmp_path: Path) -> None:
    found = reported(runs, "private", tmp_path, "purpose/permit", "EK 12/2026")
    assert found["status"] == "stated by a person"
    total = content(tmp_path / "report")["first_page"]["total"]
    assert total["stated by a person"] == 1


# key, run, answer, what contradicts it
CONTRADICTED = [
    ("trust/aggregators", "masked", "Two computing centres.", "no run had an aggregator"),
    ("trust/aggregators", "additive", "None.", "had 3 aggregators"),
    ("trust/aggregators", "additive", None, "had 3 aggregators"),
    ("trust/aggregators", "additive", "Four aggregators.", "the aggregators were aggregator_1"),
    ("trust/aggregators", "additive", "aggregator_7 at the university", "the aggregators were"),
    ("trust/sites", "masked", "Four hospitals of different owners.", "the runs had 3 sites"),
    ("trust/sites", "masked", "North and south, both public.", "does not name west"),
    ("trust/separate", "masked", "No common administrator.", "ran on one computer"),
    ("trust/separate", "masked", "Additive shares go to three firms.", "no run used 'additive'"),
    ("judgement/epsilon", "private", "The board decided on ε = 1.", "the ε of"),
    ("judgement/epsilon", "private", "No noise was needed.", "has noise"),
    ("judgement/epsilon", "private", "8 is usual, board of 12 May 2026", "the ε of"),
    ("judgement/epsilon", "masked", "Epsilon 4 is strong.", "no guarantee"),
    ("data/rows_per_person", "private", "Up to five.", "protects one record"),
    ("data/rows_per_person", "persons", "One.", "at most 3 records"),
    ("data/population", "masked", "500 patients of three clinics.", "180 records took part"),
    ("data/population", "private", "5,000 records.", "records took part"),
    ("data/source", "masked", "Admissions of 2019 to 2099.", "before 2099"),
]  # fmt: skip


@pytest.mark.attack
@pytest.mark.parametrize(("key", "run", "answer", "said"), CONTRADICTED)
def test_what_the_runs_contradict_needs_a_person(
    runs: Path, tmp_path: Path, key: str, run: str, answer: str | None, said: str
) -> None:
    found = reported(runs, run, tmp_path, key, answer)
    assert found["status"] == "needs a person" and f"But {said}"[4:] in found["text"]
    assert any(each["file"].startswith("runs/") for each in found["evidence"])
    asked = content(tmp_path / "report")["first_page"]["open"]["judge"]
    contradiction = [each for each in asked if "The form contradicts the runs" in each["text"]]
    assert [each["id"] for each in contradiction] == [found["id"]]


AGREED = [
    ("trust/aggregators", "additive", "Three computing centres."),
    ("trust/aggregators", "additive", "aggregator_1 to aggregator_3: three aggregators"),
    ("trust/aggregators", "masked", "None."),
    ("judgement/epsilon", "private", "The board decided on 4, on 12 May 2026."),
    ("judgement/epsilon", "private", "ε 4 is in the range of 2 to 8."),
    ("judgement/epsilon", "masked", "No noise was needed: only sums over 180 records."),
    ("data/rows_per_person", "private", "One."),
    ("data/rows_per_person", "persons", "At most 3 records."),
    ("data/population", "masked", "180 patients, 2019 to 2024."),
    ("data/population", "masked", "Adults admitted 2019 to 2024."),
    ("judgement/tuning", "masked", "Settings were chosen on public records."),
]  # fmt: skip


@pytest.mark.parametrize(("key", "run", "answer"), AGREED)
def test_what_fits_the_runs_is_as_stated(
    runs: Path, tmp_path: Path, key: str, run: str, answer: str
) -> None:
    found = reported(runs, run, tmp_path, key, answer)
    assert (found["status"], found["text"]) == ("stated by a person", answer)


def test_nobody_is_asked_for_aggregators_that_no_run_had(runs: Path, tmp_path: Path) -> None:
    found = reported(runs, "masked", tmp_path, "trust/aggregators", None)
    assert found["status"] == "evidence attached" and found["text"] == "No run had an aggregator."
    assert (
        "who runs the aggregators" not in content(tmp_path / "report")["first_page"]["open"]["form"]
    )


def test_tuning_on_public_records_is_held_against_the_experiment(
    runs: Path, tmp_path: Path
) -> None:
    private = tmp_path / "summary.json"
    private.write_text(json.dumps(experiment() | {"public": False}))
    answer = "Settings were chosen on public records."
    found = reported(runs, "private", tmp_path, "judgement/tuning", answer, experiments=[private])
    assert found["status"] == "needs a person" and "private records" in found["text"]
