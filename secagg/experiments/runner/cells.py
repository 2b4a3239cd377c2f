"""A cell: the unit of work of an experiment, and the key under which its result is stored.

A cell consists of a task, which is a module with a function `compute(settings) -> results`, and
settings of plain data. One setting is the seed, from which the task draws its data. The same cell
therefore gives the same numbers on every run.

The key is a hash of the settings and the *code*: the syntax of the task's module and, recursively,
of every module that it imports from its own package or secagg, without comments and docstrings. A
change of code that could change a number therefore makes old results unreachable. Changing comments
or docstrings does not, nor does moving or renaming a module. Other libraries are not hashed; each
result records their versions.

Not covered: `import secagg` followed by `secagg.NAME`. A task imports each name from its module.
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

from secagg.core import canonical_encoding
from secagg.errors import InternalError, SecaggError, UsageError
from secagg.experiments.runner.types import Numbers, Plain, Settings

LIBRARIES = ("numpy", "scipy", "causal-learn", "scikit-learn", "torch", "opacus")
"""Each result records the versions of those that are installed."""


@dataclass(frozen=True)
class Cell:
    """task: name of a module; settings: sorted pairs, including the seed (see `cell`)
    seconds: estimated processor time; late: compute after all other cells. Both affect only the
        order of the work.
    place: where the task finds its records, which it gets as the setting "place". It is not part of
        the key, so results stay valid if the records are moved
    """

    task: str
    settings: tuple[tuple[str, Plain], ...]
    seconds: float = field(default=1.0, compare=False)
    late: bool = field(default=False, compare=False)
    place: str = field(default="", compare=False)


@dataclass(frozen=True)
class Outcome:
    """The result of a cell: numbers, or one line with the error that stopped it.

    seconds: processor time of one thread; versions: of Python and LIBRARIES
    """

    numbers: Numbers | None
    failed: str | None
    seconds: float
    versions: str

    def to_plain(self) -> dict[str, Any]:
        """Return plain data for `from_plain`."""
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
        """Return the outcome from plain data of `to_plain`."""
        return cls(plain["numbers"], plain["failed"], plain["seconds"], plain["versions"])


def cell(task: str, seconds: float, **settings: Plain) -> Cell:
    """Return a cell; the order of the settings makes no difference."""
    return Cell(task, tuple(sorted(settings.items())), seconds)


def key(cell: Cell) -> str:
    """Return the key of the cell's result: 32 hexadecimal digits."""
    return canonical_encoding.digest([dict(cell.settings), code_version(cell.task)])[:16].hex()


def compute(cell: Cell, code: str) -> Outcome:
    """Compute a cell. An error in its task becomes an outcome and is not raised.

    code: the task's `code_version` under which the caller stores the outcome. Raises `UsageError`
    if the files have changed since, so that no result is stored under the key of other code.
    """
    task: Callable[[Settings], Numbers] = importlib.import_module(cell.task).compute
    if code_version(cell.task) != code:
        what = "the source code changed while cells were being computed"
        raise UsageError("secagg", what, "Run the same command again.")
    numbers: Numbers | None = None
    failed: str | None = None
    start = time.process_time()
    try:
        numbers = task({**dict(cell.settings), **({"place": cell.place} if cell.place else {})})
    except SecaggError as error:
        failed = error.line()
    except Exception as error:
        # An error is a result about the method: one failed cell must not end the experiment.
        failed = f"{type(error).__name__}: {error}".splitlines()[0]
    return Outcome(numbers, failed, time.process_time() - start, _versions())


def _versions() -> str:
    versions = [f"Python {platform.python_version()}"]
    for name in LIBRARIES:
        with suppress(metadata.PackageNotFoundError):
            versions.append(f"{name} {metadata.version(name)}")
    return ", ".join(versions)


@cache
def code_version(name: str) -> str:
    """Return a digest of a module's code and of what it imports from its own package and secagg.

    Each import enters as the name that it binds and the digest of the imported module. The result
    therefore depends neither on module names nor on the order of imports. The recursion ends
    because imports are never circular, which import-linter checks.
    """
    path = _source(name)
    if path is None:
        raise InternalError("experiments", f"task {name!r} does not exist")
    stripper = _Stripper({name.partition(".")[0], "secagg"})
    tree = stripper.visit(ast.parse(path.read_bytes()))
    imports = sorted(
        [bound, name, code_version(module)] for bound, name, module in stripper.imported
    )
    return canonical_encoding.digest([ast.dump(tree), imports]).hex()


def _source(name: str) -> Path | None:
    """Return the file of a module or package without importing it; None if there is none."""
    top, *parts = name.split(".")
    spec = find_spec(top)
    if spec is None:
        return None
    if not parts:
        return Path(spec.origin) if spec.origin else None
    stems = [Path(folder, *parts) for folder in spec.submodule_search_locations or ()]
    files = (f for p in stems for f in (p.with_name(f"{p.name}.py"), p / "__init__.py"))
    return next((file for file in files if file.is_file()), None)


class _Stripper(ast.NodeTransformer):
    """Removes docstrings, code for type checkers only, and imports from the packages.

    imported: for each import, the name that it binds, the name in the imported module ("" for the
        module itself), and the module
    """

    def __init__(self, packages: set[str]) -> None:
        self.packages = packages
        self.imported: list[tuple[str, str, str]] = []

    def visit_If(self, node: ast.If) -> ast.AST | None:
        if isinstance(node.test, ast.Name) and node.test.id == "TYPE_CHECKING":
            return None
        return self.generic_visit(node)

    def visit_Expr(self, node: ast.Expr) -> ast.AST | None:
        is_text = isinstance(node.value, ast.Constant) and isinstance(node.value.value, str)
        return None if is_text else node

    def visit_Import(self, node: ast.Import) -> ast.AST | None:
        own = [alias for alias in node.names if alias.name.partition(".")[0] in self.packages]
        self.imported += [(alias.asname or alias.name, "", alias.name) for alias in own]
        return None if own else node

    def visit_ImportFrom(self, node: ast.ImportFrom) -> ast.AST | None:
        if node.level or (node.module or "").partition(".")[0] not in self.packages:
            return node
        for alias in node.names:
            # `secagg` imports its names on first use: their code would not be part of the key.
            if node.module == "secagg" and _source(f"secagg.{alias.name}") is None:
                what = f"a task imports {alias.name!r} from secagg"
                raise UsageError("experiments", what, "Import it from the module that defines it.")
            module, bound = f"{node.module}.{alias.name}", alias.asname or alias.name
            is_module = _source(module) is not None
            self.imported.append((bound, "", module) if is_module else
                                 (bound, alias.name, str(node.module)))  # fmt: skip
        return None
