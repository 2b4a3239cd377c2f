"""Every block of README.md, and every block of the site that can run, is run.

- bash: run in a copy of the checkout, a page's blocks one after the other. Lines that call make are
  only checked to name a target, since they would build another environment.
- python: run in the same copy after the page's bash blocks, each in a fresh interpreter.
- text: in README.md the output of the Python block before it; elsewhere shown, not run.
- toml: README's is an excerpt of an example; tests/docs checks those of the site.
"""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
from _pytest.mark import ParameterSet
from support.runs.checkout import ROOT, copy_checkout

FIRST_SCREEN = ["make demo", "make test"]
MOST_WORDS = {"README.md": 800, "CHANGELOG.md": 900, "docs/performance.md": 900}
RUN_ELSEWHERE = {  # on data made for their jobs
    "docs/reproductions/notears-admm.md",  # tests/system/test_docs_notears_admm.py
    "docs/methods/notears_admm.md",  # tests/reports/test_lagged_graphs.py
}
SPARSE_RUN = (
    "secagg run examples/heart-disease/sparse.toml --set method.rounds=40 --out runs/sparse"
    " || [ $? = 7 ]"  # too few rounds for a result that may be used
)
"""Makes what the block of sparse_regression's page opens in ArviZ."""
NEED_TORCH = ("fedngm", "FedModule", "import torch")


def blocks(page: str) -> list[tuple[str, str]]:
    text = (ROOT / page).read_text(encoding="utf-8")
    return re.findall(r"^```(\S*)\n(.*?)^```$", text, re.M | re.S)


def marked(page: str) -> str | ParameterSet:
    """Return the page, marked if its blocks need torch."""
    needs_torch = any(word in text for _, text in blocks(page) for word in NEED_TORCH)
    return pytest.param(page, marks=pytest.mark.neural) if needs_torch else page


PAGES = [
    page
    for page in sorted(str(path.relative_to(ROOT)) for path in (ROOT / "docs").rglob("*.md"))
    if page not in RUN_ELSEWHERE and {name for name, _ in blocks(page)} & {"bash", "python"}
]


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


def bash(script: str, folder: Path) -> str:
    done = run(["bash", "-euo", "pipefail", "-c", script], folder)
    assert done.returncode == 0, f"{script}\n{done.stdout}{done.stderr}"
    return done.stdout


def python(program: str, folder: Path) -> str:
    done = run([sys.executable, "-c", program], folder)
    assert done.returncode == 0, f"{program}\n{done.stdout}{done.stderr}"
    return done.stdout


def test_the_blocks_of_readme_are_checked() -> None:
    assert {name for name, _ in blocks("README.md")} <= {"bash", "python", "toml", "text"}


@pytest.mark.parametrize("page", MOST_WORDS)
def test_pages_that_everybody_reads_are_short(page: str) -> None:
    assert len((ROOT / page).read_text(encoding="utf-8").split()) <= MOST_WORDS[page]


def test_the_first_block_has_two_commands() -> None:
    language, text = blocks("README.md")[0]
    assert language == "bash"
    assert [line.split("#")[0].strip() for line in text.splitlines()] == FIRST_SCREEN


@pytest.mark.parametrize("page", ["README.md", "docs/how-to/reproduce.md"])
def test_each_make_line_names_a_target(page: str, copy: Path) -> None:
    lines = re.findall(r"^make .*$", "\n".join(text for _, text in blocks(page)), re.M)
    assert lines
    for line in lines:
        done = run(["bash", "-c", line.replace("make ", "make --dry-run ", 1)], copy)
        assert done.returncode == 0, f"{line}\n{done.stderr}"


def test_readme_shows_what_its_example_prints(copy: Path) -> None:
    found = blocks("README.md")
    (i,) = (i for i, (name, _) in enumerate(found) if name == "python")
    assert found[i + 1] == ("text", python(found[i][1], copy))


@pytest.mark.parametrize("page", ["README.md", *map(marked, PAGES)])
def test_bash_and_python_blocks_run(page: str, copy: Path) -> None:
    """One test a page and not one a block: later blocks use what earlier ones wrote."""
    if "runs/sparse" in "".join(text for _, text in blocks(page)):
        bash(SPARSE_RUN, copy)
    for name, text in blocks(page):
        if name == "bash":
            bash("\n".join(line for line in text.splitlines() if line[:5] != "make "), copy)
    for name, text in blocks(page):
        if name == "python" and page != "README.md":
            python(text, copy)


def test_readme_quotes_parts_of_an_example() -> None:
    jobs = [path.read_text(encoding="utf-8") for path in (ROOT / "examples").glob("*/*.toml")]
    for name, text in blocks("README.md"):
        assert name != "toml" or any(text.strip() in job for job in jobs)


def test_statements_on_ledgers_agree_with_a_run(copy: Path) -> None:
    """After exact sums no epsilon bounds what has left; without their ledgers one does."""
    page = "docs/how-to/private-run.md"
    lines = "".join(text for name, text in blocks(page) if name == "bash").splitlines()
    _, _, noised, show = (line.split("#")[0] for line in lines)
    (fresh,) = re.findall(r"first run `(rm -r \S+)`", (ROOT / page).read_text())
    exact = ".venv/bin/secagg run examples/heart-disease/linear.toml --out runs/exact --overwrite"
    for before, bounded in ((exact, False), (fresh, True)):
        printed = bash("\n".join([before, f"{noised} --overwrite", show]), copy)
        assert ("no bound" not in printed) is bounded
        warned = "! Exact sums of these sites were released before" in printed
        assert warned is not bounded
