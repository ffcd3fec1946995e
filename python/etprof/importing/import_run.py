"""Makes a run directory of other programs' files; its notes name what is missing.

The same records write it that write a measured run, so whatever reads runs reads it.
"""

from __future__ import annotations

import hashlib
import sys
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Final

from etprof._version import __version__
from etprof.base.atomic import json_bytes, write_bytes
from etprof.base.errors import UsageError
from etprof.base.files import MOST_PROGRAM_BYTES, read_input
from etprof.base.text import clean
from etprof.etdump.reader import open_etdump
from etprof.importing.clock import Clock, find_clock
from etprof.importing.sources import (
    ETDUMP,
    ETRECORD,
    MINIBENCH,
    PROGRAM,
    TIMINGS,
    ImportedTiming,
    Source,
    of_kind,
    read_timing,
    recognise,
)
from etprof.run.directory import (
    DELEGATION_REPORT,
    METRICS,
    BlockMetrics,
    ExperimentFiles,
    ExperimentMetrics,
    Metrics,
    experiment_files,
    kind_of,
    launch_suffix,
    reserved,
    runs_folder,
    set_aside,
)
from etprof.run.manifest import (
    Experiment,
    ImportedFile,
    ImportSource,
    LaunchRecord,
    Manifest,
    MeasuredFile,
    MeasuredModel,
    identify,
    new_run_id,
    save_manifest,
)
from etprof.run.runner_result import LoadTime, Memory
from etprof.targets.registry import proves_times

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from etprof.run.delegation import DelegationReport
    from etprof.run.manifest import Purpose

    Describe = Callable[[Path, Path], DelegationReport]

UNKNOWN: Final = "unknown"
PLATFORMS: Final = ("android", "ios", "mac", "linux", "emulator", UNKNOWN)
_NAME: Final = "imported"


@dataclass(frozen=True, kw_only=True)
class ImportRequest:
    """What to import, and what the files do not say."""

    files: Sequence[Path]
    folder: Path | None = None
    """Default: out_<model>/runs/<platform>."""
    model: str | None = None
    precision: str | None = None
    platform: str | None = None
    sme: str | None = None
    threads: int | None = None
    inferences: int | None = None
    """Whose mean a result has that keeps no more."""
    time_scale: str | None = None
    clock_hz: float | None = None


@dataclass(frozen=True)
class ImportedRun:
    """A run directory that was made of other programs' files."""

    folder: Path
    manifest: Manifest
    set_aside: Path | None


def import_run(request: ImportRequest, *, describe: Describe | None = None) -> ImportedRun:
    """Makes the run directory; an earlier run there is set aside.

    `describe` reads program and ETRecord, which takes torch. Raises UsageError for what only the
    user can say, and InputFileError for a file that is damaged or none of these.
    """
    sources = [recognise(path) for path in request.files]
    timings = [read_timing(source) for source in of_kind(sources, *TIMINGS)]
    if not timings and not of_kind(sources, ETDUMP):
        msg = "no ETDump and no timing is among the files: there is nothing to make a run of"
        raise UsageError(msg)
    maker = _Maker(request, sources, timings)
    report = maker.read_report(describe)
    earlier_run = set_aside(maker.folder)
    with reserved(maker.folder):
        return ImportedRun(maker.folder, maker.write(report), earlier_run)


