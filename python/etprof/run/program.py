"""What the export writes beside a program, read without PyTorch: name, inputs, references, check."""

from __future__ import annotations

import dataclasses
import hashlib
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, Literal

from pydantic import Field

from etprof.base.errors import ExportError, InputFileError, UsageError
from etprof.base.records import CleanData, Count, Name, Named, Record, read_record
from etprof.base.text import as_operand
from etprof.run.accuracy import Floors, InputsVerdict, TextQuality, Verdict, way_to_right
from etprof.run.directory import (
    DELEGATION_REPORT,
    EXPORT_MANIFEST,
    name_of_program,
    safe_name,
)
from etprof.run.manifest import FileIdentity, GitState
from etprof.run.tensors import load_tensor

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from etprof.run.delegation import MethodReport
    from etprof.run.manifest import MeasuredModel, MeasuredProgram
    from etprof.run.tensors import StoredTensor


class TensorFile(Record):
    """One tensor of the example inputs or reference outputs; or a value that is none."""

    index: Count
    dtype: Name
    """PyTorch's name of the element type, or Python's of the value's."""
    shape: list[Count] | None = None
    dim_order: tuple[Count, ...] | None = None
    path: str | None = None
    sha256: Name | None = None
    size_bytes: Count | None = None
    value: Any = None


class CheckedOutput(Record):
    """One output of the program against the float32 eager model's."""

    index: Count
    step: Count = 1
    """Which inference in a row; those after the first stand here where they differ from it."""
    snr_db: float | None = None
    """10 log10 of signal power over error power; None when there is no error at all."""
    max_abs_error: float = 0.0
    cosine: float | None = None
    """Of the angle between both."""
    degenerate: Name | None = None
    """Why likeness to the reference says nothing; None when it does."""
    top1_agreement: float | None = None
    """Share of rows whose largest entry is at the same place, or of whole numbers that are equal."""
    snr_db_converted: float | None = None
    """The same ratio against the converted (cast, quantised) eager model: what lowering changed."""
    snr_db_precision: float | None = None
    """The converted eager model's own ratio to the float32 one: what the precision costs."""
    equal_share: float | None = None
    """Of whole numbers, that are equal; None of floats."""


class BundleCheck(Record):
    """What ExecuTorch's own check says of one method's test case."""

    passed: bool | None
    """None when its Python runtime cannot run the method; it has fewer kernels than a runner."""
    absolute_tolerance: float
    relative_tolerance: float
    problem: Name | None


class ExportCheck(Record):
    """What the export found when it ran a method."""

    minimum_snr_db: float | None = None
    passed: bool | None = None
    """Whether no verdict is that the outputs are wrong; None where an earlier etprof did not say."""
    floors: Floors | None = None
    """What was asked for of the precision."""
    verdicts: tuple[Verdict, ...] = ()
    """On lowering and precision; none of an export by an earlier etprof."""
    outputs: tuple[CheckedOutput, ...] = ()
    further_inputs: tuple[InputsVerdict, ...] = ()
    bundle: BundleCheck | None = None


class StepFiles(Record):
    """Reference outputs of a later inference in a row, of a method with state."""

    step: Count
    """The first inference is 1, and stands in the method's own files."""
    references: tuple[TensorFile, ...] = ()
    converted: tuple[TensorFile, ...] = ()


class MethodFiles(Record):
    """Example inputs and reference outputs of one method."""

    inputs: tuple[TensorFile, ...] = ()
    references: tuple[TensorFile, ...] = ()
    """Outputs of the float32 model."""
    converted: tuple[TensorFile, ...] = ()
    """Outputs of the eager model as it was lowered: cast or quantised."""
    state: tuple[Name, ...] = ()
    """Buffers and attributes that calls change and outputs depend on."""
    steps: tuple[StepFiles, ...] = ()
    """Inferences after the first, where the method has state."""
    step_inputs: tuple[TensorFile, ...] = ()
    """What it is given in all of them: a file a tensor, with the values of one after the other."""
    check: ExportCheck | None = None
    widened: Named[Count] = Field(default_factory=dict)
    """Operators that compute in float32 where ExecuTorch sums halves in a half, by kind."""
    clamped: Named[Count] = Field(default_factory=dict)
    """Operators that wrote a constant which 16 bits do not hold, now the largest they do, by kind."""

    @property
    def every_step(self) -> tuple[StepFiles, ...]:
        """Reference outputs by inference, the first too."""
        first = StepFiles(step=1, references=self.references, converted=self.converted)
        return (first, *self.steps)


