"""A run directory, or one ETDump, as it was found: every file is opened once, and none later."""

from __future__ import annotations

import hashlib
import re
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Final, TypeAlias

from etprof.base.errors import EtprofError, InputFileError
from etprof.base.files import read_input
from etprof.base.json_input import MOST_JSON_BYTES, read_json
from etprof.base.records import read_record
from etprof.base.text import clean
from etprof.etdump.reader import load_etdump
from etprof.run.delegation import find_method_report
from etprof.run.directory import (
    EXPORT_MANIFEST,
    METRICS,
    find_etdumps,
    find_measured_files,
    kind_of,
    parse_metrics,
    runs_folder,
)
from etprof.run.kernel_trace import read_kernel_trace
from etprof.run.manifest import MANIFEST, WAY_OUT, parse_manifest
from etprof.run.program import ExportManifest
from etprof.run.runner_result import read_result
from etprof.run.tensors import load_tensor

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from etprof.etdump.reader import ETDump
    from etprof.run.delegation import MethodReport
    from etprof.run.directory import ExperimentMetrics, Metrics
    from etprof.run.kernel_trace import KernelTrace
    from etprof.run.manifest import Manifest
    from etprof.run.program import MethodFiles
    from etprof.run.runner_result import RunnerResult
    from etprof.run.tensors import StoredTensor

Place: TypeAlias = Path
"""Where something was read from: to be shown, and to write beside; nothing more is read there."""
REFERENCE_MODELS: Final = ("mobilenet_v2", "mobilenet_v3_small")
"""Models of known shape, nearly all convolution and matrix product; the first that is there counts."""
_IS_TIMED: Final = "times_are_meaningful"
_SAYS_TIMED: Final = (
    "it says whether the ETDump's times are performance: restore it, or measure again"
)
_TRACE: Final = re.compile(r".*_t(\d+)_kernels\.json")


@dataclass(frozen=True)
class LoadedExperiment:
    """An experiment that has an ETDump, with all that was measured beside it."""

    name: str
    etdump: Place
    dump: ETDump
    metrics: ExperimentMetrics | None = None
    result: RunnerResult | None = None
    """Of the launch that wrote the ETDump."""
    outputs: Mapping[int, StoredTensor] = field(default_factory=dict)
    problem: str | None = None
    """Why there is no result, and so no outputs, where its file is damaged."""
    kernels: KernelTrace | None = None
    """Of any launch of the same program, method, SME mode and threads."""


@dataclass(frozen=True)
class Run:
    """Everything that the files of a run say."""

    source: Place
    is_directory: bool
    experiments: tuple[LoadedExperiment, ...]
    manifest: Manifest | None = None
    metrics: Metrics | None = None
    report: MethodReport | None = None
    """What the export says of the measured method."""
    exported: ExportManifest | None = None
    references: Mapping[int, StoredTensor] = field(default_factory=dict)
    """The eager model's outputs for the inputs that were measured, as the export wrote them."""
    unsplit: Mapping[str, RunnerResult] = field(default_factory=dict)
    """A timing launch's result of each experiment that was timed and has no ETDump."""
    reference: Run | None = None
    """A run of a reference model, measured alike in the same place."""
    is_timed: bool = True
    """Whether its times are performance; an emulator's are not, and nothing of them is in here."""
    contents: Mapping[str, bytes] = field(default_factory=dict)
    """manifest.json and metrics.json to the byte: what tells this run from any other."""
    problem: str | None = None
    """Why nothing is known but the manifest and the metrics."""

    @property
    def timed(self) -> Mapping[str, ExperimentMetrics]:
        """Everything in metrics.json, experiments without an ETDump included."""
        return self.metrics.experiments if self.metrics else {}

    @property
    def method(self) -> MethodFiles | None:
        """What the export says of the measured method's files."""
        if self.manifest is None or self.exported is None:
            return None
        return self.exported.methods.get(self.manifest.model.method or self.exported.method)

    @classmethod
    def load(cls, source: Path, *, whole: bool = True) -> Run:
        """Reads a run directory or a single ETDump; raises InputFileError for damaged files.

        A run that need not be `whole` has at least its manifest and metrics, where its ETDumps, or
        what was measured beside them, are missing or damaged.
        """
        if not source.is_dir():
            alone = LoadedExperiment(clean(source.stem), source, load_etdump(source))
            is_timed = not _is_in_untimed_run(source)
            return cls(source, is_directory=False, experiments=(alone,), is_timed=is_timed)
        run = _load_measured(source)
        etdumps = find_etdumps(source)
        if not etdumps and whole:
            msg = f"{source} holds no .etdump file; {_way_to_one(source)}"
            raise InputFileError(msg)
        try:
            return _load_split(run, etdumps) if etdumps else run
        except EtprofError as error:
            if whole:
                raise
            return replace(run, problem=str(error))


