"""Every benchmark runs at its smallest size and prints a table; nothing here looks at a time."""

import re
import subprocess
import sys
from importlib import import_module

import pytest
from support.runs.checkout import ROOT

FOLDER = ROOT / "benchmarks"
MARKS = re.compile(r"^<!-- begin (\S+) -->\n(?:.*\n)*?<!-- end \1 -->$", re.M)


@pytest.fixture
def harness():
    return import_module("benchmarks.harness")


@pytest.fixture
def report(harness):
    return import_module("benchmarks.report")


def scripts() -> list[str]:
    return sorted(path.name for path in FOLDER.glob("*/bench_*.py"))


@pytest.mark.parametrize("script", scripts())
def test_the_smallest_case_prints_a_table(script: str) -> None:
    command = [sys.executable, "-m", "benchmarks.report", "--quick", script]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    stamp, *tables = re.split(r"^(?=###|```text)", done.stdout, flags=re.M)
    assert re.match(r"\*Measured on \d\d \w+ \d{4}: \d+ cores .*Python 3.* Commit \w+", stamp)
    rows = [line for line in "".join(tables).splitlines() if re.search(r"\d", line)]
    assert len(rows) >= 2


def test_the_report_runs_every_benchmark(report) -> None:
    assert sorted(report.SCRIPTS) == scripts()


def test_each_benchmark_has_its_tables_with_a_stamp_on_one_page(report) -> None:
    pages = "".join(page.read_text() for page in report.PAGES.glob("*.md"))
    assert sorted(MARKS.findall(pages)) == sorted(report.SCRIPTS)
    stamps = re.findall(
        r"^<!-- begin \S+ -->\n\n\*(?:Measured|Stored) on .*[Cc]ommit ", pages, re.M
    )
    assert len(stamps) == len(report.SCRIPTS)


def test_writing_replaces_only_the_text_between_the_marks(report, tmp_path, monkeypatch) -> None:
    page = tmp_path / "one.md"
    page.write_text("a\n<!-- begin x -->\nold\n<!-- end x -->\nb\n")
    (tmp_path / "other.md").write_text("<!-- begin y -->\nold\n<!-- end y -->\n")
    monkeypatch.setattr(report, "PAGES", tmp_path)
    for text in ("new", "newer"):
        report.write("x", text)
        assert page.read_text() == f"a\n<!-- begin x -->\n\n{text}\n\n<!-- end x -->\nb\n"


def test_peers_are_timed_with_the_same_package_versions_as_secagg() -> None:
    """The peers' lock may differ in what the command line needs, not in what is timed."""

    def pinned(lock: str) -> set[str]:
        text = (ROOT / "requirements" / lock).read_text()
        return set(
            re.findall(r"^(?:numpy|gmpy2|cryptography|phe|scipy)==\S+(?: ; [^\\]*)?", text, re.M)
        )

    assert pinned("run.txt") == pinned("bench.txt")
    assert len(pinned("run.txt")) >= 5


def test_ratios_are_computed_round_by_round(harness) -> None:
    slow_minute = harness.Spread((1.0, 10.0, 1.0))
    assert (slow_minute * 2).over(slow_minute).values == (2.0, 2.0, 2.0)
    assert str(slow_minute) == "1 (1 to 10)"


def test_numbers_are_formatted_readably(harness) -> None:
    shown = [harness.number(x) for x in (0, 0.00123456, 0.5, 12.345, 999.9, 12345.6, 1.5e7)]
    assert shown == ["0", "0.00123", "0.5", "12.3", "1,000", "12,346", "1.50e+07"]
    assert [harness.size(x) for x in (12, 1234, 8e6, 3.2e9)] == [
        "12 B",
        "1.23 kB",
        "8 MB",
        "3.2 GB",
    ]