class _Maker:
    """Everything that the files and the user say of one run."""

    def __init__(
        self, request: ImportRequest, sources: Sequence[Source], timings: Sequence[ImportedTiming]
    ) -> None:
        self._request, self._sources, self._timings = request, sources, timings
        self._dumps = of_kind(sources, ETDUMP)
        self._clock = self._find_clock()
        program = self._only(PROGRAM)
        stem = next((source.path.stem for source in (program, *self._dumps) if source), UNKNOWN)
        model_name = self._agreed_value("model") or clean(stem)
        self._model = MeasuredModel(
            name=clean(request.model) if request.model else model_name,
            method=self._agreed_value("method") or "forward",
            precision=request.precision or self._agreed_value("precision"),
            backend=self._agreed_value("backend"),
            **dict(identify(program.path)) if program else {},
        )
        self._platform = platform = request.platform or self._agreed_value("platform") or UNKNOWN
        self._threads = request.threads or self._agreed_threads()
        self._experiment = Experiment(
            name=request.sme or _NAME,
            # Of what nobody says, only the files' names have a number.
            threads=self._threads or 0,
            **{"sme": request.sme} if request.sme else {},
        )
        self.folder = request.folder or runs_folder(self._model.name, platform)
        self._manifest = Manifest(
            run_id=new_run_id(),
            created_at=datetime.now(UTC).isoformat(timespec="seconds"),
            etprof_version=__version__,
            command=tuple(sys.argv),
            platform=platform,
            times_are_meaningful=proves_times(platform),
            model=self._model,
            target=dict(next((timing.device for timing in timings if timing.device), {})),
            experiments=(self._experiment,),
            notes=tuple(self._missing()),
            imported=ImportSource(
                sources=tuple(
                    ImportedFile(kind=source.kind, **dict(identify(source.path, source.path.name)))
                    for source in sources
                ),
                ns_per_tick=self._clock.ns_per_tick if self._clock else None,
                clock=self._clock.text if self._clock else None,
            ),
        )
        self._files: dict[str, MeasuredFile] = {}
        self._launches: list[LaunchRecord] = []

    def _only(self, kind: str) -> Source | None:
        sources = of_kind(self._sources, kind)
        if len(sources) > 1:
            names = ", ".join(str(source.path) for source in sources)
            raise UsageError(f"a run is of one {kind}, not of {names}; import them one by one")
        return sources[0] if sources else None

    def _agreed_value(self, name: str) -> str | None:
        """What all timing files say of the same; raises UsageError where they differ."""
        values = {value for timing in self._timings if (value := getattr(timing, name)) is not None}
        if len(values) > 1:
            listed = ", ".join(sorted(values))
            raise UsageError(f"the files are of more than one {name} ({listed}); import each alone")
        return next(iter(values), None)

    def _agreed_threads(self) -> int | None:
        counts = {timing.threads for timing in self._timings if timing.threads is not None}
        if len(counts) > 1:
            raise UsageError(f"the logs are of {sorted(counts)} threads; import each alone")
        return next(iter(counts), None)

    def _find_clock(self) -> Clock | None:
        """Returns the clock of all ETDumps; those of one run are of one machine."""
        request = self._request
        if not self._dumps:
            if request.time_scale or request.clock_hz:
                raise UsageError("--time-scale and --clock-hz are of an ETDump; there is none")
            return None
        logged = [timing.executed_ns for timing in self._timings]
        # Only then is each log of an ETDump's own launch.
        executed = logged if len(logged) == len(self._dumps) else [None] * len(self._dumps)
        clocks = [
            find_clock(
                open_etdump(dump.path),
                request.time_scale, request.clock_hz, executed_ns,
            )
            for dump, executed_ns in zip(self._dumps, executed, strict=True)
        ]  # fmt: skip
        if len({clock.ns_per_tick for clock in clocks}) > 1:
            raise UsageError("the ETDumps are of several clocks; import each alone")
        return clocks[0]

    def _missing(self) -> Iterator[str]:
        """Says what the files do not, and what that costs."""
        yield from dict.fromkeys(note for timing in self._timings for note in timing.notes)
        if not self._dumps:
            yield "there is no ETDump: where the time goes is not known"
        elif not any(imported_timing.latency_ns for imported_timing in self._timings):
            yield "there is no timing beside the ETDump: latency without tracer is not known"
        if self._request.sme is None:
            yield "the SME mode is not known; --sme says it"
        if self._threads is None:
            yield "the number of threads is not known; --threads says it"
        if of_kind(self._sources, ETRECORD) and self._only(PROGRAM) is None:
            yield "an ETRecord alone names no modules: the program belongs to it"
        elif not of_kind(self._sources, ETRECORD):
            yield "there is no ETRecord: modules and source lines of operators are not known"
        if self._platform == UNKNOWN:
            yield "the platform is not known; --platform says it"
        yield "kernels, build of the runner, CPU and state of the device are not known"

    def read_report(self, describe: Describe | None) -> DelegationReport | None:
        """Reads ETRecord and program together; None without both."""
        program, record = self._only(PROGRAM), self._only(ETRECORD)
        if program is None or record is None or describe is None:
            return None
        return describe(program.path, record.path)

    def write(self, report: DelegationReport | None) -> Manifest:
        """Writes evidence first, then the manifest that lists it."""
        label, setup = self._model.label or self._model.name, self._experiment
        files = experiment_files(self.folder, label, setup.folder, setup.threads)
        for number, source in enumerate(self._dumps):
            suffix = launch_suffix("operators", number)
            # The same name as a measured one, whatever the file was called.
            self._keep(files.file(f"{suffix}.etdump"), source.path)
            self._add("operators", number, None)
        blocks = list(self._blocks(files))
        if report is not None:
            content = json_bytes(report.model_dump(mode="json"))
            self._write(self.folder / DELEGATION_REPORT, content)
        metrics = Metrics(
            run_id=self._manifest.run_id,
            times_are_meaningful=self._manifest.times_are_meaningful is not False,
            experiments={
                setup.name: ExperimentMetrics(
                    sme=self._request.sme,
                    threads=self._threads,
                    etdump=files.etdump.relative_to(self.folder).as_posix()
                    if self._dumps
                    else None,
                    blocks=blocks,
                )
            },
        )
        self._write(self.folder / METRICS, json_bytes(metrics.model_dump(mode="json")))
        manifest = self._manifest.model_copy(
            update={
                "launches": tuple(self._launches),
                "files": dict(sorted(self._files.items())),
            }
        )
        save_manifest(self.folder, manifest)
        return manifest

    def _blocks(self, files: ExperimentFiles) -> Iterator[BlockMetrics]:
        """Keeps every timing file, and yields those that have a steady latency."""
        sources = of_kind(self._sources, *TIMINGS)
        for number, (source, timing) in enumerate(zip(sources, self._timings, strict=True)):
            ending = "json" if source.kind == MINIBENCH else "txt"
            self._keep(files.file(f"_source_{number:02d}.{ending}"), source.path)
            if not timing.latency_ns:
                continue
            self._add("timing", number, timing.executed_ns)
            yield BlockMetrics(
                block=number,
                load=LoadTime(together_ns=timing.load_ns),
                first_inference_ns=timing.first_ns,
                warmup_latency_ns=[],
                latency_ns=list(timing.latency_ns),
                is_traced=timing.is_traced,
                inferences_per_sample=(self._request.inferences or 1)
                if source.kind == MINIBENCH
                else 1,
                memory=Memory(
                    peak_rss_bytes=timing.peak_bytes, planned_buffers_bytes=timing.planned_bytes
                ),
            )

    def _add(self, purpose: Purpose, number: int, took_ns: int | None) -> None:
        duration_s = None if took_ns is None else took_ns / 1e9
        launch = LaunchRecord(
            experiment=self._experiment.name, purpose=purpose, block=number, duration_s=duration_s
        )
        self._launches.append(launch)

    def _keep(self, path: Path, source: Path) -> None:
        hint = "give it again"
        self._write(path, read_input(source, most_bytes=MOST_PROGRAM_BYTES, way_out=hint))

    def _write(self, path: Path, content: bytes) -> None:
        write_bytes(path, content)
        name = path.relative_to(self.folder).as_posix()
        digest = hashlib.sha256(content).hexdigest()
        file = MeasuredFile(kind=kind_of(name), sha256=digest, size_bytes=len(content))
        self._files[name] = file
