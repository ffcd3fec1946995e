"""Measures a program on a target: timing blocks, then the passes with instruments.

When timing is enough is fixed before the run, and looks at precision and time alone.
"""

from __future__ import annotations

import statistics
import time
from dataclasses import dataclass
from math import fsum
from pathlib import Path
from typing import TYPE_CHECKING, Final

from etprof.analysis.output_check import judge_outputs
from etprof.base.errors import ExportError, TargetError
from etprof.measuring.journal import InterruptedRun, Journal
from etprof.measuring.launching import Launcher
from etprof.measuring.plan import Launch
from etprof.measuring.resume import tidy
from etprof.run.accuracy import way_to_right
from etprof.run.directory import (
    BlockMetrics,
    ExperimentMetrics,
    GeneratedTokens,
    GenerationMetrics,
    Metrics,
    remove_empty_folders,
    reserved,
)
from etprof.run.load import Run
from etprof.run.manifest import MANIFEST
from etprof.run.program import refuse_inaccurate
from etprof.run.tokenizer import decode_tokens
from etprof.statistics.order_statistics import median_interval
from etprof.targets.registry import proves_times

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence

    from etprof.base.errors import EtprofError
    from etprof.measuring.plan import Experiment, Identity, Plan, Settings
    from etprof.run.accuracy import Verdict
    from etprof.run.delegation import DelegationReport
    from etprof.run.generation import Generation
    from etprof.run.manifest import LaunchRecord, Purpose
    from etprof.run.program import Program
    from etprof.run.runner_result import GenerationResult, RunnerResult
    from etprof.targets import Target

_NS_PER_S: Final = 1e9
_FAILURES_IN_A_ROW: Final = 2
"""An experiment whose launches fail this often in a row is given up; the others go on."""


@dataclass
class MeasuredRun:
    """Everything that one run brought back."""

    results: dict[Identity, RunnerResult]
    """Finished launches: (experiment, purpose, block) → result."""
    records: list[LaunchRecord]
    notes: list[str]
    """What a reader of the numbers should know, such as why the run stopped early."""

    @property
    def errors(self) -> list[str]:
        """What failed and was not made good by a later try, in order."""
        return [
            f"{record.experiment}, {record.purpose}: {record.error}"
            for record in self.records
            if record.error is not None
            and (record.experiment, record.purpose, record.block) not in self.results
        ]

    def of(self, experiment: str, purpose: Purpose) -> list[RunnerResult]:
        """Results of one experiment and purpose, in order of blocks."""
        blocks = [
            (block or 0, result)
            for (name, kind, block), result in self.results.items()
            if (name, kind) == (experiment, purpose)
        ]
        return [result for _, result in sorted(blocks, key=lambda item: item[0])]


def measure(  # noqa: PLR0913 - keyword-only: what, where, how
    *,
    program: Program,
    target: Target,
    run: Path,
    planned: Plan,
    progress: Callable[[str, int, int], None],
    config: dict[str, object] | None = None,
    earlier: InterruptedRun | None = None,
    keep_going: bool = False,
    delegations: Mapping[str, DelegationReport] | None = None,
) -> MeasuredRun:
    """Runs what is planned and not finished yet; a failed launch never loses a finished one.

    `progress` is told before each launch what starts, how many are done, and of how many.
    Writes results, ETDumps, metrics.json and manifest.json into `run`; the latter after every
    launch. Raises ExportError before timing where outputs are wrong, unless the settings allow
    that. Raises the first launch's error, and leaves no empty folders, when nothing at all
    could be measured. With `keep_going` no experiment is given up after failures. `delegations`
    are the reports of programs that have none beside them, by the experiments' names for them.
    """
    settings = planned.settings
    if not settings.allow_inaccurate:
        for compared in program.every.values():
            refuse_inaccurate(compared.model)
    journal = Journal(
        run=run,
        program=program,
        target=target,
        experiments=planned.experiments,
        settings=planned.settings,
        config=config,
        earlier=earlier,
        delegations=delegations,
    )
    launcher = Launcher(program, target, run, planned.settings)
    with reserved(run):
        tidy(run, earlier or InterruptedRun())
        state = _Progress(journal, launcher, earlier or InterruptedRun(), keep_going=keep_going)
        state.execute(planned.outputs, progress)
        is_judged = planned.outputs and not settings.allow_inaccurate
        failed = find_failed_verdicts(run) if is_judged else []
        if failed:
            wrong = f"the outputs are wrong: {'; '.join(verdict.text for verdict in failed)}"
            state.conclude(run, target, (f"stopped before timing: {wrong}",))
            raise ExportError(f"{run}: {wrong}; {way_to_right(failed)}")
        state.time(planned, progress)
        state.execute(planned.passes, progress)
        return state.conclude(run, target, planned.notes)


