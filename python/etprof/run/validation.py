"""Checks a run directory: is it complete, unchanged and plausible, and if not, what is lost?"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final, Literal

import numpy as np

from etprof.base.errors import EtprofError, InputFileError
from etprof.base.files import hash_file
from etprof.base.text import clean
from etprof.base.units import count_of, format_share
from etprof.etdump.plausibility import Clocks, ClockSigns, Damage, examine_events
from etprof.etdump.reader import ETDump, LongETDump, open_etdump
from etprof.run.delegation import read_delegation
from etprof.run.directory import (
    ANALYSIS_SUMMARY,
    METRICS,
    FileKind,
    Metrics,
    find_measured_files,
    has_summary,
    kind_of,
    list_files,
    load_metrics,
    refuse_file_of_run,
    suggest_run_directory,
)
from etprof.run.kernel_trace import read_instructions, read_kernel_trace
from etprof.run.load import Run, read_export
from etprof.run.manifest import MANIFEST, Manifest, MeasuredFile, load_manifest, resume_hint
from etprof.run.runner_result import RunnerResult, read_result
from etprof.run.tensors import load_outputs
from etprof.statistics.noise import LEAST_BLOCKS, launch_noise
from etprof.statistics.warmup import is_settled

Level = Literal["ok", "note", "wrong", "incomplete", "damaged"]
_LEVELS: tuple[Level, ...] = ("ok", "note", "wrong", "incomplete", "damaged")
"""Outputs that are wrong are told by whoever knows what they should be."""
_PARSERS: Final[Mapping[str, Callable[[Path], object]]] = {
    "metrics": lambda path: load_metrics(path.parent),
    "delegation": read_delegation,
    "export": read_export,
    "etdump": open_etdump,
    "result": read_result,
    "kernels": read_kernel_trace,
    "clock": read_kernel_trace,
    "instructions": read_instructions,
}
"""What reads a file, by its kind, as the run's reader does; outputs beside their result."""


@dataclass(frozen=True)
class ValidationFinding:
    """One thing that was checked."""

    level: Level
    text: str


def validate_run(run: Path) -> list[ValidationFinding]:
    """Checks everything that can be checked; raises InputFileError when `run` is no folder.

    The run is read as reports read it, so that what they refuse is named; and every file by itself,
    so that one that is damaged hides no other.
    """
    refuse_file_of_run(run)
    if not run.is_dir():
        msg = f"{run} is not a run directory; `etprof profile MODEL` makes one"
        raise InputFileError(msg)
    if not (run / MANIFEST).is_file() and any(run.glob(f"*/{MANIFEST}")):
        raise InputFileError(f"{run} is a folder of runs; {suggest_run_directory(run, None)}")
    findings: list[ValidationFinding] = []
    files, changed, manifest = list_files(run), dict[str, str](), None
    try:
        manifest = load_manifest(run)
        changed = _find_changes(run, manifest) if manifest else {}
        findings += _check_manifest(run, manifest, is_whole=not changed)
    except InputFileError as error:
        findings.append(ValidationFinding("damaged", str(error)))
    findings += [ValidationFinding("damaged", text) for text in changed.values()]
    loaded, refusal = _load_for_report(run)
    loaded_contents = _contents(loaded) if loaded else {}
    for name, kind in files.items():
        if name not in changed and kind.name in _PARSERS:
            parse = (
                loaded_contents.__getitem__
                if run / name in loaded_contents
                else _PARSERS[kind.name]
            )
            findings += _check_file(run, name, parse)
    if refusal is not None and refusal not in [found.text for found in findings]:
        findings.append(ValidationFinding("damaged", refusal))
    findings += _check_what_is_missing(run, files, manifest)
    findings += _check_leftovers(files)
    return [ValidationFinding(finding.level, clean(finding.text)) for finding in findings]


def worst_level(findings: list[ValidationFinding]) -> Level:
    """Returns the gravest level found."""
    return max((finding.level for finding in findings), key=_LEVELS.index, default="ok")


def _load_for_report(run: Path) -> tuple[Run | None, str | None]:
    """Returns the run as everyone reads it, and why they refuse it, where they do."""
    try:
        loaded = Run.load(run, strict=False)
    except InputFileError as error:
        return None, str(error)
    return loaded, loaded.problem


