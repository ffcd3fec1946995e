"""What the outputs of a program should be: those of the eager model in float32, inference by inference."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch

from etprof.base.errors import EtprofError, ExportError, UsageError, first_line
from etprof.export import lowering, tensors
from etprof.export.state import run_steps
from etprof.model_registry import registry
from etprof.model_registry.eager_model import ExportMethod
from etprof.model_registry.plain_model import describe_fitting

if TYPE_CHECKING:
    from collections.abc import Sequence

    from etprof.export.state import EagerSteps


def in_float32(method: ExportMethod, dtype: torch.dtype) -> ExportMethod:
    """Returns the method in float32, in place, with inputs that are rounded to `dtype`."""
    inputs, kwarg_inputs, calibration = tensors.cast_floating(
        (method.inputs, dict(method.kwarg_inputs), list(method.calibration)), dtype
    )
    rounded = ExportMethod(method.module, inputs, kwarg_inputs, calibration=calibration)
    return lowering.cast_method(rounded, torch.float32)


def run_reference(
    method: ExportMethod, dtype: torch.dtype, texts: Sequence[str] = (), model: str = ""
) -> EagerSteps:
    """Runs the eager model in float32 on inputs rounded to `dtype`, from its initial state.

    Raises ExportError where the model fails on its own inputs, and UsageError where it fails on
    `texts`, the inputs of the command line. `model` is how that names the model.
    """
    try:
        steps = run_steps(in_float32(method, dtype))
    # A model's code may raise anything.
    except Exception as error:
        cause = f"{first_line(error)}{lowering.blamed_line(error)}"
        if texts:
            fitting = describe_fitting(model, method.module, texts, _example_inputs(model))
            msg = f"the model fails on the inputs of --input: {cause}{fitting}"
            raise UsageError(msg) from error
        raise ExportError(f"the model fails on its own example inputs: {cause}") from error
    for index, value in enumerate(steps.of(1)):
        _check_reference(index, value)
    return steps


def _example_inputs(model: str) -> Sequence[object]:
    """Returns the inputs that a model has by itself; none of a stranger's module."""
    if not model or model.endswith(".pt2") or ".py" in model:
        return ()
    try:
        return registry.load_model(model).get_example_inputs()
    except EtprofError:
        # That the given ones do not fit is told all the same.
        return ()


def _check_reference(index: int, value: object) -> None:
    """Raises ExportError for an output that no program can be compared with."""
    where = f"output {index} of the eager model"
    if value is not None and not isinstance(value, torch.Tensor):
        msg = f"{where} has type {type(value).__name__}; return only tensors"
        raise ExportError(msg)
