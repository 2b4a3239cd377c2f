"""DP-SGD of one site alone, by Opacus: what a site gets under the same guarantee without others.

Yousefpour and others (2021), "Opacus: User-Friendly Differential Privacy Library in PyTorch"; Abadi
and others (CCS 2016), algorithm 1. Opacus' `PrivacyEngine` samples records, computes and clips
their gradients and adds noise; its accountant (PRV: Gopi, Lee and Wutschitz 2021) chooses the noise
and states what was spent. The rest is as in `NetworkRounds` with noise: network, loss, first
parameters, clip, number of steps, optimiser, step size, penalty, and the mean of the late steps'
parameters.

What differs from secagg's rounds: the number of the site's records counts as public. The sampling
probability is 1 / b for a whole number b of batches, the nearest. Adding or removing one record is
protected, not replacing one.

Not protected: anything. Noise is in floating point and replayable. This is for experiments.
"""

from __future__ import annotations

import math
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import numpy as np

from secagg.core.arrays import Array
from secagg.errors import DataError
from secagg.models.neural.layers.private_layers import require_opacus
from secagg.models.neural.learner import Learner
from secagg.models.neural.module_learner import ModuleLearner
from secagg.models.neural.rounds import NetworkRounds, Penalty, no_penalty
from secagg.models.neural.torch_import import one_thread

if TYPE_CHECKING:
    from torch import nn

_MIN_RECORDS = 2


@one_thread()
def train_with_opacus(
    learner: Learner,
    values: Array,
    rounds: NetworkRounds,
    *,
    epsilon: float,
    delta: float,
    seed: int,
    penalty: Penalty = no_penalty,
) -> tuple[Array, float]:
    """Return the parameters, shape (parameters,), and the epsilon that Opacus' accountant states.

    values: a site's records, shape (records, variables), scaled; rounds: how the network is
        trained; seed: of samples and noise, at least 0: equal seeds give equal bits on one
        machine
    Raises `JobError` without Opacus, `DataError` for fewer than 2 records.
    """
    require_opacus("method.name")
    if len(values) < _MIN_RECORDS:
        raise DataError("records", f"at least {_MIN_RECORDS} records are required")
    import torch  # noqa: PLC0415
    from opacus import PrivacyEngine  # noqa: PLC0415
    from opacus.accountants.utils import get_noise_multiplier  # noqa: PLC0415
    from torch.utils.data import DataLoader, TensorDataset  # noqa: PLC0415

    module, parameters = _losses(learner, learner.initial(rounds.seed))
    draws = torch.Generator().manual_seed(seed)
    steps = rounds.most_rounds(noised=True)
    batch = math.ceil(len(values) / max(1, round(1 / rounds.sampling_rate)))
    data = DataLoader(TensorDataset(torch.tensor(values)), batch, generator=draws)
    with _quiet():
        engine = PrivacyEngine(accountant="prv")
        noise = get_noise_multiplier(
            target_epsilon=epsilon, target_delta=delta, sample_rate=1 / len(data),
            steps=steps, accountant="prv",
        )  # fmt: skip
        private, optimiser, samples = engine.make_private(
            module=module, optimizer=_optimiser(rounds, parameters), data_loader=data,
            noise_multiplier=noise, max_grad_norm=rounds.largest_norm(noised=True),
            noise_generator=draws,
        )  # fmt: skip
        first, summed = rounds.first_averaged, np.zeros(learner.blocks.size)
        for done, records in zip(range(1, steps + 1), _endless(samples), strict=False):
            optimiser.zero_grad()
            if len(records):
                private(records).mean().backward()
            else:
                for parameter in parameters:
                    parameter.grad_sample = torch.zeros((0, *parameter.shape))  # type: ignore[attr-defined]
            optimiser.pre_step()
            _add(parameters, penalty(_vector(parameters), float(len(values)))[1])
            optimiser.original_optimizer.step()
            summed += _vector(parameters) if done >= first else 0.0
        return summed / (steps - first + 1), float(engine.get_epsilon(delta))


def _losses(learner: Learner, start: Array) -> tuple[nn.Module, list[nn.Parameter]]:
    """Return a module from records to their losses, and its parameters in the learner's order."""
    from torch import Tensor, nn, tensor  # noqa: PLC0415

    arrays = learner.blocks.split(start)
    if isinstance(learner, ModuleLearner):
        own = learner  # Opacus has a rule of its own for each kind of layer

        class OfModule(nn.Module):
            def __init__(self) -> None:
                super().__init__()
                self.network = own.trained(arrays)

            def forward(self, records: Tensor) -> Tensor:
                outputs = self.network(records[:, list(own.predictors)])
                return own.losses_of(outputs, records)

        module: nn.Module = OfModule()
        return module, [p for p in module.parameters() if p.requires_grad]

    class OfLearner(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            for i, block in enumerate(learner.blocks.blocks):
                self.register_parameter(f"block_{i}", nn.Parameter(tensor(arrays[block.name])))

        def forward(self, records: Tensor) -> Tensor:
            names = [block.name for block in learner.blocks.blocks]
            given = (getattr(self, f"block_{i}") for i in range(len(names)))
            return learner.losses(dict(zip(names, given, strict=True)), records)

    module = OfLearner()
    return module, list(module.parameters())


def _optimiser(rounds: NetworkRounds, parameters: list[nn.Parameter]) -> Any:
    from torch import optim  # noqa: PLC0415

    name, rate = rounds.optimiser_and_rate(noised=True)
    if name == "adam":
        return optim.Adam(parameters, rate)
    return optim.SGD(parameters, rate, momentum=rounds.momentum)


def _endless(samples: Any) -> Iterator[Any]:
    while True:
        for (records,) in samples:
            yield records


def _vector(parameters: list[nn.Parameter]) -> Array:
    return np.concatenate([p.detach().numpy().ravel() for p in parameters])


def _add(parameters: list[nn.Parameter], slope: Array) -> None:
    """Add the penalty's gradient, which no record affects, to the noisy one."""
    import torch  # noqa: PLC0415

    at = 0
    for parameter in parameters:
        part = slope[at : at + parameter.numel()].reshape(tuple(parameter.shape))
        assert parameter.grad is not None
        parameter.grad += torch.tensor(part)
        at += parameter.numel()


@contextmanager
def _quiet() -> Iterator[None]:
    """Hide warnings of Opacus: of torch's generator, which experiments may use, and of hooks."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        yield
