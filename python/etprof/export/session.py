"""One export from beginning to end, once PyTorch and ExecuTorch are loaded."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import torch

from etprof import registry
from etprof.atomic import write_json
from etprof.export import artifacts, lowering, manifest, tensors, upstream
from etprof.export.eager_model import collect_methods

if TYPE_CHECKING:
    from pathlib import Path

    from etprof.export.eager_model import ExportMethod
    from etprof.export.request import ExportedFiles, ExportRequest
    from etprof.export.stages import StageClock

SEED = 0
"""Random weights and inputs are drawn with it: the same model gives the same files."""


@dataclass
class MethodExport:
    """A method as it goes into the program, and the outputs it is held against."""

    method: ExportMethod
    references: list[Any]
    """Outputs of the unconverted model for the same inputs, in the program's element types."""


@dataclass
class ExportSession:
    """The steps of one export."""

    request: ExportRequest
    files: ExportedFiles
    clock: StageClock

    def run(self) -> None:
        """Runs every stage and puts the files in place."""
        with upstream.quiet_upstream(), torch.random.fork_rng(devices=[]):
            torch.manual_seed(SEED)
            with self.clock.stage("load model"):
                exports = self._prepare()
            with self.clock.stage("torch.export"):
                traced = {
                    name: lowering.trace(name, export.method) for name, export in exports.items()
                }
            with self.clock.stage("lower"):
                edge = lowering.lower(traced, self.request.backend)
            with self.clock.stage("make program"):
                program = lowering.make_program(edge)
            with self.clock.stage("write files"):
                self._write(program, exports)

    def _prepare(self) -> dict[str, MethodExport]:
        """Loads the model, converts it, and computes what its outputs should be."""
        model = registry.load_model(self.request.model)
        precision = self.request.parsed_precision()
        return {
            name: prepare_method(method, lowering.convert_method(method, precision))
            for name, method in collect_methods(model).items()
        }

    def _write(
        self, program: upstream.ExecutorchProgramManager, exports: dict[str, MethodExport]
    ) -> None:
        with artifacts.staged_folder(
            self.files.pte.parent, last=self.files.manifest.name
        ) as folder:
            pte = folder / self.files.pte.name
            with pte.open("wb") as stream:
                program.write_to_file(stream)
            program.get_etrecord().save(folder / self.files.etrecord.name)
            data = folder / self.files.data.name
            data.mkdir()
            document = manifest.describe_export(self.request, self.clock.times)
            document["pte"] = {"path": pte.name, **manifest.file_identity(pte)}
            methods = {name: describe_method(each, data, name) for name, each in exports.items()}
            document |= manifest.describe_methods(methods)
            write_json(folder / self.files.manifest.name, document)


def prepare_method(method: ExportMethod, converted: ExportMethod) -> MethodExport:
    """Runs the eager model in float32 on the converted inputs; its outputs are the reference."""
    truth = replace(
        method,
        module=method.module.eval().float(),
        inputs=tensors.cast_floating(converted.inputs, torch.float32),
        kwarg_inputs=tensors.cast_floating(dict(converted.kwarg_inputs), torch.float32),
    )
    outputs = [
        tensors.cast_floating(expected, actual.dtype)
        if isinstance(actual, torch.Tensor)
        else actual
        for expected, actual in zip(
            lowering.run_eager(truth), lowering.run_eager(converted), strict=True
        )
    ]
    return MethodExport(converted, outputs)


def describe_method(export: MethodExport, data: Path, name: str) -> dict[str, Any]:
    """Writes a method's tensors into folder `data` and returns its part of the manifest."""
    prefix = "" if name == "forward" else f"{name}_"
    inputs = tensors.flatten((export.method.inputs, dict(export.method.kwarg_inputs)))
    return {
        "inputs": manifest.write_values(inputs, data, f"{prefix}input"),
        "references": manifest.write_values(export.references, data, f"{prefix}reference"),
    }
