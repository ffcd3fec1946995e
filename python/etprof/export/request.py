"""What an export is asked for (model, precision, options), and the files it leaves."""

from __future__ import annotations

import hashlib
import re
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from etprof.backends.registry import BACKENDS, BY_NAME, DEFAULT
from etprof.base.errors import EtprofError, UsageError
from etprof.base.text import suggest
from etprof.export.changes.exclusions import FLAG, parse_exclusions
from etprof.export.changes.scopes import parse_scopes
from etprof.model_registry import families
from etprof.model_registry.input_spec import describe_inputs, parse_input
from etprof.run.accuracy import find_floors
from etprof.run.program import load_export_manifest

if TYPE_CHECKING:
    from collections.abc import Mapping

    from etprof.export.changes.exclusions import RewriteExclusion
    from etprof.export.changes.scopes import Scope
    from etprof.run.accuracy import Floors

_DIGEST = 6
"""Characters of a hash that tell two sources of one name apart."""
BLOCK_MULTIPLE = 32
"""XNNPACK takes 4-bit weights in rows and blocks of a multiple of this many elements."""


@dataclass(frozen=True)
class Quantization:
    """How weights and activations become integers."""

    method: Literal["pt2e", "torchao"]
    """`pt2e`: XNNPACK's own quantizer on the traced graph; `torchao`: linear layers only."""
    weight_bits: int
    weight_granularity: Literal["per_channel", "per_tensor", "per_block"]
    activations: Literal["static", "dynamic"]
    """Static scales come from calibration; dynamic ones from each inference's own values."""
    activation_bits: int = 8
    block_size: int | None = None
    rewrites: tuple[str, ...] = ()
    """What makes the program of it, always applied: its weights reach the delegate in this form."""


@dataclass(frozen=True)
class Precision:
    """A number format of weights and activations."""

    name: str
    float_dtype: str = "float32"
    """PyTorch's name of the type that floating-point tensors have outside quantised operators."""
    quantization: Quantization | None = None


PRECISIONS: dict[str, Precision] = {
    precision.name: precision
    for precision in (
        Precision("fp32"),
        Precision("fp16", float_dtype="float16"),
        Precision("bf16", float_dtype="bfloat16"),
        Precision("int8", quantization=Quantization("pt2e", 8, "per_channel", "static")),
        Precision("int8_per_tensor", quantization=Quantization("pt2e", 8, "per_tensor", "static")),
        Precision("int8_dynamic", quantization=Quantization("pt2e", 8, "per_channel", "dynamic")),
        Precision("8da4w", quantization=Quantization("torchao", 4, "per_channel", "dynamic")),
        Precision(
            "8da4w_channel",
            quantization=Quantization(
                "torchao", 4, "per_channel", "dynamic", rewrites=("channel_weights",)
            ),
        ),
    )
}
USUAL_PRECISION = "fp16"
PRECISION_WORDS = (*PRECISIONS, "8da4w_b<BLOCK>")
"""As people are told of them."""

_BLOCK_WISE = re.compile(r"8da4w_b([1-9][0-9]{0,4})")


def parse_precision(name: str) -> Precision:
    """Returns the precision called `name`; raises UsageError when there is none.

    `8da4w_b32` and its like have 4-bit weights with one scale per block of 32.
    """
    if name in PRECISIONS:
        return PRECISIONS[name]
    match = _BLOCK_WISE.fullmatch(name)
    if match is None:
        hint = suggest(name, PRECISION_WORDS) or ";"
        msg = f"unknown precision {name!r}{hint} choose one of {', '.join(PRECISION_WORDS)}"
        raise UsageError(msg)
    block_size = int(match[1])
    if block_size % BLOCK_MULTIPLE:
        raise UsageError(f"precision {name!r}: blocks are multiples of {BLOCK_MULTIPLE} weights")
    quantization = Quantization("torchao", 4, "per_block", "dynamic", block_size=block_size)
    return Precision(name, quantization=quantization)


