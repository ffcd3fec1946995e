"""One export from beginning to end, once PyTorch and ExecuTorch are loaded.

Its files appear all together, or not at all, and the program is checked while nobody sees it yet.
"""

from __future__ import annotations

import importlib.metadata
import platform
from collections import Counter
from dataclasses import asdict, dataclass, field, replace
from functools import cache, partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch

from etprof._version import __version__
from etprof.backends.registry import BY_NAME
from etprof.base.atomic import staged_folder, write_json, write_text
from etprof.base.errors import ExportError
from etprof.base.files import MOST_PROGRAM_BYTES, read_bounded
from etprof.export import (
    delegation,
    lowering,
    memory_plan,
    model_loading,
    operators,
    runtime_check,
    stages,
    tensors,
    upstream,
)
from etprof.export.changes.embeddings import quantize_embeddings
from etprof.export.changes.exclusions import check_exclusions
from etprof.export.changes.failed_lowering import FailedLoweringError
from etprof.export.changes.fallbacks import (
    MOST_FALLBACKS,
    MissingKernelError,
    RefusedProgramError,
    explain_missing,
    explain_refusal,
    find_fallbacks,
)
from etprof.export.changes.rewriting import Rewriting, left_out_rewrites, plan_rewriting
from etprof.export.changes.scopes import check_names
from etprof.export.quality.input_cases import list_cases, run_samples
from etprof.export.quality.reference import in_float32, run_reference
from etprof.export.quality.text_quality import TextReader, load_text
from etprof.model_registry.registry import find_model
from etprof.run.delegation import DelegationReport
from etprof.run.git_state import is_tracked, read_git_state
from etprof.run.manifest import FileIdentity, identify
from etprof.run.program import (
    ExportCheck,
    ExportManifest,
    MethodFiles,
    ModelCode,
    StepFiles,
    TensorFile,
)

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Mapping, Sequence

    from etprof.export.changes.scopes import Scope
    from etprof.export.lowering import LoweredProgram, QuantizationReport
    from etprof.export.request import ExportedFiles, ExportOptions, ExportRequest, Precision
    from etprof.export.stages import StageClock
    from etprof.export.state import EagerSteps
    from etprof.model_registry.eager_model import ExportMethod
    from etprof.run.accuracy import TextQuality
    from etprof.run.program import Fallback, ScopeCatch


SEED = 0
"""Random weights and inputs are drawn with it: the same model gives the same files."""


