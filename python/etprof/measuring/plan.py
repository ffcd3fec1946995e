"""From a config to process launches: which, what for, and in an order that drift cannot favour."""

from __future__ import annotations

import itertools
import math
import random
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Final

from etprof.base.errors import UsageError
from etprof.base.files import hash_file
from etprof.base.records import SME_ON
from etprof.run.generation import plan_generation
from etprof.run.manifest import Experiment, Measurement, Purpose, Settings, Setup
from etprof.run.program import describe_program, find_decode_method, load_export_manifest
from etprof.statistics.effect import is_balanced
from etprof.targets import registry
from etprof.targets.registry import kind_of
from etprof.targets.runner import runner_of_preset

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from etprof.config import Config, ExperimentConfig, ProgramConfig, TargetConfig
    from etprof.run.program import Program
    from etprof.targets import Target

__all__ = ["Experiment", "Launch", "Plan", "Settings", "plan"]

Identity = tuple[str, Purpose, int | None]
_WORDS: Final = {
    "timing": "timing block",
    "operators": "per-operator breakdown",
    "outputs": "check of the outputs",
    "kernels": "count of microkernel calls",
    "prefill": "count of microkernel calls while the prompt is read",
    "instructions": "count of instructions",
}
_COUNTING: Final = (2, 0)
"""Of launches that count: two, so that it shows whether executions make the same calls."""
_MOST_DRAWS: Final = 1000
"""Of an order; many experiments in few blocks have none that is fair to every pair."""
_OF_TIMED_LAUNCHES: Final = frozenset({"iterations", "warmup"})
"""Of an experiment that is to be timed; for launches that count, compute or split, others hold."""
_OF_TIMING: Final = frozenset(
    {"blocks", "min_seconds", "operator_launches", "target_half_width", "budget_s"}
)
"""Settings that change nothing where nothing is timed."""


@dataclass(frozen=True)
class Launch:
    """One process launch: its experiment, its purpose, and its number where the purpose repeats."""

    experiment: Experiment
    purpose: Purpose
    block: int | None = None

    @property
    def identity(self) -> Identity:
        """What distinguishes this launch from all others of the run."""
        return (self.experiment.name, self.purpose, self.block)

    @property
    def text(self) -> str:
        """The launch in words, for progress and logs."""
        number = None if self.block is None else self.block + 1
        description = _WORDS.get(self.purpose, self.purpose)
        return f"{self.experiment.name}: {description}{'' if number is None else f' {number}'}"


def repetitions(launch: Launch, settings: Settings, *, is_timed: bool) -> tuple[int, int]:
    """Returns how many inferences a launch makes and how many before those, by what it is for.

    Of an experiment that is to be timed, iterations and warm-up are those of the timing.
    """
    experiment, generation = launch.experiment, settings.generation
    configured = experiment.iterations, experiment.warmup
    executions = generation.new_tokens if generation else 1
    warmup = experiment.warmup if is_timed or experiment.mode != "timing" else 0
    launches = settings.operator_launches if is_timed else 1
    split = math.ceil(settings.operator_iterations / executions / launches), warmup
    counting = _COUNTING if experiment.mode == "timing" else configured
    counts = {"timing": configured, "operators": split, "outputs": (1, 0)}
    counts |= {"kernels": counting, "prefill": counting, "instructions": counting}
    return counts[launch.purpose]


@dataclass(frozen=True)
class Plan:
    """All launches of a run."""

    experiments: tuple[Experiment, ...]
    settings: Settings
    outputs: tuple[Launch, ...]
    """Before all timing, where there are reference outputs: no time of a wrong answer
    counts."""
    timing: tuple[tuple[Launch, ...], ...]
    """In blocks: one launch of each experiment, so each is launched whole or not at all."""
    splits: tuple[tuple[Launch, ...], ...]
    """In rounds: one operator launch of each experiment, in an order of its own."""
    passes: tuple[Launch, ...]
    """Those with another instrument, which come after all timing: never two in one."""
    notes: tuple[str, ...] = ()
    """What a reader should know of what was not planned."""

    @property
    def in_turn(self) -> list[tuple[Launch, ...]]:
        """Timing blocks, the first of which tells what the runner has, with operator rounds among them."""
        placed = [
            *((number / len(self.timing), 1, piece) for number, piece in enumerate(self.timing)),
            *(((number + 1) / len(self.splits), 0, piece)
              for number, piece in enumerate(self.splits)),
        ]  # fmt: skip
        return [piece for _, _, piece in sorted(placed, key=lambda timed_piece: timed_piece[:2])]

    @property
    def launches(self) -> list[Launch]:
        """All, in their order."""
        return [*self.outputs, *itertools.chain.from_iterable(self.in_turn), *self.passes]


