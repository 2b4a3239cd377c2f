"""The work of an experiment: whatever kills it, what was computed is kept, and nothing is lost."""

from __future__ import annotations

import json
import os
import platform
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from importlib import metadata
from pathlib import Path
from typing import Any

import pytest
from support.experiments.toy_figure import toy_figure
from support.runs.checkout import ROOT

from reproductions.harness.figures import Entry, Figure, Place, read_entries
from reproductions.harness.pages import write
from secagg.errors import UsageError
from secagg.experiments.runner import cells
from secagg.experiments.runner.cell_store import KILLED, Cache, in_order
from secagg.experiments.runner.cells import cell, code_version, compute
from secagg.experiments.runner.experiment import Computed, compute_experiment

HERE = Place("here", 1, "toy")


def draw(seeds: int) -> dict[int, str]:
    return dict.fromkeys(range(seeds), "draw")


def seeds_called(calls: Path) -> list[int]:
    return sorted(int(path.name.partition(".")[0]) for path in calls.iterdir())


def reproduced(figure: Figure, folder: Path, jobs: int) -> tuple[Computed, Entry]:
    done = compute_experiment(figure, write, folder, jobs)
    return done, read_entries(figure, done.outcomes)[HERE]


def entry_of(folder: Path, calls: Path, what: dict[int, str], jobs: int = 2) -> Entry:
    return reproduced(toy_figure(calls, what), folder, jobs)[1]


def wait_for(done: Callable[[], bool], seconds: float = 20.0) -> None:
    until = time.monotonic() + seconds
    while not done():
        assert time.monotonic() < until, "waited too long"
        time.sleep(0.02)


def test_one_and_two_processes_give_the_same_bits(tmp_path: Path) -> None:
    one = entry_of(tmp_path / "1", tmp_path / "calls", draw(6), jobs=1)
    two = entry_of(tmp_path / "2", tmp_path / "calls", draw(6), jobs=2)
    assert one.values["value"] == two.values["value"] and len(one.values["value"]) == 6
    assert one.unconverged == 1  # seed 3
    names = [{path.name for path in (tmp_path / n / "cells").iterdir()} for n in "12"]
    assert names[0] == names[1] and len(names[0]) == 6 + 1  # and the lock


def test_existing_results_are_not_computed_again(tmp_path: Path) -> None:
    calls = tmp_path / "calls"
    entry_of(tmp_path, calls, draw(2))
    assert seeds_called(calls) == [0, 1]
    again = entry_of(tmp_path, calls, draw(4))
    assert seeds_called(calls) == [0, 1, 2, 3] and again.runs == 4


def test_a_damaged_result_is_computed_again(tmp_path: Path) -> None:
    calls = tmp_path / "calls"
    before = entry_of(tmp_path, calls, draw(2))
    [path, _] = sorted(path for path in (tmp_path / "cells").iterdir() if path.name != "lock")
    path.write_bytes(path.read_bytes()[:-1])
    after = entry_of(tmp_path, calls, draw(2))
    assert after.values["value"] == before.values["value"] and len(seeds_called(calls)) == 3


def test_a_cell_that_raises_is_counted_and_tried_again(tmp_path: Path) -> None:
    calls, what = tmp_path / "calls", {0: "draw", 1: "raise", 2: "draw"}
    for runs in (1, 2):
        found = entry_of(tmp_path, calls, what)
        assert found.failed == {1: "ArithmeticError: seed 1 has no result"}
        assert sorted(found.values["value"]) == [0, 2]
        assert seeds_called(calls) == [0, *[1] * runs, 2]
    page = (tmp_path / "toy.md").read_text()
    assert "2, 1 failed" in page and "seed 1 has no result" in page and "second" not in page


@pytest.mark.system
def test_a_killed_process_fails_only_its_own_cell(tmp_path: Path) -> None:
    """Its neighbours, of which the pool loses one with it, are computed all the same."""
    found = entry_of(tmp_path, tmp_path / "calls", draw(4) | {1: "die"})
    assert found.failed == {1: KILLED} and sorted(found.values["value"]) == [0, 2, 3]


