"""What a config would start, and what of it only its writer has chosen."""

from __future__ import annotations

import shlex
from typing import TYPE_CHECKING, Any

from etprof.base.errors import BuildError
from etprof.base.text import clean
from etprof.targets.runner import find_host_runner

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from etprof.config import Config, ExperimentConfig


_LONGEST_LINE = 10_000
"""Of what is shown; a command that is longer ends visibly, in an ellipsis."""


def list_starts(config: Config) -> list[dict[str, Any]]:
    """Returns what each experiment starts, as JSON-ready data; None: the target's own runner."""
    return [
        {
            "experiment": experiment.name,
            "launcher": list(experiment.launcher),
            "runner": None if experiment.runner is None else str(experiment.runner),
            "preset": experiment.preset,
            "extra_arguments": list(experiment.extra_arguments),
            "cpus": list(experiment.cpus),
        }
        for experiment in config.experiments
    ]


def describe_starts(config: Config) -> list[str]:
    """Returns the same as lines for people, with the model, the device and the folder."""
    where = [config.target.kind, *_named(config.target.connect, config.target.serial)]
    if config.target.remote_folder is not None:
        where.append(f"in {config.target.remote_folder}")
    counting = config.target.trace_runner or config.target.trace_preset
    if counting is not None:
        where.append(f"with kernels counted by {shlex.quote(str(counting))}")
    head = f"model {config.model} on {' '.join(where)}; results go to {config.output_root}"
    return [_visible(head), *(_visible(_describe(each)) for each in config.experiments)]


def _visible(line: str) -> str:
    """Returns a line in which no character hides or reorders the others."""
    return clean(line, _LONGEST_LINE)


def _named(*values: str | None) -> list[str]:
    return [value for value in values if value is not None]


def _describe(experiment: ExperimentConfig) -> str:
    """Returns an experiment's command with what the target adds left out."""
    if experiment.preset is not None:
        runner = f"(runner of preset {experiment.preset})"
    elif experiment.runner is not None:
        runner = shlex.quote(str(experiment.runner))
    else:
        runner = "(the target's own runner)"
    words = [shlex.join(experiment.launcher), runner, shlex.join(experiment.extra_arguments)]
    cpus = ",".join(map(str, experiment.cpus))
    on_cpus = f"  on CPUs {cpus}" if cpus else ""
    return f"experiment {experiment.name}: {' '.join(filter(None, words))}{on_cpus}"


def find_foreign_fields(config: Config) -> list[str]:
    """Names the fields that choose a command, its words, or a device to connect to."""
    return [*_foreign_in_target(config), *_foreign_in_experiments(config)]


def _foreign_in_target(config: Config) -> Iterator[str]:
    if config.target.connect is not None:
        yield "target.connect"
    if config.target.remote_folder is not None:
        yield "target.remote_folder"
    if config.target.trace_runner is not None and not _is_installed(config.target.trace_runner):
        yield "target.trace_runner"
    # Built in the current folder, which may be the stranger's as well.
    if config.target.trace_preset is not None:
        yield "target.trace_preset"


def _foreign_in_experiments(config: Config) -> Iterator[str]:
    for index, experiment in enumerate(config.experiments):
        runner = experiment.runner
        chosen = {
            "launcher": bool(experiment.launcher),
            "runner_path": runner is not None and not _is_installed(runner),
            "preset": experiment.preset is not None,
            "extra_args": bool(experiment.extra_arguments),
        }
        yield from (f"experiments.{index}.{name}" for name, is_set in chosen.items() if is_set)


def _is_installed(runner: Path) -> bool:
    """Whether a runner is one that was installed with etprof."""
    try:
        return runner.resolve().parent == find_host_runner().resolve().parent
    except BuildError:
        return False