def _contents(loaded: Run) -> dict[Path, object]:
    """What need not be read again."""
    splits = [split for experiment in loaded.experiments for split in experiment.splits]
    dumps: dict[Path, object] = {split.etdump: split.dump for split in splits}
    return dumps | ({loaded.source / METRICS: loaded.metrics} if loaded.metrics else {})


def _check_manifest(
    run: Path, manifest: Manifest | None, *, is_whole: bool
) -> Iterator[ValidationFinding]:
    if manifest is None:
        lost = "who measured what, where and with what; files cannot be checked for changes"
        yield ValidationFinding("incomplete", f"{MANIFEST} is missing; lost: {lost}")
        return
    failed = [launch for launch in manifest.launches if launch.error is not None]
    done = len(manifest.launches) - len(failed)
    if manifest.status == "running":
        yield ValidationFinding(
            "incomplete",
            f"the run was interrupted after {done} finished launches; {resume_hint(manifest, run)}",
        )
    else:
        by = f", measured by etprof {manifest.etprof_version}" if manifest.etprof_version else ""
        yield ValidationFinding("ok", f"{done} launches finished on {manifest.platform}{by}")
    for launch in failed:
        where = f"{launch.experiment}, {launch.purpose}"
        yield ValidationFinding("incomplete", f"a launch of {where} failed: {launch.error}")
    tried = {launch.experiment for launch in manifest.launches}
    for experiment in manifest.experiments:
        if experiment.name not in tried and manifest.status != "running":
            yield ValidationFinding("incomplete", f"{experiment.name} was not measured")
    yield from _check_sessions(manifest)
    yield from (ValidationFinding("note", text) for text in manifest.notes)
    yield from _check_runners(manifest)
    if is_whole and manifest.files:
        yield ValidationFinding(
            "ok", f"{len(manifest.files)} files have the hashes of the manifest"
        )
    if manifest.schema_version == 1:
        text = f"{MANIFEST} is of etprof 0.1, without checksum: changes to it itself are not seen"
        yield ValidationFinding("note", text)
        unlisted = len(find_measured_files(run).keys() - manifest.files.keys())
        if unlisted and manifest.status != "running":
            # It closed its manifest before it measured kernels.
            text = f"{count_of(unlisted, 'file')} not in {MANIFEST}: changes to them are not seen"
            yield ValidationFinding("note", text)


def _check_sessions(manifest: Manifest) -> Iterator[ValidationFinding]:
    """Names the sessions of another working tree: the run counts as the first one's."""
    for session in manifest.resumptions:
        if (session.git, session.pins) != (manifest.git, manifest.pins):
            commit = session.git.commit if session.git else "none"
            text = (
                f"continued at {session.created_at} with other packages or from another working "
                f"tree (commit {commit}); the run counts as of the first"
            )
            yield ValidationFinding("note", text)


def _check_runners(manifest: Manifest) -> Iterator[ValidationFinding]:
    """Names experiments whose runner was another file in some of their timing launches."""
    for experiment in manifest.experiments:
        started = {
            launch.runner_sha256
            for launch in manifest.launches
            if launch.experiment == experiment.name and launch.purpose == "timing"
        }
        if len(started) > 1:
            text = f"{experiment.name}: its runner changed between launches; measure it anew"
            yield ValidationFinding("note", text)


def _find_changes(run: Path, manifest: Manifest) -> dict[str, str]:
    """Compares the measured files with the manifest, all of them and no others: name → problem."""
    # Manifests of etprof up to 0.1 name reports too, and not all that was measured.
    listed = {name: file for name, file in manifest.files.items() if kind_of(name) is not None}
    problems = {name: _problem_of(run, name, file) for name, file in listed.items()}
    if manifest.status != "running" and manifest.schema_version != 1:
        for name in find_measured_files(run).keys() - listed.keys():
            problems[name] = f"{name} is not of this run: {MANIFEST} does not list it"
    return {name: problem for name, problem in sorted(problems.items()) if problem is not None}


def _problem_of(run: Path, name: str, listed: MeasuredFile) -> str | None:
    """Says what is wrong with a measured file; None when it is as it was."""
    path = run / name
    # Not Path.resolve, which raises for links in a circle.
    real = Path(os.path.realpath(path))
    if not real.is_relative_to(os.path.realpath(run)):
        return f"{MANIFEST} names {name}, outside the run directory"
    if not path.is_file():
        return f"{name} is missing"
    return f"{name} has changed since it was measured" if hash_file(path) != listed.sha256 else None