def find_failed_verdicts(run: Path) -> list[Verdict]:
    """Returns what is wrong with the outputs so far; nothing where it is unknown."""
    loaded = Run.load(run, strict=False)
    every = (*loaded.experiments, *loaded.others)
    verdicts = [verdict for launches in every for verdict in judge_outputs(launches)]
    return [verdict for verdict in verdicts if verdict.answer == "failed"]


def is_precise_enough(experiments: Iterable[Sequence[RunnerResult]], half_width: float) -> bool:
    """Whether every experiment's median over blocks is known within ± `half_width` of itself."""
    return all(_half_width(blocks) <= half_width for blocks in experiments)


def _half_width(blocks: Sequence[RunnerResult]) -> float:
    """Half the relative width of the interval of the median over blocks."""
    medians = [statistics.median(block.latency_ns) for block in blocks]
    interval = median_interval(medians)
    if interval is None:
        return float("inf")
    return (interval.high - interval.low) / 2 / statistics.median(medians)


def _is_bare(result: RunnerResult) -> bool:
    """Whether the runner was built without event tracer."""
    return result.runner.build.get("event_tracer") is False


class _Progress:
    """A run in progress."""

    def __init__(
        self, journal: Journal, launcher: Launcher, earlier: InterruptedRun, *, keep_going: bool
    ) -> None:
        self._journal, self._launcher, self._keep_going = journal, launcher, keep_going
        self._measured = MeasuredRun(dict(earlier.results), journal.records, [])
        self._failures: dict[str, int] = {}
        self._first_failure: EtprofError | None = None
        self._started = time.monotonic()
        for result in earlier.results.values():
            journal.describe(result)
        journal.start()

    def time(self, planned: Plan, progress: Callable[[str, int, int], None]) -> None:
        """Runs the timing blocks and the operator launches among them.

        Timing ends before a block when precision or budget say enough.
        """
        pieces = planned.in_turn
        total, done = sum(map(len, pieces)), 0
        is_enough = False
        for piece in pieces:
            is_block = piece[0].purpose == "timing"
            if (
                is_block
                and not is_enough
                and (reason := self._stop_reason(piece, planned.settings))
            ):
                block = (piece[0].block or 0) + 1
                self._measured.notes.append(f"stopped before block {block}: {reason}")
                is_enough = True
            if not (is_block and is_enough):
                self.execute(piece, progress, done=done, total=total)
            done += len(piece)

    def execute(
        self,
        launches: Sequence[Launch],
        progress: Callable[[str, int, int], None],
        *,
        done: int = 0,
        total: int | None = None,
    ) -> None:
        """Runs the launches that are not finished, but of no experiment that is given up."""
        for number, planned in enumerate(launches, start=done):
            launch = self._possible(planned)
            if launch is None or launch.identity in self._measured.results:
                continue
            if self._is_given_up(launch):
                continue
            progress(launch.text, number, len(launches) if total is None else total)
            self._run(launch)

    def _possible(self, launch: Launch) -> Launch | None:
        """Replaces the per-operator breakdown of runners without event tracer: they compute outputs."""
        name = launch.experiment.name
        if launch.purpose != "operators" or not any(
            map(_is_bare, self._measured.of(name, "timing"))
        ):
            return launch
        if launch.block:
            return None
        self._measured.notes.append(
            f"{name} has no per-operator breakdown: its runner is built without event tracer"
        )
        return Launch(launch.experiment, "outputs")

    def _stop_reason(self, block: Sequence[Launch], settings: Settings) -> str | None:
        """Says why the rule, fixed beforehand, ends the timing before this block."""
        elapsed = time.monotonic() - self._started
        if settings.budget_s is not None and elapsed > settings.budget_s:
            return f"the budget of {settings.budget_s:g} s is spent"
        blocks = [
            self._measured.of(name, "timing")
            for name in dict.fromkeys(
                launch.experiment.name for launch in block if not self._is_given_up(launch)
            )
        ]
        half_width = settings.target_half_width
        if half_width is None or not blocks or not is_precise_enough(blocks, half_width):
            return None
        return f"every median is known within ±{half_width * 100:g} %"

    def _is_given_up(self, launch: Launch) -> bool:
        name = launch.experiment.name
        if self._keep_going:
            return False
        return self._failures.get(name, 0) >= _FAILURES_IN_A_ROW

    def _run(self, launch: Launch) -> None:
        """Runs one launch and writes down how it went."""
        outcome = self._launcher.launch(launch)
        name = launch.experiment.name
        if outcome.result is not None:
            self._measured.results[launch.identity] = outcome.result
            self._failures[name] = 0
        else:
            self._failures[name] = self._failures.get(name, 0) + 1
            self._first_failure = self._first_failure or outcome.error
        self._journal.add(outcome)

    def conclude(self, run: Path, target: Target, notes: Iterable[str]) -> MeasuredRun:
        """Writes metrics.json and closes the manifest."""
        self._measured.notes += notes
        if not self._measured.results:
            (run / MANIFEST).unlink(missing_ok=True)
            remove_empty_folders(run)
            raise self._first_failure or TargetError("nothing was planned: no experiment is timed")
        metrics = _gather_metrics(
            self._measured.results,
            self._journal.experiments,
            self._launcher,
            proves_times(target.platform),
        )
        status = "finished with failures" if self._measured.errors else "finished"
        self._journal.finish(status, metrics, self._measured.notes)
        return self._measured


