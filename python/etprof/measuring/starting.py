"""What a config would start, and what of it only its writer has chosen."""

from __future__ import annotations

import shlex
from typing import TYPE_CHECKING, Any, Final

from etprof.base.errors import BuildError
from etprof.base.text import clean
from etprof.targets.runner import find_host_runner

if TYPE_CHECKING:
    from pathlib import Path

    from etprof.config import Config, ExperimentConfig


_LONGEST_LINE = 10_000
"""Of what is shown; a command that is longer ends visibly, in an ellipsis."""


_DEFAULT_RUNNER: Final = "<default runner>"
"""Of the target; in angle brackets among the words of a command."""
_STARTED: Final = {"program", "launcher", "runner", "preset", "extra_arguments", "cpus"}


def list_starts(config: Config) -> list[dict[str, Any]]:
    """Returns what each experiment starts, as JSON-ready data; None: the target's own runner."""
    return [
        {"experiment": experiment.name, **experiment.model_dump(mode="json", include=_STARTED)}
        for experiment in config.experiments
    ]


def describe_starts(config: Config) -> list[str]:
    """Returns the same as lines for people, with the model, the device and the folder."""
    where = [config.target.kind, *_named(config.target.connect, config.target.serial)]
    if config.target.remote_folder is not None:
        where.append(f"in {config.target.remote_folder}")
    counting = config.target.trace_runner or config.target.trace_preset
    if counting is not None:
        where.append(f"with the trace runner {shlex.quote(str(counting))}")
    if config.target.debugger is not None:
        where.append(f"with the debugger {shlex.quote(config.target.debugger)}")
    further = "".join(f", {program.model} ({name})" for name, program in config.programs.items())
    head = f"runs {config.model}{further} on {' '.join(where)}; writes to {config.folder}"
    return [_visible(head), *(_visible(_describe(experiment)) for experiment in config.experiments)]


def _visible(line: str) -> str:
    """Returns a line in which no character hides or reorders the others."""
    return clean(line, _LONGEST_LINE)


def _named(*values: str | None) -> list[str]:
    return [value for value in values if value is not None]


def _describe(experiment: ExperimentConfig) -> str:
    """Returns an experiment's command with what the target adds left out."""
    if experiment.preset is not None:
        runner = f"<runner of preset {experiment.preset}>"
    elif experiment.runner is not None:
        runner = shlex.quote(str(experiment.runner))
    else:
        runner = _DEFAULT_RUNNER
    if not (experiment.launcher or experiment.extra_arguments):
        runner = runner.strip("<>")
    fragments = [shlex.join(experiment.launcher), runner, shlex.join(experiment.extra_arguments)]
    cpus = ",".join(map(str, experiment.cpus))
    on_cpus = f"  on CPUs {cpus}" if cpus else ""
    return f"experiment {experiment.name}: {' '.join(filter(None, fragments))}{on_cpus}"


def find_foreign_fields(config: Config) -> list[str]:
    """Names the fields that choose a command, its words, or a device to connect to."""
    target = config.target
    is_foreign = {
        "target.connect": target.connect is not None,
        "target.remote_folder": target.remote_folder is not None,
        "target.trace_runner": _is_foreign(target.trace_runner),
        # Built in the current folder, which may be the stranger's as well.
        "target.trace_preset": target.trace_preset is not None,
        "target.debugger": target.debugger is not None,
    }
    for index, experiment in enumerate(config.experiments):
        is_foreign |= {
            f"experiments.{index}.launcher": bool(experiment.launcher),
            f"experiments.{index}.runner_path": _is_foreign(experiment.runner),
            f"experiments.{index}.preset": experiment.preset is not None,
            f"experiments.{index}.extra_args": bool(experiment.extra_arguments),
        }
    return [name for name, is_chosen in is_foreign.items() if is_chosen]


def _is_foreign(runner: Path | None) -> bool:
    """Whether a runner is none that was installed with etprof."""
    if runner is None:
        return False
    try:
        return runner.resolve().parent != find_host_runner().resolve().parent
    except BuildError:
        return True
