"""Layers that cannot be trained with noise, and what replaces them: Opacus' `ModuleValidator`.

Yousefpour and others (2021), "Opacus: User-Friendly Differential Privacy Library in PyTorch". With
noise, each record needs a gradient of its own. BatchNorm mixes records and keeps their statistics;
torch's LSTM, GRU and attention compute in one step that shows no record's part. Opacus knows these
layers, and has a replacement for each: GroupNorm, DPLSTM, DPGRU, DPMultiheadAttention.

One difference: Opacus gives GroupNorm gcd(32, units) groups. If a layer normalises the units of
one record, and not positions of a signal, and their number divides 32, then each group is one
value, and its output is 0 for every record. There, one group is used, as in LayerNorm.

Not protected: layers of other types, which Opacus does not know. A trial on random records refuses
those that mix records, keep statistics or draw random numbers (`module_learner`).
"""

from __future__ import annotations

import importlib.util
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from secagg.errors import JobError
from secagg.models.neural.torch_import import INSTALL

if TYPE_CHECKING:
    from torch import nn


def require_opacus(where: str) -> None:
    """Raise `JobError` if Opacus is not installed. It is not imported. where: what needs it"""
    if importlib.util.find_spec("opacus") is None:
        raise JobError(where, "needs opacus, which is missing", INSTALL)


@dataclass(frozen=True)
class RefusedLayer:
    """A layer that cannot be trained with noise.

    name: in the module, "" for the module itself; replacement: None if Opacus has none
    """

    name: str
    layer: nn.Module
    replacement: nn.Module | None
    why: str


def refused_layers(module: nn.Module, trial: Callable[[], object]) -> Iterator[RefusedLayer]:
    """Yield the layers that Opacus refuses.

    trial: tries the module on random records. Raises `JobError` without Opacus
    """
    require_opacus("method.module")
    from opacus.utils.module_utils import trainable_modules  # noqa: PLC0415  # takes seconds
    from opacus.validators import ModuleValidator  # noqa: PLC0415

    flat = _without_positions(module, trial)
    for name, layer in list(trainable_modules(module)):
        errors = ModuleValidator.VALIDATORS.get(type(layer), lambda _: [])(layer)
        if not errors:
            continue
        fixer = ModuleValidator.FIXERS.get(type(layer))
        groups = {"num_groups": 1} if layer in flat else {}
        replacement = None if fixer is None else fixer(layer, **groups)
        yield RefusedLayer(name, layer, replacement, str(errors[0]).partition(". ")[0])


def check_layers(module: nn.Module, trial: Callable[[], object]) -> None:
    """Raise `JobError`, with the replacement, for the first layer that Opacus refuses."""
    for each in refused_layers(module, trial):
        kind = type(each.layer).__name__
        where = f"layer {each.name!r} is {kind}" if each.name else f"is {kind}"
        what = f"{where}, which cannot be trained with noise ({each.why})"
        advice = "Replace the layer."
        if each.replacement is not None:
            named = str(each.replacement).partition("\n")[0]
            named = f"{named}...)" if named.endswith("(") else named
            advice = f"Replace it by {named}; method.replace_layers = true does this."
        raise JobError("method.module", what, advice)


def with_layers_replaced(module: nn.Module, trial: Callable[[], object]) -> nn.Module:
    """Return the module with Opacus' layers in place of refused ones. It is changed."""
    for each in list(refused_layers(module, trial)):
        if each.replacement is None:
            continue
        if not each.name:
            return each.replacement
        parent, _, child = each.name.rpartition(".")
        setattr(module.get_submodule(parent), child, each.replacement)
    return module


def _without_positions(module: nn.Module, trial: Callable[[], object]) -> set[nn.Module]:
    """Return the BatchNorm layers whose input has shape (records, units)."""
    import torch  # noqa: PLC0415

    found: set[nn.Module] = set()

    def note(layer: nn.Module, given: tuple[Any, ...]) -> None:
        if given[0].dim() == 2:
            found.add(layer)

    layers = [each for each in module.modules() if isinstance(each, torch.nn.BatchNorm1d)]
    hooks = [layer.register_forward_pre_hook(note) for layer in layers]
    if layers:
        with torch.no_grad():
            trial()
    for hook in hooks:
        hook.remove()
    return found
