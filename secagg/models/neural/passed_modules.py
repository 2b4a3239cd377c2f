"""Modules that a program passes in Python, under names that a job can hold.

A job names a factory, `package.module:factory`. A module that exists only in this process gets the
name `secagg.models.neural.passed_modules:module_N`. It is found as long as its factory is in use,
and only in this process: a job with this name cannot be run elsewhere.
"""

from __future__ import annotations

import copy
from collections.abc import Callable
from itertools import count
from typing import TYPE_CHECKING, Any
from weakref import WeakValueDictionary

from secagg.errors import UsageError

if TYPE_CHECKING:
    from torch import nn

_numbers = count()
_passed: WeakValueDictionary[str, PassedModule] = WeakValueDictionary()


class PassedModule:
    """A factory that copies a given module, or calls a given factory.

    name: as in a job
    Raises `UsageError` for a module that cannot be copied, or something else.
    """

    def __init__(self, given: nn.Module | Callable[..., nn.Module]) -> None:
        from torch import nn  # noqa: PLC0415  # the extra `neural`

        if isinstance(given, nn.Module):
            given = _copied(given)
        elif not callable(given):
            what = f"is of type {type(given).__name__!r}"
            raise UsageError("module", what, "Give a torch.nn.Module or a function returning one.")
        self._given = given
        key = f"module_{next(_numbers)}"
        _passed[key] = self
        self.name = f"{__name__}:{key}"

    def __call__(self, inputs: int, outputs: int, **settings: Any) -> nn.Module:
        """Return a module, as factories do; a given module keeps its own parameters."""
        from torch import nn  # noqa: PLC0415

        if isinstance(self._given, nn.Module):
            return _copied(self._given)
        return self._given(inputs, outputs, **settings)


def _copied(module: nn.Module) -> nn.Module:
    try:
        return copy.deepcopy(module)
    except Exception as error:  # any: it is the user's code
        what = f"cannot be copied: {type(error).__name__}: {error}".splitlines()[0]
        raise UsageError("module", what, "Give a function that returns it.") from error


def __getattr__(name: str) -> PassedModule:
    """Find a passed module by its name."""
    try:
        return _passed[name]
    except KeyError:
        raise AttributeError(name) from None
