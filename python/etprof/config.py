"""The measurement config: what to run, where, how often; every problem of one; those that ship."""

from __future__ import annotations

import importlib
import re
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Self, TypeVar

from pydantic import (
    AfterValidator,
    AliasChoices,
    BaseModel,
    ConfigDict,
    Field,
    NonNegativeInt,
    ValidationError,
    ValidationInfo,
    field_validator,
    model_validator,
)

from etprof.base.errors import BuildError, EtprofError, UsageError
from etprof.base.files import read_input
from etprof.base.json_input import parse_json
from etprof.base.limits import (
    MOST_ENTRIES,
    MOST_INFERENCES,
    MOST_LAUNCHES,
    MOST_PROMPT,
    MOST_THREADS,
    USUAL_BLOCKS,
)
from etprof.base.records import SmeMode
from etprof.base.text import join_names, suggest
from etprof.base.units import first_texts
from etprof.export.request import USUAL_PRECISION, ExportOptions, ExportRequest, split_precision
from etprof.model_registry.registry import find_model
from etprof.run.directory import runs_folder
from etprof.run.generation import problem_of_prompt
from etprof.run.manifest import ComparisonSettings, Measurement, Seconds, Setup
from etprof.run.program import describe_program
from etprof.targets.registry import KINDS, LOCAL, TARGETS, kind_of
from etprof.targets.runner import runner_of_preset

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence

    from pydantic_core import ErrorDetails

_PLACEHOLDER = re.compile(r"REPLACE_WITH\w*|<[A-Za-z_][\w -]*>|\bTODO\b|path/to/")

_MOST_PROBLEMS = 40
"""That are listed: nobody reads more at once."""
_MOST_LEFT_OUT = 100
"""More are no slips of the pen; each is a copy of what holds it, and a look at all the others."""
_MOST_PASSES = 8
"""Over a file, each without what the one before found; parts of parts are not deeper."""
_DECIDING = frozenset(
    {"target", "programs", "name", "program", "models", "devices", "precisions", "backends"}
)
"""Fields that others are judged by: where one is wrong, the rest would be guesses."""
_LONGEST_TEXT = 160
_MOST_BYTES = 4 * 2**20
"""Of a file that people write."""

Threads = Annotated[int, Field(gt=0, le=MOST_THREADS)]
Texts = Annotated[tuple[str, ...], Field(max_length=MOST_ENTRIES)]
PresetName = Annotated[str, Field(pattern=r"^[A-Za-z0-9][A-Za-z0-9_.+-]*$")]
"""A folder below build/, so nothing that leads out of it."""
STRICT = ConfigDict(extra="forbid", frozen=True, populate_by_name=True, allow_inf_nan=False)


class StrictModel(BaseModel):
    """A part of the config: unknown fields are errors."""

    model_config = STRICT


def _check_kind(name: str) -> str:
    if name not in KINDS:
        raise ValueError(f"no such target{suggest(name, KINDS)}; known: {', '.join(KINDS)}")
    return name


TargetName = Annotated[
    str, AfterValidator(_check_kind), Field(json_schema_extra={"enum": list(KINDS)})
]
EditorSchema = Annotated[
    str | None, Field(alias="$schema", exclude=True, description="for editors; etprof ignores it")
]
Checked = TypeVar("Checked", bound="WholeModel")


class WholeModel(StrictModel):
    """A whole file, whose parts have to fit each other."""

    def misfits(self) -> Iterable[str]:
        """Says which parts do not; only values that are right by themselves are looked at."""
        raise NotImplementedError

    @model_validator(mode="after")
    def _refuse_misfits(self, info: ValidationInfo) -> Self:
        # Of a file, `parse_strictly` tells them, together with what else is wrong.
        if info.context is None and (problems := list(self.misfits())):
            raise ValueError("\n".join(problems))
        return self