@pytest.fixture
def started(tmp_path: Path) -> Iterator[subprocess.Popen[str]]:
    """A run in its own process: seeds 0 and 1 are done, seeds 2 and 3 wait for a file."""
    (tmp_path / "calls").mkdir()
    process = subprocess.Popen(
        [sys.executable, "-m", "support.experiments.toy_figure", tmp_path, tmp_path / "calls", "2",
         "0=draw", "1=draw", "2=wait", "3=wait"],
        cwd=ROOT / "tests", env=os.environ | {"PYTHONPATH": str(ROOT)},
        stderr=subprocess.PIPE, text=True,
    )  # fmt: skip
    try:
        wait_for(lambda: seeds_called(tmp_path / "calls") == [0, 1, 2, 3])
        yield process
    finally:
        process.kill()
        process.communicate()


def children(pid: int) -> list[int]:
    listed = subprocess.run(
        ["ps", "-o", "pid=", "--ppid", str(pid)], capture_output=True, text=True, check=False
    )
    return [int(line) for line in listed.stdout.split()]


def is_running(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except FileNotFoundError:
        return False


@pytest.mark.system
@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGINT])
def test_a_killed_run_can_be_continued(
    tmp_path: Path, started: subprocess.Popen[str], number: signal.Signals
) -> None:
    """And its processes do not outlive it."""
    workers = children(started.pid)
    assert len(workers) >= 2
    os.kill(started.pid, number)
    _, err = started.communicate(timeout=20)
    wait_for(lambda: not any(map(is_running, workers)))
    if number == signal.SIGINT:
        assert "2 of 4 cells" in err and str(tmp_path / "cells") in err
    page = tmp_path / "toy.md"
    assert "| Toy | 2, 2 pending |" in page.read_text().splitlines()
    (tmp_path / "gate").touch()
    what = {0: "draw", 1: "draw", 2: "wait", 3: "wait"}
    figure = toy_figure(tmp_path / "calls", what, tmp_path / "gate")
    done, entry = reproduced(figure, tmp_path, 2)
    assert entry.runs == 4 and done.computed == 2 and "pending" not in page.read_text()
    assert seeds_called(tmp_path / "calls") == [0, 1, 2, 2, 3, 3]


@pytest.mark.system
def test_cells_of_an_externally_killed_process_are_computed_again(
    tmp_path: Path, started: subprocess.Popen[str]
) -> None:
    """As the system does where memory runs out: the cells it had are computed again."""
    computing = [pid for pid in children(started.pid) if b"spawn_main" in cmdline(pid)]
    os.kill(computing[0], signal.SIGKILL)
    (tmp_path / "gate").touch()
    _, err = started.communicate(timeout=30)
    assert started.returncode == 0, err
    [entry] = json.loads((tmp_path / "toy.json").read_text())["entries"]
    assert entry["runs"] == 4 and entry["failed"] == {}


def cmdline(pid: int) -> bytes:
    return Path(f"/proc/{pid}/cmdline").read_bytes()


@pytest.mark.system
def test_two_runs_cannot_share_a_folder(tmp_path: Path, started: subprocess.Popen[str]) -> None:
    with pytest.raises(UsageError, match="in use by another process"):
        entry_of(tmp_path, tmp_path / "calls", draw(1))
    assert started.poll() is None


# --- the name of a result -------------------------------------------------------------------------