def _gather_metrics(
    results: Mapping[Identity, RunnerResult],
    experiments: Sequence[Experiment],
    launcher: Launcher,
    times_are_meaningful: bool,
) -> Metrics:
    """Returns raw latencies, load times and memory of every finished timing block."""
    metrics: dict[str, ExperimentMetrics] = {}
    for experiment in experiments:
        experiment_results = {
            (purpose, block): result
            for (name, purpose, block), result in results.items()
            if name == experiment.name
        }
        if experiment_results:
            files = launcher.files(experiment)
            etdump = f"{files.folder.name}/{files.etdump.name}"
            metrics[experiment.name] = _experiment_metrics(
                experiment_results, etdump, launcher.generation
            )
    return Metrics(times_are_meaningful=times_are_meaningful, experiments=metrics)


def _experiment_metrics(
    results: Mapping[tuple[Purpose, int | None], RunnerResult],
    etdump: str,
    generation: Generation | None,
) -> ExperimentMetrics:
    """Timing blocks of one experiment; mode and threads are the same in all its launches."""
    first = next(iter(results.values()))
    timing = {block: result for (purpose, block), result in results.items() if purpose == "timing"}
    return ExperimentMetrics(
        sme=first.sme.in_force if first.sme else None,
        threads=first.threads.in_force,
        etdump=etdump,
        generated=_generated_tokens(results, generation),
        blocks=[
            _block_metrics(block, result)
            for block, result in sorted(timing.items(), key=lambda item: item[0] or 0)
            if block is not None
        ],
    )


def _block_metrics(block: int, result: RunnerResult) -> BlockMetrics:
    """Keeps what a block is compared by."""
    fields = set(BlockMetrics.model_fields) - {"generation"}
    return BlockMetrics(
        block=block,
        given_ns=round(statistics.median(result.input_ns)) if result.input_ns else None,
        taken_ns=round(statistics.median(result.output_ns)) if result.output_ns else None,
        generation=_generation_metrics(result.generation) if result.generation else None,
        **result.model_dump(include=fields),
    )


def _generation_metrics(result: GenerationResult) -> GenerationMetrics:
    """Turns each repetition's times into rates."""
    repetitions = result.repetitions
    decoding = [fsum(repetition.token_latency_ns) for repetition in repetitions]
    return GenerationMetrics(
        time_to_first_token_ns=[repetition.time_to_first_token_ns for repetition in repetitions],
        prefill_tokens_per_second=[
            len(result.prompt_tokens) * _NS_PER_S / repetition.prefill_ns
            for repetition in repetitions
        ],
        decode_tokens_per_second=[
            (len(result.tokens) - 1) * _NS_PER_S / total for total in decoding if total
        ],
        token_latency_ns=[
            latency for repetition in repetitions for latency in repetition.token_latency_ns
        ],
        first_of_process_ns=result.first.time_to_first_token_ns if result.first else None,
    )


def _generated_tokens(
    results: Mapping[tuple[Purpose, int | None], RunnerResult], generation: Generation | None
) -> GeneratedTokens | None:
    """Returns what all launches of an experiment generated, by the first of them."""
    generations = {key: launch.generation for key, launch in results.items() if launch.generation}
    if not generations or generation is None:
        return None
    first = next(iter(generations.values()))
    tokenizer = generation.tokenizer
    text = None if tokenizer is None else decode_tokens(Path(tokenizer), first.tokens)
    return GeneratedTokens(
        **first.model_dump(exclude={"cache_tokens", "repetitions", "first"}),
        prompt=generation.prompt,
        text=text,
        differing_blocks=sorted(
            block or 0
            for (_, block), generated in generations.items()
            if generated.tokens != first.tokens
        ),
    )
