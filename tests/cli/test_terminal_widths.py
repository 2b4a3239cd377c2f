"""What commands print on terminals of 60, 80 and 120 columns: whole words, no longer line.

==========================================  =============================================
case                                        test
==========================================  =============================================
each command, at each width                 `test_no_line_is_too_long_and_no_word_is_broken`
a table that does not fit                   `test_a_table_without_room_becomes_a_list`
a pipe                                      `test_in_a_pipe_a_text_is_one_line`
equal rules of many sites                   `test_equal_sites_share_a_line`
the verdict                                 `test_the_verdict_is_last_and_once`
help                                        `test_help_is_in_the_order_of_work`
==========================================  =============================================
"""

import io
import re
import shutil
import sys
from contextlib import suppress
from pathlib import Path

import pytest
import typer

from secagg.cli.main import app
from secagg.cli.output.tables import Table
from secagg.cli.output.terminal import SafeConsole
from secagg.errors import SecaggError
from secagg.evidence.feasibility import mechanisms

HEART = Path(__file__).parents[2] / "examples" / "heart-disease"
COMMANDS = {
    "help": "--help",
    "help of a command": "audit --help",
    "plan": "plan logistic.toml",
    "plan, noise": "plan private.toml",
    "plan, refused": "plan refused.toml",
    "site check": "site check logistic.toml",
    "run": "run logistic.toml --out again --overwrite",
    "verify": "verify linear",
    "audit": "audit linear",
    "budget show": "budget show linear.toml",
    "budget history": "budget history linear.toml",
    "experiment": "experiment small.toml --plan --jobs 1",
    "list methods": "list methods",
    "list noise": "list methods --privacy",
    "list protocols": "list protocols",
    "list attacks": "list attacks",
    "settings": "settings",
    "settings of a method": "settings moments",
    "settings of a table": "settings policy",
}
WIDE = 2000
SWEEP = """
title = "What protocols cost at four hospitals"
job = "logistic.toml"
repeat = 2
[axes]
"release.min_sites" = [3, 4]
[[lines]]
name = "plain"
protocol = { name = "plain" }
[[lines]]
name = "masked"
protocol = { name = "masked" }
"""
_STYLE = re.compile(r"\x1b\[[0-9;?]*[a-zA-Z]|\r")
_LINES = re.compile("[─│╭╮╰╯━]+")
_OF_A_RUN = re.compile(r"\(?[0-9a-f]{8,}|\(?[-−]?[0-9.,:%T+]+\S*")
"""Digests, numbers and times, which differ from run to run."""


class Terminal(io.StringIO):
    """A stream that says that it is a terminal."""

    def isatty(self) -> bool:
        return True


def shown(command: str, width: int | None, monkeypatch: pytest.MonkeyPatch) -> str:
    """Return what a command prints on a terminal of that width, or in a pipe."""
    out = io.StringIO() if width is None else Terminal()
    monkeypatch.setenv("COLUMNS", str(width or 60))
    monkeypatch.setenv("TERM", "xterm")
    for number in ("FIRST_RUNS", "RUNS", "SPREAD_RUNS"):  # the words are the same, and sooner
        monkeypatch.setattr(mechanisms, number, 1)
    monkeypatch.setattr(sys, "stdout", out)
    monkeypatch.setattr(sys, "stderr", io.StringIO() if width is None else Terminal())
    with suppress(SecaggError, typer.Exit, SystemExit):
        app(args=command.split(), standalone_mode=False)
    return _STYLE.sub("", out.getvalue())


