"""A cell: the unit of work of an experiment, and the name that its result is kept under.

A cell names a task, which is a module with a function `compute(settings) -> results`, and settings
of plain data. The task draws its data from the seed among its settings, so the same cell gives the
same numbers whenever and wherever it is computed.

A result is kept under a hash of the settings and the *code*: the syntax of the task's module and of
every module that it imports from the same package, in turn, without comments and docstrings. A
change of code that could change a number therefore makes old results unreachable. A change of
words does not, nor does moving or renaming a module. Libraries are not hashed; the versions are
kept with each result.
"""

from __future__ import annotations

import ast
import importlib
import platform
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field
from functools import cache
from importlib import metadata
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from secagg.core import encoding
from secagg.errors import InternalError, SecaggError, UsageError
from secagg.reproductions.harness.types import Numbers, Plain, Settings

LIBRARIES = ("numpy", "scipy", "causal-learn")  # whose versions are kept, where installed


@dataclass(frozen=True)
class Cell:
    """task: name of a module; settings: sorted pairs, the seed among them (see `cell`)
    seconds: roughly, of processor time; late: to be computed when all others are. Only the order
        of the work depends on them.
    """

    task: str
    settings: tuple[tuple[str, Plain], ...]
    seconds: float = field(default=1.0, compare=False)
    late: bool = field(default=False, compare=False)


@dataclass(frozen=True)
class Outcome:
    """What became of a cell: numbers, or the line of the error that it failed with.

    seconds: processor time of one thread; versions: of Python and of LIBRARIES
    """

    numbers: Numbers | None
    failed: str | None
    seconds: float
    versions: str

    def to_plain(self) -> dict[str, Any]:
        """Return what `from_plain` reads."""
        return {
            "numbers": None
            if self.numbers is None
            else {k: {**v} for k, v in self.numbers.items()},
            "failed": self.failed,
            "seconds": self.seconds,
            "versions": self.versions,
        }

    @classmethod
    def from_plain(cls, plain: Any) -> Outcome:
        """Return the outcome that `to_plain` wrote."""
        return cls(plain["numbers"], plain["failed"], plain["seconds"], plain["versions"])


def cell(task: str, seconds: float, **settings: Plain) -> Cell:
    """Return a cell; the order of the settings makes no difference."""
    return Cell(task, tuple(sorted(settings.items())), seconds)


def key(cell: Cell) -> str:
    """Return the name of the cell's result: 32 hexadecimal digits."""
    return encoding.digest([dict(cell.settings), code_version(cell.task)])[:16].hex()


def compute(cell: Cell, code: str) -> Outcome:
    """Compute a cell. An error of its task is an outcome; it is not raised.

    code: `code_version` of the task for whoever keeps the outcome. Raises `UsageError` where the
    files are not those any more, so that no result is kept under the name of other code.
    """
    task: Callable[[Settings], Numbers] = importlib.import_module(cell.task).compute
    if code_version(cell.task) != code:
        what = "its source was changed while cells were computed"
        raise UsageError("secagg", what, "Give the command again.")
    numbers: Numbers | None = None
    failed: str | None = None
    began = time.process_time()
    try:
        numbers = task(dict(cell.settings))
    except SecaggError as error:
        failed = error.line()
    except Exception as error:
        # Any error of a method is a finding about it: one failed cell must not end the experiment.
        failed = f"{type(error).__name__}: {error}".splitlines()[0]
    return Outcome(numbers, failed, time.process_time() - began, _versions())


def _versions() -> str:
    found = [f"Python {platform.python_version()}"]
    for name in LIBRARIES:
        with suppress(metadata.PackageNotFoundError):
            found.append(f"{name} {metadata.version(name)}")
    return ", ".join(found)


@cache
def code_version(name: str) -> str:
    """Return a digest of the code that a module runs, of its own package (see above).

    Imports of the package stand in it as what they bind and the digest of the module that it comes
    from. So it does not depend on what modules are called, nor on the order of imports. That no
    modules import each other in a circle makes this end; import-linter holds that for ours.
    """
    path, package = _source(name), name.partition(".")[0]
    if path is None:
        raise InternalError("reproductions", f"there is no task {name!r}")
    stripper = _Stripper(package)
    tree = stripper.visit(ast.parse(path.read_bytes()))
    bound = sorted([as_name, of, code_version(module)] for as_name, of, module in stripper.imported)
    return encoding.digest([ast.dump(tree), bound]).hex()


def _source(name: str) -> Path | None:
    """Return the file of a module or package, without importing any; None if there is none."""
    top, *parts = name.split(".")
    spec = find_spec(top)
    if spec is None:
        return None
    if not parts:
        return Path(spec.origin) if spec.origin else None
    places = [Path(folder, *parts) for folder in spec.submodule_search_locations or ()]
    files = (f for p in places for f in (p.with_name(f"{p.name}.py"), p / "__init__.py"))
    return next((file for file in files if file.is_file()), None)


class _Stripper(ast.NodeTransformer):
    """Removes docstrings, what only type checkers read, and imports of the package.

    imported: of each import: the name it binds, the name in its module ("" for a module itself),
        and the module
    """

    def __init__(self, package: str) -> None:
        self.package = package
        self.imported: list[tuple[str, str, str]] = []

    def visit_If(self, node: ast.If) -> ast.AST | None:
        if isinstance(node.test, ast.Name) and node.test.id == "TYPE_CHECKING":
            return None
        return self.generic_visit(node)

    def visit_Expr(self, node: ast.Expr) -> ast.AST | None:
        is_text = isinstance(node.value, ast.Constant) and isinstance(node.value.value, str)
        return None if is_text else node

    def visit_Import(self, node: ast.Import) -> ast.AST | None:
        ours = [alias for alias in node.names if alias.name.partition(".")[0] == self.package]
        self.imported += [(alias.asname or alias.name, "", alias.name) for alias in ours]
        return None if ours else node

    def visit_ImportFrom(self, node: ast.ImportFrom) -> ast.AST | None:
        if node.level or (node.module or "").partition(".")[0] != self.package:
            return node
        for alias in node.names:
            module, bound = f"{node.module}.{alias.name}", alias.asname or alias.name
            is_module = _source(module) is not None
            self.imported.append((bound, "", module) if is_module else
                                 (bound, alias.name, str(node.module)))  # fmt: skip
        return None
