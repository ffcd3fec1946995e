"""Turns a config into what the pipeline takes: program, target, experiments, settings."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from etprof.base.errors import UsageError
from etprof.measuring.plan import Experiment, Settings
from etprof.run.generation import plan_generation
from etprof.run.program import Program, describe_program, find_decode_method
from etprof.targets import registry

if TYPE_CHECKING:
    from collections.abc import Sequence

    from etprof.config import Config, ExperimentConfig, TargetConfig
    from etprof.run.generation import Generation
    from etprof.targets import Target


def configured_program(config: Config) -> Program:
    """Returns the program with its inputs: the config's, or the examples beside it."""
    method = config.method
    if config.generation is not None:
        method = find_decode_method(config.model, config.generation.decode_method)
    return describe_program(config.model, inputs=config.inputs, data=config.data, method=method)


def configured_target(config: Config) -> Target:
    """Returns the target; raises UsageError when this machine cannot be it."""
    runners = [_runner(experiment) for experiment in config.experiments]
    return make_target(config.target, next((r for r in runners if r is not None), None))


def make_target(wanted: TargetConfig, runner: Path | None = None) -> Target:
    """Returns the target; `runner` is the one to ask about the CPU, where none is installed."""
    fields = {**wanted.model_dump(exclude={"kind"}), "runner": runner}
    return registry.make_target(wanted.kind, fields)


def configured_settings(config: Config) -> Settings:
    """Returns how to measure."""
    given = config.measurement
    return Settings(
        blocks=given.blocks,
        min_seconds=given.min_seconds,
        etdump_iterations=given.etdump_runs,
        seed=given.seed,
        timeout_s=given.timeout_s,
        cool_down_s=given.cool_down_s,
        max_start_temperature_c=given.max_start_temperature_c,
        max_wait_s=given.max_wait_s,
        target_half_width=given.target_half_width,
        budget_s=given.budget_s,
        generation=configured_generation(config),
    )


def configured_generation(config: Config) -> Generation | None:
    """Returns what each iteration generates; None when it is one execution of the method."""
    given = config.generation
    return None if given is None else plan_generation(**dict(given))


def configured_experiments(config: Config, only: Sequence[str] = ()) -> list[Experiment]:
    """Returns one experiment per name and thread count; `only` keeps the named ones."""
    names = [experiment.name for experiment in config.experiments]
    for name in only:
        if name not in names:
            msg = f"--only {name}: no such experiment; the config has {', '.join(names)}"
            raise UsageError(msg)
    return [
        _experiment(experiment, threads)
        for experiment in config.experiments
        if not only or experiment.name in only
        for threads in experiment.threads
    ]


def _experiment(config: ExperimentConfig, threads: int) -> Experiment:
    several = len(config.threads) > 1
    return Experiment(
        name=f"{config.name}_t{threads}" if several else config.name,
        group=config.name if several else "",
        sme=config.sme,
        threads=threads,
        mode=config.mode,
        iterations=config.runs,
        warmup=config.warmup,
        runner=_runner(config),
        launcher=config.launcher,
        cpus=config.cpu_affinity,
        extra_arguments=config.extra_args,
    )


def _runner(config: ExperimentConfig) -> Path | None:
    """Returns the experiment's own runner: by path, or built by a preset in this folder."""
    if config.runner_path is not None and config.preset is not None:
        msg = f"experiment {config.name!r}: give runner_path or preset, not both"
        raise UsageError(msg)
    if config.preset is None:
        return config.runner_path.absolute() if config.runner_path else None
    runner = Path("build", config.preset, "cpp", "runner", "etprof-runner")
    if not runner.is_file():
        msg = (
            f"experiment {config.name!r}: {runner} is not built; "
            f"run `cmake --workflow --preset {config.preset}` in etprof's checkout first"
        )
        raise UsageError(msg)
    return runner.absolute()
