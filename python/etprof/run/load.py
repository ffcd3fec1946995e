"""A run directory, or one ETDump, as it was found: every file is opened once, and none later."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path, PurePath
from typing import TYPE_CHECKING, Final, TypeAlias

from etprof.base.errors import EtprofError, InputFileError
from etprof.base.files import read_input
from etprof.base.json_input import MOST_JSON_BYTES, read_json
from etprof.base.records import Document, read_record
from etprof.base.text import clean
from etprof.base.units import count_of
from etprof.etdump.reader import open_etdump
from etprof.run.delegation import find_method_report
from etprof.run.directory import (
    EXPORT_MANIFEST,
    METRICS,
    ExperimentFiles,
    experiment_files,
    find_etdumps,
    find_splits,
    name_of_program,
    parse_metrics,
    refuse_file_of_run,
    runs_folder,
    suggest_run_directory,
)
from etprof.run.kernel_trace import read_instructions, read_kernel_trace
from etprof.run.manifest import MANIFEST, WAY_OUT, is_untimed, parse_manifest
from etprof.run.program import ExportManifest, LoadedProgram, find_beside, load_expected
from etprof.run.runner_result import read_result
from etprof.run.tensors import load_outputs

if TYPE_CHECKING:
    from etprof.etdump.reader import ETDump, LongETDump
    from etprof.run.directory import ExperimentMetrics, Metrics
    from etprof.run.kernel_trace import InstructionCounts, KernelTrace
    from etprof.run.manifest import Experiment, Manifest, MeasuredProgram, Purpose
    from etprof.run.peaks import Peaks
    from etprof.run.runner_result import RunnerResult
    from etprof.run.tensors import StoredTensor

Place: TypeAlias = Path
"""Where something was read from: to be shown, and to write beside; nothing more is read there."""
REFERENCE_MODELS: Final = ("mobilenet_v2", "mobilenet_v3_small")
"""Models of known shape, nearly all convolution and matrix product; the first that is there counts."""
_SAYS_TIMED: Final = (
    "it says whether the ETDump's times are performance: restore it, or measure again"
)
_OTHER_BUILD: Final = "they are of another build of the runner; name the one that counts for it as target.trace_runner"


@dataclass(frozen=True)
class LoadedLaunches:
    """What an experiment's launches left, but for its ETDump."""

    name: str
    program: LoadedProgram = field(default_factory=LoadedProgram)
    metrics: ExperimentMetrics | None = None
    result: RunnerResult | None = None
    """Of the launch that wrote the ETDump; without one, of one that computed or timed."""
    steps: Mapping[int, Mapping[int, StoredTensor]] = field(default_factory=dict)
    """Outputs by inference, the first of the process is 1, and number, of whichever launch kept them."""
    kernels: KernelTrace | None = None
    """Of any launch of the same program, inputs, method, SME mode, threads and build of the runner."""
    prefill: KernelTrace | None = None
    """Of a language model that reads its prompt, by the experiment's own launch."""
    instructions: InstructionCounts | None = None
    """By the experiment's own launch."""
    problems: tuple[str, ...] = ()
    """What was there and could not be read, or is not the experiment's own."""
    damage: InputFileError | None = None
    """Why none of its ETDumps could be read; one of the problems."""

    @property
    def output_step(self) -> int:
        """Which inference `outputs` are of."""
        return min(self.steps, default=1)

    @property
    def outputs(self) -> Mapping[int, StoredTensor]:
        """Of the earliest inference that was kept, by their number."""
        return self.steps.get(self.output_step, {})

    @property
    def sme(self) -> str | None:
        """The SME mode in force."""
        if self.metrics is not None and self.metrics.sme is not None:
            return self.metrics.sme
        if self.result is not None and self.result.sme is not None:
            return self.result.sme.in_force
        return self.kernels.sme.in_force if self.kernels else None

    @property
    def svl_bits(self) -> int | None:
        """Streaming vector length in bits; None without SME, or where not recorded."""
        source = self.result or self.kernels
        return source.sme.svl_bits if source and source.sme else None

    @property
    def threads(self) -> int | None:
        """Threads in force."""
        if self.metrics is not None:
            return self.metrics.threads
        return self.result.threads.in_force if self.result else None