class TargetConfig(StrictModel):
    """Where the model runs."""

    kind: TargetName = LOCAL
    serial: str | None = Field(None, description="Android: the device, if several are attached")
    connect: str | None = Field(None, description="Android: HOST:PORT of a device on the network")
    remote_folder: str | None = Field(None, description="Android: folder on the device")
    reconnect_s: Seconds = Field(
        60.0, description="Android: how long to wait for a device that went away"
    )
    trace_runner: Path | None = Field(None, description="runner that counts microkernels")
    trace_preset: PresetName | None = Field(None, description="CMake preset of such a runner")
    debugger: str | None = Field(None, description="gdb or lldb, to count them without a runner")

    @model_validator(mode="after")
    def _check_fields(self) -> TargetConfig:
        """Refuses what would have no effect: whoever writes it expects otherwise."""
        takes = {"kind", *kind_of(self.kind).takes}
        problems = []
        for name, field in TargetConfig.model_fields.items():
            if name not in takes and getattr(self, name) != field.default:
                kinds = join_names(kind.name for kind in TARGETS if name in kind.takes)
                problems.append(f"{name} is for {kinds}, not for {self.kind}; leave it out")
        if problems:
            raise ValueError("; ".join(problems))
        return self


class ProgramConfig(StrictModel):
    """A program, and what it is given."""

    model: Path = Field(
        description="FILE.pte, or a model to export first: MODEL[:PRECISION], by default fp16"
    )
    inputs: Annotated[tuple[Path, ...], Field(max_length=MOST_ENTRIES)] = ()
    data: Path | None = None
    method: str | None = None
    scopes: Texts = Field(
        (),
        description="parts in another precision, as `export --scope`; of a model to export first",
    )
    example_inputs: Texts = Field((), description="as `export --input`; of a model to export first")

    @property
    def named_model(self) -> str | None:
        """The model that is to be exported, as `etprof profile` takes it; None for a program."""
        is_program = self.model.suffix == ".pte" or self.model.is_file()
        return None if is_program and not names_a_source(str(self.model)) else str(self.model)

    def is_file_below(self, folder: Path) -> bool:
        """Whether the model is a path: a program's, or that of a model's source."""
        is_program = self.model.suffix == ".pte" or (folder / self.model).is_file()
        return is_program or names_a_source(str(self.model))

    def files(self) -> list[tuple[str, Path | None]]:
        """Returns the files that are named, with their fields."""
        inputs = [(f"inputs.{i}", path) for i, path in enumerate(self.inputs)]
        model = [] if self.named_model else [("model", self.model)]
        return [*model, *inputs, ("data", self.data)]

    def problems_of_model(self) -> Iterator[str]:
        """Says that no model has the name; none for a program."""
        if self.named_model is not None:
            name, precision = split_precision(self.named_model)
            try:
                find_model(name)
            except EtprofError as error:
                yield f"model: {error}"
            try:
                options = ExportOptions(scopes=self.scopes, example_inputs=self.example_inputs)
                ExportRequest(name, precision or USUAL_PRECISION, options=options).files()
            except UsageError as error:
                yield f"{'example_inputs' if '--input ' in str(error) else 'scopes'}: {error}"
        elif field := "scopes" if self.scopes else "example_inputs" if self.example_inputs else "":
            yield f"{field}: {self.model} is a program already; name the model, or leave them out"


ExperimentName = Annotated[
    str, Field(min_length=1, max_length=80, pattern=r"^[A-Za-z0-9][A-Za-z0-9_.+-]*$")
]
"""A folder's name too."""


class ExperimentConfig(Setup):
    """One way of running the model."""

    model_config = STRICT

    name: ExperimentName
    sme: SmeMode = Field("auto", validation_alias=AliasChoices("sme", "sme2"))
    preset: PresetName | None = Field(None, description="CMake preset whose runner is used")
    threads: Annotated[tuple[Threads, ...], Field(min_length=1, max_length=MOST_THREADS)] = Field(
        (1,), validation_alias=AliasChoices("threads", "num_threads")
    )

    @field_validator("threads", mode="before")
    @classmethod
    def _wrap_one_thread_count(cls, value: object) -> object:
        return (value,) if isinstance(value, int) else value

    @field_validator("sme", mode="before")
    @classmethod
    def _accept_on_and_off(cls, value: object) -> object:
        modes = {"on": "sme2", "True": "sme2", "False": "off"}
        return modes.get(str(value), value) if isinstance(value, str | bool) else value


