"""Writes a run that brought nothing back as a run that failed: a failure, never a gap."""

from __future__ import annotations

import sys
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING

import etprof
from etprof.base.errors import EtprofError
from etprof.base.files import hash_file
from etprof.measuring.git_state import read_git_state
from etprof.run.directory import safe_name, set_aside
from etprof.run.generation import plan_generation
from etprof.run.manifest import (
    MANIFEST,
    Experiment,
    LaunchRecord,
    Manifest,
    MeasuredModel,
    Settings,
    new_run_id,
    save_manifest,
)
from etprof.run.program import load_export_manifest
from etprof.run.runner_result import Cpu
from etprof.targets.local import LocalTarget
from etprof.targets.registry import proves_times

if TYPE_CHECKING:
    from etprof.bench.combinations import Unit
    from etprof.targets import Target


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
        updated_at=now,
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
