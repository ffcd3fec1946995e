"""Measures one unit on its device: alone there, continued if it was cut off, its failure kept."""

from __future__ import annotations

import os
import platform
import time
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Final, TypeVar

from etprof.base.errors import EtprofError, UsageError
from etprof.base.files import hash_file
from etprof.base.text import join_names
from etprof.measuring.configured import measure_config
from etprof.measuring.journal import describe_model, describe_session
from etprof.measuring.plan import configured_experiments, configured_settings, configured_target
from etprof.measuring.resume import DifferentRunError
from etprof.run.directory import safe_name, set_aside
from etprof.run.manifest import (
    MANIFEST,
    LaunchRecord,
    Manifest,
    MeasuredModel,
    Settings,
    load_manifest,
    new_run_id,
    save_manifest,
)
from etprof.run.program import describe_program
from etprof.run.validation import validate_run
from etprof.targets.device_lock import device_lock
from etprof.targets.local import LocalTarget
from etprof.targets.registry import kind_of

if TYPE_CHECKING:
    from etprof.bench.combinations import Unit
    from etprof.config import Config
    from etprof.measuring.configured import Listener
    from etprof.measuring.pipeline import MeasuredRun
    from etprof.targets import Target

Answer = TypeVar("Answer")
_FINISHED: Final = "finished"


class MatrixStopped(Exception):  # noqa: N818 - nothing went wrong
    """The user ended the matrix; what is finished is kept."""


@dataclass(frozen=True)
class UnitOutcome:
    """How a unit went; its run directory is there either way."""

    unit: Unit
    errors: tuple[str, ...] = ()
    """Launches that failed and were not made good; or why nothing could be measured."""
    duration_s: float = 0.0
    worker: str = ""
    """Host and process that measured; empty when it had been measured before."""
    notes: tuple[str, ...] = ()
    """What was asked for and not planned."""


def worker_name() -> str:
    """Names this process among those of a pool."""
    return f"{platform.node()}:{os.getpid()}"


def unfinished_reason(unit: Unit, program: Path, run: Path) -> str | None:
    """Says why `run` is not this very run, complete; None when nothing needs to be repeated."""
    try:
        manifest = _load_own(unit, program, run)
    except EtprofError as error:
        return f"measured anew: {error}"
    if manifest is None:
        return "not measured yet"
    if manifest.status != _FINISHED:
        return f"not finished: {manifest.status}"
    damaged = [finding.text for finding in validate_run(run) if finding.level == "damaged"]
    return f"not complete: {'; '.join(damaged)}" if damaged else None


def _load_own(unit: Unit, program: Path, run: Path) -> Manifest | None:
    """Returns the manifest of an earlier try; None when there is none.

    Raises EtprofError for a damaged one, for that of another unit or program, and for a failure:
    nothing of those can be kept.
    """
    manifest = load_manifest(run)
    if manifest is None:
        return None
    different = unit.find_differences((manifest.config or {}).get("unit"))
    if manifest.model.sha256 != hash_file(program):
        different.append("program")
    if different:
        raise UsageError(f"the earlier run is of another {join_names(different)}")
    if manifest.status == "failed":
        raise UsageError("the earlier run failed")
    return manifest


def run_unit(  # noqa: PLR0913 - what, where, whom to tell, how
    unit: Unit,
    program: Path,
    run: Path,
    listener: Listener,
    *,
    resume: bool,
    keep_going: bool = False,
) -> UnitOutcome:
    """Measures `unit` into `run`, once its device is free; keeps what an earlier try finished.

    `listener` is told what happens; Stopped from it ends the run, which can then be resumed. Any
    other error becomes a failed run. Without `resume` an earlier run is set aside.
    """
    started = time.monotonic()
    target: Target | None = None
    notes: tuple[str, ...] = ()
    try:
        config = unit.config(program, run, unit.sme or ("auto",))
        target = configured_target(config)
        if not unit.sme:
            with device_lock(target.device(), listener.waiting):
                config = unit.config(program, run, target.sme_modes())
        measure = partial(
            measure_config,
            config,
            target,
            listener,
            identity=_manifest_config(unit, config),
            keep_going=keep_going,
        )
        measured = _measure(
            measure, unit, listener, resume=resume and _may_resume(unit, program, run)
        )
        errors, notes = tuple(measured.errors), tuple(measured.notes)
    except MatrixStopped:
        raise
    # Whatever it is, even a defect of ours: the other units go on, and this one is no gap.
    except Exception as error:  # noqa: BLE001
        errors = keep_failure(unit, run, describe_error(error), program=program, target=target)
    return UnitOutcome(unit, errors, time.monotonic() - started, worker_name(), notes)


def _may_resume(unit: Unit, program: Path, run: Path) -> bool:
    try:
        return _load_own(unit, program, run) is not None
    except EtprofError:
        # Why nothing of it can be kept is said by `unfinished_reason`.
        return False


def _measure(
    measure: Callable[..., MeasuredRun], unit: Unit, listener: Listener, *, resume: bool
) -> MeasuredRun:
    """Continues, or says why it must begin anew."""
    try:
        return measure(resume=resume)
    except DifferentRunError as error:
        listener.say(f"{unit.text}: measured anew: {error}")
        return measure(resume=False)


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
    """Describes an error; an unexpected one with its type."""
    return str(error) if isinstance(error, EtprofError) else f"{type(error).__name__}: {error}"


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

    An earlier run in the same place is set aside. A target or program that does not answer is the
    failure itself, most likely: then what is asked for stands there.
    """
    if (run / MANIFEST).exists():
        set_aside(run)
    device = unit.device
    kind = kind_of(device.kind)
    if target is None and device.history_name is None and kind.is_this_host:
        target = kind.make({})
    config = unit.without_runners().config(program or Path(unit.label), run, unit.sme or ("auto",))
    session, experiments = describe_session(), tuple(configured_experiments(config))
    manifest = Manifest(
        **dict(session),
        run_id=new_run_id(),
        status="failed",
        platform=kind.name,
        times_are_meaningful=kind.policy.proves_times,
        model=_describe_model(unit, program),
        cpu=_ask(target.describe_cpu) if isinstance(target, LocalTarget) else None,
        target=_ask(target.describe if target else None)
        or ({"serial": device.serial} if device.serial else {}),
        config={"path": None, "unit": unit.identity()},
        settings=_ask(partial(configured_settings, config)) or Settings(),
        experiments=experiments,
        launches=tuple(
            LaunchRecord(
                experiment=experiment.name,
                purpose="timing",
                block=0,
                started_at=session.created_at,
                duration_s=0.0,
                error=reason,
            )
            for experiment in experiments
        ),
        notes=(reason,),
    )
    save_manifest(run, manifest)


def _describe_model(unit: Unit, program: Path | None) -> MeasuredModel:
    described: MeasuredModel | None = None
    if program is not None:
        described = _ask(
            lambda: describe_model(describe_program(program, method=unit.method(program)))
        )
    facts = {
        "name": safe_name(unit.model.name),
        "label": unit.program.label,
        "backend": unit.backend,
        "precision": unit.precision,
    }
    if described is None:
        return MeasuredModel.model_validate({**facts, "method": unit.model.method or "forward"})
    return described.model_copy(update=facts)


def _ask(question: Callable[[], Answer] | None) -> Answer | None:
    """Returns an answer; None where there is none."""
    try:
        return question() if question else None
    except EtprofError:
        return None