def plan(
    experiments: Sequence[Experiment],
    settings: Settings,
    target: Target,
    *,
    has_references: bool = False,
) -> Plan:
    """Plans what was asked for, as far as the kind of `target` can prove it.

    With references, which say what the outputs should be, those are computed before timing.

    Raises UsageError when kernels are requested and no available runner can count them.
    """
    is_timed = kind_of(target.platform).policy.proves_times
    timed = [experiment for experiment in experiments if experiment.mode == "timing" and is_timed]
    purposes = [
        (experiment, _untimed_purposes(experiment, settings, target)) for experiment in experiments
    ]
    split = [experiment for experiment, names in purposes if "operators" in names]
    passes = [
        Launch(experiment, purpose)
        for experiment, names in purposes
        for purpose in names
        if purpose != "operators"
    ]
    outputs = [Launch(experiment, "outputs") for experiment in timed] if has_references else []
    passes = [pass_ for pass_ in passes if pass_ not in outputs]
    launches = settings.operator_launches if is_timed else 1
    notes = _counting_notes(timed, settings, target)
    ignored = set() if is_timed or not settings.blocks else settings.model_fields_set & _OF_TIMING
    for experiment in experiments:
        if experiment.mode == "timing" and not is_timed:
            ignored |= experiment.model_fields_set & _OF_TIMED_LAUNCHES
    if ignored:
        settings_text = ", ".join(sorted(ignored))
        notes.append(f"{settings_text}: without effect, for {target.platform} proves no times")
    rounds = draw_rounds(split, settings, launches)
    if not is_timed:  # nothing drifts, so the order is that of the experiments
        rounds = (
            [tuple(Launch(experiment, "operators", 0) for experiment in split)] if split else []
        )
    return Plan(
        experiments=tuple(experiments),
        settings=settings,
        outputs=tuple(outputs),
        timing=tuple(draw_blocks(timed, settings)),
        splits=tuple(rounds),
        passes=tuple(passes),
        notes=tuple(notes),
    )


def _untimed_purposes(experiment: Experiment, settings: Settings, target: Target) -> list[Purpose]:
    """Returns the launches with instruments; never two in one."""
    if experiment.mode == "kernels" and experiment.runner is None:
        _require_counting(target, f"experiment {experiment.name!r}")
    if experiment.mode != "timing":
        return [experiment.mode]
    counted: list[Purpose] = ["instructions"] if settings.instructions else []
    if not _counts_kernels(experiment, settings, target):
        return ["operators", *counted]
    # The per-operator breakdown writes what it computed, unless it generates tokens.
    if settings.generation is None:
        return ["operators", "kernels", *counted]
    # A prompt of one token is a step like any other.
    if len(settings.generation.prompt_tokens) == 1:
        return ["operators", "kernels", "outputs"]
    return ["operators", "kernels", "prefill", "outputs"]


def draw_blocks(timed: Sequence[Experiment], settings: Settings) -> list[tuple[Launch, ...]]:
    """Orders timing launches: in each block every experiment once, in an order of its own.

    Every place within a block is drawn anew, so no disturbance of whatever period can follow it,
    and the signed-rank test of two experiments is exact (`statistics.effect`). Of the whole, orders
    in which one experiment comes before another far too often are drawn again.
    """
    return _draw(timed, settings.blocks, settings.seed, "timing", is_balanced)


def draw_rounds(
    split: Sequence[Experiment], settings: Settings, count: int
) -> list[tuple[Launch, ...]]:
    """Orders operator launches likewise, each experiment before each other one equally often.

    The first launch of a round is slower, by up to 45 % for an operator of a few microseconds
    (`benchmarks/layout.py`), and six rounds do not average out four against two. Reversing every
    second round would balance too, but a disturbance of every third launch would follow that.
    """
    return _draw(split, count, f"operators {settings.seed}", "operators", _is_even)


def _is_even(first: int, rounds: int) -> bool:
    return abs(2 * first - rounds) <= rounds % 2


