"""Reads a run directory, or one ETDump, and brings its numbers together."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property
from typing import TYPE_CHECKING, Final

from etprof.analysis.generation import GenerationSpeed, summarise_generation
from etprof.analysis.output_check import (
    OutputCheck,
    check_references,
    judge_export,
    judge_outputs,
)
from etprof.analysis.split.agreement import BreakdownAgreement
from etprof.analysis.split.attribution import (
    Attribution,
    attribute_operators,
    place_operator,
)
from etprof.analysis.split.evidence import (
    InstructionEvidence,
    ModeEvidence,
    OperatorEvidence,
    find_locations,
    join_evidence,
    locate_operators,
    read_evidence,
)
from etprof.analysis.split.executions import (
    LEAST_FOR_BAND,
    Executions,
    examine_executions,
    keep_near_median,
)
from etprof.analysis.split.operator_clock import put_on_clock
from etprof.analysis.split.operators import OperatorSplit, split_operators
from etprof.base.errors import InputFileError
from etprof.base.records import SME_MODES, SME_ON
from etprof.base.text import clean, join_names
from etprof.base.units import be, count_of, format_duration
from etprof.etdump.reader import ETDumpFormatError
from etprof.run.load import LoadedExperiment, LoadedLaunches, LoadedSplit
from etprof.statistics.summary import BlockedMedian, SampleSummary, summarise, summarise_blocks

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterator, Mapping, Sequence

    from etprof.analysis.split.executions import Delegates
    from etprof.analysis.split.operators import OperatorRow
    from etprof.run.accuracy import Verdict
    from etprof.run.directory import ExperimentMetrics
    from etprof.run.kernel_trace import InstructionCounts, KernelTrace
    from etprof.run.load import Place, Run
    from etprof.run.manifest import ImportSource, LaunchRecord, Manifest
    from etprof.run.program import LoadedProgram


_MOST_FAILURES: Final = 10
"""Named one by one."""
_NO_SME2 = (
    "this CPU has no SME2: comparing on with off needs an SME2 phone or Mac, or the emulator "
    "(`etprof profile MODEL --target emulator`), which proves kernels but not times"
)


@dataclass(frozen=True)
class Latency:
    """Timing without event tracer, over blocks; times in ns."""

    load: BlockedMedian | None
    first_inference: BlockedMedian | None
    """None, as of loading, where another program measured and does not say."""
    steady: BlockedMedian
    """Of `Method::execute` alone; of a generation as a whole."""
    samples: SampleSummary
    """All steady samples together."""
    peak_rss_bytes: int | None
    rss_after_load_bytes: int | None
    planned_buffers_bytes: int
    input_setup: BlockedMedian | None = None
    """Giving the inputs; None where that is a part of what was timed, or nobody says."""
    output_readback: BlockedMedian | None = None
    """Taking the outputs."""
    inferences_per_sample: int = 1
    """More than one where one is too short for the clock."""
    is_traced: bool = False
    """Whether events were recorded meanwhile, as other programs do."""


@dataclass(frozen=True)
class ExperimentAnalysis:
    """One experiment: its per-operator breakdown and, where it was timed, its latency."""

    loaded: LoadedExperiment
    executions: Executions
    """Of the first operator launch; on the operator clock where that ran."""
    split: OperatorSplit
    """Of all operator launches together."""
    attributions: tuple[Attribution | None, ...]
    """What the export knows of each of the split's rows; None where it does not."""
    problems: tuple[str, ...]
    """What could not be read, or is refused."""
    latency: Latency | None
    generation: GenerationSpeed | None
    """Speed of a language model; None when no tokens were generated, or not timed."""

    @property
    def delegates(self) -> Delegates:
        """Whose the delegate calls are."""
        return self.executions.delegates

    @property
    def name(self) -> str:
        """As metrics.json has it, else of its folder or file."""
        return self.loaded.name

    @property
    def etdump(self) -> Place:
        """The first operator launch's ETDump."""
        return self.loaded.splits[0].etdump

    @property
    def program(self) -> LoadedProgram:
        """What it ran."""
        return self.loaded.program

    @property
    def metrics(self) -> ExperimentMetrics | None:
        """Raw samples by block; None without metrics.json."""
        return self.loaded.metrics

    @property
    def sme(self) -> str | None:
        """The SME mode in force."""
        return self.metrics.sme if self.metrics else None

    @property
    def threads(self) -> int | None:
        """Threads in force."""
        return self.metrics.threads if self.metrics else None

    @cached_property
    def agreement(self) -> BreakdownAgreement | None:
        """The breakdown beside the timed latency; None where either is not known.

        A sample of a language model is a generation, no execution.
        """
        times, latency_ns = self.split.times, self.inference_ns
        if times is None or not latency_ns or self.latency is None:
            return None
        launches_ns = times.execute.launches_ns
        return BreakdownAgreement(
            times.execute.mean_ns, min(launches_ns), latency_ns, len(self.split.rows)
        )

    @property
    def distance(self) -> float:
        """How far a mean execution of the split is off the timed latency, as a share of it.

        0 where either is not known.
        """
        return self.agreement.distance if self.agreement else 0.0

    @property
    def inference_ns(self) -> float | None:
        """The timed latency of an inference, else the mean of the split; None without times."""
        times = self.split.times
        if times is None or (self.metrics and self.metrics.generated) or not self.latency:
            return times.execute.mean_ns if times else None
        return self.latency.steady.median or None

    @property
    def is_in_doubt(self) -> bool:
        """Whether the split does not agree with the latency, so that no gain may rest on it."""
        return self.agreement is not None and self.agreement.is_in_doubt

    @cached_property
    def counted(self) -> ModeEvidence | None:
        """What was counted in a kernel trace; None without one."""
        return read_evidence(self.loaded.kernels) if self.loaded.kernels else None

    @cached_property
    def evidence(self) -> tuple[OperatorEvidence, ...]:
        """What each of the split's rows ran, and how sure that is."""
        mode = self.counted.mode_in_force if self.counted else self.sme
        return join_evidence(self.split.rows, self.counted, mode)