@dataclass
class ExportSession:
    """The steps of one export."""

    request: ExportRequest
    files: ExportedFiles
    clock: StageClock
    rewriting: Rewriting = field(default_factory=Rewriting)
    caught: tuple[ScopeCatch, ...] = ()
    """What each part in another precision was, in all methods together."""
    embeddings: tuple[str, ...] = ()
    """Paths of the tables that were quantised."""
    assumption: str = ""
    """What was taken for inputs that nobody gave in full."""
    reader: TextReader | None = None
    """Reads a text with what is a language model; None where nobody asks."""
    fallbacks: dict[str, Fallback] = field(default_factory=dict)
    """Operators that the runtime refused, by the names of the traced ones."""

    def run(self) -> None:
        """Runs every stage and puts the files in place."""
        with upstream.quiet_upstream() as log, torch.random.fork_rng(devices=[]):
            self.rewriting = plan_rewriting(self.request)
            text = load_text(self.request.text, self.request.tokenizer)
            self.reader = TextReader(text)
            torch.manual_seed(SEED)
            prepared = self.prepare()
            traced = self._trace(prepared)
            self._write(traced, prepared, log)

    def _write(
        self,
        traced: Mapping[str, torch.export.ExportedProgram],
        prepared: PreparedMethods,
        log: list[str],
    ) -> None:
        """Lowers and writes; what the runtime refuses stays outside the delegate the next time."""
        options = replace(self.request.options, rewrites=tuple(self.rewriting.names))
        references = {
            name: tensors.with_dtypes(values.of(1), lowering.output_dtypes(traced[name]))
            for name, values in prepared.references.items()
        }
        files, counted = self.files, Counter(self.rewriting.operators)
        while True:
            try:
                lowered = self._lower(traced, options)
            except FailedLoweringError as error:
                self._leave_outside(error.fallbacks(traced), error)
                continue
            self.rewriting.operators = counted + lowered.rewritten
            with self.clock.stage("make program"):
                program = lowering.make_program(lowered.edge, options, prepared.shared_buffers)
            try:
                with staged_folder(
                    files.pte.parent, last=files.manifest.name, family=files.every()
                ) as folder:
                    ExportOutput(self, folder, log, prepared, lowered, program, references).write()
            except MissingKernelError as error:
                raise explain_missing(error, lowered) from error
            except RefusedProgramError as error:
                emitted = program.exported_program(error.method).graph_module
                operators.add_instructions(lowered.methods[error.method], emitted)
                fallbacks = find_fallbacks(error, lowered)
                self._leave_outside(fallbacks, explain_refusal(error, lowered, fallbacks))
            else:
                return

    def _leave_outside(self, fallbacks: Mapping[str, Fallback], error: ExportError) -> None:
        """Has operators stay outside the delegate the next time; raises `error` where that cannot be."""
        is_known = fallbacks.keys() <= self.fallbacks.keys()
        if self.request.strict or is_known or len(self.fallbacks) >= MOST_FALLBACKS:
            raise error
        self.fallbacks.update(fallbacks)

    def _lower(
        self, traced: Mapping[str, torch.export.ExportedProgram], options: ExportOptions
    ) -> LoweredProgram:
        """Lowers the traced methods, which can be lowered again afterwards."""
        with self.clock.stage("lower"):
            constants = model_loading.load_constants(self.request.model)
            # Lowering takes them out.
            before = {name: dict(program.constants) for name, program in traced.items()}
            lowered = lowering.lower(
                traced, self.request.backend, options, constants, self.fallbacks
            )
            for name, program in traced.items():
                program.constants.update(before[name])
        return lowered

    def rewrite(self) -> Rewriting:
        """Returns the rewrites after they have been applied; lowers and writes nothing."""
        with upstream.quiet_upstream(), torch.random.fork_rng(devices=[]):
            self.rewriting = plan_rewriting(self.request)
            torch.manual_seed(SEED)
            self._trace(self.prepare())
        return self.rewriting

    def _trace(self, prepared: PreparedMethods) -> dict[str, torch.export.ExportedProgram]:
        external = self.request.options.external_constants
        with self.clock.stage("torch.export"):
            traced = {
                name: lowering.trace(name, method, external_constants=external)
                for name, method in prepared.methods.items()
            }
            self.caught = operators.count_covered(traced.values(), self.request.scopes())
            traced = {
                name: self.rewriting.before_lowering(program) for name, program in traced.items()
            }
        for name in prepared.quantization:
            lowering.check_quantized(name, traced[name])
        self.rewriting.check_precision()
        return traced

    def load_methods(self) -> dict[str, ExportMethod]:
        """Returns the methods of a model that is created anew."""
        options = self.request.options
        return model_loading.load_methods(
            self.request.model, options.weights, options.example_inputs
        )

    def prepare(self) -> PreparedMethods:
        """Loads the model, computes its reference outputs, and converts it."""
        precision = self.request.parsed_precision()
        dtype = getattr(torch, precision.float_dtype)
        with self.clock.stage("load model"):
            methods = self.load_methods()
            self.assumption = next(iter(methods.values())).assumption if methods else ""
        scopes = self.request.scopes()
        self._check_modules(methods.values(), scopes)
        with self.clock.stage("run eager"):
            texts = self.request.options.example_inputs
            references = {
                name: run_reference(method, dtype, texts, self.request.model)
                for name, method in methods.items()
            }
            samples = {name: run_samples(method, dtype) for name, method in methods.items()}
            if self.reader is not None:
                self.reader.read_eager(methods, model_loading.load_constants(self.request.model))
                if self.reader.problem and self.request.text is not None:
                    raise ExportError(f"--text {self.request.text}: {self.reader.problem}")
        with self.clock.stage("convert"):
            cast_scopes = () if precision.quantization else scopes
            methods = {
                name: lowering.cast_method(method, dtype, cast_scopes)
                for name, method in methods.items()
            }
            if (embedding_scheme := self.request.options.embeddings) is not None:
                self.embeddings = quantize_embeddings(methods.values(), embedding_scheme, scopes)
            # Quantisation copies the modules, and with them what they share.
            shared = lowering.find_shared_buffers(methods)
            reports = {}
            if precision.quantization is not None:
                for name, method in methods.items():
                    methods[name], reports[name] = lowering.quantize_method(
                        name,
                        method,
                        precision,
                        BY_NAME[self.request.backend],
                        self.rewriting,
                        scopes=scopes,
                    )
        if self.request.options.channels_last:
            methods = {name: tensors.with_channels_last(method) for name, method in methods.items()}
        return PreparedMethods(methods, references, reports, shared, samples)

    def _check_modules(self, methods: Iterable[ExportMethod], scopes: Sequence[Scope]) -> None:
        """Raises UsageError for modules, or types to quantise, that the model does not have."""
        paths = {path: None for method in methods for path, _ in method.module.named_modules()}
        check_exclusions(self.rewriting.exclusions, paths)
        scheme = self.request.parsed_precision().quantization
        exporter = BY_NAME[self.request.backend].exporter()
        linears = scheme is not None and scheme.method == "torchao"
        check_names(scopes, paths, {"linear"} if linears else exporter.quantizable_types())


