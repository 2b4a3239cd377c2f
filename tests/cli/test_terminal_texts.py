"""Texts of others on a pseudo-terminal: a pipe hides what a terminal obeys.

==========================================  =============================================
case                                        test
==========================================  =============================================
each kind of character, each command        `test_a_terminal_obeys_no_text_of_others`
an error, on standard error                 the same
JSON reads back as the same texts           `test_json_is_printable_and_the_same`
square brackets set no colour, no link      `test_a_text_sets_no_link`
a caller forgets `escape`                   `test_a_console_obeys_no_string`
a caller prints in another way              `test_nothing_else_prints`
==========================================  =============================================
"""

import ast
import io
import json
import os
import pty
import re
import subprocess
import sys
from pathlib import Path

import pytest
from rich.text import Text
from support.runs.jobs import SITES, TOML, as_csv, tables

from secagg.cli.output.tables import Table
from secagg.cli.output.terminal import SafeConsole
from secagg.core.hash_chain_log import canonical_json
from secagg.core.identity import Role
from secagg.core.printable import is_printable, printable, printable_json
from secagg.core.randomness import system_random
from secagg.jobs.job import load_job
from secagg.sessions.homes.approvals import approval_digest
from secagg.sessions.homes.home import Home

KINDS = {
    "line above": "a\x1b[1A\x1b[2Kforged",
    "colour": "a\x1b[31mforged",
    "link by OSC 8": "a\x1b]8;;https://evil.example\x1b\\forged\x1b]8;;\x1b\\",
    "window title": "a\x1b]0;forged\x07",
    "carriage return": "a\rforged",
    "line feed": "a\nforged: approved",
    "backspaces": "a" + "\b" * 9 + "forged",
    "tab and form feeds": "a\t\v\fforged",
    "C1": "a\x9b1A\x9d8;;x\x9c\x85forged",
    "direction": "a\u202eforged\u202c\u2066forged\u2069\u200f",
    "zero width": "a\u200bforged\u200d\u2060\ufeff",
    "separators": "a\u2028forged\u2029",
    "fillers": "a\u3164\u115fforged\ufe0f",
    "delete": "a\x7fforged",
}
ALL = "x" + "".join(KINDS.values()) + "[bold]x"
_OWN = re.compile(r"\x1b\[[0-9;]*m")  # rich's colours


def on_terminal(*arguments: object, cwd: Path) -> str:
    """Run a command whose output and errors are a pseudo-terminal; return what it received."""
    main, terminal = pty.openpty()
    env = os.environ | {"TERM": "xterm-256color", "COLUMNS": "200", "LINES": "50"}
    command = [sys.executable, "-m", "secagg.cli", *map(str, arguments)]
    with subprocess.Popen(command, stdin=terminal, stdout=terminal, stderr=terminal,
                          cwd=cwd, env=env):  # fmt: skip
        os.close(terminal)
        received = b""
        while True:
            try:
                part = os.read(main, 1 << 16)
            except OSError:  # Linux: the process has closed it
                break
            if not part:
                break
            received += part
    os.close(main)
    return received.decode()


def check(received: str) -> None:
    """Check that nothing is obeyed but line ends and rich's own colours."""
    for line in received.split("\r\n"):
        plain = _OWN.sub("", line)
        assert is_printable(plain), ascii(plain)
        assert not plain.startswith("forged")


def toml_of(text: str) -> str:
    return json.dumps(text).replace("\x7f", "\\u007f")


def job_in(folder: Path, text: str) -> Path:
    """Write a job whose title and column have the text, and its records."""
    (folder / "data").mkdir()
    for site, columns in tables().items():
        named = {("age" + text if name == "age" else name): v for name, v in columns.items()}
        csv = as_csv(columns)
        head = ",".join('"' + name.replace('"', '""') + '"' for name in named)
        rest = csv.partition("\n")[2]
        path = folder / "data" / f"{site}.csv"
        path.write_text(f"{head}\n{rest}", encoding="utf-8", newline="")
    text_toml = TOML.replace('"A small job"', toml_of(text))
    text_toml = text_toml.replace("age = {", f"{toml_of('age' + text)} = {{")
    text_toml = text_toml.replace('"mid", "high"]', f'"mid", "high", {toml_of(text)}]')
    path = folder / "job.toml"
    path.write_text(text_toml, encoding="utf-8")
    return path


