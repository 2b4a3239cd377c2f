"""Whether a module is a smooth function of its parameters: then differences of sums hide records.

Source: every run releases the differences of its sums. Let g_i(theta) be the gradient of record i's
loss. If g_i is constant but for jumps (absolute error of a linear model) or has kinks (ReLU, Huber,
ELU), then between two rounds it changes for the records on the other side of the jump or kink only,
and a first or second difference of the sums is their rows. If g_i is analytic, all records change
in every round, each by its own curvature.

Threat model: a job whose coordinator follows the program. The job chooses loss, module, learning
rate and number of rounds. The sums are exact.

How a module is judged: a trial computes its outputs and their derivatives with respect to inputs
and parameters, and torch reports every operation that its kernels do (`TorchDispatchMode`), also
those inside custom autograd functions, TorchScript aside, which is refused. `SMOOTH` lists the
analytic ones. Any other operation is refused: so are comparisons, and the reading of a number in
Python, without which a module cannot branch on values. An analytic function with a huge factor is
nearly a step, so numbers of the operations and frozen parameters have limits, and so have the
parameters that a coordinator may send (`MAX_SMOOTH_PARAMETER`).

=============================================  =====================================================
case                                           result
=============================================  =====================================================
ReLU, hard tanh, max pooling, abs, clamp       refused: the operation is named
ELU, Huber: a gradient without jumps           refused: second differences show the kink
`if x.sum() > 0`, `torch.where`, sorting       refused: comparison, or a number read in Python
custom autograd function, smooth only forward  refused: its backward operations are judged too
`tanh(1e6 x)`, also with 1e6 in a buffer       refused: above the limit
softplus with torch's default threshold        refused: its slope jumps at 20, by 2e-9
`x.long()`, `x.half()`, rounding               refused: every result must be float64
an operation that is not in the list           refused
=============================================  =====================================================

Not protected: products of many layers, which are steep although every factor is small. A module
that leaves torch, for example through numpy, and computes something else there: the sites list the
modules that jobs may name. Parameters that a dishonest coordinator chooses so that few records
have a gradient (`largest_record`): a smooth function does not prevent this.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from torch import Tensor, nn

MAX_SMOOTH_PARAMETER: Final = 30.0
"""The largest parameter without noise. Of 200 random jobs on 80 to 180 records, two with parameters
above 60 had differences of sums that were made of 2 to 10 records; with this limit, none had."""

_LINEAR = (
    "add add_ addmm baddbmm bmm cat clone constant_pad_nd convolution convolution_backward "
    "copy_ detach detach_ div dot empty_like expand fill_ full full_like linear linear_backward "
    "mean mm mul mul_ mv neg new_empty_strided new_zeros ones ones_like permute reshape rsub "
    "select select_backward slice slice_backward split split_with_sizes squeeze stack sub sum t "
    "transpose unbind unsqueeze _unsafe_view view zeros zeros_like _to_copy _reshape_alias "
    "as_strided unfold unfold_backward repeat diagonal diagonal_backward avg_pool1d avg_pool2d "
    "avg_pool2d_backward _adaptive_avg_pool2d _adaptive_avg_pool2d_backward lift_fresh alias "
    "scalar_tensor empty new_empty arange cumsum index index_put index_select index_add "
)
_ANALYTIC = (
    "cos cosh erf exp gelu gelu_backward log_sigmoid_backward log_sigmoid_forward "
    "_log_softmax _log_softmax_backward_data logaddexp logsumexp mish mish_backward "
    "native_group_norm native_group_norm_backward native_layer_norm native_layer_norm_backward "
    "sigmoid sigmoid_backward silu silu_backward sin sinh _softmax _softmax_backward_data "
    "softplus softplus_backward square tanh tanh_backward pow special_erf expm1 "
    "_native_batch_norm_legit_no_training"
)
SMOOTH: Final = frozenset(f"{_LINEAR} {_ANALYTIC}".split())
"""Operations of torch's library `aten`, by name, that are analytic in all real arguments."""