@pytest.fixture
def package(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A package `toys` of a task, a module that it uses and one that it does not."""
    folder = tmp_path / "toys"
    folder.mkdir()
    (folder / "__init__.py").touch()
    (folder / "task.py").write_text(
        "import math\nfrom toys.used import f\n\ndef compute(settings):\n    return f(settings)\n"
    )
    (folder / "used.py").write_text(
        "from typing import TYPE_CHECKING\nif TYPE_CHECKING:\n    from toys.unused import g\n"
        "def f(settings):\n    return {'toy': {'converged': 1.0}}\n"
    )
    (folder / "unused.py").write_text("def g():\n    return 1\n")
    monkeypatch.syspath_prepend(tmp_path)
    code_version.cache_clear()
    yield folder
    code_version.cache_clear()
    for name in [name for name in sys.modules if name.partition(".")[0] == "toys"]:
        del sys.modules[name]


@pytest.mark.parametrize(
    ("file", "old", "new", "changes"),
    [
        ("used.py", "1.0", "0.0", True),
        ("task.py", "f(settings)", "f({})", True),
        ("task.py", "import math", "import toys.unused", True),
        ("unused.py", "1", "2", False),
        ("used.py", "import g", "import h", False),
        ("used.py", "def f", "# why\n\ndef f", False),
        ("task.py", "    return", '    """Say."""\n    return', False),
    ],
)
def test_the_code_version_changes_only_with_relevant_code(
    package: Path, file: str, old: str, new: str, changes: bool
) -> None:
    before = code_version("toys.task")
    text = (package / file).read_text()
    assert old in text
    (package / file).write_text(text.replace(old, new))
    code_version.cache_clear()
    assert (code_version("toys.task") != before) == changes


def test_moving_a_module_keeps_its_results(package: Path) -> None:
    """What it binds stays the same; a name from another module, or another name, does not."""
    before, task = code_version("toys.task"), package / "task.py"
    (package / "inner").mkdir()
    (package / "used.py").rename(package / "inner" / "moved.py")
    task.write_text(task.read_text().replace("toys.used", "toys.inner.moved"))
    code_version.cache_clear()
    assert code_version("toys.task") == before
    (package / "other.py").write_text("def f(settings):\n    return {}\n")
    task.write_text(task.read_text().replace("toys.inner.moved", "toys.other"))
    code_version.cache_clear()
    assert code_version("toys.task") != before


def test_the_code_of_secagg_counts_too(package: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of a task of any package, if it imports from modules and not the names of `secagg`."""
    real, copy, task = cells._source, package / "copy.txt", package / "task.py"
    copy.write_text("Array = 1\n")
    sources = {"secagg.core.arrays": copy}
    monkeypatch.setattr(cells, "_source", lambda name: sources.get(name) or real(name))
    task.write_text("from secagg.core.arrays import Array\n")
    code_version.cache_clear()
    before = code_version("toys.task")
    copy.write_text("Array = 2\n")
    code_version.cache_clear()
    assert code_version("toys.task") != before
    task.write_text("from secagg import simulate\n")
    code_version.cache_clear()
    with pytest.raises(UsageError) as error:
        code_version("toys.task")
    assert error.value.where == "experiments"


@pytest.mark.usefixtures("package")
def test_results_of_other_code_are_computed_again(tmp_path: Path) -> None:
    cache, one = Cache(tmp_path), cell("toys.task", 1.0, seed=0)
    cache.save(one, compute(one, code_version("toys.task")))
    assert cache.load(one) is not None
    used = tmp_path / "toys" / "used.py"
    used.write_text(used.read_text().replace("1.0", "0.5"))
    assert cache.load(one) is not None  # the code of a run is that of its start
    code_version.cache_clear()
    assert cache.load(one) is None
    with pytest.raises(UsageError):
        compute(one, "as it was")


def test_a_results_name_depends_on_task_and_settings_only(tmp_path: Path) -> None:
    cache = Cache(tmp_path)
    one = cell("support.experiments.toy_task", 1.0, seed=0, what="draw", calls=str(tmp_path))
    cache.save(one, compute(one, code_version(one.task)))
    same = cell("support.experiments.toy_task", 9.0, calls=str(tmp_path), what="draw", seed=0)
    assert cache.load(same) == cache.load(one) and same == one
    others: list[Any] = [{"seed": 1}, {"seed": 0.0}, {"seed": "0"}, {"more": True}]
    for change in others:
        settings = {"seed": 0, "what": "draw", "calls": str(tmp_path)} | change
        assert cache.load(cell("support.experiments.toy_task", 1.0, **settings)) is None


@pytest.mark.usefixtures("package")
@pytest.mark.parametrize(("there", "kept"), [(True, ", causal-learn 0.1"), (False, "")])
def test_library_versions_are_recorded_if_installed(
    there: bool, kept: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """PC and GES are causal-learn's, which is optional."""
    installed = {"numpy": "2.0", "scipy": "1.1"} | ({"causal-learn": "0.1"} if there else {})

    def version(name: str) -> str:
        if name not in installed:
            raise metadata.PackageNotFoundError(name)
        return installed[name]

    monkeypatch.setattr(metadata, "version", version)
    found = compute(cell("toys.task", 1.0, seed=0), code_version("toys.task")).versions
    assert found == f"Python {platform.python_version()}, numpy 2.0, scipy 1.1{kept}"


def test_cells_are_computed_in_the_planned_order() -> None:
    some = [cell("t", seconds, seed=seed, of=seconds) for seed in (1, 0) for seconds in (1.0, 5.0)]
    some.insert(0, replace(cell("t", 9.0, seed=0), late=True))
    ordered = [(dict(one.settings)["seed"], one.seconds) for one in in_order(some)]
    assert ordered == [(0, 5.0), (0, 1.0), (1, 5.0), (1, 1.0), (0, 9.0)]
