"""Finds out what an interrupted run had finished, and whether it may be continued."""

from __future__ import annotations

import itertools
from contextlib import suppress
from pathlib import PurePath
from typing import TYPE_CHECKING

from etprof.base.errors import EtprofError, OutputError, UsageError
from etprof.base.files import hash_file
from etprof.measuring.journal import InterruptedRun, identify_files
from etprof.measuring.launching import Launcher, clear, files_of
from etprof.measuring.plan import Launch
from etprof.run.directory import OF_A_LAUNCH, kind_of, list_files, safe_name
from etprof.run.manifest import FileIdentity, load_manifest
from etprof.run.runner_result import read_result

if TYPE_CHECKING:
    from collections.abc import Container, Iterator, Mapping, Sequence
    from pathlib import Path

    from etprof.base.records import Record
    from etprof.measuring.plan import Experiment, Identity, Settings
    from etprof.run.manifest import LaunchRecord, Manifest, MeasuredFile, MeasuredProgram
    from etprof.run.program import Program
    from etprof.run.runner_result import RunnerResult
    from etprof.targets import Target
    from etprof.targets.request import RunnerRequest

_FREE_TO_CHANGE = {"blocks", "budget_s", "target_half_width", "timeout_s", "max_wait_s", "kernels"}
"""Settings that may differ in a continuation: they do not change what a launch measures."""
_REPEATED = {"timing", "operators"}
"""Purposes whose launches are numbered."""
_DEVICE_FIELDS = ("machine", "serial", "manufacturer", "model", "android_build")


class DifferentRunError(UsageError):
    """What is to be resumed has measured something else."""


def load_earlier(
    run: Path,
    program: Program,
    target: Target,
    experiments: Sequence[Experiment],
    settings: Settings,
) -> InterruptedRun:
    """Returns the finished launches of the run in `run`; nothing when there is none.

    Raises DifferentRunError, naming what differs, when that run measured something else.
    """
    manifest = load_manifest(run)
    if manifest is None:
        return InterruptedRun()
    differences = [
        *_differences_of_programs(manifest, program),
        *_target_differences(manifest, target),
        *_differences(manifest.settings, settings, free=_FREE_TO_CHANGE),
        *(
            line
            for before, now in itertools.product(manifest.experiments, experiments)
            for line in _differences(before, now, f"experiment {now.name}: ")
            if before.name == now.name
        ),
    ]
    if differences:
        lines = "\n".join(f"  {line}" for line in differences)
        msg = f"{run} cannot be resumed, it measured something else:\n{lines}\nStart a new run"
        raise DifferentRunError(msg)
    now = {experiment.name: experiment for experiment in experiments}
    by_name = {experiment.name: experiment for experiment in (*manifest.experiments, *experiments)}
    launcher = Launcher(program, target, run, settings)
    results: dict[Identity, RunnerResult] = {}
    records: list[LaunchRecord] = []
    # Logs and metrics are written anew when the run ends.
    files = {
        name: file.model_copy(update={"kind": kind})
        for name, file in manifest.files.items()
        if (kind := kind_of(name)) not in {None, "metrics"} and not name.endswith(".log")
    }
    for record in manifest.launches:
        experiment = by_name.get(record.experiment)
        if experiment is None or (record.purpose in _REPEATED) != (record.block is not None):
            continue
        launch = Launch(experiment, record.purpose, record.block)
        request = launcher.request(launch)
        listed = _listed_files(run, request, manifest)
        result = None if record.error else _finished_result(run, request, listed)
        if result is not None:
            results[launch.identity] = result
            files |= listed
        elif experiment.name in now:
            # It is measured again.
            files = {name: file for name, file in files.items() if name not in listed}
            continue
        records.append(record)
    return InterruptedRun(results=results, records=records, manifest=manifest, files=files)


def _listed_files(run: Path, request: RunnerRequest, manifest: Manifest) -> dict[str, MeasuredFile]:
    """Returns what the manifest knows of the files that a launch left.

    Of schema 1 it may be nothing, for all was hashed at the end: then they are taken as they are.
    """
    if manifest.schema_version == 1 and not manifest.files:
        return identify_files(run, files_of(request))
    paths = {path.relative_to(run) for path in request.written}
    return {
        name: file
        for name, file in manifest.files.items()
        if paths & {PurePath(name), PurePath(name).parent}
    }