class GenerationConfig(StrictModel):
    """Tokens that each iteration generates, greedily: for programs that are language models."""

    new_tokens: Annotated[
        int, Field(ge=2, le=MOST_INFERENCES, description="tokens to generate after the prompt")
    ]
    prompt_tokens: tuple[NonNegativeInt, ...] | Path | None = Field(
        None, description="token ids, or a file of them"
    )
    prompt_length: Annotated[int, Field(ge=1, le=MOST_PROMPT)] | None = Field(
        None, description="a prompt of so many arbitrary tokens, where only speed matters"
    )
    prompt: str | None = Field(None, description="text, for which the tokenizer is needed")
    tokenizer: Path | None = Field(None, description="the model's tokenizer file")
    prefill_method: str | None = Field(None, description="reads the prompt; default: prefill")
    decode_method: str | None = Field(None, description="adds one token; default: decode, forward")

    @model_validator(mode="after")
    def _check_prompt(self) -> GenerationConfig:
        problem = problem_of_prompt(
            self.prompt_tokens, self.prompt, self.tokenizer, self.prompt_length
        )
        if problem is not None:
            raise ValueError(problem)
        return self

    def files(self) -> list[tuple[str, Path]]:
        """Returns the files that are named, with their fields."""
        named = {"tokenizer": self.tokenizer, "prompt_tokens": self.prompt_tokens}
        return [(name, path) for name, path in named.items() if isinstance(path, Path)]


class MeasurementConfig(Measurement):
    """How to measure; the same for all experiments, or they could not be compared."""

    model_config = STRICT

    blocks: Annotated[int, Field(gt=0, le=MOST_LAUNCHES)] = Field(
        USUAL_BLOCKS, description="process launches of each experiment"
    )


class Config(ProgramConfig, WholeModel):
    """A measurement of one program, or of several in turns."""

    editor_schema: EditorSchema = None
    output_root: Path | None = Field(None, description="default: out_<model>/runs/<target>")
    programs: Annotated[dict[ExperimentName, ProgramConfig], Field(max_length=MOST_ENTRIES)] = (
        Field({}, description="further programs, measured interleaved: experiments name theirs")
    )
    target: TargetConfig = TargetConfig()
    generation: GenerationConfig | None = None
    experiments: Annotated[
        tuple[ExperimentConfig, ...], Field(min_length=1, max_length=MOST_ENTRIES)
    ]
    measurement: MeasurementConfig = MeasurementConfig()
    analysis: ComparisonSettings = ComparisonSettings()

    @property
    def folder(self) -> Path:
        """The run directory."""
        if self.output_root is not None:
            return self.output_root
        named = self.named_model
        name = ExportRequest.short_name(named) if named else describe_program(self.model).name
        return runs_folder(name, kind_of(self.target.kind).name)

    def models_to_export(self) -> list[str]:
        """Names the models that are not exported yet."""
        names = (program.named_model for program in (self, *self.programs.values()))
        return [name for name in names if name]

    @field_validator("target", mode="before")
    @classmethod
    def _accept_a_kind(cls, value: object) -> object:
        return {"kind": value} if isinstance(value, str) else value

    def misfits(self) -> Iterator[str]:
        """Says what the target cannot do, and which names fit nothing."""
        yield from self._problems_of_target()
        names = [experiment.name for experiment in self.experiments]
        every = (self, *self.programs.values())
        has_inputs = any(program.method or program.inputs for program in every)
        if self.generation is not None and has_inputs:
            yield "generation: names its own methods and inputs, so leave out method and inputs"
        yield from (
            f"experiments: two are called {name!r}"
            for name in dict.fromkeys(names)
            if names.count(name) > 1
        )
        yield from self._problems_of_programs()
        setups = sum(len(experiment.threads) for experiment in self.experiments)
        launches = self.measurement.blocks * setups
        if launches > MOST_LAUNCHES:
            yield (
                f"measurement.blocks: {self.measurement.blocks} of every experiment and thread "
                f"count are {launches} launches; at most {MOST_LAUNCHES} are measured in one run"
            )
        for index, pair in enumerate(self.analysis.compare_pairs):
            for side in ("baseline", "candidate"):
                experiment_name = getattr(pair, side).experiment
                if experiment_name not in names:
                    where = f"analysis.compare_pairs.{index}.{side}"
                    yield f"{where}: no experiment {experiment_name!r}{suggest(experiment_name, names)}"

    def _problems_of_target(self) -> Iterator[str]:
        """Names settings that would have no effect on the target."""
        kind = kind_of(self.target.kind)
        if not kind.has_vector_lengths:
            kinds = join_names(kind.name for kind in TARGETS if kind.has_vector_lengths)
            for index, experiment in enumerate(self.experiments):
                if experiment.sme_vector_bits is not None:
                    yield (
                        f"experiments.{index}.sme_vector_bits is for {kinds}, "
                        f"not for {self.target.kind}; leave it out"
                    )
        if self.measurement.instructions and self.generation is not None:
            yield "measurement.instructions: not of generations; name a method instead"
        elif self.measurement.instructions and not kind.policy.proves_instructions:
            kinds = join_names(kind.name for kind in TARGETS if kind.policy.proves_instructions)
            yield (
                f"measurement.instructions is for {kinds}, not for {self.target.kind}; leave it out"
            )

    def _problems_of_programs(self) -> Iterator[str]:
        """Names programs that are not there, and those that nothing runs."""
        for index, setup in enumerate(self.experiments):
            if setup.program and setup.program not in self.programs:
                suggestion = suggest(setup.program, self.programs)
                yield f"experiments.{index}.program: no program {setup.program!r}{suggestion}"
        for name in self.programs.keys() - {experiment.program for experiment in self.experiments}:
            yield f'programs.{name}: no experiment runs it; give one `"program": "{name}"`'