def split_precision(name: str) -> tuple[str, str | None]:
    """Splits MODEL:PRECISION; None for the precision where none is named."""
    model, _, last = name.rpartition(":")
    if not model or name.endswith(".pte"):
        return name, None
    try:
        return model, parse_precision(last).name
    except UsageError:
        # A model's name may have colons of its own.
        return name, None


EMBEDDINGS = ("int8", "int8_b32", "int4", "int4_b32", "int2", "int2_b32")
"""How tables of embeddings are quantised; `_b32` has a scale for 32 values instead of a row."""
MEMORY_PLANNERS = ("greedy", "naive")
PRECISION_TYPES = ("fp32", "static_quant", "dynamic_quant")


@dataclass(frozen=True)
class ExportOptions:
    """Every choice that changes the program; recorded in the export manifest."""

    weights: Path | None = None
    """A checkpoint of the model; without one its weights are random."""
    example_inputs: tuple[str, ...] = ()
    """As `--input` takes them, such as `int64:1x17`; none means the model's own."""
    operators: tuple[str, ...] = ()
    """Partitioner rules to use, such as `linear`; none means all."""
    config_precisions: tuple[str, ...] = ()
    """Kinds of operators to delegate, of PRECISION_TYPES; none means all."""
    per_op_mode: bool = False
    """One delegate call per operator: less memory, more calls."""
    external_constants: bool = False
    """Weights in a `.ptd` file beside the program."""
    memory_planning: str = "greedy"
    """`greedy` lets tensors share memory; `naive` gives each its own."""
    keep_fp16_sums: bool = False
    """Norms and sums outside the delegate stay in half precision, as ExecuTorch computes them."""
    channels_last: bool = False
    """Four-dimensional inputs are stored as NHWC, XNNPACK's own layout."""
    bundle: bool = False
    """A bundled program too, with the inputs and reference outputs inside."""
    graph: bool = False
    """The lowered graphs as text too, with those inside the delegates."""
    rewrites: tuple[str, ...] = ()
    """Names of the rewrites to apply; `all` for every one that is sound here."""
    rewrite_exclusions: tuple[str, ...] = ()
    """Modules that a rewrite leaves as they are, such as `spelled_norms=encoder.*`."""
    scopes: tuple[str, ...] = ()
    """Parts of the model in another precision, such as `encoder.*=fp32`; of two the last decides."""
    embeddings: str | None = None
    """How the model's nn.Embedding are quantised, of EMBEDDINGS; None: they are not."""
    trace: bool = False
    """Drawings too: where the export's time goes, and the memory plan."""

    def document(self) -> dict[str, Any]:
        """Returns them as JSON data, without the checkpoint: that is known by its content.

        Raises InputFileError for a file of inputs that cannot be read.
        """
        described = describe_inputs(self.example_inputs)
        options = {**asdict(self), "weights": None, "example_inputs": described}
        return {k: list(v) if isinstance(v, tuple) else v for k, v in options.items()}

    def check(self, backend: str) -> None:
        """Raises UsageError for a combination without sense."""
        for text in self.example_inputs:
            parse_input(text)
        _check_choice("--memory-planning", (self.memory_planning,), MEMORY_PLANNERS)
        _check_choice("--config-precisions", self.config_precisions, PRECISION_TYPES)
        for exclusion in parse_exclusions(self.rewrite_exclusions):
            if "all" not in self.rewrites and exclusion.rewrite not in self.rewrites:
                msg = f"{FLAG} {str(exclusion)!r}: --rewrite does not ask for {exclusion.rewrite}"
                raise UsageError(f"{msg}; name it there, or drop this")
        if self.embeddings is not None:
            _check_choice("--embeddings", (self.embeddings,), EMBEDDINGS)
        asks_partitioner = self.operators or self.config_precisions or self.per_op_mode
        if asks_partitioner and not BY_NAME[backend].has_rules:
            supporting = " or ".join(
                candidate.name for candidate in BACKENDS if candidate.has_rules
            )
            raise UsageError(
                f"--operators, --config-precisions and --per-op need backend {supporting}, not {backend}"
            )
        if self.bundle and self.channels_last:
            msg = "--bundle and --channels-last: ExecuTorch's bundles hold no NHWC inputs; drop one"
            raise UsageError(msg)


