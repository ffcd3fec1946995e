"""Describes the registered models for `etprof models`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch

from etprof import registry
from etprof.errors import EtprofError
from etprof.export import tensors
from etprof.export.eager_model import collect_methods

if TYPE_CHECKING:
    from etprof.export.eager_model import EagerModelBase


def describe_models() -> list[dict[str, Any]]:
    """Returns one entry per model; one that cannot be loaded says why instead of what it takes."""
    return [_describe(source) for source in registry.find_models().values()]


def _describe(source: registry.ModelSource) -> dict[str, Any]:
    entry: dict[str, Any] = {"name": source.name, "origin": source.origin, "problem": None}
    try:
        model = registry.load_model(source.name)
    except EtprofError as error:
        return entry | {"inputs": None, "parameters": None, "needs": [], "problem": str(error)}
    return entry | _measure(model)


def _measure(model: EagerModelBase) -> dict[str, Any]:
    """Returns the inputs and the number of parameters, without computing any weight."""
    with torch.device("meta"), torch.random.fork_rng(devices=[]):
        methods = collect_methods(model)
    first = next(iter(methods.values()))
    inputs = tensors.flatten((first.inputs, dict(first.kwarg_inputs)))
    return {
        "inputs": [_describe_input(value) for value in inputs],
        "parameters": sum(parameter.numel() for parameter in first.module.parameters()),
        "needs": list(getattr(model, "requirements", ())),
    }


def _describe_input(value: object) -> str:
    """Returns an input as text, such as `float32[1, 3, 224, 224]`."""
    if isinstance(value, torch.Tensor):
        return f"{tensors.dtype_name(value)}{list(value.shape)}"
    return type(value).__name__
