"""One export from beginning to end, once PyTorch and ExecuTorch are loaded."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import torch

from etprof.base.errors import ExportError
from etprof.export import (
    artifacts,
    lowering,
    model_loading,
    output,
    quantization,
    tensors,
    upstream,
)
from etprof.export.eager_model import ExportMethod

if TYPE_CHECKING:
    from etprof.export.precision import Precision
    from etprof.export.request import ExportedFiles, ExportRequest
    from etprof.export.stages import StageClock

SEED = 0
"""Random weights and inputs are drawn with it: the same model gives the same files."""


@dataclass
class ExportSession:
    """The steps of one export."""

    request: ExportRequest
    files: ExportedFiles
    clock: StageClock

    def run(self) -> None:
        """Runs every stage and puts the files in place."""
        options = self.request.options
        with upstream.quiet_upstream() as log, torch.random.fork_rng(devices=[]):
            torch.manual_seed(SEED)
            prepared = self._prepare(self.request.parsed_precision())
            with self.clock.stage("torch.export"):
                traced = {
                    name: lowering.trace(
                        name, method, external_constants=options.external_constants
                    )
                    for name, method in prepared.methods.items()
                }
            with self.clock.stage("lower"):
                constants = model_loading.load_constants(self.request.model)
                lowered = lowering.lower(traced, self.request.backend, options, constants)
            with self.clock.stage("make program"):
                program = lowering.make_program(lowered.edge, options, prepared.shared_buffers)
            last = self.files.manifest.name
            with artifacts.staged_folder(self.files.pte.parent, last=last) as folder:
                output.ExportOutput(folder, self.files, self.request, self.clock, log).write(
                    prepared, traced, lowered, program
                )

    def _prepare(self, precision: Precision) -> output.Prepared:
        """Loads the model, computes its reference outputs, and converts it."""
        dtype = getattr(torch, precision.float_dtype)
        with self.clock.stage("load model"):
            methods = model_loading.load_methods(self.request.model, self.request.options.weights)
        with self.clock.stage("run eager"):
            references = {name: run_reference(each, dtype) for name, each in methods.items()}
        with self.clock.stage("convert"):
            methods = {name: lowering.cast_method(each, dtype) for name, each in methods.items()}
            # Quantisation copies the modules, and with them what they share.
            shared = lowering.find_shared_buffers(methods)
            reports = {}
            if precision.quantization is not None:
                for name, each in methods.items():
                    methods[name], reports[name] = quantization.quantize_method(
                        name, each, precision.quantization
                    )
        if self.request.options.channels_last:
            methods = {name: tensors.with_channels_last(each) for name, each in methods.items()}
        return output.Prepared(methods, references, reports, shared)


def run_reference(method: ExportMethod, dtype: torch.dtype) -> list[Any]:
    """Runs the eager model in float32 on inputs rounded to `dtype`."""
    inputs, kwarg_inputs = tensors.cast_floating((method.inputs, dict(method.kwarg_inputs)), dtype)
    rounded = ExportMethod(method.module, inputs, kwarg_inputs)
    try:
        outputs = lowering.run_eager(lowering.cast_method(rounded, torch.float32))
    # As above.
    except Exception as error:
        msg = f"the model fails on its own example inputs: {lowering.first_line(error)}"
        raise ExportError(msg) from error
    for index, value in enumerate(outputs):
        _check_reference(index, value)
    return outputs


def _check_reference(index: int, value: object) -> None:
    """Raises ExportError for an output that no program can be held against."""
    where = f"output {index} of the eager model"
    if not isinstance(value, torch.Tensor):
        msg = f"{where} is a {type(value).__name__}, not a tensor; return tensors alone"
        raise ExportError(msg)
    if not torch.isfinite(value).all():
        msg = f"{where} is not finite for its own example inputs"
        raise ExportError(msg)
    largest = float(value.abs().max()) if value.is_floating_point() and value.numel() else 0.0
    if 0 < largest < torch.finfo(torch.float32).tiny:
        msg = (
            f"{where} is {largest:.1g} at most, where float32 has no precision left to compare; "
            "give example inputs for which the model computes something"
        )
        raise ExportError(msg)