def _check_choice(flag: str, values: tuple[str, ...], choices: tuple[str, ...]) -> None:
    for value in values:
        if value not in choices:
            raise UsageError(f"{flag} {value!r} is unknown; choose from {', '.join(choices)}")


@dataclass(frozen=True)
class ExportRequest:
    """One model in one precision for one backend."""

    model: str
    """A registered name, `path/to/file.py:Net`, `net.pt2`, or one such as `timm:vit_tiny_patch16_224`."""
    precision: str = USUAL_PRECISION
    backend: str = DEFAULT
    outdir: Path | None = None
    """Where the files go; default `out_<model>/artifacts`."""
    out: Path | None = None
    """The program's own path, instead of a name made of model, backend and precision."""
    options: ExportOptions = field(default_factory=ExportOptions)
    minimums: Mapping[str, float] = field(default_factory=dict)
    """Thresholds of the precision's verdict in place of the usual, by their names in `Floors`."""
    text: Path | None = None
    """What a language model reads for the comparison with the float32 one; None: etprof's own."""
    tokenizer: Path | None = None
    """Makes its ids; None: bytes, or the ids that the file lists."""
    strict: bool = False
    """An operator that the backend's runtime refuses is an error, not left outside."""
    allow_inaccurate: bool = False
    """A program whose outputs are wrong is no error; it carries its verdicts all the same."""

    def floors(self) -> Floors:
        """Returns what the outputs have to keep beside the float32 model's."""
        usual = find_floors(self.precision)
        if usual is None:
            msg = f"etprof knows no thresholds for precision {self.precision}"
            raise UsageError(msg)
        return usual.model_copy(update=dict(self.minimums))

    def parsed_precision(self) -> Precision:
        """Returns the precision; raises UsageError for an unknown name."""
        return parse_precision(self.precision)

    def precision_rewrites(self) -> tuple[str, ...]:
        """Returns the names of the rewrites without which it would be another precision."""
        scheme = self.parsed_precision().quantization
        return () if scheme is None else scheme.rewrites

    def scopes(self) -> tuple[Scope, ...]:
        """Returns the parts in another precision; raises UsageError for what is none."""
        return parse_scopes(self.options.scopes)

    def exclusions(self) -> tuple[RewriteExclusion, ...]:
        """Returns what rewrites leave as it is; raises UsageError for what is none."""
        return parse_exclusions(self.options.rewrite_exclusions)

    @classmethod
    def short_name(cls, text: str) -> str:
        """Names the model of MODEL or MODEL:PRECISION, as the folders of its runs do."""
        return cls(split_precision(text)[0]).model_name()

    def model_name(self) -> str:
        """Returns the name of its files and folder: the registered one, the class's, or the file's.

        Where another source of that name, such as `unet.py` beside `unet.pt2`, has programs there
        already, it is one more word or a digest longer: a folder holds the programs of one source.
        """
        name = self._plain_name()
        if self.out is not None:
            return name
        digest = _digest(identify_source(self.model), _DIGEST)
        names = (name, *self._longer_names(name))
        return next((free for free in names if self._holder(free) is None), f"{name}_{digest}")

    def describe_holder(self) -> str:
        """Says that another source has the folder or files of this name; empty where none has."""
        plain, name = self._plain_name(), self.model_name()
        holder = None if name == plain else self._holder(plain)
        if holder is None:
            return ""
        location = f"files that begin with {name}" if self.outdir else f"out_{name}"
        held = f"{self.outdir} has a {plain}" if self.outdir else f"out_{plain} holds the programs"
        return f"{held} of {holder}; {self.model} goes to {location}"

    def _folder(self, name: str) -> Path:
        return self.outdir or Path(f"out_{name}") / "artifacts"

    def _holder(self, name: str) -> str | None:
        """Returns another source with programs of that name in the folder; None where none has.

        Names that differ in case are one where a file system says so, as a Mac's does: there the
        folder of `Kws` is that of `kws`.
        """
        prefix = f"{name}_".casefold()
        for path in sorted(self._folder(name).glob("*.pte")):
            if not path.name.casefold().startswith(prefix):
                continue
            try:
                manifest = load_export_manifest(path)
            except EtprofError:
                # It is damaged, so nobody knows what it was made of.
                continue
            if manifest is None or not manifest.source.origin:
                continue
            if manifest.model.casefold() != name.casefold():
                continue
            source = identify_source(manifest.asked_as)
            # A project that was moved or renamed is the one that it was.
            file = Path(source.rpartition(":")[0])
            is_gone = file.is_absolute() and not file.exists()
            if source != identify_source(self.model) and not is_gone:
                return manifest.asked_as
        return None

    def _longer_names(self, name: str) -> list[str]:
        """Returns the name with what tells sources of one name apart where people look: the file."""
        file = Path(self.model.rpartition(":")[0] or self.model)
        if self.model.endswith(".pt2"):
            return [f"{name}_pt2"]
        return [f"{name}_{file.stem}"] if file.suffix == ".py" and file.stem != name else []

    def _plain_name(self) -> str:
        if families.find_family(self.model) is not None:
            return families.short_name(self.model)
        path, _, class_name = self.model.rpartition(":")
        if path.endswith(".py"):
            return class_name
        return Path(self.model).stem if self.model.endswith((".py", ".pt2")) else self.model

    def files(self) -> ExportedFiles:
        """Returns the paths this export writes; raises UsageError for a request without sense."""
        precision = self.parsed_precision()
        for scope in self.scopes():
            _check_scope(scope, precision)
        if self.backend not in BY_NAME:
            msg = f"unknown backend {self.backend!r}; choose one of {', '.join(BY_NAME)}"
            raise UsageError(msg)
        if precision.quantization is not None and not BY_NAME[self.backend].quantizes:
            supporting = " or ".join(
                candidate.name for candidate in BACKENDS if candidate.quantizes
            )
            raise UsageError(
                f"precision {precision.name} needs backend {supporting}: {self.backend} computes in float"
            )
        self.options.check(self.backend)
        if self.out is not None and self.outdir is not None:
            raise UsageError("--out names the file and --outdir its folder; give one of them")
        if self.out is not None:
            return ExportedFiles(_with_suffix(self.out))
        name = self.model_name()
        folder = self._folder(name)
        # Two of one precision may be measured in turns.
        scopes = ",".join(self.options.scopes)
        kind = f"_mixed-{_digest(scopes)}" if scopes else ""
        kind += _kind_of_rewrites(self.options.rewrites, self.options.rewrite_exclusions)
        return ExportedFiles(folder / f"{name}_{self.backend}_{precision.name}{kind}.pte")


