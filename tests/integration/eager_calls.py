"""What the eager model itself computes and in which module: the truth that module maps are held to."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import torch
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.utils._python_dispatch import TorchDispatchMode

if TYPE_CHECKING:
    from collections.abc import Iterable

    from etprof.analysis.split.attribution import Attribution
    from etprof.analysis.split.operators import OperatorRow
    from etprof.model_registry.eager_model import ExportMethod

# Kinds of XNNPACK operators, and the ATen operators that each of them may compute.
_MOVES = {"view", "_unsafe_view", "transpose", "permute", "t", "clone", "cat", "unbind", "split"}
# A convolution gets its input turned into XNNPACK's layout, and an integer one its values converted.
_SURROUNDED = {"convolution", "max_pool2d_with_indices", "mean", "addmm", "mm"}
ATEN = {
    **dict.fromkeys(("transpose", "copy", "slice", "convert"), _MOVES | _SURROUNDED),
    "product": {"convolution", "addmm", "mm"},
    "depthwise": {"convolution"},
    "batchmatrixmultiply": {"bmm"},
    "maxpooling": {"max_pool2d_with_indices"},
    "mean": {"mean"},
    "softmax": {"_softmax", "_safe_softmax"},
    "add": {"add"},
    "subtract": {"sub"},
    "multiply": {"mul"},
    "square": {"pow"},
    "sigmoid": {"sigmoid", "silu"},
    "reciprocalsquareroot": {"rsqrt"},
    "gelu": {"gelu"},
}
PRODUCTS = {"product", "depthwise", "batchmatrixmultiply"}
ATEN_PRODUCTS = set().union(*(ATEN[kind] for kind in PRODUCTS))


@dataclass(frozen=True)
class Call:
    """One operator of the eager model."""

    module: str
    operator: str
    elements: int
    """Of its result."""


class _Recorder(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """Writes down every operator with the innermost module that is running."""

    def __init__(self, network: torch.nn.Module) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.calls: list[Call] = []
        self._running = [""]
        for name, module in network.named_modules():
            module.register_forward_pre_hook(self._enter(name))
            module.register_forward_hook(self._leave)

    def _enter(self, name: str) -> Any:  # noqa: ANN401 - PyTorch's own type of hooks
        return lambda *_: self._running.append(name)

    def _leave(self, *_: object) -> None:
        self._running.pop()

    def __torch_dispatch__(
        self,
        func: Any,  # noqa: ANN401 - an overload, which PyTorch has no type for
        types: object,
        args: tuple[object, ...] = (),
        kwargs: dict[str, object] | None = None,
    ) -> object:
        result = func(*args, **(kwargs or {}))
        first = result[0] if isinstance(result, tuple | list) and result else result
        if isinstance(first, torch.Tensor):
            operator = func.overloadpacket.__name__.removesuffix("_")
            self.calls.append(Call(self._running[-1], operator, math.prod(first.shape)))
        return result


def record_eager(method: ExportMethod) -> list[Call]:
    """Runs the eager module once; attention is taken apart into its products, as in the program."""
    module = method.module.eval()
    recorder = _Recorder(module)
    with torch.no_grad(), sdpa_kernel(SDPBackend.MATH), recorder:
        module(*method.inputs, **method.kwarg_inputs)
    return recorder.calls


def is_right(row: OperatorRow, found: Attribution | None, calls: Iterable[Call]) -> bool:
    """Tells whether the eager model computes such an operator in the module it is attributed to."""
    if found is None or found.origin is None:
        return False
    kind = row.backend.row_kind(row.base, row.microkernel_type)
    own = [call for call in calls if call.module == found.origin.module_path]
    fitting = [call for call in own if call.operator in ATEN.get(kind, ())]
    if kind not in PRODUCTS:
        return bool(fitting)
    return math.prod(found.shape or (0,)) in {call.elements for call in fitting}