def _draw(
    experiments: Sequence[Experiment],
    count: int,
    seed: int | str,
    purpose: Purpose,
    is_fair: Callable[[int, int], bool],
) -> list[tuple[Launch, ...]]:
    """Draws until all pairs are fair; the fairest of all draws where none is."""
    chooser = random.Random(seed)  # noqa: S311 - an order for an experiment, no secret
    pairs = list(itertools.combinations(range(len(experiments)), 2))
    fairest: list[list[int]] = []
    least_unfair = len(pairs) + 1
    for _ in range(_MOST_DRAWS):
        orders = [
            chooser.sample(range(len(experiments)), len(experiments))
            for _ in (range(count) if experiments else ())
        ]
        unfair = sum(
            not is_fair(sum(order[first] < order[second] for order in orders), len(orders))
            for first, second in pairs
        )
        if unfair < least_unfair:
            fairest, least_unfair = orders, unfair
        if not unfair:
            break
    return [
        tuple(
            Launch(experiment, purpose, block)
            for _, experiment in sorted(
                zip(order, experiments, strict=True), key=lambda pair: pair[0]
            )
        )
        for block, order in enumerate(fairest)
    ]


def _describe_counting(target: Target) -> str:
    """Says what is known without counts, and how they are had."""
    kind = kind_of(target.platform)
    return (
        f"nothing counts microkernels on {kind.name}, so what ran is named by the operators' "
        f"types at best (grade B); for counted calls (grade A) {kind.counting_hint}"
    )


def _counting_notes(timed: Sequence[Experiment], settings: Settings, target: Target) -> list[str]:
    """Says how kernels are counted where SME may run, unless the settings decide it."""
    with_sme = SME_ON if kind_of(target.platform).reports_sme_modes else {*SME_ON, "auto"}
    concerned = [
        experiment
        for experiment in timed
        if experiment.sme in with_sme and settings.kernels is None
    ]
    if concerned and not target.can_count():
        return [_describe_counting(target)]
    uncounted = [] if target.counts_any_runner() else concerned
    names = ", ".join(experiment.name for experiment in uncounted if experiment.runner is not None)
    if not names:
        return []
    note = (
        f"{names}: microkernels are not counted (grade B), for the runner is of another build than "
        "the one that counts; name its counterpart with trace as target.trace_runner (grade A)"
    )
    return [note]


def _require_counting(target: Target, where: str) -> None:
    if not target.can_count():
        raise UsageError(f"{where}: {_describe_counting(target)}")


def _counts_kernels(experiment: Experiment, settings: Settings, target: Target) -> bool:
    """Whether a timed experiment's kernels are counted too: as asked, else where SME matters."""
    if settings.kernels:
        _require_counting(target, "measurement.kernels")
    if settings.kernels is not None:
        return settings.kernels
    if not kind_of(target.platform).policy.proves_times:
        return True
    # A runner of the user's own is of another build than the one that counts.
    is_counted = experiment.runner is None or target.counts_any_runner()
    return experiment.sme in SME_ON and is_counted and target.can_count()


def configured_program(config: Config) -> Program:
    """Returns the program with its inputs, and the further programs interleaved with it.

    Raises UsageError for programs of one model whose example inputs have other shapes.
    """
    further = {name: _find_program(program, config) for name, program in config.programs.items()}
    program = _find_program(config, config)
    refuse_other_shapes((program, *further.values()))
    return replace(program, further=further)


def refuse_other_shapes(programs: Sequence[Program]) -> None:
    """Raises UsageError for two programs of one model whose inputs differ: that is other work."""
    for first, program in itertools.pairwise(programs):
        is_known = first.shapes and program.shapes and first.name == program.name
        if is_known and first.shapes != program.shapes:
            shapes = [" ".join(side.shapes) for side in (first, program)]
            raise UsageError(
                f"{first.model} was exported with inputs of {shapes[0]} and {program.model} with "
                f"{shapes[1]}, so that a difference would be one of inputs; export one of them again "
                "with the --input of the other"
            )


def _find_program(program: ProgramConfig, config: Config) -> Program:
    """Returns a program with the inputs that are given, or the examples beside it."""
    method = program.method
    if config.generation is not None:
        method = find_decode_method(program.model, config.generation.decode_method)
    return describe_program(program.model, inputs=program.inputs, data=program.data, method=method)


def configured_target(config: Config) -> Target:
    """Returns the target; raises UsageError when this machine cannot be it."""
    runners = [_find_experiment_runner(experiment, config) for experiment in config.experiments]
    return make_target(config.target, next((r for r in runners if r is not None), None))


def planned_target(config: Config) -> Target:
    """Returns the target for planning only, on any machine."""
    kind = kind_of(config.target.kind)
    target = kind.make(_target_fields(config.target))
    # One class may serve several kinds, and says of itself which one this machine is.
    target.platform = kind.name
    return target