class ModelCode(Record):
    """Which code a program was exported from."""

    origin: Name = ""
    asked: Name = ""
    """As commands take the model; empty for an export by an earlier etprof."""
    sha256: Name | None = None
    git: GitState | None = None


class AppliedRewrite(Record):
    """A rewrite that a program was made with."""

    name: Name
    operators: Count | None = None
    """That it replaced, or handed over otherwise; None for the latter by earlier versions."""


class ScopeCatch(Record):
    """A part of the model in another precision, and what it caught of the traced graphs."""

    scope: Name
    """Which part, and the precision: `encoder.*=fp32`."""
    operators: Count = 0
    """That it decided on; of two scopes for one operator the last decides."""
    quantized: Count | None = None
    """Of them on integers; None where nothing in the program is."""

    @property
    def missed(self) -> str | None:
        """What it was to catch and found none of; None where it did."""
        if self.operators == 0:
            return "the model computes and no later part decides on"
        is_float = self.scope.endswith("=fp32")
        return "the quantiser takes" if self.quantized == 0 and not is_float else None


class Fallback(Record):
    """An operator that the backend's runtime refuses, so that it is outside the delegate."""

    method: Name
    name: Name
    """Its kind, module and line."""
    reason: Name
    """What the runtime said of a program that had it inside."""


OPTION_FLAGS: Final = {
    "operators": "--operators",
    "config_precisions": "--config-precisions",
    "per_op_mode": "--per-op",
    "external_constants": "--external-constants",
    "memory_planning": "--memory-planning",
    "keep_fp16_sums": "--keep-fp16-sums",
    "channels_last": "--channels-last",
    "scopes": "--scope",
    "rewrite_exclusions": "--rewrite-except",
    "embeddings": "--embeddings",
}
"""The options of an export that make another program, with the flags that set them."""
_USUAL_OPTIONS: Final = {"memory_planning": "greedy"}


class StageTime(Record):
    """A finished stage of the export."""

    name: Name
    start_ns: Count
    """Since the export began."""
    duration_ns: Count


class ExportManifest(Record):
    """The export manifest: what was exported, from what, how, and with which hashes."""

    schema_version: Literal[1] = 1
    model: Name
    backend: Name
    precision: Name
    source: ModelCode = Field(default_factory=ModelCode)
    versions: Named[Name] = Field(default_factory=dict)
    options: CleanData = Field(default_factory=dict)
    stages: tuple[StageTime, ...] = ()
    quantization: CleanData | None = None
    rewrites: tuple[AppliedRewrite, ...] = ()
    """Those that were asked for and found something to change."""
    scopes: tuple[ScopeCatch, ...] = ()
    """Parts that were asked for in another precision."""
    embeddings: tuple[Name, ...] = ()
    """Paths of the tables of embeddings that were quantised."""
    fallbacks: tuple[Fallback, ...] = ()
    """Operators that the backend would have taken, and its runtime refuses."""
    rewrites_left_out: Named[Name] = Field(default_factory=dict)
    """Why some are none for this program: not sound with what exported, failing on this model, or
    tried by `optimize` and not kept. Nothing advises them."""
    pte: FileIdentity | None = None
    """None, as the ETRecord, for an export by an earlier etprof."""
    etrecord: FileIdentity | None = None
    ptd: FileIdentity | None = None
    bundle: FileIdentity | None = None
    log: tuple[Name, ...] = ()
    """What the libraries said and is not known noise."""
    assumption: Name = ""
    """What was taken for inputs that nobody gave in full; empty: nothing had to be."""
    method: Name = "forward"
    """The one that runs unless another is chosen."""
    methods: Named[MethodFiles] = Field(default_factory=dict)
    quality: TextQuality | None = None
    """Of a language model; None where it was not evaluated on a text."""

    @property
    def asked_as(self) -> str:
        """What commands take for its model: its name, or the file it is in, with its class."""
        origin = self.source.origin
        if self.source.asked:
            return self.source.asked
        if origin.endswith(".pt2"):
            return origin
        if not origin.endswith(".py"):
            # A model of another package has that before its name, and its short name may be ours.
            return origin if ":" in origin and " " not in origin else self.model
        if origin.startswith("/") and origin.endswith(f"/{self.model}/model.py"):
            return self.model
        return origin if Path(origin).stem == self.model else f"{origin}:{self.model}"

    @property
    def example_inputs(self) -> tuple[str, ...]:
        """What `--input` was given; empty for the model's own example inputs."""
        parts = self.options.get("example_inputs")
        listed = parts if isinstance(parts, list) else []
        texts = [part.get("input") if isinstance(part, dict) else part for part in listed]
        return tuple(text for text in texts if isinstance(text, str))

    @property
    def model_words(self) -> tuple[str, ...]:
        """The words of a command that name its model, with the same inputs and checkpoint."""
        words = [as_operand(self.asked_as)]
        for text in self.example_inputs:
            words += ["--input", text]
        weights = self.options.get("weights")
        if isinstance(weights, dict) and isinstance(weights.get("path"), str):
            words += ["--weights", weights["path"]]
        return tuple(words)

    @property
    def option_words(self) -> tuple[str, ...]:
        """The flags of `etprof export` that changed the program, but for precision and rewrites."""
        words: list[str] = []
        for option, flag in OPTION_FLAGS.items():
            value = self.options.get(option)
            if value is True:
                words.append(flag)
            elif isinstance(value, list) and value:
                words += [flag, ",".join(map(str, value))]
            elif isinstance(value, str) and value != _USUAL_OPTIONS.get(option):
                words += [flag, value]
        return tuple(words)

    @property
    def failed_verdicts(self) -> tuple[Verdict, ...]:
        """Those of its methods on outputs."""
        return tuple(verdict for _, verdict in self._failed_of_methods())

    def _failed_of_methods(self) -> Iterator[tuple[str, Verdict]]:
        for name, files in self.methods.items():
            for verdict in files.check.verdicts if files.check else ():
                if verdict.answer == "failed":
                    yield name, verdict

    @property
    def failed(self) -> tuple[str, ...]:
        """What is wrong with the outputs, by method; empty where nothing is, or it is unknown."""
        of_methods = [f"method {name!r}: {v.text}" for name, v in self._failed_of_methods()]
        is_ruined = self.quality is not None and self.quality.verdict.answer == "failed"
        ruined = [self.quality.verdict.text] if self.quality and is_ruined else []
        return (*of_methods, *ruined)


