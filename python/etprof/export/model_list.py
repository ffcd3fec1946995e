"""Describes the registered models for `etprof models`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.utils.flop_counter import FlopCounterMode

from etprof import registry
from etprof.base.errors import EtprofError
from etprof.export import tensors
from etprof.export.model_loading import load_methods

if TYPE_CHECKING:
    from etprof.export.eager_model import ExportMethod


def describe_models() -> list[dict[str, Any]]:
    """Returns one entry per model; one that cannot be loaded says why instead of what it takes."""
    return [_describe(source) for source in registry.find_models().values()]


def _describe(source: registry.ModelSource) -> dict[str, Any]:
    entry: dict[str, Any] = {"name": source.name, "origin": source.origin, "needs": []}
    try:
        entry["needs"] = list(getattr(source.load_class(), "requirements", ()))
        return entry | _measure(source.name)
    except EtprofError as error:
        return entry | {"methods": [], "parameters": None, "problem": str(error)}


def _measure(name: str) -> dict[str, Any]:
    """Returns inputs, parameters and multiply-accumulates, without computing any weight."""
    with FakeTensorMode(), torch.no_grad():
        methods = load_methods(name)
        described = [_describe_method(*item) for item in methods.items()]
    module = next(iter(methods.values())).module
    return {
        "methods": described,
        "parameters": sum(parameter.numel() for parameter in module.parameters()),
        "problem": None,
    }


def _describe_method(name: str, method: ExportMethod) -> dict[str, Any]:
    inputs = tensors.flatten((method.inputs, dict(method.kwarg_inputs)))
    return {
        "name": name,
        "inputs": [_describe_input(value) for value in inputs],
        "macs": _count_macs(method),
    }


def _count_macs(method: ExportMethod) -> int:
    """Returns multiply-accumulates; PyTorch's counter has two operations for each.

    It knows no fused attention of the CPU, so attention is taken apart into matrix products.
    """
    with FlopCounterMode(display=False) as counter, sdpa_kernel(SDPBackend.MATH):
        method.module.eval()(*method.inputs, **method.kwarg_inputs)
    return int(counter.get_total_flops()) // 2


def _describe_input(value: object) -> str:
    """Returns an input as text, such as `float32[1, 3, 224, 224]`."""
    if isinstance(value, torch.Tensor):
        return f"{tensors.dtype_name(value)}{list(value.shape)}"
    return type(value).__name__
