"""Measures one unit on its device: alone there, continued if it was cut off, its failure kept."""

from __future__ import annotations

import os
import platform
import sys
import time
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Final

import etprof
from etprof.base.errors import EtprofError
from etprof.base.files import hash_file
from etprof.measuring.git_state import read_git_state
from etprof.measuring.journal import Earlier
from etprof.measuring.pipeline import measure
from etprof.measuring.plan import configured_experiments, configured_settings, make_target
from etprof.measuring.resume import load_earlier
from etprof.run.directory import safe_name, set_aside
from etprof.run.generation import plan_generation
from etprof.run.manifest import (
    MANIFEST,
    Experiment,
    LaunchRecord,
    Manifest,
    MeasuredModel,
    Settings,
    load_manifest,
    new_run_id,
    save_manifest,
)
from etprof.run.program import describe_program, load_export_manifest
from etprof.run.runner_result import Cpu
from etprof.targets.device_lock import device_lock, this_host
from etprof.targets.local import LocalTarget
from etprof.targets.registry import proves_times

if TYPE_CHECKING:
    from collections.abc import Callable

    from etprof.bench.combinations import Unit
    from etprof.config import Config
    from etprof.targets import Target
    from etprof.targets.device_lock import Waiting

    Step = Callable[[str, int, int], None]


_FINISHED: Final = "finished"


class Stopped(Exception):  # noqa: N818 - nothing went wrong
    """The user ended the matrix; what is finished is kept."""


@dataclass(frozen=True)
class Outcome:
    """How a unit went; its run directory is there either way."""

    unit: Unit
    errors: tuple[str, ...] = ()
    """Launches that failed and were not made good; or why nothing could be measured."""
    duration_s: float = 0.0
    worker: str = ""
    """Host and process that measured; empty when it had been measured before."""


def worker_name() -> str:
    """Names this process among those of a pool."""
    return f"{platform.node()}:{os.getpid()}"


def is_finished(unit: Unit, program: Path, run: Path) -> bool:
    """Whether `run` holds this very run, complete: nothing of it needs to be repeated."""
    return _status(unit, program, run) == _FINISHED


def _status(unit: Unit, program: Path, run: Path) -> str | None:
    """Returns how far `run` came; None when it is no run of this unit with this program."""
    try:
        manifest = load_manifest(run)
    except EtprofError:
        # A damaged manifest: nothing of it can be kept.
        return None
    if (
        manifest is None
        or (manifest.config or {}).get("unit") != unit.identity()
        or manifest.model.sha256 != hash_file(program)
    ):
        return None
    return manifest.status


def run_unit(  # noqa: PLR0913 - what, where, whom to tell, how
    unit: Unit, program: Path, run: Path, step: Step, waiting: Waiting, *, resume: bool
) -> Outcome:
    """Measures `unit` into `run`, once its device is free; keeps what an earlier try finished.

    `step` and `waiting` are told what happens; Stopped from them ends the run, which can then be
    resumed. Any other error becomes a failed run. Without `resume` an earlier run is set aside.
    """
    started = time.monotonic()
    target: Target | None = None
    try:
        target = _make_target(unit)
        # What is emulated has no times, but loads this host.
        with device_lock(target.device() or this_host(), waiting):
            errors = tuple(_measure(unit, target, program, run, step, resume=resume))
    except Stopped:
        raise
    # Whatever it is, even a defect of ours: the other units go on, and this one is no gap.
    except Exception as error:  # noqa: BLE001
        errors = keep_failure(unit, run, describe_error(error), program=program, target=target)
    return Outcome(unit, errors, time.monotonic() - started, worker_name())


def keep_failure(
    unit: Unit, run: Path, reason: str, *, program: Path | None = None, target: Target | None = None
) -> tuple[str, ...]:
    """Writes a failed run and returns what went wrong, the writing included."""
    try:
        write_failure(unit, run, reason, program=program, target=target)
    except EtprofError as error:
        return (reason, str(error))
    return (reason,)


def describe_error(error: BaseException) -> str:
    """Words an error; one that nobody foresaw comes with its type."""
    return str(error) if isinstance(error, EtprofError) else f"{type(error).__name__}: {error}"


def _make_target(unit: Unit) -> Target:
    runner = unit.device.runner
    return make_target(unit.device, runner.absolute() if runner else None)