@dataclasses.dataclass(frozen=True, kw_only=True)
class Program:
    """What is measured: the program, its inputs, and what its outputs should be."""

    name: str
    """Name of the model; safe as a file name."""
    label: str
    """Name with backend and precision; safe as a file name."""
    model: Path
    data: Path | None = None
    inputs: tuple[Path, ...] = ()
    shapes: tuple[str, ...] = ()
    """Of the example inputs, such as `1x3x224x224`; a method with dynamic shapes takes others too."""
    references: tuple[Path, ...] = ()
    method: str = "forward"
    steps: int = 1
    """Inferences in a row that the export has reference outputs of; more than one with state."""
    inputs_of_steps: tuple[Path, ...] = ()
    """Inputs of those; none where each gets the same."""
    further: Mapping[str, Program] = dataclasses.field(default_factory=dict)
    """Further programs, with launches interleaved with this one's, by the experiments' names."""

    @property
    def every(self) -> dict[str, Program]:
        """All that is measured, by the experiments' names for it; this one first, without a name."""
        return {"": self, **self.further}


@dataclasses.dataclass(frozen=True)
class ExpectedStep:
    """What an inference should give, by the number of the output."""

    references: Mapping[int, StoredTensor] = dataclasses.field(default_factory=dict)
    """Of the float32 model."""
    converted: Mapping[int, StoredTensor] = dataclasses.field(default_factory=dict)
    """Of the eager model as it was lowered: cast or quantised."""