@dataclass(frozen=True)
class RunAnalysis:
    """A run with each experiment's per-operator breakdown and latency."""

    loaded: Run
    experiments: tuple[ExperimentAnalysis, ...]
    notes: tuple[str, ...]
    """What is missing, and what that costs."""

    @property
    def source(self) -> Place:
        """The run directory or ETDump."""
        return self.loaded.source

    @property
    def manifest(self) -> Manifest | None:
        """Who measured what, where and with what; None where nobody says."""
        return self.loaded.manifest

    @property
    def is_timed(self) -> bool:
        """Whether its times are performance; an emulator's are not."""
        return self.loaded.is_timed

    @property
    def timed(self) -> Mapping[str, ExperimentMetrics]:
        """Everything in metrics.json, experiments without an ETDump included."""
        return self.loaded.timed

    @cached_property
    def counted(self) -> Mapping[str, ModeEvidence]:
        """What was counted in each SME mode, at its fewest threads; the fastest mode first.

        Where a mode was counted at several vector lengths, each has an entry of its own; without
        SME there is no such length.
        """
        rows = {
            id(experiment.loaded.kernels): experiment.split.rows for experiment in self.experiments
        }
        return self._by_mode(lambda experiment: experiment.kernels, rows)

    @cached_property
    def counted_in_prefill(self) -> Mapping[str, ModeEvidence]:
        """The same of a language model that reads its prompt."""
        return self._by_mode(lambda experiment: experiment.prefill, {})

    @cached_property
    def instructions(self) -> Mapping[str, InstructionCounts]:
        """What each experiment's inferences took, where instructions were counted."""
        every = [*self.loaded.experiments, *self.loaded.others]
        return {
            experiment.name: experiment.instructions
            for experiment in every
            if experiment.instructions
        }

    @cached_property
    def instruction_evidence(self) -> Mapping[str, InstructionEvidence]:
        """The same, with the layers of the operators."""
        rows = {experiment.name: experiment.split.rows for experiment in self.experiments}
        return {
            name: InstructionEvidence(
                counts,
                find_locations([(o.name, True) for o in counts.operators], rows.get(name, ())),
            )
            for name, counts in self.instructions.items()
        }

    def _by_mode(
        self,
        trace_of: Callable[[LoadedLaunches], KernelTrace | None],
        rows: Mapping[int, Sequence[OperatorRow]],
    ) -> Mapping[str, ModeEvidence]:
        every = [*self.loaded.experiments, *self.loaded.others]
        every.sort(key=lambda experiment: experiment.threads or 0, reverse=True)
        traces: dict[str, dict[int, KernelTrace]] = {}
        for trace in filter(None, map(trace_of, every)):
            bits = trace.sme.svl_bits or 0 if trace.sme.in_force in SME_ON else 0
            traces.setdefault(trace.sme.in_force, {})[bits] = trace
        return {
            f"{mode} {bits} bits" if len(traces[mode]) > 1 else mode: locate_operators(
                read_evidence(trace), rows.get(id(trace), ())
            )
            for mode in SME_MODES
            for bits, trace in sorted(traces.get(mode, {}).items(), reverse=True)
        }

    @property
    def prefilled_tokens(self) -> int | None:
        """Tokens of the prompt that were read at once; None where none were generated."""
        generated = (metrics.generated for metrics in self.timed.values())
        return next((tokens.prefilled_tokens for tokens in generated if tokens), None)

    @cached_property
    def eager_checks(self) -> Mapping[str, tuple[OutputCheck, ...]]:
        """The outputs of every experiment beside the eager model's, as far as both are known."""
        every = (*self.loaded.experiments, *self.loaded.others)
        return {experiment.name: check_references(experiment) for experiment in every}

    @cached_property
    def verdicts(self) -> tuple[Verdict, ...]:
        """Are the outputs right? The export's answers, then those on every experiment's outputs."""
        every = (*self.loaded.experiments, *self.loaded.others)
        exports = [verdict for program in self.loaded.programs for verdict in judge_export(program)]
        return (
            *exports,
            *(verdict for experiment in every for verdict in judge_outputs(experiment)),
        )

    @property
    def wrong(self) -> tuple[Verdict, ...]:
        """The verdicts that speak against all figures of this run."""
        return tuple(verdict for verdict in self.verdicts if verdict.answer == "failed")

    @property
    def name(self) -> str:
        """The model's name, or the file's where it is not known."""
        return self.manifest.model.name if self.manifest else clean(self.source.stem)