def _measure(  # noqa: PLR0913 - what, where, how
    unit: Unit, target: Target, program: Path, run: Path, step: Step, *, resume: bool
) -> list[str]:
    """Measures on a device that is ours; returns what failed."""
    if not resume or _status(unit, program, run) in {None, "failed"}:
        set_aside(run)
    modes = unit.sme or target.sme_modes()
    config = unit.config(program, run, modes)
    experiments, settings = configured_experiments(config), configured_settings(config)
    described = describe_program(program, method=unit.method(program))
    earlier = load_earlier(run, described, target, experiments, settings) if resume else Earlier()
    measured = measure(
        program=described,
        target=target,
        run=run,
        experiments=experiments,
        settings=settings,
        progress=step,
        config=_manifest_config(unit, config),
        earlier=earlier,
    )
    return measured.errors


def _manifest_config(unit: Unit, config: Config) -> dict[str, object]:
    """Returns what the manifest says of the config: enough to repeat the run, and the unit."""
    content = config.model_dump(mode="json", exclude_none=True)
    return {"path": None, "content": content, "unit": unit.identity()}


def write_failure(
    unit: Unit,
    run: Path,
    reason: str,
    *,
    program: Path | None = None,
    target: Target | None = None,
) -> None:
    """Writes a manifest that says what was to be measured and why it was not.

    An earlier run in the same place is set aside.
    """
    if (run / MANIFEST).exists():
        set_aside(run)
    target = target or (LocalTarget() if unit.device.history_name is None else None)
    now = datetime.now(UTC).isoformat(timespec="milliseconds")
    kind = unit.device.kind
    platform = target.platform if target else kind
    experiments = _experiments(unit, platform)
    manifest = Manifest(
        run_id=new_run_id(),
        status="failed",
        created_at=now,
        etprof_version=etprof.__version__,
        command=tuple(sys.argv),
        git=read_git_state(Path()),
        platform=platform,
        times_are_meaningful=proves_times(kind),
        model=_describe_model(unit, program),
        cpu=_describe_cpu(target),
        target=_describe_target(unit, target),
        config={"path": None, "unit": unit.identity()},
        settings=_settings(unit),
        experiments=experiments,
        launches=tuple(
            LaunchRecord(
                experiment=experiment.name,
                purpose="timing",
                block=0,
                started_at=now,
                duration_s=0.0,
                error=reason,
            )
            for experiment in experiments
        ),
        notes=(reason,),
    )
    save_manifest(run, manifest)


def _experiments(unit: Unit, platform: str) -> tuple[Experiment, ...]:
    """Lists what would have been measured, named as a run that works names it."""
    several = len(unit.threads) > 1
    return tuple(
        Experiment(
            name=f"{platform}_{mode}_t{threads}" if several else f"{platform}_{mode}",
            group=f"{platform}_{mode}" if several else "",
            sme=mode,
            threads=threads,
        )
        for mode in unit.sme or ("auto",)
        for threads in unit.threads
    )


def _settings(unit: Unit) -> Settings:
    """Returns what a run that works would be told apart by; nothing when that cannot be read."""
    generation = unit.model.generation
    if generation is None:
        return Settings()
    try:
        return Settings(generation=plan_generation(**dict(generation)))
    except EtprofError:
        return Settings()


def _describe_model(unit: Unit, program: Path | None) -> MeasuredModel:
    is_there = program is not None and program.is_file()
    exported = load_export_manifest(program) if program is not None and is_there else None
    method = unit.method(program) if program is not None and is_there else unit.model.method
    return MeasuredModel(
        name=safe_name(unit.model.name),
        label=unit.program.label,
        method=method or (exported.method if exported else "forward"),
        backend=unit.backend,
        precision=unit.precision,
        path=str(program) if program else None,
        sha256=hash_file(program) if program is not None and is_there else None,
    )


def _describe_target(unit: Unit, target: Target | None) -> dict[str, object]:
    """Describes the target as far as it answers."""
    known: dict[str, object] = {"serial": unit.device.serial} if unit.device.serial else {}
    try:
        return target.describe() if target else known
    except EtprofError:
        return known


def _describe_cpu(target: Target | None) -> Cpu | None:
    """Returns this machine's CPU, by which the history knows it; None for other targets."""
    if not isinstance(target, LocalTarget):
        return None
    try:
        found = target.describe_cpu()
    except EtprofError:
        # Not even the runner is there: that is the failure itself, most likely.
        return None
    return Cpu.model_validate(found) if found else None
