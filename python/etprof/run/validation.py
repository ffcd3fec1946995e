"""Checks a run directory: is it complete, unchanged and plausible, and if not, what is lost?"""

from __future__ import annotations

import os
import statistics
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Literal

import numpy as np

from etprof.base.errors import EtprofError, InputFileError
from etprof.base.files import hash_file
from etprof.base.text import clean
from etprof.base.units import count_of
from etprof.etdump.plausibility import describe_position, examine_events
from etprof.etdump.reader import load_etdump
from etprof.run.directory import (
    ANALYSIS_SUMMARY,
    METRICS,
    find_etdumps,
    find_measured_files,
    kind_of,
    list_files,
    load_metrics,
)
from etprof.run.manifest import MANIFEST, load_manifest

if TYPE_CHECKING:
    from collections.abc import Iterator

    from etprof.etdump.reader import ETDump
    from etprof.run.directory import Metrics
    from etprof.run.manifest import Manifest, MeasuredFile

Level = Literal["ok", "note", "incomplete", "damaged"]
_LEVELS: tuple[Level, ...] = ("ok", "note", "incomplete", "damaged")
_NOISY = 0.05
"""Spread of block medians, relative, from which a measurement is called noisy (rule F13)."""
_COLD = 1.2
"""First quarter of a block's samples this much slower than the rest: warm-up was too short."""


@dataclass(frozen=True)
class Finding:
    """One thing that was checked."""

    level: Level
    text: str


def validate_run(run: Path) -> list[Finding]:
    """Checks everything that can be checked; raises InputFileError when `run` is no folder."""
    if not run.is_dir():
        msg = f"{run} is not a run directory; `etprof profile MODEL` makes one"
        raise InputFileError(msg)
    findings: list[Finding] = []
    manifest, metrics = None, None
    try:
        manifest = load_manifest(run)
        findings += _check_manifest(run, manifest)
    except InputFileError as error:
        findings.append(Finding("damaged", str(error)))
    try:
        metrics = load_metrics(run)
        findings += _check_metrics(metrics)
    except InputFileError as error:
        findings.append(Finding("damaged", str(error)))
    findings += _check_etdumps(run)
    findings += _check_leftovers(run)
    return [Finding(finding.level, clean(finding.text)) for finding in findings]


def worst_level(findings: list[Finding]) -> Level:
    """Returns the gravest level found."""
    return max((finding.level for finding in findings), key=_LEVELS.index, default="ok")


def _check_manifest(run: Path, manifest: Manifest | None) -> Iterator[Finding]:
    if manifest is None:
        lost = "who measured what, where and with what; files cannot be checked for changes"
        yield Finding("incomplete", f"{MANIFEST} is missing; lost: {lost}")
        return
    failed = [launch for launch in manifest.launches if launch.error is not None]
    done = len(manifest.launches) - len(failed)
    if manifest.status == "running":
        yield Finding(
            "incomplete",
            f"the run was cut off after {done} finished launches; "
            "`etprof run CONFIG --resume` completes it",
        )
    else:
        by = f", measured by etprof {manifest.etprof_version}" if manifest.etprof_version else ""
        yield Finding("ok", f"{done} launches finished on {manifest.platform}{by}")
    for launch in failed:
        where = f"{launch.experiment}, {launch.purpose}"
        yield Finding("incomplete", f"a launch of {where} failed: {launch.error}")
    tried = {launch.experiment for launch in manifest.launches}
    for experiment in manifest.experiments:
        if experiment.name not in tried and manifest.status != "running":
            yield Finding("incomplete", f"{experiment.name} was not measured")
    yield from _check_sessions(manifest)
    yield from (Finding("note", text) for text in manifest.notes)
    yield from _check_runners(manifest)
    yield from _check_hashes(run, manifest)


def _check_sessions(manifest: Manifest) -> Iterator[Finding]:
    """Names the sessions of another working tree: the run counts as the first one's."""
    for session in manifest.resumptions:
        if (session.git, session.pins) != (manifest.git, manifest.pins):
            commit = session.git.commit if session.git else "none"
            text = (
                f"continued at {session.created_at} with other packages or from another working "
                f"tree (commit {commit}); the run counts as of the first"
            )
            yield Finding("note", text)