def _load_measured(source: Path) -> Run:
    """Reads what was measured, and whether its times are performance.

    Where they are not, there are none from here on: no block has any. The manifest says so from
    the start, metrics.json when it is written: where either does, no time counts.
    """
    contents = {name: _read(source / name) for name in (MANIFEST, METRICS)}
    manifest = parse_manifest(contents[MANIFEST], source / MANIFEST)
    metrics = parse_metrics(contents[METRICS], source / METRICS)
    is_timed = False not in [each.times_are_meaningful for each in (manifest, metrics) if each]
    if metrics is not None and not is_timed:
        known = {
            name: each.model_copy(update={"blocks": []})
            for name, each in metrics.experiments.items()
        }
        metrics = metrics.model_copy(update={"experiments": known})
    return Run(
        source=source,
        is_directory=True,
        experiments=(),
        manifest=manifest,
        metrics=metrics,
        is_timed=is_timed,
        contents={name: content for name, content in contents.items() if content is not None},
    )


def _read(path: Path) -> bytes | None:
    if not path.exists():
        return None
    return read_input(path, most_bytes=MOST_JSON_BYTES, way_out=WAY_OUT)


def _load_split(run: Run, etdumps: Sequence[Path]) -> Run:
    """Adds the ETDumps, and what was measured and exported beside them."""
    source, known = run.source, run.timed
    traces = _Traces(source, run.manifest)
    experiments = tuple(
        _load_experiment(path, name, known.get(name), traces)
        for path, name in _experiment_names(etdumps, source, known)
    )
    run = replace(
        run,
        experiments=experiments,
        report=find_method_report(source, run.manifest),
        exported=_load_export(source),
        unsplit=_load_unsplit(source, known, {each.name for each in experiments}),
        reference=_load_reference(source, run.manifest, is_timed=run.is_timed),
    )
    return replace(run, references=_load_references(run))


def _is_in_untimed_run(etdump: Path) -> bool:
    """Whether the run in which the ETDump stands says that its times are no performance."""
    folders = etdump.absolute().parents[:2]  # the run's own, or an experiment's in it
    files = (folder / name for folder in folders for name in (MANIFEST, METRICS))
    told = [read_json(path, way_out=_SAYS_TIMED) for path in files if path.is_file()]
    return any(isinstance(each, dict) and each.get(_IS_TIMED) is False for each in told)


class _Traces:
    """All kernel traces of a run, by what was traced: whoever asks for the same, gets them."""

    def __init__(self, run: Path, manifest: Manifest | None) -> None:
        method = manifest.model.method if manifest else None
        files = find_measured_files(run).items()
        found = [run / name for name, kind in files if kind == "kernels"]
        self._by_place = {path: read_kernel_trace(path) for path in found}
        self._by_identity: dict[tuple[str, int], KernelTrace] = {
            (trace.sme.in_force, int(named[1])): trace
            for path, trace in sorted(self._by_place.items(), reverse=True)
            if (named := _TRACE.fullmatch(path.name)) and method in {None, trace.method}
        }

    def find(self, etdump: Path, metrics: ExperimentMetrics | None) -> KernelTrace | None:
        """Returns the experiment's own trace, else one of its program, mode and threads."""
        own = self._by_place.get(etdump.with_name(f"{etdump.stem}_kernels.json"))
        if own is not None or metrics is None:
            return own
        return self._by_identity.get((metrics.sme or "", metrics.threads))


def _load_experiment(
    etdump: Path, name: str, metrics: ExperimentMetrics | None, traces: _Traces
) -> LoadedExperiment:
    path, result, problem = etdump.with_name(f"{etdump.stem}_result.json"), None, None
    try:
        result = read_result(path) if path.is_file() else None
    except InputFileError as error:
        # The times stand in metrics.json.
        problem = str(error)
    folder = etdump.with_name(f"{etdump.stem}_outputs")
    outputs = {
        each.index: load_tensor(place, each.dtype, each.shape)
        for each in (result.outputs if result else ())
        if (place := folder / f"output_{each.index}.bin").is_file()
    }
    return LoadedExperiment(
        name=name,
        etdump=etdump,
        dump=load_etdump(etdump),
        metrics=metrics,
        result=result,
        outputs=outputs,
        problem=problem,
        kernels=traces.find(etdump, metrics),
    )


