"""A user's torch module with a loss by name.

The module comes from a factory, called as `factory(inputs, outputs, **settings)`:

    inputs    number of variables that the network reads
    outputs   1 for a number; the number of levels for a binary or categorical outcome

The module returns shape (records, outputs). It must compute each record's output from that record
alone, and the same output each time. A trial on random records refuses a module whose buffers
change, such as one with BatchNorm (they keep statistics of records outside the sums), one that
draws random numbers, such as one with Dropout, and one that mixes records.

With noise, Opacus decides first which layers can be trained, and names or makes their replacements
(`secagg.models.neural.layers.private_layers`).

Parameters that the factory freezes (`requires_grad = False`) stay as it makes them, with torch's
generator seeded with 0.

Not protected: the trial cannot see what a module does only later or on other records. Sites list
the modules that jobs may name, because a module is code that runs at the site.
"""

from __future__ import annotations

import importlib
import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cached_property, lru_cache
from typing import TYPE_CHECKING, Any, Literal

import numpy as np

from secagg.core.arrays import Array
from secagg.errors import JobError
from secagg.models.neural.layers.private_layers import check_layers, with_layers_replaced
from secagg.models.neural.layers.smoothness import ADVICE, SHOWN, kink
from secagg.models.neural.parameters import Block, Blocks
from secagg.models.neural.torch_import import one_thread

if TYPE_CHECKING:
    from torch import Tensor, nn

Loss = Literal["squared_error", "pseudo_huber", "absolute_error", "cross_entropy"]
Factory = Callable[..., "nn.Module"]
HUBER_SCALE = 0.25
"""Of the pseudo-Huber loss, in halves of the outcome's range: larger residuals count linearly."""
_TRIAL_RECORDS = 3


@dataclass(frozen=True, eq=False)
class ModuleLearner:
    """A module and its loss.

    predictors: positions of the variables that the network reads
    outcome: position of the outcome's variable; of all its indicators if it is categorical
    loss: of one record, given the network's output
    replace_layers: whether Opacus replaces layers that cannot be trained with noise
    """

    factory: Factory
    settings: Mapping[str, Any]
    predictors: tuple[int, ...]
    outcome: tuple[int, ...]
    loss: Loss
    replace_layers: bool = False

    @property
    def outputs(self) -> int:
        """Number of outputs: that of the levels for a cross-entropy, else 1."""
        return len(self.outcome) + 1 if self.loss == "cross_entropy" else 1

    @cached_property
    def blocks(self) -> Blocks:
        """The parameters that are trained, in the module's own order."""
        named = _trained(self._module)
        return Blocks(tuple(Block(name, tuple(p.shape)) for name, p in named.items()))

    def initial(self, seed: int) -> Array:
        """Return the parameters of a new module, with torch's generator seeded."""
        arrays = {n: p.detach().numpy() for n, p in _trained(self._build(seed)).items()}
        return self.blocks.join(arrays)

    def trained(self, arrays: Mapping[str, Array]) -> nn.Module:
        """Return a new module with these parameters, by block."""
        import torch  # noqa: PLC0415

        module = self._build(0)
        with torch.no_grad():
            for name, parameter in _trained(module).items():
                parameter.copy_(torch.tensor(arrays[name]))
        return module

    @one_thread()
    def outputs_for(self, arrays: Mapping[str, Array], values: Array) -> Array:
        """Return the outputs for scaled records, (records, variables): (records, outputs)."""
        import torch  # noqa: PLC0415

        given = {name: torch.tensor(array) for name, array in arrays.items()}
        with torch.no_grad():
            return np.asarray(self.outputs_of(given, torch.tensor(values)).numpy())

    def outputs_of(self, parameters: Mapping[str, Tensor], records: Tensor) -> Tensor:
        """Return the network's outputs, shape (records, outputs)."""
        from torch.func import functional_call  # noqa: PLC0415

        result: Tensor = functional_call(
            self._module, dict(parameters), (records[:, list(self.predictors)],)
        )
        return result

    def losses(self, parameters: Mapping[str, Tensor], records: Tensor) -> Tensor:
        return self.losses_of(self.outputs_of(parameters, records), records)

    def losses_of(self, found: Tensor, records: Tensor) -> Tensor:
        """Return each record's loss, shape (records,), from its outputs."""
        import torch  # noqa: PLC0415
        from torch.nn import functional  # noqa: PLC0415

        truth = records[:, list(self.outcome)]
        if self.loss == "cross_entropy":
            return functional.cross_entropy(found, levels(truth), reduction="none")
        difference = found[:, 0] - truth[:, 0]
        if self.loss == "pseudo_huber":
            return HUBER_SCALE**2 * (torch.sqrt(1 + (difference / HUBER_SCALE) ** 2) - 1)
        return difference**2 / 2 if self.loss == "squared_error" else difference.abs()

    def check_smooth(self, where: str) -> None:
        """Raise `JobError` if the loss or the module is not smooth in the parameters.

        Without noise, differences of sums would then show single records
        (`secagg.models.neural.layers.smoothness`). where: the setting that says which module it is
        """
        if self.loss == "absolute_error":
            what = "the gradient of 'absolute_error' jumps where a residual changes its sign, so "
            what += "the difference of two exact sums is one record's row"
            advice = "Use 'pseudo_huber', which is as robust, or add [privacy]."
            raise JobError("method.loss", what, advice)
        if self._kink:
            raise JobError(where, f"{self._kink}; {SHOWN}", ADVICE)

    def check_layers(self) -> None:
        """Raise `JobError` if a layer cannot be trained with noise."""
        module = self._build(0)
        check_layers(module, lambda: _tried(module, self._trial()))

    @cached_property
    def _kink(self) -> str:
        return kink(self._module, self._trial())

    def _trial(self) -> Tensor:
        import torch  # noqa: PLC0415

        shape = (_TRIAL_RECORDS, len(self.predictors))
        return torch.rand(shape, generator=torch.Generator().manual_seed(0), dtype=torch.float64)

    @cached_property
    def _module(self) -> nn.Module:
        """The module that computes. Raises `JobError` if it does not fit."""
        import torch  # noqa: PLC0415

        module = self._build(0)
        before = {name: buffer.clone() for name, buffer in module.named_buffers()}
        given = self._trial()
        with torch.random.fork_rng(devices=[]):
            state = torch.random.get_rng_state()
            found = _tried(module, given)
            draws = not torch.equal(state, torch.random.get_rng_state())
        shape = (_TRIAL_RECORDS, self.outputs)
        if tuple(found.shape) != shape:
            what = f"returns shape {tuple(found.shape)} for {_TRIAL_RECORDS} records, not {shape}"
            raise JobError("method.module", what)
        for name, buffer in module.named_buffers():
            if not torch.equal(buffer, before[name]):
                what = f"keeps statistics of records in the buffer {name!r}"
                advice = (
                    "Replace BatchNorm by GroupNorm or LayerNorm, or set replace_layers = true."
                )
                raise JobError("method.module", what, advice)
        if draws:
            advice = "Leave out Dropout and other random layers."
            raise JobError("method.module", "draws random numbers", advice)
        alone = torch.cat([_tried(module, record[None]) for record in given])
        # A unit of rounding may depend on the number of records, a statistic changes far more.
        if not torch.allclose(found, alone, rtol=1e-6, atol=1e-9, equal_nan=True):
            what = "computes the output of a record from other records, too"
            advice = "Normalise over the variables of a record, not over records."
            raise JobError("method.module", what, advice)
        return module

    def _build(self, seed: int) -> nn.Module:
        import torch  # noqa: PLC0415

        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(seed)
            module = self._made()
            if self.replace_layers:
                trial = self._trial()
                module = with_layers_replaced(module, lambda: _tried(module, trial)).double()
        return module

    def _made(self) -> nn.Module:
        """Return what the factory makes, in float64."""
        import torch  # noqa: PLC0415

        try:
            module = self.factory(len(self.predictors), self.outputs, **self.settings)
        except (Exception, SystemExit) as error:  # any: it is the user's code
            what = f"{type(error).__name__}: {error}"
            raise JobError("method.module", what.splitlines()[0]) from error
        if not isinstance(module, torch.nn.Module):
            raise JobError("method.module", "the factory does not return a torch.nn.Module")
        parameters = list(module.parameters())
        if any(torch.nn.parameter.is_lazy(p) or not p.is_floating_point() for p in parameters):
            advice = "Give every layer its sizes, and use real numbers."
            raise JobError("method.module", "has parameters without a size or real values", advice)
        if not any(parameter.requires_grad for parameter in parameters):
            raise JobError("method.module", "has no parameters to train")
        return module.double()