def _check_file(
    run: Path, name: str, parse: Callable[[Path], object]
) -> Iterator[ValidationFinding]:
    """Reads a file as everyone reads it, and looks at what it says: can it be so?"""
    try:
        content = parse(run / name)
        checked = check_events(name, content) if isinstance(content, ETDump | LongETDump) else None
        if isinstance(content, RunnerResult):
            _read_outputs(run, name, content)
    except EtprofError as error:
        yield ValidationFinding("damaged", str(error))
        return
    if isinstance(content, Metrics):
        for experiment, metrics in content.experiments.items():
            if metrics.blocks:
                yield from _check_times(experiment, [block.latency_ns for block in metrics.blocks])
    elif checked:
        yield checked


def _read_outputs(run: Path, name: str, result: RunnerResult) -> None:
    stem = name.removesuffix("_result.json").removesuffix("_outputs")
    folder = run / f"{stem}_outputs"
    for outputs in load_outputs(folder, result).values():
        for output in outputs.values():
            output.values()


def _check_times(name: str, blocks: list[list[int]]) -> Iterator[ValidationFinding]:
    """Looks at zeros, at noise as rule F13 does, and at warm-up as a verdict's validity does."""
    yield ValidationFinding("ok", f"{name}: {len(blocks)} timing blocks")
    if any(latency <= 0 for block in blocks for latency in block):
        yield ValidationFinding("damaged", f"{name}: a latency of zero is not plausible")
        return
    noise = launch_noise(blocks)
    if noise is None:
        text = (
            f"{name}: {count_of(len(blocks), 'block')}, too few to tell noise; "
            f"measure {LEAST_BLOCKS} or more"
        )
        yield ValidationFinding("note", text)
    elif not noise.is_steady():
        text = (
            f"{name} is noisy: launches vary by {format_share(noise.between)}, inferences in a "
            f"launch by {format_share(noise.within)}, the second half of the launches is "
            f"{noise.trend}; measure when it is quiet"
        )
        yield ValidationFinding("note", text)
    settled = [
        is_settled_block
        for is_settled_block in map(is_settled, blocks)
        if is_settled_block is not None
    ]
    if sum(settled) < len(settled) / 2:
        yield ValidationFinding("note", f"{name}: most blocks start slow; ask for more warm-up")


def _check_what_is_missing(
    run: Path, files: Mapping[str, FileKind], manifest: Manifest | None
) -> Iterator[ValidationFinding]:
    kinds = {kind.name for kind in files.values()}
    if "metrics" not in kinds:
        yield ValidationFinding(
            "incomplete", f"{METRICS} is missing; lost: latency without event tracer"
        )
    if "etdump" not in kinds:
        yield ValidationFinding("incomplete", "there is no ETDump; lost: the split by operator")
    elif not has_summary(run, manifest):
        text = f"there is no {ANALYSIS_SUMMARY} of this run; `etprof analyze` writes it"
        yield ValidationFinding("note", text)


def check_events(name: str, dump: ETDump | LongETDump) -> ValidationFinding:
    """Looks for implausible events; again where the end of the file shows another clock."""
    clocks = Clocks()
    damage, signs = _find_damage(dump, clocks)
    while signs.clocks != clocks:
        clocks = signs.clocks
        damage, signs = _find_damage(dump, clocks)
    if not damage.events:
        return ValidationFinding("ok", f"{name}: {count_of(signs.events, 'event')}")
    possible = damage.possible
    executions = int(np.count_nonzero(~possible))
    return ValidationFinding(
        "damaged",
        f"{name}: {damage.events} of {count_of(signs.events, 'event')} cannot be so, in "
        f"{executions} of {count_of(possible.size, 'execution')}; the first is {damage.first}",
    )


def _find_damage(dump: ETDump | LongETDump, clocks: Clocks) -> tuple[Damage, ClockSigns]:
    damage, signs = Damage(), ClockSigns()
    for piece in dump.pieces():
        events = examine_events(piece, clocks=clocks, before=damage.before)
        damage.add(piece, events)
        signs = signs.plus(events.signs)
    return damage, signs


def _check_leftovers(files: Mapping[str, FileKind]) -> Iterator[ValidationFinding]:
    for name, kind in files.items():
        if kind.is_temporary:
            yield ValidationFinding(
                "note", f"{name} was left by a writer that was killed; it can be deleted"
            )