def _kind_of_rewrites(names: tuple[str, ...], exclusions: tuple[str, ...]) -> str:
    """Tells programs with other rewrites apart, so that none replaces another."""
    if not names:
        return ""
    if exclusions:
        return f"_rewritten-{_digest(','.join((*sorted(names), *sorted(exclusions))))}"
    if "all" in names:
        return "_rewritten"
    if len(names) == 1:
        return f"_{names[0]}"
    return f"_rewritten-{_digest(','.join(sorted(names)))}"


def _digest(text: str, length: int = 8) -> str:
    return hashlib.sha256(text.encode()).hexdigest()[:length]


def identify_source(model: str) -> str:
    """Returns a model's name as commands take it, with the whole path of its file.

    >>> identify_source("toy_cnn")
    'toy_cnn'
    """
    path, colon, class_name = model.rpartition(":")
    if not colon or not path.endswith(".py"):
        path, class_name = model, Path(model).stem
    if not path.endswith((".py", ".pt2")):
        return model
    return f"{Path(path).resolve()}:{class_name}"


def _check_scope(scope: Scope, base: Precision) -> None:
    """Raises UsageError for a precision that does not mix with the export's."""
    try:
        scope_scheme = parse_precision(scope.precision).quantization
    except UsageError as error:
        raise UsageError(f"--scope {scope}: {error}") from error
    scheme = base.quantization
    if scheme is None and scope_scheme is not None:
        msg = f"--scope {scope}: an export in {base.name} has no integers; quantise a part with "
        raise UsageError(f"{msg}--quantize {scope.precision} --scope '*=fp32,{scope}'")
    if scheme is None and scope.type is not None:
        msg = f"--scope {scope}: types of operators are for quantised exports; {base.name} is cast "
        raise UsageError(f"{msg}by modules, so name those")
    if scheme is not None and not (
        scope.precision == "fp32"
        or (
            scope_scheme
            and (scope_scheme.method, scope_scheme.rewrites) == (scheme.method, scheme.rewrites)
        )
    ):
        mixable = [
            candidate.name
            for candidate in PRECISIONS.values()
            if (quantization := candidate.quantization)
            and (quantization.method, quantization.rewrites) == (scheme.method, scheme.rewrites)
        ]
        msg = f"--scope {scope}: does not mix with {base.name}; choose from fp32, "
        raise UsageError(msg + ", ".join(mixable))