def _trained(module: nn.Module) -> dict[str, nn.Parameter]:
    """Return the parameters that are trained, by name; shared ones once."""
    return {name: p for name, p in module.named_parameters() if p.requires_grad}


def _tried(module: nn.Module, records: Tensor) -> Tensor:
    """Return the outputs of a trial. Raises `JobError` if the module fails."""
    try:
        found: Tensor = module(records).detach()
    except (Exception, SystemExit) as error:  # any: it is the user's code
        number, variables = records.shape
        of = f"{number} record{'s' if number > 1 else ''} of {variables} variables"
        what = f"fails on {of}: {type(error).__name__}: {error}"
        raise JobError("method.module", what.splitlines()[0]) from error
    return found


@lru_cache(maxsize=16)
def module_learner(
    path: str,
    settings: bytes,
    predictors: tuple[int, ...],
    outcome: tuple[int, ...],
    loss: Loss,
    replace_layers: bool = False,
) -> ModuleLearner:
    """Return a learner. path: see `imported_factory`; settings: of the factory, as JSON."""
    factory = imported_factory(path)
    return ModuleLearner(factory, json.loads(settings), predictors, outcome, loss, replace_layers)


def levels(indicators: Tensor) -> Tensor:
    """Return each record's level: 0 for the reference, j for the j-th indicator.

    An indicator of value 1 is stored as a positive number, one of value 0 as a negative one
    (`secagg.contracts.Variable`), also after a record was clipped.
    """
    on = indicators > 0
    return on.any(dim=1) * (on.double().argmax(dim=1) + 1)


def imported_factory(path: str) -> Factory:
    """Return the factory at `package.module:name`. Raises `JobError` if there is none."""
    module, separator, name = path.partition(":")
    if not separator or not module or not name.isidentifier():
        what = f"{path!r} is not of the form package.module:factory"
        raise JobError("method.module", what)
    try:
        found = getattr(importlib.import_module(module), name)
    except ModuleNotFoundError as error:
        advice = "Install it at every site, or set PYTHONPATH."
        raise JobError("method.module", str(error), advice) from None
    except AttributeError:
        raise JobError("method.module", f"{module} has no {name!r}") from None
    if not callable(found):
        raise JobError("method.module", f"{path!r} is not a function")
    return found  # type: ignore[no-any-return]  # what it returns is checked when it is called
