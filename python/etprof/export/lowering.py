"""The way down from a module to an ExecuTorch program."""

from __future__ import annotations

import copy
from typing import TYPE_CHECKING, Any

import torch

from etprof.errors import ExportError
from etprof.export import tensors, upstream

if TYPE_CHECKING:
    from collections.abc import Mapping

    from etprof.export.eager_model import ExportMethod
    from etprof.export.precision import Precision


def run_eager(method: ExportMethod) -> list[Any]:
    """Returns the outputs of the module itself, flattened as the program gives them."""
    with torch.no_grad():
        outputs = method.module(*method.inputs, **method.kwarg_inputs)
    return tensors.flatten(outputs)


def convert_method(method: ExportMethod, precision: Precision) -> ExportMethod:
    """Returns a copy of `method` with floating-point weights and inputs in `precision`."""
    dtype = getattr(torch, precision.float_dtype)
    return type(method)(
        module=copy.deepcopy(method.module).eval().to(dtype),
        inputs=tensors.cast_floating(method.inputs, dtype),
        kwarg_inputs=tensors.cast_floating(dict(method.kwarg_inputs), dtype),
        dynamic_shapes=method.dynamic_shapes,
        calibration=tensors.cast_floating(list(method.calibration), dtype),
    )


def trace(name: str, method: ExportMethod) -> torch.export.ExportedProgram:
    """Traces one method with torch.export; raises ExportError with its reason."""
    try:
        return torch.export.export(
            method.module,
            method.inputs,
            dict(method.kwarg_inputs),
            dynamic_shapes=method.dynamic_shapes,
            strict=False,
        )
    # torch.export fails with whatever the model's own code or any of its own passes raise.
    except Exception as error:
        msg = f"torch.export cannot trace method {name!r}: {first_line(error)}"
        raise ExportError(msg) from error


def lower(
    programs: Mapping[str, torch.export.ExportedProgram], backend: str
) -> upstream.EdgeProgramManager:
    """Lowers traced methods to the edge dialect and gives `backend` what it can take."""
    partitioners = [upstream.XnnpackPartitioner()] if backend == "xnnpack" else None
    try:
        return upstream.to_edge_transform_and_lower(
            dict(programs), partitioner=partitioners, generate_etrecord=True
        )
    # Passes and partitioners raise anything; all of it means that the model cannot be lowered.
    except Exception as error:
        msg = f"cannot lower the model for backend {backend!r}: {first_line(error)}"
        raise ExportError(msg) from error


def make_program(edge: upstream.EdgeProgramManager) -> upstream.ExecutorchProgramManager:
    """Plans memory and serialises; raises ExportError when an operator has no kernel form."""
    try:
        return edge.to_executorch(upstream.ExecutorchBackendConfig())
    # As above: any pass may fail in its own way.
    except Exception as error:
        msg = f"cannot make an ExecuTorch program: {first_line(error)}"
        raise ExportError(msg) from error


def first_line(error: BaseException) -> str:
    """Returns the type and the first line of an exception's message."""
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    return f"{type(error).__name__}: {lines[0]}" if lines else type(error).__name__