@dataclass(frozen=True)
class LoadedSplit:
    """What one of an experiment's operator launches recorded."""

    number: int
    etdump: Place
    dump: ETDump | LongETDump
    """A long one is a mapping of the file, parsed when its pieces are asked for: may raise then."""
    clock: KernelTrace | None = None
    """Of the same inferences, where the runner had the operator clock."""


@dataclass(frozen=True, kw_only=True)
class LoadedExperiment(LoadedLaunches):
    """An experiment that has one ETDump at least, with all that was measured beside it."""

    splits: tuple[LoadedSplit, ...]


@dataclass(frozen=True)
class Run:
    """Everything that the files of a run say."""

    source: Place
    is_directory: bool
    experiments: tuple[LoadedExperiment, ...]
    others: tuple[LoadedLaunches, ...] = ()
    """Experiments without an ETDump that were timed, or counted or computed something."""
    manifest: Manifest | None = None
    metrics: Metrics | None = None
    programs: tuple[LoadedProgram, ...] = field(default_factory=lambda: (LoadedProgram(),))
    """All that was measured; the run's model first."""
    reference: Run | None = None
    """A run of a reference model, measured alike in the same place, where it was asked for."""
    peaks: Peaks | None = None
    """What its device can do at most, where that was looked up."""
    is_timed: bool = True
    """Whether its times are performance; an emulator's are not, and nothing of them is in here."""
    contents: Mapping[str, bytes] = field(default_factory=dict)
    """manifest.json and metrics.json to the byte: what tells this run from any other."""
    problems: tuple[str, ...] = ()
    """What is wrong with what was exported, of which all experiments know nothing then."""
    notes: tuple[str, ...] = ()
    """Of an ETDump alone: its clock, and what names its operators. Of a run directory: programs that
    were exported again since."""
    problem: str | None = None
    """Why nothing is known but the manifest and the metrics."""

    @property
    def is_reportable(self) -> bool:
        """Whether operators were recorded, kernels counted or outputs computed."""
        has_results = any(launches.kernels or launches.outputs for launches in self.others)
        return bool(self.experiments) or has_results

    @property
    def timed(self) -> Mapping[str, ExperimentMetrics]:
        """Everything in metrics.json, experiments without an ETDump included."""
        return self.metrics.experiments if self.metrics else {}

    @classmethod
    def load(cls, source: Path, *, strict: bool = True, with_reference: bool = False) -> Run:
        """Reads a run directory or a single ETDump; raises InputFileError for damaged ones.

        Of a long ETDump that is the first part: the rest is read, and refused, by what splits it.
        An ETDump, kernel trace, result or output that is damaged is a problem of its experiment,
        no more, and what was exported is one of the run; nothing to report beside a damaged ETDump
        is damage of the run. Without `strict` a damaged run has at least its manifest and metrics.
        `with_reference` looks for a run of a reference model beside it.
        """
        if not source.exists():
            raise InputFileError(
                f"{source} does not exist; `etprof profile MODEL` makes a run directory"
            )
        refuse_file_of_run(source)
        if not source.is_dir():
            split = LoadedSplit(0, source, open_etdump(source))
            experiment = LoadedExperiment(name=clean(source.stem), splits=(split,))
            is_timed = not _is_in_untimed_run(source)
            return cls(source, is_directory=False, experiments=(experiment,), is_timed=is_timed)
        run = _load_measured(source)
        try:
            run = _load_launches(run)
            damage = next(filter(None, (experiment.damage for experiment in run.others)), None)
            if damage is not None and not run.is_reportable:
                raise damage
        except EtprofError as error:
            if strict:
                raise
            return replace(run, problem=str(error))
        if strict and not run.is_reportable:
            msg = f"{source} holds no .etdump file; {suggest_run_directory(source, run.manifest)}"
            raise InputFileError(msg)
        return replace(run, reference=_load_reference(run)) if with_reference else run