def make_target(target: TargetConfig, runner: Path | None, where: str = "target.kind") -> Target:
    """Returns the target; `runner` is the one to ask about the CPU, where none is installed."""
    return registry.make_target(target.kind, {**_target_fields(target), "runner": runner}, where)


def _target_fields(target: TargetConfig) -> dict[str, object]:
    fields = target.model_dump(exclude={"kind", "trace_preset"})
    runner, preset, kind = target.trace_runner, target.trace_preset, kind_of(target.kind)
    trace_runner = find_runner(runner, preset, "target.trace_runner", kind.runner_hint)
    return {**fields, "trace_runner": trace_runner}


def configured_settings(config: Config) -> Settings:
    """Returns how to measure; where nothing is timed, one inference shows the operators."""
    measurement = config.measurement
    fields: dict[str, object] = {
        name: getattr(measurement, name) for name in measurement.model_fields_set
    }
    fields = {name: value for name, value in fields.items() if name in Measurement.model_fields}
    if not kind_of(config.target.kind).policy.proves_times:
        fields.setdefault("operator_iterations", 1)
    named = (config.target.trace_runner, config.target.trace_preset, config.target.debugger)
    if measurement.kernels is None and any(value is not None for value in named):
        fields["kernels"] = True
    generation = config.generation
    planned = None if generation is None else plan_generation(**dict(generation))
    if generation is not None and generation.tokenizer is not None:
        _check_tokenizer(config.model, generation.tokenizer)
    return Settings(**fields, generation=planned)


def configured_experiments(config: Config, only: Sequence[str] = ()) -> list[Experiment]:
    """Returns one experiment per name and thread count; `only` keeps the named ones."""
    names = [experiment.name for experiment in config.experiments]
    for name in only:
        if name not in names:
            raise UsageError(
                f"--only {name}: no such experiment; the config has {', '.join(names)}"
            )
    return [
        _experiment(experiment, threads, config)
        for experiment in config.experiments
        if not only or experiment.name in only
        for threads in experiment.threads
    ]


def _experiment(configured: ExperimentConfig, threads: int, config: Config) -> Experiment:
    has_many_threads = len(configured.threads) > 1
    names = Setup.model_fields.keys() & configured.model_fields_set
    fields: dict[str, object] = {name: getattr(configured, name) for name in names}
    is_timed = kind_of(config.target.kind).policy.proves_times
    if configured.mode == "kernels" or (configured.mode != "timing" and not is_timed):
        fields = dict(zip(("iterations", "warmup"), _COUNTING, strict=True)) | fields
    fields |= {
        "name": f"{configured.name}_t{threads}" if has_many_threads else configured.name,
        "group": configured.name if has_many_threads else "",
        "runner": _find_experiment_runner(configured, config),
    }
    return Experiment(**fields, threads=threads)


def _find_experiment_runner(experiment: ExperimentConfig, config: Config) -> Path | None:
    way_out = kind_of(config.target.kind).runner_hint
    return find_runner(
        experiment.runner, experiment.preset, f"experiment {experiment.name!r}", way_out
    )


def find_runner(path: Path | None, preset: str | None, where: str, way_out: str) -> Path | None:
    """Returns a runner of the user's: by path, or built by a preset in this folder.

    Raises UsageError for one that is not there; `way_out` is what helps on its target.
    """
    if path is not None and preset is not None:
        raise UsageError(f"{where}: give a path or a preset of the runner, not both")
    if preset is not None:
        path = runner_of_preset(preset)
        way_out = f"run `cmake --workflow --preset {preset}` in etprof's checkout first"
    if path is None:
        return None
    if not path.is_file():
        raise UsageError(f"{where}: there is no runner at {path}; {way_out}")
    return path.absolute()


def _check_tokenizer(model: Path, tokenizer: Path) -> None:
    """Raises UsageError when the export says that the model's tokenizer is another file."""
    manifest = load_export_manifest(model)
    llm_options = manifest.options.get("llm") if manifest else None
    files = llm_options.get("files") if isinstance(llm_options, dict) else None
    exported_tokenizer = files.get("base.tokenizer_path") if isinstance(files, dict) else None
    if isinstance(exported_tokenizer, dict) and exported_tokenizer.get("sha256") not in {
        None,
        hash_file(tokenizer),
    }:
        raise UsageError(
            f"{tokenizer} is not the tokenizer that {model} was exported with ({exported_tokenizer.get('path')}): its "
            "ids mean other words; give that one, or --prompt-tokens"
        )
