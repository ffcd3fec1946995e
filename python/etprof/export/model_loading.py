"""Creates a registered model's methods, with random weights or a checkpoint's, and describes them."""

from __future__ import annotations

import contextlib
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import torch
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.nn.attention import SDPBackend, sdpa_kernel

from etprof.base.errors import EtprofError, ExportError, InputFileError
from etprof.base.files import open_regular
from etprof.base.units import first_texts
from etprof.export import tensors
from etprof.export.operators import MacCounter
from etprof.model_registry import registry
from etprof.model_registry.eager_model import checked_inputs, collect_constants, collect_methods

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path

    from etprof.model_registry.eager_model import EagerModelBase, ExportMethod


_WRAPPERS = ("state_dict", "model_state_dict", "model", "module")
_LISTED = 4


def load_methods(
    model_name: str, weights: Path | None = None, inputs: Sequence[str] = ()
) -> dict[str, ExportMethod]:
    """Returns the model's methods, with `inputs`, as `--input` takes them, in place of its own.

    Raises ExportError when the model's own code fails, and InputFileError when the checkpoint
    cannot be read or does not fit.
    """
    model = registry.load_model(model_name, inputs)
    if weights is not None:
        _use_checkpoint(model, weights)
    try:
        return {
            name: replace(
                method,
                inputs=tensors.with_plain_strides(
                    checked_inputs(method.inputs, f"method {name!r}")
                ),
                kwarg_inputs=tensors.with_plain_strides(dict(method.kwarg_inputs)),
                assumption=getattr(model, "assumption", ""),
            )
            for name, method in collect_methods(model).items()
        }
    except EtprofError:
        raise
    except ModuleNotFoundError as error:
        if error.name is None:
            # Not Python's own: a package that is here failed to load one of its parts.
            msg = f"model {model_name!r} cannot be created: {error}; {_innermost(error)}"
            raise ExportError(msg) from error
        needed = " ".join(getattr(model, "requirements", ())) or error.name
        msg = f"model {model_name!r} needs a package that is missing here: pip install {needed}"
        raise ExportError(msg) from error
    except FileNotFoundError as error:
        msg = (
            f"model {model_name!r} cannot be created: its code opens {error.filename}, which does "
            "not exist; a relative path starts at the folder that etprof is run in"
        )
        raise InputFileError(msg) from error
    # The model's code may raise anything.
    except Exception as error:
        msg = f"model {model_name!r} cannot be created: {type(error).__name__}: {error}"
        raise ExportError(msg) from error


def _innermost(error: BaseException) -> str:
    """Returns what an error began with, such as `RuntimeError: operator nms does not exist`."""
    while (cause := error.__cause__ or error.__context__) is not None:
        error = cause
    return f"it began with {type(error).__name__}: {error}"


def load_constants(model_name: str) -> dict[str, int]:
    """Returns what the model's program tells of itself at run time."""
    return dict(collect_constants(registry.load_model(model_name)))


def _use_checkpoint(model: EagerModelBase, weights: Path) -> None:
    """Makes the model's own `get_eager_model` return a network with the checkpoint's weights.

    `get_methods` of a model with several methods builds them from what it returns.
    """
    state = read_checkpoint(weights)
    build = model.get_eager_model

    def build_with_weights() -> torch.nn.Module:
        network = build()
        check_state(network, state, weights)
        network.load_state_dict(state)
        return network

    model.get_eager_model = build_with_weights  # type: ignore[method-assign]


def read_checkpoint(path: Path) -> dict[str, torch.Tensor]:
    """Returns the state dict in `path`, also from inside a training checkpoint."""
    try:
        with open_regular(path) as stream:
            content: Any = torch.load(stream, map_location="cpu", weights_only=True)
    # PyTorch's reader raises whatever a damaged file leads it to.
    except Exception as error:
        reason = str(getattr(error, "strerror", None) or error).partition("\n")[0]
        reason = reason or type(error).__name__
        raise InputFileError(f"cannot read checkpoint {path}: {reason}") from error
    for key in _WRAPPERS:
        if isinstance(content, dict) and isinstance(content.get(key), dict):
            content = content[key]
    if not (isinstance(content, dict) and content):
        msg = f"checkpoint {path} holds no state dict but a {type(content).__name__}"
        raise InputFileError(msg)
    return content


def check_state(network: torch.nn.Module, state: Mapping[str, Any], path: Path) -> None:
    """Raises InputFileError when names or shapes differ; says which."""
    expected = network.state_dict()
    problems = [
        _list_names("missing", expected.keys() - state.keys()),
        _list_names("unexpected", state.keys() - expected.keys()),
        _list_names(
            "of another shape",
            {
                f"{name} ({list(state[name].shape)} instead of {list(expected[name].shape)})"
                for name in expected.keys() & state.keys()
                if state[name].shape != expected[name].shape
            },
        ),
    ]
    differences = "; ".join(problem for problem in problems if problem)
    if differences:
        raise InputFileError(
            f"checkpoint {path} does not fit {type(network).__name__}: {differences}"
        )


def _list_names(kind: str, names: set[str]) -> str:
    if not names:
        return ""
    return f"{kind}: {', '.join(first_texts(sorted(names), _LISTED))}"


def describe_models() -> list[dict[str, Any]]:
    """Returns one entry per model; one that cannot be loaded says why instead of what it takes."""
    return [_describe(source) for source in registry.find_models().values()]


def _describe(source: registry.ModelSource) -> dict[str, Any]:
    description: dict[str, Any] = {"name": source.name, "origin": source.origin, "needs": []}
    try:
        description["needs"] = list(getattr(source.load_class(), "requirements", ()))
        return description | _measure(source.name)
    except EtprofError as error:
        return description | {"methods": [], "parameters": None, "problem": str(error)}


def _measure(name: str) -> dict[str, Any]:
    """Returns inputs, parameters and multiply-accumulates, without computing any weight.

    A model whose code looks at values, which fake tensors have none of, is computed after all.
    """
    # Whatever its code raises: the same without fake tensors tells whether it is the model's fault.
    with contextlib.suppress(Exception), FakeTensorMode(), torch.no_grad():
        return _measure_methods(name)
    try:
        with torch.no_grad(), torch.random.fork_rng(devices=[]):
            return _measure_methods(name)
    except EtprofError:
        raise
    except Exception as error:
        reason = str(error).partition("\n")[0]
        msg = f"model {name!r} fails on its own example inputs: {type(error).__name__}: {reason}"
        raise ExportError(msg) from error


def _measure_methods(name: str) -> dict[str, Any]:
    methods = load_methods(name)
    module = next(iter(methods.values())).module
    return {
        "methods": [_describe_method(*item) for item in methods.items()],
        "parameters": sum(parameter.numel() for parameter in module.parameters()),
        "problem": None,
    }


def _describe_method(name: str, method: ExportMethod) -> dict[str, Any]:
    inputs = tensors.flatten((method.inputs, dict(method.kwarg_inputs)))
    with MacCounter() as counter, sdpa_kernel(SDPBackend.MATH):
        method.module.eval()(*method.inputs, **method.kwarg_inputs)
    return {
        "name": name,
        "inputs": [_describe_input(value) for value in inputs],
        "macs": counter.macs,
    }


def _describe_input(value: object) -> str:
    """Returns an input as text, such as `float32[1, 3, 224, 224]`."""
    if isinstance(value, torch.Tensor):
        return f"{tensors.dtype_name(value)}{list(value.shape)}"
    return type(value).__name__