def _load_measured(source: Path) -> Run:
    """Reads what was measured, and whether its times are performance.

    Where they are not, there are none from here on: no block has any. The manifest says so from
    the start, metrics.json when it is written: where either does, no time counts.
    """
    contents = {name: _read(source / name) for name in (MANIFEST, METRICS)}
    manifest = parse_manifest(contents[MANIFEST], source / MANIFEST)
    metrics = parse_metrics(contents[METRICS], source / METRICS)
    if manifest and metrics and metrics.run_id not in {None, manifest.run_id}:
        msg = (
            f"{source / METRICS} is of another run than {source / MANIFEST}: run_id; measure again"
        )
        raise InputFileError(msg)
    meaningful = [document.times_are_meaningful for document in (manifest, metrics) if document]
    is_timed = False not in meaningful
    if metrics is not None and not is_timed:
        without_blocks = {
            name: experiment.model_copy(update={"blocks": []})
            for name, experiment in metrics.experiments.items()
        }
        metrics = metrics.model_copy(update={"experiments": without_blocks})
    return Run(
        source=source,
        is_directory=True,
        experiments=(),
        manifest=manifest,
        metrics=metrics,
        is_timed=is_timed,
        contents={name: content for name, content in contents.items() if content is not None},
    )


def _read(path: Path) -> bytes | None:
    if not path.exists():
        return None
    return read_input(path, most_bytes=MOST_JSON_BYTES, way_out=WAY_OUT)


def _load_launches(run: Run) -> Run:
    """Adds what was exported, and what the launches left."""
    problems: list[str] = []
    programs = tuple(_load_programs(run.source, run.manifest, problems))
    lost = tuple(filter(None, map(_describe_lost, programs)))
    run = replace(run, programs=programs, problems=tuple(problems), notes=lost)
    reader = _RunReader(run)
    split = {path: reader.name_of(path) for path in reader.etdumps}
    experiments = [reader.read_experiment(path, name) for path, name in split.items()]
    damaged = [launches for launches in experiments if not isinstance(launches, LoadedExperiment)]
    run = replace(
        run,
        experiments=tuple(
            experiment for experiment in experiments if isinstance(experiment, LoadedExperiment)
        ),
        others=(*damaged, *reader.read_unprofiled(set(split.values()))),
    )
    _check_schema(run, reader.traces.values())
    return run


def _check_schema(run: Run, traces: Iterable[_CountedTrace]) -> None:
    """Raises InputFileError for a manifest of schema 1 where launches left files of a later one."""
    if run.manifest is None or run.manifest.schema_version != 1:
        return
    results = [launches.result for launches in (*run.experiments, *run.others) if launches.result]
    are_later = [result.clock is not None or result.conditions is not None for result in results]
    if any(are_later) or any(trace.trace.schema_version != 1 for trace in traces):
        msg = (
            f"{run.source / MANIFEST} is damaged: schema_version: 1 is older than what its launches "
            f"left: it was changed after it had been written; {WAY_OUT}"
        )
        raise InputFileError(msg)


def _try_read(reader: Callable[[], Document | None], problems: list[str]) -> Document | None:
    try:
        return reader()
    except InputFileError as error:
        problems.append(str(error))
        return None


def find_own_run(etdump: Path) -> Manifest | None:
    """Returns the manifest of the run that contains an ETDump; None outside of a run."""
    for folder in etdump.absolute().parents[:2]:
        content = _read(folder / MANIFEST)
        if content is not None:
            return parse_manifest(content, folder / MANIFEST)
    return None


def _is_in_untimed_run(etdump: Path) -> bool:
    """Whether the run that contains the ETDump has times that are not meaningful."""
    folders = etdump.absolute().parents[:2]  # the run's own, or an experiment's in it
    files = (folder / name for folder in folders for name in (MANIFEST, METRICS))
    documents = [read_json(path, way_out=_SAYS_TIMED) for path in files if path.is_file()]
    return any(isinstance(document, dict) and is_untimed(document) for document in documents)