def _experiment_names(
    etdumps: Sequence[Path], run: Path, known: Mapping[str, ExperimentMetrics]
) -> Iterator[tuple[Path, str]]:
    """Names experiments as metrics.json does; without it by folder, or by file if it has several."""
    named = {run / metrics.etdump: name for name, metrics in known.items() if metrics.etdump}
    folders = [path.parent for path in etdumps]
    for path in etdumps:
        is_one_of_several = path.parent == run or folders.count(path.parent) > 1
        own = clean(path.stem if is_one_of_several else path.parent.name)
        yield path, named.get(path) or own


def _way_to_one(folder: Path) -> str:
    """Names the run directories below `folder`, such as out_toy_cnn's, or says how to make one."""
    if (folder / METRICS).is_file():
        return (
            f"{METRICS} has its times (`etprof validate` lists them, `etprof history add` keeps "
            "them); `etprof run CONFIG --resume` makes the operator split"
        )
    found = [
        path.parent for pattern in ("", "*/", "*/*/") for path in folder.glob(pattern + MANIFEST)
    ]
    runs = ", ".join(str(path) for path in sorted(found)[:3] if path != folder)
    return f"give a run directory: {runs}" if runs else "measure with `etprof profile MODEL` first"


def _load_export(run: Path) -> ExportManifest | None:
    path = run / EXPORT_MANIFEST
    if not path.is_file():
        return None
    return read_record(ExportManifest, path, way_out="delete it to do without what it says")


def _load_unsplit(
    run: Path, known: Mapping[str, ExperimentMetrics], split: set[str]
) -> dict[str, RunnerResult]:
    """Reads the first timing launch's result, beside where the ETDump would be."""
    found = {}
    for name, metrics in known.items():
        if name in split or not metrics.blocks or metrics.etdump is None:
            continue
        stem = metrics.etdump.rpartition(".")[0]
        file = f"{stem}_b{metrics.blocks[0].block:02d}_result.json"
        if kind_of(file) is None:
            # A path of its own, out of the run.
            continue
        try:
            found[name] = read_result(run / file)
        except EtprofError:
            # Without it nobody can say how the runner was built; the times are in metrics.json.
            continue
    return found


def _load_references(run: Run) -> dict[int, StoredTensor]:
    """Reads the eager model's outputs beside the program, where they are still the export's.

    None for other inputs than the export's: what the outputs should be is then not known.
    """
    method, manifest = run.method, run.manifest
    if method is None or manifest is None:
        return {}
    given = [entry.sha256 for entry in manifest.inputs or ()]
    examples = [tensor.sha256 for tensor in method.inputs if tensor.path is not None]
    if given != examples or None in given:
        return {}
    folder, found = Path(manifest.model.path or "").parent, {}
    for index, expected in enumerate(method.references):
        path = folder / (expected.path or "")
        if not path.is_file():
            continue
        tensor = load_tensor(path, expected.dtype, expected.shape)
        if hashlib.sha256(tensor.data).hexdigest() == expected.sha256:
            found[index] = tensor
    return found


def _load_reference(source: Path, mine: Manifest | None, *, is_timed: bool) -> Run | None:
    """Reads the run of a reference model that was measured as this one was; None without one.

    Runs stand in out_<model>/runs/<platform>, so it is looked for beside the run's own model.
    """
    if mine is None or mine.model.name in REFERENCE_MODELS:
        return None
    real = source.resolve()
    if real.parent.name != "runs" or not is_timed:
        return None
    for model in REFERENCE_MODELS:
        place = runs_folder(model, real.name, root=real.parents[2])
        try:
            if place.is_dir() and find_etdumps(place):
                run = Run.load(place)
                if run.metrics and run.is_timed and _kind(run.manifest) == _kind(mine):
                    return run
        except InputFileError:
            # A damaged reference is none: nobody asked for it by name.
            continue
    return None


def _kind(manifest: Manifest | None) -> tuple[object, ...]:
    if manifest is None:
        return ()
    cpu = manifest.cpu
    return (
        manifest.platform,
        cpu and (cpu.model_name, cpu.architecture),
        manifest.model.precision,
    )
