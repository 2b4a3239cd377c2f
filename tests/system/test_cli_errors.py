"""The command line: for every way to fail, its exit code and one line; nothing is left behind."""

from __future__ import annotations

import json
import re
import shutil
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from support.jobs import TOML, write_job

import secagg.runs.run
import secagg.runs.session_loop
from secagg.cli.main import main
from secagg.core.frames import peek_header
from secagg.core.hash_chain_log import read_log
from secagg.errors import InternalError
from secagg.models.moments.method import PooledMoments

Command = Callable[..., tuple[int, str, str]]


@pytest.fixture
def command(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> Iterator[Command]:
    """Run `secagg ARGS` in this process; return (exit code, stdout, stderr)."""
    monkeypatch.delenv("SECAGG_TRACEBACK", raising=False)

    def call(*args: str | Path) -> tuple[int, str, str]:
        monkeypatch.setattr(sys, "argv", ["secagg", *map(str, args)])
        capsys.readouterr()
        with pytest.raises(SystemExit) as caught:
            main()
        out, err = capsys.readouterr()
        code = caught.value.code
        return code if isinstance(code, int) else 0, out, err

    before = {number: signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)}
    yield call
    for number, handler in before.items():
        signal.signal(number, handler)


@pytest.fixture
def job(tmp_path: Path) -> Path:
    return write_job(tmp_path)


def everything_in(folder: Path) -> dict[str, bytes | None]:
    """Return all files but the ledgers, which keep what was decided in runs that fail, too."""
    return {
        str(path.relative_to(folder)): path.read_bytes() if path.is_file() else None
        for path in sorted(folder.rglob("*"))
        if "ledgers" not in path.parts
    }


def check_failure(command: Command, job: Path, code: int, line: str, *args: str) -> None:
    """`secagg run` fails with this code and line, in text and as JSON, and changes no file.

    Only the log of a run that had released sums before it failed is kept, and the line names it.
    """
    before = everything_in(job.parent)
    run = ("run", job, "--out", job.parent / "some" / "out", *args)
    got, out, err = command(*run)
    assert (got, out) == (code, "")
    shown = [text for text in err.splitlines() if text.startswith("secagg: ")]
    assert err.splitlines()[-1:] == shown, err
    assert re.search(line, shown[0]), shown[0]
    assert "Traceback" not in err

    got, out, err = command(*run, "--json")
    assert (got, out) == (code, "")
    error = json.loads(err)["error"]
    assert error.keys() == {"code", "where", "what", "advice"}
    assert error["where"] in shown[0] and error["what"].split("\n")[0] in shown[0]
    logs = sorted((job.parent / "some").glob("out.failed-*"))
    for kept in logs:
        assert [path.name for path in kept.iterdir()] == ["log.jsonl"]
        events = [entry["event"] for entry in read_log(kept / "log.jsonl")]
        assert "release" in events and events[-1] == "failed"
        shutil.rmtree(kept)
    assert len(logs) == 2 * shown[0].count("on record in")
    if logs:
        (job.parent / "some").rmdir()
    assert everything_in(job.parent) == before


# --- failures of data ----------------------------------------------------------------------------

NORTH = "data/north.csv"


def edit(path: Path, change: Callable[[str], str]) -> None:
    path.write_text(change(path.read_text(encoding="utf-8")), encoding="utf-8")


def only_header(text: str) -> str:
    return text.partition("\n")[0] + "\n"


