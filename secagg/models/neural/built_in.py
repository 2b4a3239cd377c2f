"""Networks that every site can build without the user's own code: factories for `torch_module`."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from itertools import pairwise
from typing import TYPE_CHECKING

from secagg.errors import JobError

if TYPE_CHECKING:
    from torch import nn

_MAX_UNITS = 10_000


def mlp(
    inputs: int, outputs: int, hidden: Sequence[int] = (20,), activation: str = "tanh"
) -> nn.Module:
    """Return a multilayer perceptron; with `hidden` empty, a linear model.

    hidden: number of units of each hidden layer; activation: "tanh", "gelu", "silu"
        or "softplus"; "relu" with noise only
    """
    from torch import nn  # noqa: PLC0415  # the extra `neural`

    kinds: dict[str, Callable[[], nn.Module]] = {
        "tanh": nn.Tanh, "gelu": nn.GELU, "silu": nn.SiLU,
        "softplus": partial(nn.Softplus, threshold=40), "relu": nn.ReLU,
    }  # fmt: skip
    if activation not in kinds:
        what = f"{activation!r} is not one of {', '.join(map(repr, kinds))}"
        raise JobError("method.module_settings.activation", what)
    if not all(isinstance(units, int) and 1 <= units <= _MAX_UNITS for units in hidden):
        raise JobError(
            "method.module_settings.hidden", f"must be whole numbers from 1 to {_MAX_UNITS}"
        )
    sizes = [inputs, *hidden]
    layers: list[nn.Module] = []
    for before, after in pairwise(sizes):
        layers += [nn.Linear(before, after), kinds[activation]()]
    return nn.Sequential(*layers, nn.Linear(sizes[-1], outputs))