@dataclasses.dataclass(frozen=True)
class LoadedProgram:
    """A measured program and its export's records; None where there is none."""

    name: str = ""
    """What experiments call it; empty for the run's model."""
    measured: MeasuredProgram | None = None
    report: MethodReport | None = None
    """Of the measured method."""
    exported: ExportManifest | None = None
    steps: Mapping[int, ExpectedStep] = dataclasses.field(default_factory=dict)
    """What the eager model gives for the inputs that were measured, as the export wrote it, by
    inference; the first is 1, and stands for all of a program without state."""

    @property
    def references(self) -> Mapping[int, StoredTensor]:
        """Of the first inference, by the number of the output."""
        return self.expect(1).references

    @property
    def has_state(self) -> bool:
        """Whether inferences differ though their inputs are the same, as far as the export says."""
        return self.method is not None and bool(self.method.steps)

    def expect(self, step: int) -> ExpectedStep:
        """Returns what an inference should give; nothing where nobody says."""
        return self.steps.get(step if self.has_state else 1, ExpectedStep())

    @property
    def model(self) -> MeasuredModel | None:
        """Which program it is."""
        return self.measured.model if self.measured else None

    @property
    def precision(self) -> str | None:
        """Of its numbers, as its export says."""
        return self.model.precision if self.model else None

    @property
    def inputs(self) -> tuple[str | None, ...] | None:
        """Hashes of its inputs; None where not recorded."""
        files = self.measured.inputs if self.measured else None
        return None if files is None else tuple(file.sha256 for file in files)

    @property
    def has_example_inputs(self) -> bool:
        """Whether it got the inputs of its export: of no others is known what should come out."""
        stored = [t.sha256 for t in (self.method.inputs if self.method else ()) if t.path]
        return self.method is not None and None not in stored and (self.inputs or ()) == (*stored,)

    @property
    def method(self) -> MethodFiles | None:
        """What the export says of the measured method's files."""
        if self.model is None or self.exported is None:
            return None
        return self.exported.methods.get(self.model.method or self.exported.method)

    @property
    def takes_nchw(self) -> bool | None:
        """Whether an input is an image in NCHW layout; None where not recorded.

        Of one channel, or one place, both layouts are the same bytes.
        """
        if self.method is None:
            return None
        images = [t for t in self.method.inputs if t.shape and len(t.shape) == 4]
        if any(image.dim_order is None for image in images):
            return None
        return any(
            tensor.dim_order == (0, 1, 2, 3) and tensor.shape[1] > 1 and max(tensor.shape[2:]) > 1
            for tensor in images
            if tensor.shape
        )

    @property
    def quality(self) -> TextQuality | None:
        """Its text quality; None where the record is missing or of another program."""
        quality = self.exported.quality if self.exported else None
        content = self.model.content if self.model else None
        return quality if quality is not None and quality.program == content else None

    def computes_the_same(self, other: LoadedProgram) -> bool:
        """Whether both are the same program with the same inputs, as far as recorded."""
        if self.name == other.name:
            return True
        return self._identity is not None and self._identity == other._identity

    def has_same_inputs(self, other: LoadedProgram) -> bool:
        """Whether both got the same inputs; each precision may store them in its own dtype."""
        has_same_files = self.inputs is not None and self.inputs == other.inputs
        return has_same_files or (self._examples is not None and self._examples == other._examples)

    @property
    def _examples(self) -> tuple[object, ...] | None:
        """Whose example inputs it got; None for other inputs, and where the code is not known."""
        if self.method is None or self.exported is None or self.exported.source.sha256 is None:
            return None
        stored = [tensor for tensor in self.method.inputs if tensor.path is not None]
        if not stored or self.inputs != tuple(tensor.sha256 for tensor in stored):
            return None
        shapes = tuple(tuple(tensor.shape or ()) for tensor in stored)
        return self.exported.model, self.exported.source.sha256, shapes

    @property
    def _identity(self) -> tuple[object, ...] | None:
        if self.model is None or self.model.content is None:
            return None
        return self.model.content, self.model.method, self.inputs


def load_expected(program: LoadedProgram) -> dict[int, ExpectedStep]:
    """Reads what inferences should give, by their number; of other inputs than the export's nothing."""
    return {
        step.step: ExpectedStep(
            *(_load_tensors(program, files) for files in (step.references, step.converted))
        )
        for step in (program.method.every_step if program.method else ())
    }


def _load_tensors(program: LoadedProgram, tensors: Iterable[TensorFile]) -> dict[int, StoredTensor]:
    """Reads an eager model's outputs beside the program, where they are still the export's."""
    loaded = {}
    for index, expected in enumerate(tensors if program.has_example_inputs else ()):
        if (path := find_beside(program, expected)) is None:
            continue
        tensor = load_tensor(path, expected.dtype, expected.shape)
        if hashlib.sha256(tensor.data).hexdigest() == expected.sha256:
            loaded[index] = tensor
    return loaded


def find_beside(program: LoadedProgram, tensor: TensorFile) -> Path | None:
    """Returns where an export wrote a tensor; None where there is no such file in its folder."""
    folder = Path((program.model and program.model.path) or "").parent
    path = (folder / (tensor.path or "")).resolve()
    # The path comes from an untrusted file: one outside the folder is not the export's.
    return path if path.is_relative_to(folder.resolve()) and path.is_file() else None