def analyze_run(run: Run) -> RunAnalysis:
    """Brings the numbers of a run together."""
    analyses = [
        _analyze_or_refuse(experiment, is_timed=run.is_timed) for experiment in run.experiments
    ]
    experiments = tuple(
        analysis for analysis in analyses if isinstance(analysis, ExperimentAnalysis)
    )
    refused = tuple(
        analysis for analysis in analyses if not isinstance(analysis, ExperimentAnalysis)
    )
    split_apart = tuple(experiment.loaded for experiment in experiments)
    run = replace(run, experiments=split_apart, others=(*refused, *run.others))
    if refused and not run.is_reportable:
        raise next(experiment.damage for experiment in refused if experiment.damage)
    split = [note for experiment in experiments for note in split_notes(experiment)]
    if not run.is_directory:
        alone = "one ETDump alone: latency without tracer, load and memory are not known"
        return RunAnalysis(run, experiments, (alone, *run.notes, *split))
    manifest, notes = run.manifest, []
    if manifest is None:
        notes.append("no manifest.json: what was measured, where and with what is not known")
    if run.metrics is None:
        notes.append("no metrics.json: latency without tracer, load and memory are not known")
    if manifest is not None and manifest.cpu is not None and not manifest.cpu.has_sme2:
        notes.append(_NO_SME2)
    if manifest is not None and manifest.imported is not None:
        notes += _import_notes(manifest, manifest.imported)
    notes += (*run.problems, *run.notes, *split)
    notes += [
        f"{experiment.name}: {problem}"
        for experiment in run.others
        for problem in experiment.problems
    ]
    notes += _unsplit_notes(run.timed, {experiment.name for experiment in experiments})
    notes += _failure_notes(manifest.launches if manifest else ())
    return RunAnalysis(run, experiments, tuple(notes))


def _import_notes(manifest: Manifest, imported: ImportSource) -> Iterator[str]:
    """Says what an imported run was made of, by which clock, and what it lacks."""
    sources = (f"{source.path} ({source.kind})" for source in imported.sources)
    yield f"imported, not measured by etprof: {', '.join(sources)}"
    if imported.clock is not None:
        yield f"clock of the ETDump: {imported.clock}"
    yield from manifest.notes


def _unsplit_notes(timed: Mapping[str, ExperimentMetrics], split: Collection[str]) -> Iterator[str]:
    """Names experiments that were timed and have no ETDump: their samples are in the tables."""
    for name, metrics in timed.items():
        if name not in split and metrics.blocks:
            median = summarise_blocks([block.latency_ns for block in metrics.blocks]).median
            blocks = count_of(len(metrics.blocks), "timing block")
            yield f"{name}: {blocks}, median {format_duration(median)}, but no per-operator breakdown"