@pytest.mark.attack
def test_a_terminal_obeys_no_text_of_others(tmp_path: Path) -> None:
    text = ALL
    job = job_in(tmp_path, text)
    planned = on_terminal("plan", job, cwd=tmp_path)
    assert planned.count("forged") > len(KINDS)  # the title, and the table of fields
    check(planned)
    check(on_terminal("plan", job, "--json", cwd=tmp_path))
    check(on_terminal("plan", f"no such {text}", cwd=tmp_path))
    check(on_terminal("plan", job, "--set", f"method.{text}=1", "--json", cwd=tmp_path))
    check(on_terminal("site", "check", job, "--site", text, cwd=tmp_path))


@pytest.mark.attack
def test_a_home_shows_a_planted_job_harmlessly(tmp_path: Path) -> None:
    path = job_in(tmp_path, ALL)
    names = json.dumps(list(SITES))
    path.write_text(path.read_text("utf-8").replace('folder = "data"', f"names = {names}"), "utf-8")
    home = Home.create(
        tmp_path / "home", "north", Role.SITE, system_random, tmp_path / "data" / "north.csv"
    )
    job = load_job(path)
    waiting = home.folder / "waiting" / f"{approval_digest(job)}.json"
    waiting.write_bytes(canonical_json(job.agreed))
    for command in ("jobs", "show"):
        more = [] if command == "jobs" else [approval_digest(job)[:8]]
        received = on_terminal("site", command, *more, "--home", home.folder, cwd=tmp_path)
        assert "forged" in received
        check(received)
    check(on_terminal("site", "check", path, "--home", home.folder, cwd=tmp_path))
    check(on_terminal("site", "jobs", "--home", home.folder, "--json", cwd=tmp_path))


@pytest.mark.attack
def test_a_run_shows_hostile_names_harmlessly(tmp_path: Path) -> None:
    job = job_in(tmp_path, ALL)
    received = on_terminal("run", job, "--out", "run", cwd=tmp_path)
    assert "forged" in received
    check(received)
    check(on_terminal("verify", "run", cwd=tmp_path))
    check(on_terminal("budget", "history", job, cwd=tmp_path))


def test_json_is_printable_and_the_same() -> None:
    value = {text: [text, 1.5, None, True, "é漢"] for text in KINDS.values()}
    text = printable_json(value, indent=1)
    assert json.loads(text) == value and is_printable(text.replace("\n", ""))
    assert "é漢" in text


@pytest.mark.parametrize("kind", KINDS)
def test_printable_is_one_line_and_keeps_letters(kind: str) -> None:
    shown = printable(KINDS[kind])
    assert is_printable(shown) and "forged" in shown and len(shown.splitlines()) == 1
    assert printable("Zürich, Δx ≥ 0, 東京") == "Zürich, Δx ≥ 0, 東京"


def console() -> tuple[SafeConsole, io.StringIO]:
    file = io.StringIO()
    return SafeConsole(file=file, force_terminal=True, width=100, emoji=False), file


@pytest.mark.parametrize("kind", KINDS)
def test_a_console_obeys_no_string(kind: str) -> None:
    text = KINDS[kind]
    out, file = console()
    out.print(text)
    out.print(f"[bold]{text}[/]", soft_wrap=True)
    table = Table(text, title=text, caption=text)
    table.add_row(text)
    table.add_row(Text(text.replace("\n", " ")))
    out.print(table)
    table.add_row("x" * 101)
    out.print(table)  # as a list
    wrapped = Table("title", "more")
    wrapped.add_row(f"{text} {'x' * 80} forged", "x")
    out.print(wrapped)
    out.print(f"{'x' * 98} forged {text}")
    check(file.getvalue().replace("\n", "\r\n"))


def test_a_text_sets_no_link() -> None:
    out, file = console()
    out.print("[link=https://evil.example]a[/] [bold link https://evil.example]b[/]")
    assert "\x1b]8" not in file.getvalue()


def test_nothing_else_prints() -> None:
    """Every command prints through `printing` or `terminal`."""
    root = Path(__file__).parents[2] / "secagg" / "cli"
    found = []
    for path in root.rglob("*.py"):
        if path.name in {"printing.py", "terminal.py"}:
            continue
        for node in ast.walk(ast.parse(path.read_text("utf-8"))):
            if isinstance(node, ast.Call):
                name = ast.unparse(node.func)
                if name in {"print", "typer.echo", "typer.secho", "click.echo", "Console"} or (
                    name.startswith(("sys.stdout", "sys.stderr")) and name.endswith("write")
                ):
                    found.append(f"{path.name}:{node.lineno}: {name}")
    assert found == []