def load_config(path: Path) -> Config:
    """Reads and checks a config; raises UsageError that lists every problem with its field."""
    return parse_config(read_config_text(path, "etprof config init"), str(path), path.parent)


def read_config_text(path: Path, way_out: str) -> str:
    """Reads a file written by people; `way_out` is the command that writes a new one."""
    writes = f"`{way_out}` writes one"
    data = read_input(path, most_bytes=_MOST_BYTES, way_out=writes, error=UsageError)
    try:
        return data.decode()
    except UnicodeDecodeError as error:
        raise UsageError(
            f"{path} is not UTF-8 text (byte {error.start}); `{way_out}` writes a config"
        ) from error


def parse_config(text: str, name: str, folder: Path | None = None) -> Config:
    """Checks a config's text; `name` stands in the messages, paths are relative to `folder`."""
    return parse_strictly(text, name, Config, _missing_files, folder)


def parse_strictly(
    text: str,
    name: str,
    kind: type[Checked],
    check: Callable[[Checked], list[str]],
    folder: Path | None = None,
) -> Checked:
    """Checks a text against a model, then what only `check` can see; lists every problem.

    Its relative paths are those below `folder`, by default the working folder.
    """
    try:
        document = parse_json(text, unique_keys=True)
    except ValueError as error:
        raise UsageError(f"{name} is not valid JSON: {error}") from error
    problems = find_placeholders(document)
    checked, wrong = _validate(document, kind, folder or Path())
    problems += wrong
    if checked is not None:
        problems += checked.misfits()
        rebased: Checked = _rebase(checked, folder or Path())
        checked = rebased
        problems += check(checked)
    if problems or checked is None:
        raise UsageError(f"{name} is not a valid config:\n{list_problems(problems)}")
    return checked


