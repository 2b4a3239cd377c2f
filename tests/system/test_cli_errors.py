"""The command line: every way to fail has its exit code and one line, and leaves nothing behind."""

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
from support.runs.jobs import TOML, write_job

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


def check_failure(command: Command, job: Path, code: int, where: str, *args: str) -> str:
    """`secagg run` fails with this code, in text and as JSON, and changes no file; return what.

    Only the log of a run that had released sums before it failed is kept, and the line names it.
    """
    before = everything_in(job.parent)
    run = ("run", job, "--out", job.parent / "some" / "out", *args)
    got, out, err = command(*run)
    assert (got, out) == (code, "") and "Traceback" not in err
    shown = [text for text in err.splitlines() if text.startswith("secagg: ")]
    assert err.splitlines()[-1:] == shown, err

    got, out, err = command(*run, "--json")
    assert (got, out) == (code, "")
    error = json.loads(err)["error"]
    assert error.keys() == {"code", "where", "what", "advice"}
    assert error["where"].replace("\n", " ") in shown[0]
    assert error["what"].split("\n")[0] in shown[0]
    logs = sorted((job.parent / "some").glob("out.failed-*"))
    for kept in logs:
        assert [path.name for path in kept.iterdir()] == ["log.jsonl"]
        events = [entry["event"] for entry in read_log(kept / "log.jsonl")]
        assert "release" in events and events[-1] == "failed"
        shutil.rmtree(kept)
    assert len(logs) == 2 * shown[0].count("out.failed-")
    if logs:
        (job.parent / "some").rmdir()
    assert everything_in(job.parent) == before
    assert re.search(where, error["where"]), error
    return str(error["what"])


# --- failures of data ----------------------------------------------------------------------------


def edit(path: Path, change: Callable[[str], str]) -> None:
    path.write_text(change(path.read_text(encoding="utf-8")), encoding="utf-8")


def only_header(text: str) -> str:
    return text.partition("\n")[0] + "\n"


DATA: dict[str, tuple[Callable[[str], str], int, str]] = {
    "missing column": (lambda t: t.replace("age,", "years,", 1), 2, "north"),
    "text in a numeric column": (lambda t: re.sub(r"\n[\d.]+,", "\nold,", t, count=1), 2,
                                 "north, column 'age'"),
    "a level not declared": (lambda t: t.replace("mid", "middle"), 2, "north, column 'grade'"),
    "an infinite value": (lambda t: re.sub(r"\n[\d.]+,", "\ninf,", t, count=1), 2, "'age'"),
    "an empty file": (lambda _: "", 2, r"north\.csv"),
    "only a header": (only_header, 3, "north"),
    "one record": (lambda t: "\n".join(t.splitlines()[:2]), 3, "north"),
    "semicolons": (lambda t: t.replace(",", ";"), 2, "north"),
    "rows too long": (lambda t: t.replace("\n", ",9\n").replace(",9", "", 1), 2, "north"),
    "a column twice": (lambda t: t.replace("age,", "sex,", 1), 2, "north"),
    "too many rows": (lambda t: only_header(t) + "30,male,low\n" * 101, 2, "north"),
}  # fmt: skip


@pytest.mark.parametrize("problem", DATA)
def test_unusable_data_are_an_error(command: Command, job: Path, problem: str) -> None:
    change, code, where = DATA[problem]
    edit(job.parent / "data/north.csv", change)
    check_failure(command, job, code, where)


# --- failures of the job -------------------------------------------------------------------------

SETTINGS: dict[str, tuple[str, int, str]] = {
    "k not met": ("release.min_sites=4", 3, "coordinator"),
    "too few records in all": ("release.min_total_records=1000", 3, "coordinator"),
    "unknown key": ("release.min_site=3", 2, "job"),
    "unknown key of the method": ("method.bits=3", 2, "method"),
    "unknown method": ("method.name=momens", 2, "method"),
    "unknown protocol": ("protocol.name=aditive", 2, "protocol"),
    "overflowing bound": ("method.fraction_bits=120", 2, "field 'moments'"),
    "a clip without noise": ('method={name="gradient",family="gaussian",outcome="age",'
                             'predictors=["sex"],clip=1.0}', 2, r"method\.clip"),
    "absurd resolution": ("method.fraction_bits=9999", 2, "."),
    "low above high": ("columns.age.low=200", 2, r"job\.toml"),
    "no such folder": ("sites.folder=nowhere", 2, "nowhere"),
    "one rule of one site": ("release.min_sites=1", 2, r"job\.toml"),
    "a title of two lines": ("title=a\nlow = 3", 2, "--set title"),
    "no pair": ("x", 2, "--set x"),
}  # fmt: skip


@pytest.mark.parametrize("problem", SETTINGS)
def test_impossible_jobs_are_an_error(command: Command, job: Path, problem: str) -> None:
    pair, code, where = SETTINGS[problem]
    check_failure(command, job, code, where, "--set", pair)


@pytest.mark.parametrize("rule", ["min_sites", "min_records"])
def test_an_unset_release_rule_is_a_refusal(command: Command, job: Path, rule: str) -> None:
    edit(job, lambda text: re.sub(rf"{rule} = \d\n", "", text))
    assert rule in check_failure(command, job, 3, ".")