DATA: dict[str, tuple[Callable[[str], str], int, str]] = {
    "missing column": (lambda t: t.replace("age,", "years,", 1), 2,
                       r"north: column 'age' is missing\. It has years, sex, grade\."),
    "text in a numeric column": (lambda t: re.sub(r"\n[\d.]+,", "\nold,", t, count=1), 2,
                                 r"north, column 'age', record 1: 'old' is not a number"),
    "a level not declared": (lambda t: t.replace("mid", "middle"), 2,
                             r"north, column 'grade', record \d+: 'middle' is not a declared"),
    "an infinite value": (lambda t: re.sub(r"\n[\d.]+,", "\ninf,", t, count=1), 2, "infinite"),
    "an empty file": (lambda _: "", 2, r"north\.csv: the file is empty\. Give it a header"),
    "only a header": (only_header, 3, "north: it has fewer complete records than its rule"),
    "one record": (lambda t: "\n".join(t.splitlines()[:2]), 3, "fewer complete records"),
    "semicolons": (lambda t: t.replace(",", ";"), 2, "not separated by commas"),
    "rows too long": (lambda t: t.replace("\n", ",9\n").replace(",9", "", 1), 2, "in the header"),
    "a column twice": (lambda t: t.replace("age,", "sex,", 1), 2, "column 'age' is missing"),
    "too many rows": (lambda t: only_header(t) + "30,male,low\n" * 101, 2, r"max_rows = 100"),
}  # fmt: skip


@pytest.mark.parametrize("what", DATA)
def test_data_that_cannot_be_used(command: Command, job: Path, what: str) -> None:
    change, code, line = DATA[what]
    edit(job.parent / NORTH, change)
    check_failure(command, job, code, line)


def test_files_with_different_columns(command: Command, job: Path) -> None:
    edit(job.parent / NORTH, lambda t: t.replace("grade", "stage", 1))
    edit(job.parent / "data/west.csv", lambda t: t.replace("sex", "gender", 1))
    check_failure(command, job, 2, r"(north: column 'grade'|west: column 'sex') is missing")


# --- failures of the job -------------------------------------------------------------------------

SETTINGS: dict[str, tuple[list[str], int, str]] = {
    "k not met": (["release.min_sites=4"], 3,
                  r"coordinator: 3 sites take part, and the release rule asks for 4"),
    "too few records in all": (["release.min_total_records=1000"], 3, "36 records in all"),
    "unknown key": (["release.min_site=3"], 2, "unknown key 'release.min_site'. Did you mean"),
    "unknown column key": (["columns.age.hgh=3"], 2, "'columns.age.hgh'. Did you mean 'high'"),
    "unknown key of the method": (["method.bits=3"], 2, "method: unknown key 'bits'"),
    "unknown method": (["method.name=momens"], 2, "no method 'momens'. Did you mean 'moments'?"),
    "unknown protocol": (["protocol.name=aditive"], 2, "no protocol 'aditive'. Did you mean"),
    "overflowing bound": (["method.fraction_bits=120"], 2,
                          r"field 'moments': the sum over 3 sites .* largest ring"),
    "a promise without noise": (["privacy.epsilon=1", "privacy.delta=1e-6"], 2,
                                r"privacy: epsilon is set and placement is not, so .*exact"),
    "a clip without noise": (['method={name="gradient",family="gaussian",outcome="age",'
                              'predictors=["sex"],clip=1.0}'], 2,
                             r"method\.clip: has no effect without differential privacy"),
    "absurd resolution": (["method.fraction_bits=9999"], 2, "is absurd"),
    "low above high": (["columns.age.low=200"], 2, "must be below high"),
    "no such folder": (["sites.folder=nowhere"], 2, "no such folder"),
    "one rule of one site": (["release.min_sites=1"], 2, "release.min_sites"),
    "an analysis of no column": (['method.analyses=[{kind="ols",outcome="zz",predictors=["age"]}]'],
                                 2, "no column 'zz'"),
}  # fmt: skip


@pytest.mark.parametrize("what", SETTINGS)
def test_jobs_that_cannot_be_run(command: Command, job: Path, what: str) -> None:
    settings, code, line = SETTINGS[what]
    flags = [flag for pair in settings for flag in ("--set", pair)]
    check_failure(command, job, code, line, *flags)


@pytest.mark.parametrize("rule", ["min_sites", "min_records"])
def test_an_unset_rule(command: Command, job: Path, rule: str) -> None:
    edit(job, lambda text: re.sub(rf"{rule} = \d\n", "", text))
    check_failure(command, job, 3, f"release rule {rule} is not set. Set {rule} in the job")