@dataclass(frozen=True)
class _CountedTrace:
    """A kernel trace, and what decides whose kernels it counted."""

    trace: KernelTrace
    program: LoadedProgram
    experiment: Experiment | None
    """Whose launch it was; None where no manifest says."""
    runner: str | None
    """Hash of the runner that counted."""

    @property
    def threads(self) -> int | None:
        """Threads in force, which may be fewer than were asked for."""
        if self.trace.threads is not None:
            return self.trace.threads.in_force
        return self.experiment.threads if self.experiment else None

    def find_mismatch(self, launches: LoadedLaunches, setup: Experiment | None) -> str | None:
        """Says why it counted something else than these launches ran; None when it is the same."""
        if not self.program.computes_the_same(launches.program):
            return "they are of another program"
        if launches.sme != self.trace.sme.in_force:
            mode = launches.sme or "one that is not known"
            return f"they are of SME mode {self.trace.sme.in_force}, not {mode}"
        bits, counted_bits = launches.svl_bits, self.trace.sme.svl_bits
        if None not in {bits, counted_bits} and bits != counted_bits:
            return f"they are of a vector length of {counted_bits} bits, not {bits}"
        if None not in {launches.threads, self.threads} and launches.threads != self.threads:
            return f"they are of {count_of(self.threads or 0, 'thread')}, not {launches.threads}"
        if setup and self.experiment and setup.extra_arguments != self.experiment.extra_arguments:
            return "the runner had other arguments"
        return None


