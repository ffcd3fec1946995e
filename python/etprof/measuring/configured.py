"""Measures what a config says, from the start or from where a run was cut off."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from etprof.measuring.journal import InterruptedRun
from etprof.measuring.pipeline import measure
from etprof.measuring.plan import (
    configured_experiments,
    configured_program,
    configured_settings,
    plan,
)
from etprof.measuring.resume import load_earlier
from etprof.run.directory import put_back, set_aside
from etprof.targets.device_lock import device_lock

if TYPE_CHECKING:
    from etprof.config import Config
    from etprof.measuring.pipeline import MeasuredRun
    from etprof.run.delegation import DelegationReport
    from etprof.targets import Target
    from etprof.targets.device_lock import Waiting


@dataclass(frozen=True)
class Listener:
    """The callbacks that a measurement reports its progress to."""

    say: Callable[[str], None]
    """Something that people should read."""
    progress: Callable[[str, int, int], None]
    """A launch starts: which, how many are done, of how many."""
    waiting: Waiting
    """Another has the device; what it raises ends the wait."""


def measure_config(  # noqa: PLR0913 - what, where, how
    config: Config,
    target: Target,
    listener: Listener,
    *,
    identity: dict[str, object] | None = None,
    only: Sequence[str] = (),
    resume: bool = False,
    keep_going: bool = False,
    delegations: Mapping[str, DelegationReport] | None = None,
) -> MeasuredRun:
    """Measures once the device is free; errors of the plan come before an earlier run is set aside.

    `identity` is what the manifest says of the config. Raises as `measure` does, and
    DifferentRunError for a `resume` of something else.
    """
    program, run = configured_program(config), config.folder
    experiments, settings = configured_experiments(config, only), configured_settings(config)
    has_references = any(compared.references for compared in program.every.values())
    planned = plan(experiments, settings, target, has_references=has_references)
    earlier = InterruptedRun()
    # The process that holds the device may be writing this very run.
    with device_lock(target.device(), listener.waiting):
        if resume:
            earlier = load_earlier(run, program, target, experiments, settings)
            listener.say(f"{earlier.finished_count} launches were finished and are kept")
        earlier_folder = None if resume else set_aside(run)
        if earlier_folder is not None:
            listener.say(f"The earlier run is kept in {earlier_folder}")
        try:
            return measure(
                program=program,
                target=target,
                run=run,
                planned=planned,
                progress=listener.progress,
                config=identity or describe_config(config),
                earlier=earlier,
                keep_going=keep_going,
                delegations=delegations,
            )
        finally:
            if earlier_folder is not None and put_back(earlier_folder, run):
                listener.say(f"Nothing was measured: the earlier run is in {run} again")


def describe_config(config: Config) -> dict[str, object]:
    """Returns what a manifest says of a config that no file holds: enough to repeat the run."""
    return {"path": None, "content": config.model_dump(mode="json", exclude_unset=True)}