def _validate(
    document: Any,  # noqa: ANN401 - whatever a file holds
    kind: type[Checked],
    folder: Path,
) -> tuple[Checked | None, list[str]]:
    """Returns what a document says without what is wrong in it, and what is.

    Nothing is returned where what is wrong decides on the rest: that would be guesses.
    """
    problems: list[str] = []
    left_out: set[tuple[int | str, ...]] = set()
    for _ in range(_MOST_PASSES):
        try:
            return kind.model_validate(document, context=folder), problems
        except ValidationError as error:
            wrong = _innermost(error.errors())
            if len(left_out) + len(wrong) > _MOST_LEFT_OUT:
                described = [
                    line for problem in wrong[:_MOST_PROBLEMS] for line in _describe(problem, kind)
                ]
                return None, [*problems, *described, *map(str, wrong[_MOST_PROBLEMS:])]
            for problem in wrong:
                # A part of which something was left out cannot be judged as a whole.
                if not any(
                    location[: len(problem["loc"])] == problem["loc"] for location in left_out
                ):
                    problems += _describe(problem, kind)
            if not all(map(_may_be_left_out, wrong)):
                return None, problems
            for problem in wrong:
                left_out.add(problem["loc"])
                document = _without(document, problem["loc"])
    return None, problems


def _may_be_left_out(problem: ErrorDetails) -> bool:
    """Whether the rest of a file can be judged without the value that is wrong."""
    location = problem["loc"]
    if not location or problem["type"] == "missing":
        return False
    return problem["type"] == "extra_forbidden" or _DECIDING.isdisjoint(location)


def _without(node: Any, location: tuple[int | str, ...]) -> Any:  # noqa: ANN401
    """Returns a copy of JSON without the innermost field that `location` leads to."""
    if not isinstance(node, dict) or not location or location[0] not in node:
        if not isinstance(node, list) or not location or not isinstance(location[0], int):
            return node
        inner = _without(node[location[0]], location[1:])
        return [*node[: location[0]], inner, *node[location[0] + 1 :]]
    first, remainder = location[0], location[1:]
    inner = _without(node[first], remainder)
    if inner is node[first]:
        return {key: child for key, child in node.items() if key != first}
    return {**node, first: inner}


def names_a_source(model: str) -> bool:
    """Whether a model is named by the file that it is in."""
    return re.search(r"\.(py|pt2)(:|$)", model) is not None


def _rebase(value: Any, folder: Path) -> Any:  # noqa: ANN401 - whatever a config holds
    """Puts `folder` before every relative path of a config, not before a model's name."""
    if isinstance(value, BaseModel):
        fields = {name: getattr(value, name) for name in value.model_fields_set}
        if isinstance(value, ProgramConfig) and not value.is_file_below(folder):
            del fields["model"]
        for preset, runner in (("preset", "runner"), ("trace_preset", "trace_runner")):
            built = _built_beside(folder, fields[preset]) if fields.get(preset) else None
            if built is not None and not fields.get(runner):
                # A preset is a folder's, as a path is: no working folder has part in it.
                fields |= {preset: None, runner: built.absolute()}
        return value.model_copy(update={k: _rebase(v, folder) for k, v in fields.items()})
    if isinstance(value, dict):
        return {name: _rebase(element, folder) for name, element in value.items()}
    if isinstance(value, tuple):
        return tuple(_rebase(element, folder) for element in value)
    return folder / value if isinstance(value, Path) else value


def _built_beside(folder: Path, preset: str) -> Path | None:
    """Returns the preset's runner of the checkout that a config is in; None where it is in none."""
    runner_path = runner_of_preset(preset)
    checkouts = (folder.resolve(), *folder.resolve().parents)
    return next(
        (checkout / runner_path for checkout in checkouts if (checkout / runner_path).is_file()),
        None,
    )


def _missing_files(config: Config) -> list[str]:
    """Lists files and models that the config names and that are not there."""
    files = [*config.files(), ("target.trace_runner", config.target.trace_runner)]
    for name, program in config.programs.items():
        files += [(f"programs.{name}.{field}", path) for field, path in program.files()]
    if config.generation is not None:
        files += [(f"generation.{name}", path) for name, path in config.generation.files()]
    for index, experiment in enumerate(config.experiments):
        files.append((f"experiments.{index}.runner_path", experiment.runner))
    models = [*config.problems_of_model()]
    for name, program in config.programs.items():
        models += [f"programs.{name}.{problem}" for problem in program.problems_of_model()]
    return [*models, *list_missing(files)]