class _RunReader:
    """Reads the files of one run directory, each once."""

    def __init__(self, run: Run) -> None:
        self._run, self._manifest, self._timed = run.source, run.manifest, run.timed
        manifest = run.manifest
        experiments = manifest.experiments if manifest else ()
        self._planned = {experiment.name: experiment for experiment in experiments}
        self._programs = {program.name: program for program in run.programs}
        self._launches = {
            (launch.experiment, launch.purpose): launch
            for launch in (manifest.launches if manifest else ())
            if launch.error is None
        }
        self._files = dict(self._find_files())
        self.etdumps = find_splits(run.source)
        self._problems: dict[Path, str] = {}
        imported = manifest.imported if manifest else None
        self._ns_per_tick = (imported and imported.ns_per_tick) or 1.0
        self.traces: dict[Path, _CountedTrace] = dict(self._read_traces())

    def _find_files(self) -> Iterator[tuple[str, ExperimentFiles]]:
        """Yields where each experiment's files are, by the manifest or else by metrics.json."""
        for name, planned in self._planned.items():
            model = self._program_of(name).model
            label = (model.label or model.name) if model else ""
            yield name, experiment_files(self._run, label, planned.folder, planned.threads)
        for name, metrics in self._timed.items():
            components = PurePath(metrics.etdump or "").parts
            if len(components) == 2 and ".." not in components:
                folder = self._run / components[0]
                yield name, ExperimentFiles(name, folder, PurePath(components[1]).stem)

    def _program_of(self, experiment: str) -> LoadedProgram:
        """Returns what an experiment ran; the run's model where the manifest does not say."""
        planned = self._planned.get(experiment)
        return self._programs[planned.program if planned else ""]

    def name_of(self, etdump: Path) -> str:
        """Names its experiment; where nothing does by folder, or by file if that has several."""
        for name, files in self._files.items():
            if files.folder == etdump.parent and files.stem == etdump.stem:
                return name
        folders = [path.parent for path in self.etdumps]
        is_one_of_several = etdump.parent == self._run or folders.count(etdump.parent) > 1
        return clean(etdump.stem if is_one_of_several else etdump.parent.name)

    def read_experiment(self, etdump: Path, name: str) -> LoadedLaunches:
        """Reads an experiment by the first of its ETDumps; loaded, where one can be read."""
        launches = self._read_launches(name, ExperimentFiles(name, etdump.parent, etdump.stem))
        splits, damage, clocks = list[LoadedSplit](), list[InputFileError](), list[str]()
        for number, path in sorted(self.etdumps[etdump]):
            try:
                dump = open_etdump(path, ns_per_tick=self._ns_per_tick)
            except InputFileError as error:
                damage.append(error)
                continue
            splits.append(LoadedSplit(number, path, dump, self._read_clock(path, clocks)))
        launches = replace(launches, problems=(*map(str, damage), *clocks, *launches.problems))
        if not splits:
            return replace(launches, damage=damage[0])
        fields = {name: getattr(launches, name) for name in LoadedLaunches.__dataclass_fields__}
        return LoadedExperiment(**fields, splits=tuple(splits))

    def _read_clock(self, etdump: Path, problems: list[str]) -> KernelTrace | None:
        path = etdump.with_name(f"{etdump.stem}_clock.json")
        if not path.is_file():
            return None
        return _try_read(lambda: read_kernel_trace(path), problems)

    def read_unprofiled(self, split: set[str]) -> Iterator[LoadedLaunches]:
        """Reads the experiments that have no ETDump, as far as they left anything."""
        for name, files in self._files.items():
            launches = self._read_launches(name, files) if name not in split else None
            if launches and (
                launches.result or launches.outputs or launches.kernels or launches.problems
            ):
                yield launches

    def _read_launches(self, name: str, files: ExperimentFiles) -> LoadedLaunches:
        problems: list[str] = []
        metrics = self._timed.get(name)
        result = self._read_result(files.file("_result.json"), problems)
        computed = self._read_result(files.file("_outputs_result.json"), problems) or result
        if result is None and computed is None and metrics and metrics.blocks:
            first = files.file(f"_b{metrics.blocks[0].block:02d}_result.json")
            result = self._read_result(first, problems)
        steps = load_outputs(files.file("_outputs"), computed)
        problems += [
            file.problem for step in steps.values() for file in step.values() if file.problem
        ]
        program = self._program_of(name)
        launches = LoadedLaunches(name, program, metrics, result or computed, steps)
        kernels = self._find_trace(launches, files.file("_kernels.json"), problems)
        prefill, instructions = (
            files.file(f"_{kind}.json") for kind in ("prefill_kernels", "instructions")
        )
        return replace(
            launches,
            kernels=kernels,
            prefill=self._read_counted(name, "prefill", prefill, read_kernel_trace, problems),
            instructions=self._read_counted(
                name, "instructions", instructions, read_instructions, problems
            ),
            problems=tuple(problems),
        )

    def _read_counted(
        self,
        name: str,
        purpose: Purpose,
        path: Path,
        reader: Callable[[Path], Document],
        problems: list[str],
    ) -> Document | None:
        """Reads what a launch has counted that succeeded; nothing else is evidence."""
        if not path.is_file() or (name, purpose) not in self._launches:
            return None
        return _try_read(lambda: reader(path), problems)

    def _read_result(self, path: Path, problems: list[str]) -> RunnerResult | None:
        return _try_read(lambda: read_result(path), problems) if path.is_file() else None

    def _read_traces(self) -> Iterator[tuple[Path, _CountedTrace]]:
        """Reads the kernel traces of launches that succeeded; others are no evidence."""
        trace_paths = {files.file("_kernels.json"): name for name, files in self._files.items()}
        trace_paths |= {
            path.with_name(f"{path.stem}_kernels.json"): name
            for path in self.etdumps
            if (name := self.name_of(path)) not in self._files
        }
        for path, name in trace_paths.items():
            launch = self._launches.get((name, "kernels"))
            # Manifests of the first schema do not list them.
            is_told = self._manifest is not None and self._manifest.schema_version != 1
            if not path.is_file() or (is_told and launch is None):
                continue
            try:
                trace = read_kernel_trace(path)
            except InputFileError as error:
                self._problems[path] = str(error)
                continue
            program = self._program_of(name)
            if program.model is None or program.model.method in {None, trace.method}:
                runner = launch.runner_sha256 if launch else None
                yield path, _CountedTrace(trace, program, self._planned.get(name), runner)

    def _find_trace(
        self, launches: LoadedLaunches, own_path: Path, problems: list[str]
    ) -> KernelTrace | None:
        """Returns what was counted of the same mode, threads, arguments and build of the runner.

        The experiment's own launch comes first; one of another is as good.
        """
        if own_path in self._problems:
            problems.append(self._problems[own_path])
        setup = self._planned.get(launches.name)
        refused = ""
        for path, counted in sorted(self.traces.items(), key=lambda pair: pair[0] != own_path):
            mismatch = counted.find_mismatch(launches, setup)
            if mismatch is not None and path != own_path:
                continue
            if mismatch is None and self._is_of_its_build(counted, launches.name):
                return counted.trace
            refused = refused or mismatch or _OTHER_BUILD
        if refused:
            problems.append(f"the kernels that were counted are not its own: {refused}")
        return None

    def _is_of_its_build(self, counted: _CountedTrace, name: str) -> bool:
        """Whether what counted is the experiment's own runner, or built to count beside it.

        The target has a pair: its own runner is timed, another of the same build counts. Whoever
        names a runner that counts, for the target, says that it is of the build that is timed.
        """
        launch = self._launches.get((name, "operators")) or self._launches.get((name, "timing"))
        if counted.runner is not None and launch and launch.runner_sha256 == counted.runner:
            return True
        by = counted.experiment
        if by and by.mode == "kernels" and by.runner:
            return False
        setup = self._planned.get(name)
        return setup is None or setup.runner is None or self._names_counting_runner()

    def _names_counting_runner(self) -> bool:
        content = (self._manifest.config or {}).get("content") if self._manifest else None
        target = content.get("target") if isinstance(content, dict) else None
        names = ("trace_runner", "trace_preset")
        return isinstance(target, dict) and any(target.get(name) for name in names)