_CONSTANTS: Final = frozenset(("arange", "lift_fresh", "scalar_tensor", "full", "zeros", "ones"))
_STEEP: Final = frozenset(("mul", "mul_", "div", "add", "add_", "sub", "rsub", "pow", "softplus"))
_MAX_FACTOR: Final = 100.0
_MIN_THRESHOLD: Final = 36.0  # of a softplus: exp(-36) is the rounding of float64
SHOWN: Final = "without noise, differences of sums would show records"
ADVICE: Final = (
    "Use smooth functions: Tanh, Sigmoid, GELU, SiLU, Softplus(threshold=40), LayerNorm. Or add "
    "[privacy] with placement 'round', whose noise covers others."
)


def kink(module: nn.Module, records: Tensor) -> str:
    """Return why the module may not be smooth, as a phrase; "" if it is. records: to try it on."""
    import torch  # noqa: PLC0415

    parts = list(module.modules())
    if any(
        isinstance(part, torch.jit.ScriptModule)
        or type(part).__module__.startswith("torch._dynamo")
        for part in parts
    ):
        return "is compiled, so its operations cannot be seen"
    constants = [*module.buffers(), *(p for p in module.parameters() if not p.requires_grad)]
    for constant in constants:
        if not bool((constant.abs() <= MAX_SMOOTH_PARAMETER).all()):
            return f"has a constant above {MAX_SMOOTH_PARAMETER:g}, which makes steps of functions"
    return first_kink(module, records)


def first_kink(module: nn.Module, records: Tensor) -> str:
    """Return what the first operation not known to be smooth does, as a phrase; "" if none."""
    import torch  # noqa: PLC0415
    from torch.utils._python_dispatch import TorchDispatchMode  # noqa: PLC0415

    seen: list[str] = []

    class Observer(TorchDispatchMode):  # type: ignore[no-untyped-call]  # torch has no types here
        def __torch_dispatch__(
            self, func: Any, types: Any, args: Any = (), kwargs: Any = None
        ) -> Any:
            result = func(*args, **(kwargs or {}))
            if found := _fault(func, args, kwargs or {}) or _rounded(func, result):
                seen.append(found)
            return result

    leaves = [p for p in module.parameters() if p.requires_grad]
    given = records.clone().requires_grad_()
    with torch.enable_grad(), Observer():  # type: ignore[no-untyped-call]
        outputs = module(given)
        if outputs.requires_grad:
            torch.autograd.grad(outputs.sum(), [given, *leaves], allow_unused=True)
    return seen[0] if seen else ""


def _rounded(func: Any, result: Any) -> str:
    """Return that an operation rounds real numbers, as a phrase; "" if it does not."""
    import torch  # noqa: PLC0415

    if _name(func) in _CONSTANTS:
        return ""  # whole numbers that depend on no record, such as positions
    results = result if isinstance(result, list | tuple) else [result]
    kinds = {each.dtype for each in results if isinstance(each, torch.Tensor)}
    return f"rounds numbers in {_name(func)!r}" if kinds - {torch.float64} else ""


def _name(func: Any) -> str:
    return str(func).removeprefix("aten.").partition(".")[0]


def _fault(func: Any, args: Any, kwargs: Any) -> str:
    """Return what is wrong with an operation and its numbers, as a phrase; "" if nothing."""
    name = _name(func)
    if name == "_local_scalar_dense":
        return "reads a number of a tensor in Python, so it may branch on records"
    if not str(func).startswith("aten.") or name not in SMOOTH:
        return f"uses {name!r}, which is not known to be smooth"
    numbers = [each for each in args if isinstance(each, int | float)]
    numbers += [each for key, each in kwargs.items() if key in {"alpha", "beta", "value"}]
    if name == "pow" and not (len(numbers) == 1 and numbers[0] in range(9)):
        return "takes a power other than 0, 1, ..., 8"
    if name.startswith("softplus") and (len(numbers) < 2 or numbers[-1] < _MIN_THRESHOLD):
        return f"uses softplus with a threshold below {_MIN_THRESHOLD:g}, where it has a kink"
    if name in _STEEP:
        largest = max((abs(float(each)) for each in numbers), default=0.0)
        smallest = min((abs(float(each)) for each in numbers if each), default=1.0)
        if not (largest <= _MAX_FACTOR and smallest >= 1 / _MAX_FACTOR):
            return f"has a number above {_MAX_FACTOR:g} or below its inverse in {name!r}"
    return ""