def list_missing(files: Iterable[tuple[str, Path | None]]) -> list[str]:
    """Lists the files that are named and not there, each with its field."""
    return [f"{at}: {path} does not exist" for at, path in files if path and not path.is_file()]


def _innermost(problems: Sequence[ErrorDetails]) -> list[ErrorDetails]:
    """Leaves out that a list is too short where its items are all wrong: they say it better."""
    deeper = {p["loc"][:depth] for p in problems for depth in range(1, len(p["loc"]))}
    return [p for p in problems if p["type"] != "too_short" or p["loc"] not in deeper]


def list_problems(problems: Sequence[str]) -> str:
    """Returns one indented line per problem, and how many more there are than anybody reads."""
    return "\n".join(f"  {line}" for line in first_texts(problems, _MOST_PROBLEMS))


def _describe(problem: ErrorDetails, model: type[BaseModel]) -> list[str]:
    """Words one problem as users need it."""
    where = ".".join(str(component) for component in problem["loc"])
    if problem["type"] == "extra_forbidden":
        fields = _fields_at(model, problem["loc"][:-1])
        return [f"{where}: unknown field{suggest(str(problem['loc'][-1]), fields)}"]
    if problem["type"] == "missing":
        return [f"{where}: required but not given"]
    text = problem["msg"].removeprefix("Value error, ")
    if not where:
        return (
            ["must be a JSON object: {…}"]
            if problem["type"].endswith("_type")
            else text.splitlines()
        )
    received = repr(problem["input"])
    # Not the whole of it: what is wrong may be that it is too long.
    excerpt = received if len(received) <= _LONGEST_TEXT else f"{received[:_LONGEST_TEXT]}…"
    return [f"{where}: {text} (got {excerpt})"]


def _fields_at(model: type[BaseModel], location: tuple[int | str, ...]) -> list[str]:
    """Names the fields of the part of the model at `location`, as people write them."""
    schema = _schema_of(model)
    node: dict[str, Any] = schema
    for key in location:
        node = _resolve(node, schema)
        properties = node.get("properties", {})
        node = node.get("items", {}) if isinstance(key, int) else properties.get(key, {})
    return list(_resolve(node, schema).get("properties", {}))


@cache
def _schema_of(model: type[BaseModel]) -> dict[str, Any]:
    """Made once: each takes milliseconds, and a config may have thousands of unknown fields."""
    return model.model_json_schema()


def _resolve(node: dict[str, Any], schema: dict[str, Any]) -> dict[str, Any]:
    """Follows a reference to a definition."""
    reference = node.get("$ref")
    if not isinstance(reference, str):
        return node
    definition: dict[str, Any] = schema["$defs"][reference.rpartition("/")[2]]
    return definition


def find_placeholders(document: object) -> list[str]:
    """Lists texts that a template left to be filled in."""
    return [
        f"{where}: {text[:_LONGEST_TEXT]!r} is a placeholder; fill it in"
        for where, text in _walk_texts(document, "")
        if _PLACEHOLDER.search(text)
    ]


def _walk_texts(node: object, where: str) -> Iterator[tuple[str, str]]:
    """Yields every text with its place."""
    if isinstance(node, str):
        yield where, node
    elif isinstance(node, dict):
        for key, value in node.items():
            yield from _walk_texts(value, f"{where}.{key}".lstrip("."))
    elif isinstance(node, list):
        for index, value in enumerate(node):
            yield from _walk_texts(value, f"{where}.{index}".lstrip("."))


def read_installed(name: str) -> str:
    """Returns the text of a file below configs/, such as `examples/matrix_host.json`."""
    for root in importlib.import_module("etprof.configs").__path__:
        path = Path(root, name)
        if path.is_file():
            return path.read_text(encoding="utf-8")
    raise BuildError(f"{name} was not installed; install etprof again with `pip install .`")