@dataclass(frozen=True)
class PreparedMethods:
    """The methods as they go into the program, and what their outputs should be."""

    methods: Mapping[str, ExportMethod]
    references: Mapping[str, EagerSteps]
    """Outputs of the eager model in float32, for inputs as precise as the program's."""
    quantization: Mapping[str, QuantizationReport]
    shared_buffers: Collection[str] = ()
    """Buffers that are one tensor in several methods, such as a key-value cache."""
    sample_references: Mapping[str, Mapping[int, list[Any]]] = field(default_factory=dict)
    """Flat outputs of the float32 model for a few calibration samples, by their places."""


@dataclass
class ExportOutput:
    """Writes one export into a folder that is not its final one."""

    session: ExportSession
    folder: Path
    log: list[str]
    """What the libraries logged and is not known noise."""
    prepared: PreparedMethods
    lowered: LoweredProgram
    program: upstream.ExecutorchProgramManager
    references: dict[str, list[Any]]
    """Of the first inference, in the element types, and once checked in the dimension order, of the
    program's outputs."""
    checks: dict[str, ExportCheck] = field(default_factory=dict)
    exact: dict[str, list[Any]] = field(default_factory=dict)
    """The same in float32 where the program gives halves, as its outputs are judged."""
    converted: dict[str, list[Any]] = field(default_factory=dict)
    """Outputs of the converted eager models, stored as the program's."""
    converted_steps: dict[str, EagerSteps] = field(default_factory=dict)
    """What those gave, and were given, inference by inference."""
    steps: dict[str, list[tuple[list[Any], list[Any]]]] = field(default_factory=dict)
    """Both of the inferences after the first, of methods with state."""

    def __post_init__(self) -> None:
        """Takes what was asked for from the session."""
        self.request, self.files = self.session.request, self.session.files

    def write(self) -> None:
        """Writes every file; raises ExportError when the program fails its check."""
        stage = self.session.clock.stage
        with stage("write program"):
            self._write_program()
        with stage("check against eager"):
            self._check()
        if self.request.options.bundle:
            with stage("bundle"):
                self._write_bundle()
        with stage("describe"):
            self._write_report()
            methods = self._write_methods()
        with stage("read a text"):
            quality = self._read_text()
        self._write_manifest(methods, quality)

    def _write_program(self) -> None:
        with self._staged(self.files.pte).open("wb") as stream:
            self.program.write_to_file(stream)
        self.program.get_etrecord().save(self._staged(self.files.etrecord))
        if self.request.options.external_constants:
            self.program.write_tensor_data_to_file(str(self.folder))
            written = self.folder / f"{lowering.EXTERNAL_TAG}.ptd"
            written.rename(self._staged(self.files.external_data))

    def _write_bundle(self) -> None:
        """Writes the bundled program; adds ExecuTorch's own check of it to the others."""
        methods = self.prepared.methods
        content = runtime_check.bundle_program(self.program, methods, self.references)
        self._staged(self.files.bundle).write_bytes(content)
        errors = {
            name: max((output.max_abs_error for output in check.outputs), default=0.0)
            for name, check in self.checks.items()
        }
        bundle_checks = (
            runtime_check.leave_unchecked(errors)
            if self.request.options.external_constants
            else runtime_check.check_bundle(self._staged(self.files.bundle), errors)
        )
        for name, check in self.checks.items():
            self.checks[name] = check.model_copy(update={"bundle": bundle_checks[name]})

    def _staged(self, file: Path) -> Path:
        """Returns where `file` is until the export is complete."""
        return self.folder / file.name

    def _external_data(self) -> Path | None:
        options = self.request.options
        return self._staged(self.files.external_data) if options.external_constants else None

    def _write_methods(self) -> dict[str, MethodFiles]:
        """Writes inputs and reference outputs; returns the methods' parts of the manifest."""
        data = self._staged(self.files.data)
        data.mkdir()
        written = {}
        for name, method in self.prepared.methods.items():
            prefix = "" if name == "forward" else f"{name}_"
            inputs = tensors.flatten((method.inputs, dict(method.kwarg_inputs)))
            written[name] = MethodFiles(
                inputs=_write_values(inputs, data, f"{prefix}input"),
                references=_write_values(self.exact[name], data, f"{prefix}reference"),
                converted=_write_values(self.converted[name], data, f"{prefix}converted"),
                state=self.prepared.references[name].changed,
                step_inputs=self._write_step_inputs(name, data, f"{prefix}input"),
                steps=tuple(
                    StepFiles(
                        step=step,
                        references=_write_values(exact, data, f"{prefix}reference_step_{step}"),
                        converted=_write_values(cast, data, f"{prefix}converted_step_{step}"),
                    )
                    for step, (exact, cast) in enumerate(self.steps[name], 2)
                ),
                check=self.checks[name],
                widened=self.lowered.widened.get(name, {}),
                clamped=self.lowered.clamped.get(name, {}),
            )
        return written

    def _write_step_inputs(self, name: str, data: Path, prefix: str) -> tuple[TensorFile, ...]:
        """Writes the inputs of all inferences in a row, of a method with state: a file a tensor."""
        steps = self.converted_steps[name].inputs
        if not self.steps[name]:
            return ()
        written = []
        for index, values in enumerate(zip(*steps, strict=True)):
            if isinstance(values[0], torch.Tensor):
                path = data / f"{prefix}_{index}_steps.bin"
                path.write_bytes(b"".join(map(tensors.raw_bytes, values)))
                written.append(_describe_file(index, values[0], path))
        return tuple(written)

    def _read_text(self) -> TextQuality | None:
        """Returns what a language model's program makes of a text, and which layers ruin it."""
        reader, request = self.session.reader, self.request
        if reader is None or request.options.external_constants:
            return None
        pte = self._staged(self.files.pte)
        quality = reader.read_program(pte, identify(pte).sha256 or "", request.precision)
        if reader.problem:
            self.log.append(f"quality of its text is not known: {reader.problem}")
        scheme = request.parsed_precision().quantization
        if quality is None or quality.verdict.answer != "failed" or scheme is None:
            return quality
        fresh = self._load_fresh()
        return reader.blame(
            quality,
            {name: in_float32(method, torch.float32) for name, method in fresh.items()},
            scheme,
        )

    def _load_fresh(self) -> dict[str, ExportMethod]:
        """Returns the methods with the same weights; those that were loaded first are converted."""
        torch.manual_seed(SEED)
        return self.session.load_methods()

    def _load_tracing(self, name: str) -> tuple[ExportMethod, ExportMethod]:
        exact = replace(
            in_float32(self._load_fresh()[name], torch.float32),
            dynamic_shapes=self.prepared.methods[name].dynamic_shapes,
        )
        return exact, replace(exact, module=lowering.trace(name, exact).module())

    def _write_manifest(self, methods: dict[str, MethodFiles], quality: TextQuality | None) -> None:
        options, files = self.request.options, self.files
        manifest = ExportManifest(
            **describe_subject(self.request),
            source=describe_source(self.request.model),
            versions=tool_versions(),
            options=describe_options(options),
            stages=tuple(self.session.clock.times),
            quantization=describe_quantization(
                self.request.parsed_precision(), self.prepared.quantization
            ),
            rewrites=self.session.rewriting.applied,
            scopes=self.session.caught,
            embeddings=self.session.embeddings,
            fallbacks=tuple(self.session.fallbacks.values()),
            rewrites_left_out={**self.lowered.failed, **left_out_rewrites(self.request)},
            # The files that others may be put in place of.
            pte=self._identify(files.pte),
            etrecord=self._identify(files.etrecord),
            ptd=self._identify(files.external_data) if options.external_constants else None,
            bundle=self._identify(files.bundle) if options.bundle else None,
            log=tuple(self.log),
            assumption=self.session.assumption,
            method="forward" if "forward" in methods else next(iter(methods)),
            methods=methods,
            quality=quality,
        )
        if options.trace:
            self._draw_stages()
        write_json(self._staged(files.manifest), manifest.model_dump(mode="json"))

    def _identify(self, file: Path) -> FileIdentity:
        return identify(self._staged(file), file.name)

    def _draw_stages(self) -> None:
        write_json(self._staged(self.files.stage_trace), stages.draw_stages(self.session.clock))
        page = stages.draw_flames(self.files.pte.name, self.session.clock)
        write_text(self._staged(self.files.stage_graph), page)

    def _check(self) -> None:
        """Runs every method and keeps how far its outputs are from eager's.

        The references get the dimension order of the program's outputs, for files to be compared.
        """
        for name, method in self.prepared.methods.items():
            load = cache(partial(self._load_tracing, name)) if self.prepared.quantization else None
            checked = runtime_check.check_program(
                self._staged(self.files.pte),
                self._external_data(),
                name,
                method,
                self.prepared.references[name],
                precision=self.request.precision,
                floors=self.request.floors(),
                carried=lowering.carried_buffers(self.lowered.edge, name),
                cases=list_cases(
                    method,
                    self.prepared.sample_references.get(name, {}),
                    self.lowered.edge.exported_program(name),
                    load,
                ),
                load_tracing=load,
            )
            self.checks[name] = checked.check
            exact, self.converted_steps[name] = self.prepared.references[name], checked.converted
            later = range(2, exact.count + 1) if exact.changed else ()
            pairs = [
                (
                    tensors.exact_and_stored_like(exact.of(step), checked.outputs),
                    tensors.cast_and_stored_like(checked.converted.of(step), checked.outputs),
                )
                for step in (1, *later)
            ]
            (self.exact[name], self.converted[name]), *self.steps[name] = pairs
            self.references[name] = tensors.cast_and_stored_like(exact.of(1), checked.outputs)

    def _write_report(self) -> None:
        pte, ptd = self._staged(self.files.pte), self._external_data()
        content = upstream.deserialize_pte_binary(read_bounded(pte, MOST_PROGRAM_BYTES))
        plans = {plan.name: plan for plan in content.program.execution_plan}
        methods, tensors_of = {}, {}
        for name, method in self.lowered.methods.items():
            emitted = self.program.exported_program(name).graph_module
            operators.add_instructions(method, emitted)
            # The first entry stands for constants and is always empty.
            arenas = list(plans[name].non_const_buffer_sizes[1:])
            plan = memory_plan.describe_plan(emitted.graph, arenas)
            tensors_of[name] = list(memory_plan.list_tensors(emitted.graph))
            methods[name] = delegation.describe_method(method, plan)
        report = DelegationReport(
            **describe_subject(self.request),
            prediction_source=BY_NAME[self.request.backend].describe_source(),
            size=memory_plan.measure_program(pte, content, ptd),
            methods=methods,
        )
        write_json(self._staged(self.files.report), report.model_dump(mode="json"))
        if self.request.options.graph:
            graphs = "\n\n".join(f"{name}: {text}" for name, text in self.lowered.graphs.items())
            write_text(self._staged(self.files.graph), f"{graphs}\n")
        if self.request.options.trace:
            drawn = memory_plan.draw_memory(tensors_of)
            write_json(self._staged(self.files.memory_trace), drawn)


