"""Measures one unit on its device: alone there, continued if it was cut off, its failure kept."""

from __future__ import annotations

import os
import platform
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from etprof.base.errors import EtprofError
from etprof.base.files import hash_file
from etprof.bench.failures import write_failure
from etprof.measuring.pipeline import Earlier, measure
from etprof.measuring.plan import configured_experiments, configured_settings, make_target
from etprof.measuring.resume import load_earlier
from etprof.run.directory import set_aside
from etprof.run.manifest import load_manifest
from etprof.run.program import describe_program
from etprof.targets.device_lock import device_lock, this_host

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

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
