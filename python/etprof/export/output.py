"""Writes the files of an export, and checks the program while nobody sees it yet."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any

from etprof.atomic import write_json
from etprof.export import (
    delegation,
    lowering,
    manifest,
    memory_plan,
    operators,
    program_size,
    runtime_check,
    sme2_prediction,
    tensors,
    upstream,
)

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    import torch

    from etprof.export.eager_model import ExportMethod
    from etprof.export.lowering import Lowered
    from etprof.export.quantization import QuantizationReport
    from etprof.export.request import ExportedFiles, ExportRequest
    from etprof.export.stages import StageClock


@dataclass(frozen=True)
class Prepared:
    """The methods as they go into the program, and what their outputs should be."""

    methods: Mapping[str, ExportMethod]
    references: Mapping[str, list[Any]]
    """Outputs of the eager model in float32, for inputs as precise as the program's."""
    quantization: Mapping[str, QuantizationReport]


@dataclass
class ExportOutput:
    """Writes one export into a folder that is not its final one."""

    folder: Path
    files: ExportedFiles
    request: ExportRequest
    clock: StageClock
    log: list[str]
    """What the libraries logged and is not known noise."""

    def write(
        self,
        prepared: Prepared,
        traced: Mapping[str, torch.export.ExportedProgram],
        lowered: Lowered,
        program: upstream.ExecutorchProgramManager,
    ) -> None:
        """Writes every file; raises ExportError when the program fails its check."""
        pte = self.folder / self.files.pte.name
        references = {
            name: _with_dtypes(values, lowering.output_dtypes(traced[name]))
            for name, values in prepared.references.items()
        }
        with self.clock.stage("write program"):
            with pte.open("wb") as stream:
                program.write_to_file(stream)
            program.get_etrecord().save(self.folder / self.files.etrecord.name)
        with self.clock.stage("check against eager"):
            checks = self._check(pte, prepared, references)
        with self.clock.stage("describe"):
            self._write_report(pte, lowered, program)
            data = self.folder / self.files.data.name
            data.mkdir()
            methods = {
                name: {
                    **_write_tensors(data, name, method, references[name]),
                    "check": checks[name],
                }
                for name, method in prepared.methods.items()
            }
        document = manifest.describe_export(self.request, self.clock.times)
        document["quantization"] = manifest.describe_quantization(
            self.request.parsed_precision(), prepared.quantization
        )
        document["pte"] = {"path": pte.name, **manifest.file_identity(pte)}
        document["log"] = self.log
        document |= manifest.describe_methods(methods)
        write_json(self.folder / self.files.manifest.name, document)

    def _check(
        self, pte: Path, prepared: Prepared, references: Mapping[str, list[Any]]
    ) -> dict[str, Any]:
        """Runs every method and returns how far its outputs are from eager's."""
        least = runtime_check.minimum_snr_db(self.request.precision)
        result = {}
        for name, method in prepared.methods.items():
            checks = runtime_check.check_program(pte, None, name, method, references[name])
            result[name] = {
                "minimum_snr_db": least,
                "passed": all(each.snr_db is None or each.snr_db >= least for each in checks),
                "outputs": [asdict(each) for each in checks],
            }
        return result

    def _write_report(
        self, pte: Path, lowered: Lowered, program: upstream.ExecutorchProgramManager
    ) -> None:
        content = upstream.deserialize_pte_binary(pte.read_bytes())
        plans = {plan.name: plan for plan in content.program.execution_plan}
        methods = {}
        for name, method in lowered.methods.items():
            emitted = program.exported_program(name).graph_module
            operators.add_instructions(method, emitted)
            # The first entry stands for constants and is always empty.
            arenas = list(plans[name].non_const_buffer_sizes[1:])
            plan = memory_plan.describe_plan(emitted.graph, arenas)
            methods[name] = delegation.describe_method(method, plan)
        document = {
            "schema_version": delegation.SCHEMA_VERSION,
            **manifest.describe_subject(self.request),
            "prediction_source": sme2_prediction.SOURCE,
            "size": asdict(program_size.measure_program(pte, content, 0)),
            "methods": methods,
        }
        write_json(self.folder / self.files.report.name, document)


def _with_dtypes(values: list[Any], dtypes: list[torch.dtype | None]) -> list[Any]:
    """Returns reference outputs in the element types that the program gives."""
    return [
        value if dtype is None else value.to(dtype)
        for value, dtype in zip(values, dtypes, strict=True)
    ]


def _write_tensors(
    data: Path, name: str, method: ExportMethod, references: list[Any]
) -> dict[str, Any]:
    """Writes a method's tensors into folder `data` and returns their part of the manifest."""
    prefix = "" if name == "forward" else f"{name}_"
    inputs = tensors.flatten((method.inputs, dict(method.kwarg_inputs)))
    return {
        "inputs": manifest.write_values(inputs, data, f"{prefix}input"),
        "references": manifest.write_values(references, data, f"{prefix}reference"),
    }