def _failure_notes(launches: Sequence[LaunchRecord]) -> Iterator[str]:
    """Names launches that failed and were not made good by a later try."""
    done = {
        (launch.experiment, launch.purpose, launch.block)
        for launch in launches
        if launch.error is None
    }
    failed = [
        launch
        for launch in launches
        if launch.error is not None
        and (launch.experiment, launch.purpose, launch.block) not in done
    ]
    for launch in failed[:_MOST_FAILURES]:
        block = "" if launch.block is None else f", block {launch.block + 1}"
        yield f"{launch.experiment}, {launch.purpose}{block} failed: {launch.error}"
    if len(failed) > _MOST_FAILURES:
        yield f"{len(failed) - _MOST_FAILURES} more launches failed; `etprof validate` names them"


def _analyze_or_refuse(
    loaded: LoadedExperiment, *, is_timed: bool
) -> ExperimentAnalysis | LoadedLaunches:
    """Returns an experiment whose ETDump says what cannot be as one that has none."""
    try:
        return _analyze_experiment(loaded, is_timed=is_timed)
    except InputFileError as error:
        fields = {name: getattr(loaded, name) for name in LoadedLaunches.__dataclass_fields__}
        problems = (str(error), *loaded.problems)
        return LoadedLaunches(**fields | {"problems": problems, "damage": error})


def _analyze_experiment(loaded: LoadedExperiment, *, is_timed: bool) -> ExperimentAnalysis:
    metrics, report = loaded.metrics, loaded.program.report
    delegates = {
        delegate.instruction: delegate.backend
        for delegate in (report.delegates if report else ())
        if delegate.instruction is not None
    }
    launches, examined = list[Executions](), list[LoadedSplit]()
    splits, clock_problems, refused = _on_one_clock(loaded.splits)
    has_clock = any(loaded_split.clock is not None for loaded_split in splits)
    for loaded_split in splits:
        try:
            launches.append(
                examine_executions(
                    loaded_split.dump,
                    delegates,
                    launch=loaded_split.number,
                    is_timed=is_timed,
                    is_on_clock=has_clock,
                )
            )
        except InputFileError as error:
            refused.append(_named(error, loaded_split))
        else:
            examined.append(loaded_split)
    if not launches:
        raise refused[0]
    try:
        split = split_operators(keep_near_median(launches))
    except InputFileError as error:
        msg = f"{examined[0].etdump}: {error}"
        raise type(error)(msg) from error
    attributions = attribute_operators(split.rows, report) if report else (None,) * len(split.rows)
    rows = tuple(map(place_operator, split.rows, attributions))
    numbers = {loaded_split.number for loaded_split in examined}
    return ExperimentAnalysis(
        loaded=replace(loaded, splits=tuple(e for e in loaded.splits if e.number in numbers)),
        executions=launches[0],
        split=replace(split, rows=rows),
        attributions=attributions,
        problems=(*loaded.problems, *clock_problems, *map(str, refused)),
        latency=_latency(metrics) if metrics and metrics.blocks else None,
        generation=summarise_generation(metrics) if metrics else None,
    )


def _named(error: InputFileError, of: LoadedSplit) -> InputFileError:
    """The error with the ETDump's name, which those of the format have."""
    is_named = isinstance(error, ETDumpFormatError)
    return error if is_named else type(error)(f"{of.etdump}: {error}")


def _on_one_clock(
    splits: Sequence[LoadedSplit],
) -> tuple[tuple[LoadedSplit, ...], list[str], list[InputFileError]]:
    """Puts all launches on the operator clock, or none, for times of two clocks are not compared.

    A launch whose ETDump is damaged is left out, and decides nothing for the others.
    """
    clocked, problems, refused = list[LoadedSplit](), list[str](), list[InputFileError]()
    for split in splits:
        try:
            changed = put_on_clock(split.dump, split.clock) if split.clock else ""
        except InputFileError as error:
            refused.append(_named(error, split))
            continue
        if isinstance(changed, str):
            if changed:
                problems.append(
                    f"the operator clock of launch {split.number + 1} is not used: {changed}"
                )
            return tuple(replace(one, clock=None) for one in splits), problems, []
        clocked.append(replace(split, dump=changed))
    return tuple(clocked), problems, refused