def words(text: str) -> list[str]:
    return _LINES.sub(" ", text).split()


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with the jobs of the heart-disease example, a run, and a job that is refused."""
    root = tmp_path_factory.mktemp("heart")
    shutil.copytree(HEART / "data", root / "data", ignore=shutil.ignore_patterns("ledgers"))
    for name in ("logistic", "private", "linear"):
        shutil.copy(HEART / f"{name}.toml", root)
    (root / "small.toml").write_text(SWEEP)
    refusing = (root / "logistic.toml").read_text("utf-8").replace('"data"', '"refusing"')
    (root / "refused.toml").write_text(refusing)
    shutil.copytree(root / "data", root / "refusing")
    for site in (root / "refusing").glob("*.csv"):
        text = 'protocols = ["masked"]\nmin_sites = 3\nmin_records = 10\n'
        site.with_suffix(".policy.toml").write_text(text)
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(root)
        shown("run linear.toml --out linear", None, patch)
    assert (root / "linear" / "run.json").exists()
    return root


@pytest.mark.parametrize(
    "command",
    [
        # A plan runs each curve once, which takes seconds: so there are two plans only.
        pytest.param(command, id=name, marks=pytest.mark.system if name == "experiment" else ())
        for name, command in COMMANDS.items()
    ],
)
def test_no_line_is_too_long_and_no_word_is_broken(
    folder: Path, command: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A word that is longer than the line, such as a path or a digest, stays whole, too."""
    monkeypatch.chdir(folder)
    known = set(words(shown(command, WIDE, monkeypatch)))
    assert known
    known |= {f"{word}:" for word in known}  # headers in a list
    known |= {"ratio,", "each", "site"}  # the title of a table that only a narrow terminal has
    for width in (120, 80, 60)[-1 if command.startswith("experiment") else 0 :]:
        text = shown(command, width, monkeypatch)
        long = [line for line in text.splitlines() if len(line.rstrip()) > width]
        assert [line for line in long if len(words(line)) > 1] == []
        broken = set(words(text)) - known
        assert {word for word in broken if not _OF_A_RUN.fullmatch(word)} == set()
        assert "verify" not in command or re.search(r"\b[0-9a-f]{64}\b", text)  # the log's head


def test_a_table_without_room_becomes_a_list() -> None:
    def printed(width: int) -> list[str]:
        out = io.StringIO()
        table = Table("name", title="A title")
        table.add_column("a long header", justify="right")
        table.add_row("one word", "1.0 to 2.0")
        table.add_row("[bold]two[/]", "")
        SafeConsole(file=out, force_terminal=True, color_system=None, width=width).print(table)
        return [line.rstrip() for line in out.getvalue().splitlines()]

    assert printed(40)[-2:] == ["one word     1.0 to 2.0", "two"]
    assert printed(18) == [
        "A title", "name: one word", "  a long header:", "    1.0 to 2.0", "", "name: two",
    ]  # fmt: skip


def test_in_a_pipe_a_text_is_one_line(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(folder)
    for command in ("plan private.toml", "settings moments"):
        assert max(map(len, shown(command, None, monkeypatch).splitlines())) > 150


def test_equal_sites_share_a_line(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(folder)
    lines = shown("plan refused.toml", WIDE, monkeypatch).splitlines()
    together = "cleveland, hungary, switzerland and va_long_beach"
    assert [line.split(":")[0] for line in lines if line.startswith("own rules of")] == [
        f"own rules of {together}"
    ]
    refusals = [line for line in lines if line.startswith("will be refused")]
    assert refusals and all(line.startswith(f"will be refused: {together}, ") for line in refusals)
    assert len(set(refusals)) == len(refusals)


@pytest.mark.parametrize(
    ("command", "verdict"),
    [
        ("plan logistic.toml", "can run"),
        ("plan refused.toml", "will be refused"),
        ("site check logistic.toml", "would take part"),
        ("verify linear", "linear: intact"),
        ("run logistic.toml --out again --overwrite", "complete"),
    ],
)
def test_the_verdict_is_last_and_once(
    folder: Path, command: str, verdict: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(folder)
    lines = shown(command, None, monkeypatch).splitlines()
    found = [i for i, line in enumerate(lines) if line.startswith(verdict)]
    assert found[-1] == len(lines) - 1
    assert verdict == "will be refused" or len(found) == 1


def test_help_is_in_the_order_of_work(monkeypatch: pytest.MonkeyPatch) -> None:
    text = shown("--help", 100, monkeypatch)
    firsts = [words(line)[0] for line in text.splitlines() if words(line)]
    order = [
        "Analyse",
        "plan",
        "run",
        "Check",
        "verify",
        "audit",
        "report",
        "Sites",
        "site",
        "list",
    ]
    places = [firsts.index(name) for name in order]
    assert places == sorted(places)
