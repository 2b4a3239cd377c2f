"""Which modules are smooth, so that differences of their exact sums hide records."""

from collections.abc import Callable
from typing import Any

import pytest
from support.methods.networks import job, tables

from secagg.errors import JobError
from secagg.jobs.job import parse_job
from secagg.models.neural.layers.smoothness import kink
from secagg.sessions.planned_job import plan_job

pytestmark = pytest.mark.neural


def of(function: Callable[[Any], Any]) -> Any:
    """Return a module that applies a function between two layers."""
    import torch

    class Applied(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.first, self.last = torch.nn.Linear(4, 6), torch.nn.Linear(6, 1)

        def forward(self, x: Any) -> Any:
            return self.last(function(self.first(x)))

    return Applied().double()


def trial() -> Any:
    import torch

    return torch.rand((3, 4), generator=torch.Generator().manual_seed(1), dtype=torch.float64)


def backward_step(units: Any) -> Any:
    """Return tanh(units), whose derivative a custom function says is a step."""
    import torch

    class Step(torch.autograd.Function):
        @staticmethod
        def forward(context: Any, x: Any) -> Any:
            context.save_for_backward(x)
            return torch.tanh(x)

        @staticmethod
        def backward(context: Any, given: Any) -> Any:
            return given * context.saved_tensors[0].sign()

    return Step.apply(units)  # type: ignore[no-untyped-call]


def branches(units: Any) -> Any:
    return units * 2 if units.sum() > 0 else units


def masked(units: Any) -> Any:
    return units * (units > 0)


def written(units: Any) -> Any:
    units = units.clone()
    units[units < 0] = 0
    return units


def smooth() -> dict[str, Any]:
    import torch
    from torch import nn

    return {
        "tanh": torch.tanh, "gelu": nn.GELU(), "silu": nn.SiLU(), "mish": nn.Mish(),
        "sigmoid": torch.sigmoid, "softplus": nn.Softplus(threshold=40),
        "softmax": nn.Softmax(-1), "layer norm": nn.LayerNorm(6, dtype=torch.float64),
        "group norm": nn.GroupNorm(2, 6, dtype=torch.float64), "sine": torch.sin,
        "squares": lambda x: x**2 + x * x.mean(1, keepdim=True),
        "columns": lambda x: torch.cat([x[:, [0, 2, 4]], x[:, 3:]], dim=1),
        "fraction": lambda x: x / (1 + x**2), "logaddexp": lambda x: torch.logaddexp(x, -x),
        "einsum": lambda x: torch.einsum("ni,nj->ni", x, x),
        "conv": lambda x: nn.functional.conv1d(
            x[:, None], torch.ones(1, 1, 3, dtype=torch.float64), padding=1
        ).flatten(1),
    }  # fmt: skip


def kinked() -> dict[str, Any]:
    import torch
    from torch.nn import functional

    return {
        "relu": torch.relu, "leaky relu": functional.leaky_relu, "hardtanh": functional.hardtanh,
        "relu6": functional.relu6,
        "prelu": lambda x: functional.prelu(x, torch.full((1,), 0.2).double()),
        "elu": functional.elu, "selu": functional.selu, "hardswish": functional.hardswish,
        "softshrink": functional.softshrink, "softsign": functional.softsign, "abs": torch.abs,
        "clamp": lambda x: x.clamp(0, 1), "minimum": lambda x: torch.minimum(x, 0 * x),
        "where": lambda x: torch.where(x > 0, x, 0.0), "product with a comparison": masked,
        "written": written, "branch": branches, "sorted": lambda x: x.sort()[0],
        "largest": lambda x: x.amax(1, keepdim=True) + 0 * x,
        "quantile": lambda x: x.median(1)[0][:, None] + 0 * x,
        "max pooling": lambda x: functional.max_pool1d(x[:, None], 3, 1, 1)[:, 0],
        "square root": lambda x: torch.sqrt(x**2), "power": lambda x: (x**2) ** 0.5,
        "rounded": torch.round, "floor by type": lambda x: x.long().double(),
        "half precision": lambda x: x.half().double(), "norm": lambda x: x / x.norm(),
        "steep tanh": lambda x: torch.tanh(1e6 * x),
        "steep by division": lambda x: torch.tanh(x / 1e-6),
        "steep softplus": lambda x: functional.softplus(x, beta=1e6, threshold=40),
        "softplus with a kink at 20": functional.softplus, "backward": backward_step,
        "huber": lambda x: functional.huber_loss(x, 0 * x, reduction="none"),
        "floor": lambda x: x - torch.floor(x), "sign": torch.sign, "logic": torch.isfinite,
    }  # fmt: skip


NAMES = {
    "smooth": ["tanh", "gelu", "silu", "mish", "sigmoid", "softplus", "softmax", "layer norm",
               "group norm", "sine", "squares", "columns", "fraction", "logaddexp", "einsum",
               "conv"],
    "kinked": ["relu", "leaky relu", "hardtanh", "relu6", "prelu", "elu", "selu", "hardswish",
               "softshrink", "softsign", "abs", "clamp", "minimum", "where",
               "product with a comparison", "written", "branch", "sorted", "largest", "quantile",
               "max pooling", "square root", "power", "rounded", "floor by type",
               "half precision", "norm", "steep tanh", "steep by division", "steep softplus",
               "softplus with a kink at 20", "backward", "huber", "floor", "sign"],
}  # fmt: skip


@pytest.mark.parametrize("name", NAMES["smooth"])
def test_smooth_functions_are_accepted(name: str) -> None:
    assert kink(of(smooth()[name]), trial()) == ""


@pytest.mark.attack
@pytest.mark.parametrize("name", NAMES["kinked"])
def test_functions_with_kinks_or_steps_are_refused(name: str) -> None:
    assert kink(of(kinked()[name]), trial())


def test_frozen_constants_that_make_steps_are_refused() -> None:
    import torch

    module = of(torch.tanh)
    module.register_buffer("factor", torch.tensor(1e6, dtype=torch.float64))
    assert "constant above 30" in kink(module, trial())


def test_a_compiled_module_is_refused() -> None:
    import torch

    with pytest.warns(DeprecationWarning):
        module = torch.jit.trace(of(torch.relu), trial())  # type: ignore[no-untyped-call]
    assert "is compiled" in kink(module, trial())


REGRESSION = {"name": "torch_module", "outcome": "y", "predictors": ["x", "w"]}
KINKS = {
    "absolute error": {"loss": "absolute_error"},
    "relu": {"module_settings": {"activation": "relu"}},
    "relu under a cross-entropy": {"outcome": "case", "module_settings": {"activation": "relu"}},
    "fedavg": {"loss": "absolute_error", "algorithm": "fedavg"},
}


@pytest.mark.attack
@pytest.mark.parametrize("changes", KINKS.values(), ids=KINKS.keys())
def test_a_job_with_kinks_is_refused_before_data_is_read(changes: dict[str, Any]) -> None:
    raw = job({**REGRESSION, **changes}, "masked")
    with pytest.raises(JobError, match=r"differences? of"):
        plan_job(parse_job(raw), tables(3))


@pytest.mark.parametrize("changes", list(KINKS.values())[:3], ids=list(KINKS)[:3])
def test_noise_allows_kinks(changes: dict[str, Any]) -> None:
    raw = job({**REGRESSION, **changes}, "masked")
    raw |= {"privacy": {"placement": "round", "epsilon": 2.0, "delta": 1e-5}}
    raw |= {"release": {"min_sites": 3, "min_records": 20}}
    assert plan_job(parse_job(raw), tables(3)).public.clip is not None


@pytest.mark.parametrize("activation", ["tanh", "gelu", "silu", "softplus"])
@pytest.mark.parametrize("loss", ["squared_error", "pseudo_huber"])
def test_smooth_jobs_are_planned(activation: str, loss: str) -> None:
    settings = {"module_settings": {"activation": activation}, "loss": loss}
    plan_job(parse_job(job({**REGRESSION, **settings}, "masked")), tables(3))