def split_notes(experiment: ExperimentAnalysis) -> list[str]:
    """Says which executions the per-operator breakdown does not have, and why."""
    left_out, name = experiment.split.left_out, experiment.name
    recorded = count_of(left_out.recorded, "execution")
    notes = [_opaque_note(experiment)] if experiment.delegates.opaque else []
    notes += [f"{name}: {problem}" for problem in experiment.problems]
    result = experiment.loaded.result
    if result is not None and result.threads.requested not in {None, result.threads.in_force}:
        notes.append(
            f"{name}: {count_of(result.threads.requested, 'thread')} asked for, "
            f"{result.threads.in_force} in force"
        )
    if left_out.impossible:
        notes.append(
            f"{name}: {left_out.impossible} of {recorded} {be(left_out.impossible)} left out everywhere: their time stamps "
            "are impossible, so the ETDump is damaged; record it again"
        )
    if left_out.disturbed:
        where = join_names(str(launch + 1) for launch in left_out.disturbed_launches)
        noun = "operator launch" if len(left_out.disturbed_launches) == 1 else "operator launches"
        launches = f" ({noun} {where})" if len(experiment.loaded.splits) > 1 else ""
        notes.append(
            f"{name}: {left_out.disturbed} of {recorded}{launches} {be(left_out.disturbed)} left out of the "
            "per-operator breakdown: far longer or shorter than the median, as when another "
            "process has the CPU"
        )
    if experiment.split.times and len(experiment.split.launches) == 1:
        notes.append(
            f"{name}: its operators were recorded in one launch, so they have no interval between "
            "launches, and their speedups no verdict"
        )
    if experiment.agreement and experiment.agreement.is_in_doubt:
        notes.append(doubt_note(experiment.name, experiment.agreement))
    if experiment.split.times and not left_out.has_enough_for_band:
        notes.append(
            f"{name}: {recorded} are too few to tell a disturbed one from the others in the "
            f"per-operator breakdown; record at least {LEAST_FOR_BAND}"
        )
    return notes


def doubt_note(name: str, agreement: BreakdownAgreement) -> str:
    """Says that an experiment's breakdown does not agree with its latency, why, and what helps."""
    return (
        f"{name}: the per-operator breakdown does not agree with the timed latency: "
        f"{agreement.cause}; waterfall, Amdahl's law and gains are withheld. {agreement.way_out}"
    )


def _opaque_note(experiment: ExperimentAnalysis) -> str:
    """Says what of a delegate is known when its words and unit are not."""
    foreign, is_timed = experiment.executions.foreign, experiment.executions.is_timed
    unit = f", {foreign.ticks} ticks of a unit that is not known," if is_timed else ""
    return (
        f"{experiment.name}: {count_of(len(experiment.delegates.opaque), 'delegate call')} of a "
        "backend that etprof does not know, each one row: "
        f"{count_of(foreign.events, 'event')} inside{unit} are not in the per-operator breakdown"
    )


def _summarise_if_complete(medians: Sequence[int | None]) -> BlockedMedian | None:
    """Summarises what every block says; None where one does not."""
    values = [median for median in medians if median is not None]
    return (
        summarise_blocks([[median] for median in values]) if len(values) == len(medians) else None
    )


def _latency(metrics: ExperimentMetrics) -> Latency:
    """Reduces all timing blocks of one experiment."""
    blocks = metrics.blocks
    peaks = [b.memory.peak_rss_bytes for b in blocks if b.memory.peak_rss_bytes is not None]
    loaded = [
        b.memory.rss_after_load_bytes for b in blocks if b.memory.rss_after_load_bytes is not None
    ]
    return Latency(
        load=_summarise_if_complete([b.load.total_ns for b in blocks]),
        first_inference=_summarise_if_complete([b.first_inference_ns for b in blocks]),
        steady=summarise_blocks([b.latency_ns for b in blocks]),
        input_setup=_summarise_if_complete([b.given_ns for b in blocks]),
        output_readback=_summarise_if_complete([b.taken_ns for b in blocks]),
        inferences_per_sample=max(b.inferences_per_sample for b in blocks),
        is_traced=any(b.is_traced for b in blocks),
        samples=summarise([sample for b in blocks for sample in b.latency_ns]),
        peak_rss_bytes=max(peaks, default=None),
        rss_after_load_bytes=max(loaded, default=None),
        planned_buffers_bytes=sum(blocks[0].memory.planned_buffers_bytes),
    )
