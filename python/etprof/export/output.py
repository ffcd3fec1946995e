"""Writes the files of an export, and checks the program while nobody sees it yet."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any

from etprof.backends.xnnpack import sme2_prediction
from etprof.base.atomic import write_json, write_text
from etprof.base.files import MOST_PROGRAM_BYTES, read_bounded
from etprof.export import (
    bundle,
    delegation,
    lowering,
    manifest,
    memory_plan,
    operators,
    program_size,
    runtime_check,
    stages,
    tensors,
    upstream,
)

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping
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
    shared_buffers: Collection[str] = ()
    """Buffers that are one tensor in several methods, such as a key-value cache."""


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
        references = {
            name: _with_dtypes(values, lowering.output_dtypes(traced[name]))
            for name, values in prepared.references.items()
        }
        with self.clock.stage("write program"):
            self._write_program(program)
        with self.clock.stage("check against eager"):
            checks = self._check(prepared, references)
        if self.request.options.bundle:
            with self.clock.stage("bundle"):
                self._write_bundle(program, prepared, references, checks)
        with self.clock.stage("describe"):
            self._write_report(lowered, program)
            methods = self._write_tensors(prepared, references, checks)
        self._write_manifest(prepared, methods)

    def _write_program(self, program: upstream.ExecutorchProgramManager) -> None:
        with self._staged(self.files.pte).open("wb") as stream:
            program.write_to_file(stream)
        program.get_etrecord().save(self._staged(self.files.etrecord))
        if self.request.options.external_constants:
            program.write_tensor_data_to_file(str(self.folder))
            written = self.folder / f"{lowering.EXTERNAL_TAG}.ptd"
            written.rename(self._staged(self.files.external_data))

    def _write_bundle(
        self,
        program: upstream.ExecutorchProgramManager,
        prepared: Prepared,
        references: Mapping[str, list[Any]],
        checks: dict[str, Any],
    ) -> None:
        """Writes the bundled program and adds ExecuTorch's own check of it to `checks`."""
        content = bundle.bundle_program(program, prepared.methods, references)
        self._staged(self.files.bundle).write_bytes(content)
        errors = {
            name: max((output["max_abs_error"] for output in check["outputs"]), default=0.0)
            for name, check in checks.items()
        }
        found = (
            bundle.leave_unchecked(errors)
            if self.request.options.external_constants
            else bundle.check_bundle(self._staged(self.files.bundle), errors)
        )
        for name, check in found.items():
            checks[name]["bundle"] = asdict(check)

    def _staged(self, file: Path) -> Path:
        """Returns where `file` is until the export is complete."""
        return self.folder / file.name

    def _external_data(self) -> Path | None:
        options = self.request.options
        return self._staged(self.files.external_data) if options.external_constants else None

    def _write_tensors(
        self, prepared: Prepared, references: Mapping[str, list[Any]], checks: Mapping[str, Any]
    ) -> dict[str, Any]:
        """Writes inputs and reference outputs; returns the methods' parts of the manifest."""
        data = self._staged(self.files.data)
        data.mkdir()
        return {
            name: {**_write_tensors(data, name, method, references[name]), "check": checks[name]}
            for name, method in prepared.methods.items()
        }

    def _write_manifest(self, prepared: Prepared, methods: dict[str, Any]) -> None:
        document = manifest.describe_export(self.request, self.clock.times)
        document["quantization"] = manifest.describe_quantization(
            self.request.parsed_precision(), prepared.quantization
        )
        for key, file in self._programs().items():
            document[key] = {"path": file.name, **manifest.file_identity(file)}
        document["log"] = self.log
        document |= manifest.describe_methods(methods)
        if self.request.options.trace:
            self._draw_stages()
        write_json(self._staged(self.files.manifest), document)

    def _draw_stages(self) -> None:
        write_json(self._staged(self.files.stage_trace), stages.draw_stages(self.clock))
        page = stages.draw_flames(self.files.pte.name, self.clock)
        write_text(self._staged(self.files.stage_graph), page)

    def _programs(self) -> dict[str, Path]:
        """Returns the files that others may be put in place of, by their keys in the manifest."""
        files = {"pte": self.files.pte, "etrecord": self.files.etrecord}
        if self.request.options.external_constants:
            files["ptd"] = self.files.external_data
        if self.request.options.bundle:
            files["bundle"] = self.files.bundle
        return {key: self._staged(file) for key, file in files.items()}

    def _check(self, prepared: Prepared, references: dict[str, list[Any]]) -> dict[str, Any]:
        """Runs every method and returns how far its outputs are from eager's.

        The references get the dimension order of the program's outputs, for files to be compared.
        """
        least = runtime_check.minimum_snr_db(self.request.precision)
        result = {}
        for name, method in prepared.methods.items():
            checks, outputs = runtime_check.check_program(
                self._staged(self.files.pte),
                self._external_data(),
                name,
                method,
                references[name],
            )
            references[name] = [
                tensors.stored_like(reference, own)
                for reference, own in zip(references[name], outputs, strict=True)
            ]
            result[name] = {
                "minimum_snr_db": least,
                "passed": all(each.is_close(least) for each in checks),
                "outputs": [asdict(each) for each in checks],
            }
        return result

    def _write_report(self, lowered: Lowered, program: upstream.ExecutorchProgramManager) -> None:
        pte, ptd = self._staged(self.files.pte), self._external_data()
        content = upstream.deserialize_pte_binary(read_bounded(pte, MOST_PROGRAM_BYTES))
        plans = {plan.name: plan for plan in content.program.execution_plan}
        methods, tensors_of = {}, {}
        for name, method in lowered.methods.items():
            emitted = program.exported_program(name).graph_module
            operators.add_instructions(method, emitted)
            # The first entry stands for constants and is always empty.
            arenas = list(plans[name].non_const_buffer_sizes[1:])
            plan = memory_plan.describe_plan(emitted.graph, arenas)
            tensors_of[name] = list(memory_plan.list_tensors(emitted.graph))
            methods[name] = delegation.describe_method(method, plan)
        external = 0 if ptd is None else ptd.stat().st_size
        document = {
            "schema_version": delegation.SCHEMA_VERSION,
            **manifest.describe_subject(self.request),
            "prediction_source": sme2_prediction.SOURCE,
            "size": asdict(program_size.measure_program(pte, content, external)),
            "methods": methods,
        }
        write_json(self._staged(self.files.report), document)
        if self.request.options.graph:
            graphs = "\n\n".join(f"{name}: {text}" for name, text in lowered.graphs.items())
            write_text(self._staged(self.files.graph), f"{graphs}\n")
        if self.request.options.trace:
            drawn = memory_plan.draw_memory(tensors_of)
            write_json(self._staged(self.files.memory_trace), drawn)


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