def _finished_result(
    run: Path, request: RunnerRequest, listed: Mapping[str, MeasuredFile]
) -> RunnerResult | None:
    """Reads a finished launch's result; None when a file of it is missing, damaged or changed."""
    left_files = {path.relative_to(run).as_posix(): path for path in files_of(request)}
    required = (request.etdump, request.kernel_trace, request.instruction_counts)
    if any(path is not None and path not in left_files.values() for path in required):
        return None
    if {name: hash_file(path) for name, path in left_files.items()} != {
        name: file.sha256 for name, file in listed.items()
    }:
        return None
    try:
        return read_result(request.result)
    except EtprofError:
        # Not there or not whole: the launch is simply run again.
        return None


def _differences_of_programs(manifest: Manifest, program: Program) -> Iterator[str]:
    """Names what else would be executed, or be executed on."""
    before = manifest.every_program
    for name in before.keys() ^ program.every.keys():
        yield f"program {name}: it is {'no longer' if name in before else 'not'} in the run"
    for name, compared in program.every.items():
        if name not in before:
            continue
        where = f"program {name}: " if name else ""
        differences = _program_differences(
            before[name], compared, is_old=manifest.schema_version == 1
        )
        yield from (where + line for line in differences)


def _program_differences(
    measured: MeasuredProgram, program: Program, *, is_old: bool
) -> Iterator[str]:
    model = measured.model
    if model.sha256 != hash_file(program.model):
        yield f"model: {program.model} has changed since"
    if model.label not in {None, program.label}:
        yield f"model: its files are named {model.label}, not {program.label}"
    weights = program.data and hash_file(program.data)
    # Runs of 0.1 do not say which.
    if not is_old and (model.data or FileIdentity()).sha256 != weights:
        yield f"model: its weights in {program.data or model.data} are others"
    if model.method is not None and model.method != program.method:
        yield f"method: was {model.method}, is {program.method}"
    inputs = [hash_file(path) for path in program.inputs]
    if measured.inputs is not None and [identity.sha256 for identity in measured.inputs] != inputs:
        yield "inputs: they have changed since, or are others"


def _target_differences(manifest: Manifest, target: Target) -> Iterator[str]:
    """Names another device; one that was attached by cable may come back over the network."""
    if manifest.platform != target.platform:
        yield f"platform: was {manifest.platform}, is {target.platform}"
        return
    before, now = manifest.target, target.describe()
    by_network = any(":" in str(facts.get("serial")) for facts in (before, now))
    for name in _DEVICE_FIELDS:
        pair = before.get(name), now.get(name)
        if None not in pair and pair[0] != pair[1] and not (name == "serial" and by_network):
            yield f"target {name}: was {pair[0]}, is {pair[1]}"


def _differences(
    before: Record, now: Record, before_each: str = "", free: Container[str] = ()
) -> Iterator[str]:
    """Names the fields that differ of two records of one kind."""
    for (name, before_value), (_, now_value) in zip(before, now, strict=True):
        if before_value != now_value and name not in free:
            yield f"{before_each}{name} was {before_value}, is {now_value}"


def tidy(run: Path, earlier: InterruptedRun) -> None:
    """Removes what a launch has left that was cut off; `run` is reserved.

    That is unfinished files, and those at the places of this run's launches that its manifest does
    not list: nobody knows whether they are whole, or who put them there. Raises OutputError when
    another process has measured into `run` since its manifest was read.
    """
    before = earlier.manifest
    if before is None:
        return
    if load_manifest(run) != before:
        msg = f"another etprof has measured into {run} meanwhile; continue with --resume"
        raise OutputError(msg)
    folders = {safe_name(experiment.folder) for experiment in before.experiments}
    for name, kind in list_files(run).items():
        path = run / name
        folder, _, file = name.partition("/")
        is_left = before.schema_version != 1 and kind.is_measured and name not in before.files
        if kind.is_temporary or (is_left and folder in folders and OF_A_LAUNCH.search(file)):
            clear([path])
            if path.parent.name.startswith("."):
                with suppress(OSError):
                    path.parent.rmdir()