def _write_values(values: Sequence[object], folder: Path, prefix: str) -> tuple[TensorFile, ...]:
    """Writes tensors as `<prefix>_<index>.bin` and returns their entries in the manifest."""
    return tuple(
        _write_value(index, value, folder / f"{prefix}_{index}.bin")
        for index, value in enumerate(values)
    )


def _write_value(index: int, value: object, path: Path) -> TensorFile:
    if not isinstance(value, torch.Tensor):
        return TensorFile(index=index, dtype=type(value).__name__, value=value)
    path.write_bytes(tensors.raw_bytes(value))
    return _describe_file(index, value, path)


def _describe_file(index: int, value: torch.Tensor, path: Path) -> TensorFile:
    written = identify(path, f"{path.parent.name}/{path.name}")
    return TensorFile(
        index=index,
        dtype=tensors.dtype_name(value),
        shape=list(value.shape),
        dim_order=tuple(value.dim_order()),
        **written.model_dump(),
    )


def tool_versions() -> dict[str, str]:
    """Returns the versions that decide what an export contains."""
    return {
        "etprof": __version__,
        "executorch": upstream.EXECUTORCH_VERSION,
        "executorch_revision": upstream.EXECUTORCH_REVISION,
        "torch": upstream.TORCH_VERSION,
        "torchao": importlib.metadata.version("torchao"),
        "python": platform.python_version(),
    }


def describe_subject(request: ExportRequest) -> dict[str, str]:
    """Returns what names an export: model, backend and precision."""
    return {
        "model": request.model_name(),
        "backend": request.backend,
        "precision": request.precision,
    }


def describe_source(model: str) -> ModelCode:
    """Returns where the model's code is, its hash, and its commit, if it has one."""
    source = find_model(model)
    file = None if source.file is None else source.file.resolve()
    state = read_git_state(file.parent) if file is not None and is_tracked(file) else None
    return ModelCode(
        origin=source.origin,
        asked=model,
        sha256=source.hash_files(),
        git=state,
    )


def describe_options(options: ExportOptions) -> dict[str, Any]:
    """Returns the options, with the checkpoint by its content."""
    weights = options.weights
    identity = None if weights is None else identify(weights, str(weights)).model_dump()
    return {**options.document(), "weights": identity}


def describe_quantization(
    precision: Precision, reports: Mapping[str, QuantizationReport]
) -> dict[str, Any] | None:
    """Returns the full settings of the quantisation and its outcome per method, or None."""
    if precision.quantization is None:
        return None
    outcome = {name: asdict(report) for name, report in reports.items()}
    return {**asdict(precision.quantization), "methods": outcome}