def _load_programs(
    run: Path, manifest: Manifest | None, problems: list[str]
) -> Iterator[LoadedProgram]:
    """Yields the programs that were measured, with what their exports say."""
    measured: Mapping[str, MeasuredProgram | None] = (
        manifest.every_program if manifest else {"": None}
    )
    for name, measured_program in measured.items():
        report = _try_read(partial(find_method_report, run, manifest, name), problems)
        file = run / name_of_program(EXPORT_MANIFEST, name)
        exported = _try_read(partial(read_export, file), problems) if file.is_file() else None
        if report is not None and exported is not None and exported.rewrites_left_out:
            # What was tried on this program and not kept is no advice.
            report = report.without_rewrites(exported.rewrites_left_out)
        program = LoadedProgram(name, measured_program, report, exported)
        yield replace(program, steps=load_expected(program))


def _describe_lost(program: LoadedProgram) -> str:
    """Says that what should come out is of a later export; empty where it is this one's, or gone."""
    is_known = any(step.references or step.converted for step in program.steps.values())
    if is_known or not (program.has_example_inputs and program.model and program.method):
        return ""
    if not any(find_beside(program, tensor) for tensor in program.method.references):
        return ""
    return (
        f"{program.model.label or program.model.name} was exported again after this run, and the "
        "eager model's outputs are of that export: what this run computed is not compared with "
        "them; measure again"
    )


def read_export(path: Path) -> ExportManifest:
    """Reads what the export says of its program; raises InputFileError for a damaged file."""
    return read_record(ExportManifest, path, way_out="export the model again and measure it")


def _load_reference(measured: Run) -> Run | None:
    """Reads the run of a reference model that was measured as this one was; None without one.

    Runs stand in out_<model>/runs/<platform>, so it is looked for beside the run's own model.
    """
    manifest, resolved = measured.manifest, measured.source.resolve()
    if manifest is None or manifest.model.name in REFERENCE_MODELS:
        return None
    if resolved.parent.name != "runs" or not measured.is_timed:
        return None
    for model in REFERENCE_MODELS:
        folder = runs_folder(model, resolved.name, root=resolved.parents[2])
        try:
            if folder.is_dir() and find_etdumps(folder):
                run = Run.load(folder)
                if (
                    run.metrics
                    and run.is_timed
                    and run.manifest
                    and run.manifest.kind == manifest.kind
                ):
                    return run
        except InputFileError:
            # A damaged reference is ignored: it was not requested by name.
            continue
    return None
