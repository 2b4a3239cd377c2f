"""examples/heart_disease.ipynb runs, and prints what it shows.

Its cells are plain Python, so they are run as such, where a notebook server would run them: an
environment for notebooks is larger than all of secagg's.
"""

import contextlib
import io
import json
from pathlib import Path

import pytest
from support.runs.checkout import ROOT, copy_checkout

NOTEBOOK = ROOT / "examples" / "heart_disease.ipynb"


def test_each_notebook_cell_prints_its_stored_output(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(copy_checkout(tmp_path) / "examples")
    names: dict[str, object] = {}
    for cell in json.loads(NOTEBOOK.read_text(encoding="utf-8"))["cells"]:
        if cell["cell_type"] == "code":
            printed = io.StringIO()
            with contextlib.redirect_stdout(printed):
                exec(compile("".join(cell["source"]), NOTEBOOK.name, "exec"), names)
            shown = "".join("".join(output["text"]) for output in cell["outputs"])
            assert printed.getvalue() == shown