def load_export_manifest(model: Path) -> ExportManifest | None:
    """Reads `<model>.json`; None when the program was not exported by etprof."""
    path = model.with_name(f"{model.name}.json")
    if not path.exists():
        return None
    return read_record(ExportManifest, path, way_out="export the model again")


def refuse_inaccurate(program: Path) -> None:
    """Raises ExportError for a program whose export found its outputs to be wrong."""
    manifest = load_export_manifest(program)
    failed = manifest.failed if manifest else ()
    if manifest and failed:
        way_out = way_to_right(manifest.failed_verdicts, manifest.precision)
        raise ExportError(f"{program} gives wrong outputs: {'; '.join(failed)}; {way_out}")


def find_descriptions(model: Path, name: str = "") -> dict[str, Path]:
    """Returns what the export says of the program, by the names it has in a run directory.

    `name` is what experiments call the program; empty where they do not. The delegation report holds the map from the delegates' nodes to modules and source lines.
    """
    suffixes = {DELEGATION_REPORT: ".delegation.json", EXPORT_MANIFEST: ".json"}
    paths = {
        name_of_program(kind, name): model.with_name(f"{model.name}{suffix}")
        for kind, suffix in suffixes.items()
    }
    return {name: path for name, path in paths.items() if path.is_file()}


def describe_program(
    model: Path,
    *,
    inputs: tuple[Path, ...] = (),
    data: Path | None = None,
    method: str | None = None,
) -> Program:
    """Returns the program in `model` with the inputs given or, by default, its example inputs.

    Raises InputFileError when a file does not exist and UsageError for an unknown method.
    """
    check_file(model, "`etprof export MODEL` makes a program")
    for path in (*inputs, *((data,) if data else ())):
        check_file(path, FILES_ONLY)
    manifest = load_export_manifest(model)
    name = safe_name(model.stem)
    if manifest is None:
        method_name = method or "forward"
        return Program(
            name=name, label=name, model=model, inputs=inputs, data=data, method=method_name
        )
    method_name = method or manifest.method
    files = _method_files(manifest, method_name)
    external = model.with_suffix(".ptd")
    return Program(
        name=safe_name(manifest.model),
        label=name,
        model=model,
        data=data or (external if external.is_file() else None),
        inputs=inputs or _paths(model, files.inputs),
        shapes=() if inputs else _shapes(files.inputs),
        references=() if inputs else _paths(model, files.references),
        method=method_name,
        steps=1 if inputs else 1 + len(files.steps),
        inputs_of_steps=() if inputs else _paths(model, files.step_inputs),
    )


FILES_ONLY: Final = "--inputs and --data take files; give shapes to --input"


def check_file(path: Path, way_out: str) -> None:
    """Raises InputFileError for a path that is no file; `way_out` says what to do."""
    if not path.is_file():
        problem = "is not a file" if path.exists() else "does not exist"
        msg = f"{path} {problem}; {way_out}"
        raise InputFileError(msg)


def find_decode_method(model: Path, method: str | None) -> str | None:
    """Returns the method that adds one token: the chosen one, or `decode` where there is one."""
    manifest = load_export_manifest(model)
    if method is None and manifest is not None and "decode" in manifest.methods:
        return "decode"
    return method


def _method_files(manifest: ExportManifest, method: str) -> MethodFiles:
    if method not in manifest.methods:
        names = ", ".join(sorted(manifest.methods))
        msg = f"the program has no method {method!r}; it has {names}; choose one with --method"
        raise UsageError(msg)
    return manifest.methods[method]


def _shapes(tensors: tuple[TensorFile, ...]) -> tuple[str, ...]:
    """Returns the tensors' shapes as the runner takes them; none when one is not known."""
    shapes = [tensor.shape for tensor in tensors if tensor.path is not None]
    recorded_shapes = [shape for shape in shapes if shape is not None]
    texts = tuple("x".join(map(str, shape)) or "scalar" for shape in recorded_shapes)
    return texts if len(texts) == len(shapes) else ()


def _paths(model: Path, tensors: tuple[TensorFile, ...]) -> tuple[Path, ...]:
    """Returns the tensors' files; a path in the manifest must stay beside the program."""
    folder = model.parent.resolve()
    paths = [folder / tensor.path for tensor in tensors if tensor.path is not None]
    for path in paths:
        if not path.resolve().is_relative_to(folder):
            msg = f"{model}.json names {path}, outside its own folder; export the model again"
            raise InputFileError(msg)
    return tuple(paths)