def test_three_of_four_sites_when_four_are_needed(command: Command, job: Path) -> None:
    """The fourth hospital's file has not come; each site's own rule says four."""
    for site in ("north", "south", "west"):
        policy = job.parent / "data" / f"{site}.policy.toml"
        policy.write_text("min_sites = 4\nmin_records = 2\n")
    check_failure(
        command, job, 3, "3 sites take part, and the release rule asks for 4. Wait for more"
    )


def test_one_site_refuses(command: Command, job: Path) -> None:
    (job.parent / "data/south.policy.toml").write_text("min_sites = 2\nmin_records = 500\n")
    check_failure(command, job, 3, r"south: .* than its rule asks for \(500\)")


@pytest.mark.parametrize(
    ("text", "line"),
    [("title = ", "not valid TOML"), ("", "title: is required"),
     (TOML.replace("moments", "momments"), "no method 'momments'"),
     (TOML.replace("sex", r'"s\nx"').replace('"female", ', ""), "columns.s x.levels")],
)  # fmt: skip
def test_job_files_that_cannot_be_used(command: Command, job: Path, text: str, line: str) -> None:
    job.write_text(text)
    check_failure(command, job, 2, line)


def test_a_job_file_that_is_not_there(command: Command, tmp_path: Path) -> None:
    check_failure(command, tmp_path / "none.toml", 2, "none.toml: cannot be read")


def test_a_pair_that_is_none(command: Command, job: Path) -> None:
    check_failure(command, job, 2, "--set x: is not KEY=VALUE", "--set", "x")


@pytest.mark.parametrize("value", ["a\nlow = 3", "3\r\n", '"""\n"""', "\n"])
def test_a_value_of_two_lines(command: Command, job: Path, value: str) -> None:
    line = "--set title: holds a line break. Give one KEY=VALUE at a time"
    check_failure(command, job, 2, line, "--set", f"title={value}")


@pytest.mark.parametrize("place", ["file", "file/x", "file/x/y", "link", "link/x", "link/x/y"])
def test_a_place_that_cannot_be_written_to(command: Command, job: Path, place: str) -> None:
    """`link` leads nowhere."""
    (job.parent / "file").write_text("mine")
    (job.parent / "link").symlink_to(job.parent / "nowhere")
    before = everything_in(job.parent)
    for overwrite in ([], ["--overwrite"]):
        code, out, err = command("run", job, "--out", job.parent / place, *overwrite)
        assert (code, out) == (2, "") and err.count("\n") == 1
        assert re.match(r"secagg: .*(exists already|cannot be written to|not a run folder)", err)
    assert everything_in(job.parent) == before and (job.parent / "link").is_symlink()


def test_a_protocol_that_is_none(command: Command, job: Path) -> None:
    check_failure(command, job, 2, "no protocol 'magic'", "--protocol", "magic")


# --- failures under way --------------------------------------------------------------------------


def patch_run(monkeypatch: pytest.MonkeyPatch, **options: Any) -> None:
    monkeypatch.setattr(secagg.runs.run, "run", partial(secagg.runs.run.run, **options))


@pytest.mark.parametrize("phase", ["hold", "open"])
def test_a_dropped_aggregator(
    command: Command, job: Path, monkeypatch: pytest.MonkeyPatch, phase: str
) -> None:
    def tamper(sender: str, _: str, frame: bytes) -> Sequence[bytes]:
        lost = sender == "aggregator_2" and peek_header(frame)[1] == phase
        return [] if lost else [frame]

    patch_run(monkeypatch, tamper=tamper)
    line = "additive: aggregator_2 did not answer, but all aggregators are required"
    check_failure(command, job, 4, line, "--protocol", "additive")