def _with_suffix(path: Path) -> Path:
    """Returns `path` when it ends in `.pte`; raises UsageError when it does not."""
    if path.suffix != ".pte":
        raise UsageError(f"--out {path} must end in .pte")
    return path


@dataclass(frozen=True)
class _CompanionFile:
    """A file beside the program: the program's name and more, or another ending."""

    suffix: str
    is_ending: bool = False

    def __get__(self, files: ExportedFiles, _: type | None = None) -> Path:
        """Returns where it is."""
        name = files.pte.stem if self.is_ending else files.pte.name
        return files.pte.with_name(name + self.suffix)


@dataclass(frozen=True)
class ExportedFiles:
    """The files of one export, all beside the program and named after it."""

    pte: Path

    external_data = _CompanionFile(".ptd", is_ending=True)
    """The weights, when they are asked to be outside the program."""
    bundle = _CompanionFile(".bpte", is_ending=True)
    """The program with its test cases inside, when it is asked for."""
    etrecord = _CompanionFile(".etrecord")
    """ExecuTorch's own description of the export, for its Inspector and for etprof."""
    manifest = _CompanionFile(".json")
    """What was exported, how and with what; JSON."""
    report = _CompanionFile(".delegation.json")
    """What is delegated and what is not, operator by operator; JSON."""
    graph = _CompanionFile(".graph.txt")
    """The lowered graphs as text, when they are asked for."""
    stage_trace = _CompanionFile(".stages.trace.json")
    """The export's stages and the steps in them as a Chrome trace, when it is asked for."""
    stage_graph = _CompanionFile(".stages.html")
    """The same times summed as a flame graph, when it is asked for; HTML."""
    memory_trace = _CompanionFile(".memory.trace.json")
    """The memory plan as a Chrome trace, when it is asked for."""
    log = _CompanionFile(".log")
    """What ExecuTorch's own export said, where that made the program."""
    data = _CompanionFile(".data")
    """The folder of example inputs and reference outputs."""

    def every(self) -> list[Path]:
        """Returns the paths of all files that an export may write."""
        names = [
            name
            for name, attribute in vars(ExportedFiles).items()
            if isinstance(attribute, _CompanionFile)
        ]
        return [getattr(self, name) for name in ("pte", *names)]

    def written(self) -> list[Path]:
        """Returns the files that are there."""
        return [path for path in self.every() if path.exists()]
