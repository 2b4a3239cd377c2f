"""Every block of README.md is run or checked, so that none can go stale.

- bash: run in a copy of the checkout, one after the other; lines that call make are only checked to
  name a target, since they would build another environment.
- python: run in the same copy, after the bash blocks, each in a fresh interpreter.
- toml: either an excerpt of a job in examples/, which the other tests run, or a job by itself that
  `secagg plan` accepts.
- text: shown output; not run.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
from support.checkout import ROOT, copy_checkout

BLOCKS = re.findall(r"^```(\S*)\n(.*?)^```$", (ROOT / "README.md").read_text(), re.M | re.S)
FIRST_SCREEN = ["make demo", "make test"]


def blocks(language: str) -> list[str]:
    return [text for name, text in BLOCKS if name == language]


@pytest.fixture(scope="module")
def copy(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = copy_checkout(tmp_path_factory.mktemp("readme"))
    (folder / ".venv").symlink_to(sys.prefix)  # README's commands name .venv/bin
    return folder


def run(command: list[str], folder: Path) -> subprocess.CompletedProcess[str]:
    """Run with this environment's commands first on the path and the copy's package in use."""
    path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    return subprocess.run(
        command,
        cwd=folder,
        env=os.environ | {"PATH": path, "PYTHONPATH": str(folder)},
        capture_output=True,
        text=True,
        check=False,
    )


def test_every_block_names_a_language_that_is_checked() -> None:
    assert {name for name, _ in BLOCKS} <= {"bash", "python", "toml", "text"}


def test_the_first_block_is_the_two_commands() -> None:
    language, text = BLOCKS[0]
    assert language == "bash"
    assert [line.split("#")[0].strip() for line in text.splitlines()] == FIRST_SCREEN


def test_each_make_line_names_a_target(copy: Path) -> None:
    lines = re.findall(r"^make .*$", "\n".join(blocks("bash")), re.M)
    assert len(lines) >= len(FIRST_SCREEN)
    for line in lines:
        done = run(["bash", "-c", line.replace("make ", "make --dry-run ", 1)], copy)
        assert done.returncode == 0, f"{line}\n{done.stderr}"


def test_bash_and_python_blocks_run(copy: Path) -> None:
    """One test and not one a block: later blocks use what earlier ones wrote."""
    for text in blocks("bash"):
        script = "\n".join(line for line in text.splitlines() if not line.startswith("make "))
        done = run(["bash", "-euo", "pipefail", "-c", script], copy)
        assert done.returncode == 0, f"{script}\n{done.stdout}{done.stderr}"
    for text in blocks("python"):
        done = run([sys.executable, "-c", text], copy)
        assert done.returncode == 0, f"{text}\n{done.stdout}{done.stderr}"


def test_what_it_says_of_ledgers(copy: Path) -> None:
    """After the jobs above no epsilon bounds what has left; without their ledgers one does."""
    lines = [line for line in "\n".join(blocks("bash")).splitlines() if "private.toml" in line]
    (fresh,) = re.findall(r"put `(rm -r \S+)` before it", (ROOT / "README.md").read_text())
    _, noised, show = (line.split("#")[0] for line in lines)
    exact = ".venv/bin/secagg run examples/heart-disease/linear.toml --out runs/exact --overwrite"
    for before, bounded in ((exact, False), (fresh, True)):
        script = "\n".join([before, f"{noised} --overwrite", show])
        done = run(["bash", "-euo", "pipefail", "-c", script], copy)
        assert done.returncode == 0, done.stderr
        assert ("no bound" not in done.stdout) is bounded
        warned = "! Exact sums of these sites were released before" in done.stdout
        assert warned is not bounded


@pytest.mark.parametrize("text", blocks("toml"))
def test_toml_blocks_are_parts_of_an_example_or_jobs(text: str, copy: Path) -> None:
    jobs = sorted((copy / "examples").glob("*/*.toml"))
    if any(text.strip() in job.read_text() for job in jobs):
        return
    job = copy / "examples" / "heart-disease" / "from_readme.toml"
    job.write_text(text)
    done = run(["secagg", "plan", str(job)], copy)
    assert done.returncode == 0, f"{text}\n{done.stderr}"


def test_each_method_at_a_new_site_has_a_link_to_its_own_section() -> None:
    """Under which docs/jobs.md says what `secagg adapt` does with that method's runs."""
    readme = (ROOT / "README.md").read_text(encoding="utf-8")
    row = next(line for line in readme.splitlines() if line.startswith("| at a **new site**"))
    links = re.findall(r"`(\w+)` \(\[more\]\(docs/jobs\.md#([\w-]+)\)\)", row)
    assert [method for method, _ in links] == ["sparse_regression", "fedlin_hm2"]
    place: dict[str, str] = {}  # anchor -> the method whose section it is in
    said: dict[str, str] = {}
    method, anchor = "", ""
    for line in (ROOT / "docs" / "jobs.md").read_text(encoding="utf-8").splitlines():
        if heading := re.match(r"#+ (.*)", line):
            found = re.match(r"## Method `(\w+)`", line)
            method = found.group(1) if found else method
            anchor = re.sub(r"[^\w -]", "", heading.group(1)).lower().replace(" ", "-")
            place[anchor], said[anchor] = method, ""
        elif anchor:
            said[anchor] += line
    for name, anchor in links:
        assert place[anchor] == name
        assert "`secagg adapt" in said[anchor]