@pytest.mark.parametrize(("rule", "where"), [("min_sites", "."), ("min_records", "south")])
def test_a_refusal_by_a_site_is_shown(command: Command, job: Path, rule: str, where: str) -> None:
    rules = {"min_sites": 2, "min_records": 2} | {rule: 500}
    text = "".join(f"{name} = {value}\n" for name, value in rules.items())
    text += 'protocols = ["any"]\n'
    (job.parent / "data/south.policy.toml").write_text(text)
    assert "500" in check_failure(command, job, 3, where)


@pytest.mark.parametrize(
    ("text", "where"),
    [("title = ", r"job\.toml"), ("", r"job\.toml"),
     (TOML.replace("moments", "momments"), "method"),
     (TOML.replace("sex", r'"s\nx"').replace('"female", ', ""), r"job\.toml")],
)  # fmt: skip
def test_unusable_job_files_are_an_error(
    command: Command, job: Path, text: str, where: str
) -> None:
    job.write_text(text)
    check_failure(command, job, 2, where)


def test_a_missing_job_file_is_an_error(command: Command, tmp_path: Path) -> None:
    check_failure(command, tmp_path / "none.toml", 2, r"none\.toml")


@pytest.mark.parametrize("place", ["file", "file/x", "file/x/y", "link", "link/x", "link/x/y"])
def test_an_unwritable_output_place_is_an_error(command: Command, job: Path, place: str) -> None:
    """`link` leads nowhere."""
    (job.parent / "file").write_text("mine")
    (job.parent / "link").symlink_to(job.parent / "nowhere")
    before = everything_in(job.parent)
    for overwrite in ([], ["--overwrite"]):
        code, out, err = command("run", job, "--out", job.parent / place, *overwrite)
        assert (code, out) == (2, "") and err.count("\n") == 1
    assert everything_in(job.parent) == before and (job.parent / "link").is_symlink()


# --- failures under way --------------------------------------------------------------------------


def patch_run(monkeypatch: pytest.MonkeyPatch, **options: Any) -> None:
    monkeypatch.setattr(secagg.runs.run, "run", partial(secagg.runs.run.run, **options))


@pytest.mark.parametrize(
    ("protocol", "party", "when", "where"),
    [("additive", "aggregator_2", "hold", "additive"), ("plain", "west", 1, "round 1")],
)
def test_a_party_that_drops_out_is_named(
    command: Command,
    job: Path,
    monkeypatch: pytest.MonkeyPatch,
    protocol: str,
    party: str,
    when: str | int,
    where: str,
) -> None:
    def tamper(sender: str, _: str, frame: bytes) -> Sequence[bytes]:
        return [] if sender == party and when in peek_header(frame)[:2] else [frame]

    patch_run(monkeypatch, tamper=tamper)
    assert party in check_failure(command, job, 4, where, "--protocol", protocol)


def broken(*_: Any, **__: Any) -> None:
    raise RuntimeError("first line\nsecond line")


def test_an_internal_error_names_its_cause(
    command: Command, job: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with monkeypatch.context() as patch:
        patch.setattr(secagg.runs.session_loop, "_loop", broken)
        assert "RuntimeError: first line" in check_failure(command, job, 1, "secagg")
    monkeypatch.setattr(PooledMoments, "contribute", broken)
    assert "RuntimeError: first line" in check_failure(command, job, 1, "north")
    monkeypatch.setenv("SECAGG_TRACEBACK", "1")
    monkeypatch.setattr(sys, "argv", ["secagg", "run", str(job), "--out", str(job.parent / "out")])
    with pytest.raises(InternalError) as caught:
        main()
    assert isinstance(caught.value.__cause__, RuntimeError)


@pytest.mark.parametrize(
    ("number", "code", "flags"),
    [(signal.SIGINT, 130, []), (signal.SIGTERM, 143, []), (signal.SIGTERM, 143, ["--json"])],
)
def test_an_interrupted_command_ends_cleanly(
    command: Command,
    job: Path,
    monkeypatch: pytest.MonkeyPatch,
    number: signal.Signals,
    code: int,
    flags: list[str],
) -> None:
    def interrupt(*_: Any, **__: Any) -> None:
        signal.raise_signal(number)

    monkeypatch.setattr(secagg.runs.session_loop, "_loop", interrupt)
    before = everything_in(job.parent)
    got, out, err = command("run", job, "--out", job.parent / "some" / "out", *flags)
    assert (got, out) == (code, "")
    if flags:
        error = json.loads(err)["error"]
        assert (error["code"], error["where"]) == ("interrupted", "command") and error["advice"]
    else:
        sites, ledgers, said = err.splitlines()
        assert ledgers.startswith("new ledgers in ")
        assert said.startswith("secagg: command: ") and sites.startswith("3 sites: ")
    assert everything_in(job.parent) == before


def test_an_interrupt_after_a_release_keeps_the_log(
    command: Command, job: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def tamper(_: str, __: str, frame: bytes) -> Sequence[bytes]:
        if peek_header(frame)[0] == 1:
            signal.raise_signal(signal.SIGTERM)
        return [frame]

    patch_run(monkeypatch, tamper=tamper)
    code, _, err = command("run", job, "--out", job.parent / "out")
    (kept,) = job.parent.glob("out.failed-*")
    assert code == 143 and str(kept) in err.splitlines()[-1]


def test_a_wrong_argument_gives_one_clean_line(command: Command) -> None:
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


@pytest.mark.parametrize("args", [["run", "--help"], ["--version"]])
def test_help_loads_no_heavy_libraries(args: list[str]) -> None:
    done = subprocess.run(
        [sys.executable, "-c", LIGHT.format(args=args)], check=False, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr
    assert "secagg" in done.stdout