def _check_runners(manifest: Manifest) -> Iterator[Finding]:
    """Names experiments whose runner was another file in some of their timing launches."""
    for experiment in manifest.experiments:
        started = {
            launch.runner_sha256
            for launch in manifest.launches
            if launch.experiment == experiment.name and launch.purpose == "timing"
        }
        if len(started) > 1:
            text = f"{experiment.name}: its runner changed between launches; measure it anew"
            yield Finding("note", text)


def _check_hashes(run: Path, manifest: Manifest) -> Iterator[Finding]:
    """Compares the measured files with the manifest: all of them, and no others."""
    damaged = 0
    # Manifests of etprof up to 0.1 name reports too.
    listed = {name: entry for name, entry in manifest.files.items() if kind_of(name) is not None}
    for name, entry in listed.items():
        problem = _problem_of(run, name, entry)
        if problem is not None:
            damaged += 1
            yield Finding("damaged", problem)
    if manifest.status != "running":
        others = sorted(find_measured_files(run).keys() - listed.keys())
        if manifest.schema_version == 1 and others:
            # It closed its manifest before it measured kernels.
            text = f"{len(others)} files are not in {MANIFEST}: changes to them are not seen"
            yield Finding("note", text)
            others = []
        for name in others:
            damaged += 1
            yield Finding("damaged", f"{name} is not of this run: {MANIFEST} does not list it")
    if listed and not damaged:
        yield Finding("ok", f"{len(listed)} files have the hashes of the manifest")
    if manifest.schema_version == 1:
        text = f"{MANIFEST} is of etprof 0.1, without checksum: changes to it itself are not seen"
        yield Finding("note", text)


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


def _check_metrics(metrics: Metrics | None) -> Iterator[Finding]:
    if metrics is None:
        yield Finding("incomplete", f"{METRICS} is missing; lost: latency without event tracer")
        return
    for name, experiment in metrics.experiments.items():
        blocks = [block.latency_ns for block in experiment.blocks]
        yield Finding("ok", f"{name}: {len(blocks)} timing blocks")
        if any(latency <= 0 for block in blocks for latency in block):
            yield Finding("damaged", f"{name}: a latency of zero is not plausible")
            continue
        yield from _check_noise(name, blocks)


def _check_noise(name: str, blocks: list[list[int]]) -> Iterator[Finding]:
    """Looks at spread between blocks, and within them for a warm-up that was too short."""
    medians = [statistics.median(block) for block in blocks]
    if len(medians) > 1:
        spread = statistics.stdev(medians) / statistics.mean(medians)
        if spread > _NOISY:
            text = f"{name}: block medians spread by {spread * 100:.0f} %; measure when it is quiet"
            yield Finding("note", text)
    cold = sum(_starts_cold(block) for block in blocks)
    if cold > len(blocks) / 2:
        yield Finding("note", f"{name}: most blocks start slow; ask for more warm-up")


def _starts_cold(block: list[int]) -> bool:
    quarter = len(block) // 4
    if quarter == 0:
        return False
    return statistics.median(block[:quarter]) > _COLD * statistics.median(block[quarter:])


def _check_etdumps(run: Path) -> Iterator[Finding]:
    etdumps = find_etdumps(run)
    if not etdumps:
        yield Finding("incomplete", "there is no ETDump; lost: the split by operator")
    for path in etdumps:
        name = path.relative_to(run).as_posix()
        try:
            dump = load_etdump(path)
        except EtprofError as error:
            yield Finding("damaged", str(error))
            continue
        yield _check_events(name, dump)
    if etdumps and not (run / ANALYSIS_SUMMARY).is_file():
        yield Finding("note", f"{ANALYSIS_SUMMARY} is missing; `etprof analyze` writes it")


def _check_events(name: str, dump: ETDump) -> Finding:
    events = examine_events(dump)
    wrong = np.flatnonzero(events.impossible)
    if not wrong.size:
        return Finding("ok", f"{name}: {count_of(events.roles.size, 'event')}")
    executions = int(np.count_nonzero(~events.execution_possible))
    return Finding(
        "damaged",
        f"{name}: {wrong.size} of {count_of(events.roles.size, 'event')} cannot be so, in "
        f"{executions} of {count_of(events.execution_possible.size, 'execution')}; the first is "
        f"{describe_position(dump, int(wrong[0]))}",
    )


def _check_leftovers(run: Path) -> Iterator[Finding]:
    for name, kind in list_files(run).items():
        if kind.is_temporary:
            yield Finding("note", f"{name} was left by a writer that was killed; it can be deleted")