def test_a_site_lost_after_the_first_release(
    command: Command, job: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def tamper(sender: str, _: str, frame: bytes) -> Sequence[bytes]:
        return [] if sender == "west" and peek_header(frame)[0] == 1 else [frame]

    patch_run(monkeypatch, tamper=tamper)
    check_failure(command, job, 4, "round 1: west dropped out after the first release")


def test_our_own_bug(command: Command, job: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(*_: Any, **__: Any) -> None:
        raise RuntimeError("first line\nsecond line")

    monkeypatch.setattr(secagg.runs.session_loop, "_loop", broken)
    check_failure(command, job, 1, r"RuntimeError: first line\. .*SECAGG_TRACEBACK=1")


def test_our_own_bug_at_a_site(
    command: Command, job: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken(*_: Any) -> None:
        raise RuntimeError("first line\nsecond line")

    monkeypatch.setattr(PooledMoments, "contribute", broken)
    line = r"north: RuntimeError: first line\. .*SECAGG_TRACEBACK=1"
    check_failure(command, job, 1, line)
    monkeypatch.setenv("SECAGG_TRACEBACK", "1")
    monkeypatch.setattr(sys, "argv", ["secagg", "run", str(job), "--out", str(job.parent / "out")])
    with pytest.raises(InternalError) as caught:
        main()
    assert isinstance(caught.value.__cause__, RuntimeError)


@pytest.mark.parametrize(("number", "expected"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
@pytest.mark.parametrize("as_json", [False, True])
def test_interrupted(
    command: Command,
    job: Path,
    monkeypatch: pytest.MonkeyPatch,
    number: signal.Signals,
    expected: int,
    as_json: bool,
) -> None:
    def interrupt(*_: Any, **__: Any) -> None:
        signal.raise_signal(number)

    monkeypatch.setattr(secagg.runs.session_loop, "_loop", interrupt)
    before = everything_in(job.parent)
    more = ["--json"] if as_json else []
    code, out, err = command("run", job, "--out", job.parent / "some" / "out", *more)
    assert code == expected and out == ""
    advice = "No sum was released, and nothing is kept."
    if as_json:
        told = {"code": "interrupted", "where": "command", "what": "interrupted", "advice": advice}
        assert json.loads(err) == {"error": told}
    else:
        assert err == f"secagg: command: interrupted. {advice}\n"
    assert everything_in(job.parent) == before


def test_interrupted_after_a_release(
    command: Command, job: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def tamper(_: str, __: str, frame: bytes) -> Sequence[bytes]:
        if peek_header(frame)[0] == 1:
            signal.raise_signal(signal.SIGTERM)
        return [frame]

    patch_run(monkeypatch, tamper=tamper)
    code, _, err = command("run", job, "--out", job.parent / "out")
    (kept,) = job.parent.glob("out.failed-*")
    line = f"secagg: command: interrupted. Sums released before are on record in {kept}."
    assert code == 143 and err.splitlines()[-1] == line


def test_a_wrong_word_is_one_clean_line(command: Command) -> None:
    code, _, err = command("list", "wishes")
    assert code == 2 and err.count("\n") == 1 and "\t" not in err and "Value error" not in err
    assert "'methods', 'protocols'" in err


# --- what it imports -----------------------------------------------------------------------------

LIGHT = """
import sys
sys.argv = ["secagg", *{args}]
try:
    from secagg.cli.main import main
    main()
except SystemExit as done:
    assert not done.code, done.code
# (typer itself imports pydantic)
heavy = {{"numpy", "scipy", "pandas", "matplotlib", "phe", "gmpy2", "cryptography", "networkx",
          "jinja2", "torch"}}
assert not heavy & set(sys.modules), heavy & set(sys.modules)
"""


@pytest.mark.parametrize("args", [["--help"], ["run", "--help"], ["--version"]])
def test_help_is_light(args: list[str]) -> None:
    done = subprocess.run(
        [sys.executable, "-c", LIGHT.format(args=args)], check=False, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr
    assert "secagg" in done.stdout
