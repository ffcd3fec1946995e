"""The run directory: the border between measuring and reading. Names, layout, load, save."""

from __future__ import annotations

import fcntl
import os
import re
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Annotated, Final, Literal, Self

from pydantic import Field, model_validator

from etprof.base.errors import InputFileError, OutputError
from etprof.base.files import read_input
from etprof.base.json_input import MOST_JSON_BYTES, decode_json
from etprof.base.records import Count, Name, Named, Rate, Record, check_record, read_record
from etprof.run.manifest import MANIFEST, WAY_OUT, Manifest, load_manifest, resume_hint
from etprof.run.runner_result import ClockQuality, Conditions, LoadTime, Memory

METRICS = "metrics.json"
ANALYSIS_SUMMARY = "analysis_summary.json"
DELEGATION_REPORT = "delegation.json"
EXPORT_MANIFEST = "export.json"

_UNSAFE = re.compile(r"[^A-Za-z0-9_.+-]+")


@dataclass(frozen=True)
class FileKind:
    """One kind of file in a run directory, known by its path there."""

    name: str
    pattern: re.Pattern[str]
    is_measured: bool = False
    """Whether it can never be made again from others: it is evidence, hashed and guarded."""
    is_temporary: bool = False
    """Whether its writer gives it this name until it is whole."""


def _kind(name: str, pattern: str, **role: bool) -> FileKind:
    return FileKind(name, re.compile(pattern), **role)


_PLACE: Final = r"([^/]+/)?[^/]+"
"""At the top, or in an experiment's folder."""
_KINDS: Final = (
    _kind("temporary", r"(.+/)?(\.[^/]+\.[a-z0-9_]{8,}|[^/]+\.tmp\d+)", is_temporary=True),
    _kind("temporary", r"(.+/)?\.[^/]+_outputs\.[0-9a-f]{12}/[^/]+", is_temporary=True),
    _kind("metrics", re.escape(METRICS), is_measured=True),
    _kind("delegation", rf"([^/]+\.)?{re.escape(DELEGATION_REPORT)}", is_measured=True),
    _kind("export", rf"([^/]+\.)?{re.escape(EXPORT_MANIFEST)}", is_measured=True),
    _kind("etdump", _PLACE + r"\.(etdump|etdp)", is_measured=True),
    _kind("result", _PLACE + r"_result\.json", is_measured=True),
    _kind("kernels", _PLACE + r"_kernels\.json", is_measured=True),
    _kind("clock", _PLACE + r"_clock\.json", is_measured=True),
    _kind("instructions", _PLACE + r"_instructions\.json", is_measured=True),
    _kind("outputs", _PLACE + r"_outputs/[^/]+", is_measured=True),
    _kind("log", r"[^/]+/[^/]+(\.log|_(logcat|runner)\.txt)", is_measured=True),
    _kind("source", r"[^/]+/[^/]+_source(_\d+)?\.(txt|json)", is_measured=True),
    _kind("manifest", re.escape(MANIFEST)),
    _kind("summary", re.escape(ANALYSIS_SUMMARY)),
    _kind("report", r"report(_[^/]*)?\.[a-z-]+|(calibration|kernel_evidence)\.json"),
    _kind("table", _PLACE + r"_(timeline|ops_stats)\.csv"),
)
"""Every file that etprof writes into a run directory, and so every file that it reads there."""
OF_A_LAUNCH = re.compile(r"_t\d+(_|\.)")
"""In the names of what launches leave, by `experiment_files`."""
_OF_A_SPLIT = re.compile(r"(.+_t\d+)_o(\d{2,4})")
"""Names of ETDumps after an experiment's first."""
_OF_OUTPUTS = re.compile(r".+_outputs(\.[0-9a-f]{12})?")
"""Folders in an experiment's folder that hold files of ours; the last until it is whole."""


class GenerationMetrics(Record):
    """Speeds of the generations in one process launch; one value each, but for token latencies."""

    time_to_first_token_ns: Annotated[list[Count], Field(min_length=1)]
    prefill_tokens_per_second: Annotated[list[Rate], Field(min_length=1)]
    """Tokens of the prompt ÷ time until the prompt was read."""
    decode_tokens_per_second: list[Rate]
    """New tokens after the first ÷ time from the first to the last; none for one new token."""
    token_latency_ns: list[Count]
    """From each new token to the next, all generations one after another."""
    first_of_process_ns: Count | None = None
    """Time to first token of the process's first generation; None where the runner does not say."""

    @model_validator(mode="after")
    def _rates_and_latencies_belong_together(self) -> Self:
        if bool(self.decode_tokens_per_second) != bool(self.token_latency_ns):
            msg = "decode_tokens_per_second and token_latency_ns: one is empty, the other is not"
            raise ValueError(msg)
        if self.token_latency_ns and not any(self.token_latency_ns):
            msg = "token_latency_ns: no token took any time, so there is no rate"
            raise ValueError(msg)
        return self


class GeneratedTokens(Record):
    """What an experiment generated."""

    prompt_tokens: list[Count]
    tokens: list[Count]
    prefill_method: Name
    decode_method: Name
    prefilled_tokens: Count
    prompt: str | None = None
    text: str | None = None
    """The new tokens as text, where a tokenizer was given."""
    differing_blocks: list[Count] = Field(default_factory=list)
    """Launches that generated other tokens, although the experiment is the same."""


class BlockMetrics(Record):
    """What one process launch measured; times in ns."""

    block: Count
    load: LoadTime
    first_inference_ns: Count | None = None
    """None where another program measured and does not say."""
    warmup_latency_ns: list[Count]
    latency_ns: Annotated[list[Count], Field(min_length=1)]
    """One inference each, or where tokens were generated, one whole generation each."""
    is_steady: bool | None = None
    """Whether the warm-up ended steady; None where it was not asked for."""
    given_ns: Count | None = None
    """Median time of giving the inputs; None where that is a part of what is timed."""
    taken_ns: Count | None = None
    """The same of taking the outputs."""
    inferences_per_sample: Annotated[int, Field(gt=0)] = 1
    is_traced: bool = False
    """Whether another program timed them while it recorded events."""
    clock: ClockQuality | None = None
    conditions: Conditions | None = None
    memory: Memory
    generation: GenerationMetrics | None = None

    @property
    def timed_ns(self) -> int:
        """Everything between two readings of the clock."""
        return sum(self.latency_ns) * self.inferences_per_sample


class ExperimentMetrics(Record):
    """All blocks of one experiment."""

    sme: Name | None
    """In force; None where the runner did not say."""
    threads: Count | None = None
    """In force; None where another program measured and does not say."""
    etdump: Name | None = None
    """The per-operator breakdown's ETDump, relative to the run directory."""
    generated: GeneratedTokens | None = None
    blocks: list[BlockMetrics]


class Summary(Record):
    """What is read of analysis_summary.json: whose it is."""

    run_id: Name | None = None


class Metrics(Record):
    """metrics.json: raw latencies, load times and memory of every block."""

    schema_version: Literal[1] = 1
    run_id: Name | None = None
    """The manifest's; None where etprof 0.1 measured."""
    times_are_meaningful: bool
    experiments: Named[ExperimentMetrics]


@dataclass(frozen=True)
class ExperimentFiles:
    """The files of one experiment; each may be missing."""

    name: str
    folder: Path
    stem: str

    def file(self, suffix: str) -> Path:
        """Returns the path of the file with this ending, such as `.etdump`."""
        return self.folder / f"{self.stem}{suffix}"

    @property
    def etdump(self) -> Path:
        """The per-operator breakdown's ETDump."""
        return self.file(".etdump")


def safe_name(text: str) -> str:
    """Makes a file name of a name that came from outside; never empty, hidden or a path."""
    return _UNSAFE.sub("_", text).strip(".") or "model"


def name_of_program(description: str, program: str) -> str:
    """Names a description of the program that experiments call so; empty: of the run's model."""
    return f"{safe_name(program)}.{description}" if program else description


def runs_folder(model: str, platform: str, *, root: Path | None = None) -> Path:
    """Returns out_<model>/runs/<platform> below `root` (default: the working folder)."""
    return (root or Path()) / f"out_{safe_name(model)}" / "runs" / platform


def experiment_files(run: Path, model: str, experiment: str, threads: int) -> ExperimentFiles:
    """Names the files of one experiment at one thread count."""
    name = safe_name(experiment)
    return ExperimentFiles(name, run / name, f"{safe_name(model)}_{name}_t{threads}")


def launch_suffix(purpose: str, number: int | None) -> str:
    """Ends the names of what a launch leaves; the first operator launch has no suffix."""
    if purpose == "timing":
        return f"_b{number:02d}"
    if purpose == "operators":
        return f"_o{number:02d}" if number else ""
    return f"_{purpose}"


def remove_empty_folders(run: Path) -> None:
    """Removes the empty folders in `run`, then `run` and its parents while they are empty."""
    if not run.is_dir():
        return
    inside = [path for path in run.iterdir() if path.is_dir()]
    for folder in (*inside, run, *run.parents):
        if folder == Path() or any(folder.iterdir()):
            return
        folder.rmdir()


@contextmanager
def reserved(run: Path) -> Iterator[None]:
    """Keeps `run`, which is made if needed, from other processes while it is measured into.

    Raises OutputError when one is measuring there. The system ends the reservation with the
    process, however that ends; where it cannot lock folders, there is none.
    """
    descriptor: int | None = None
    try:
        # A later write reports what is wrong with the folder.
        with suppress(OSError):
            run.mkdir(parents=True, exist_ok=True)
            descriptor = os.open(run, os.O_RDONLY | os.O_CLOEXEC)
            _lock(descriptor, run)
        yield
    finally:
        if descriptor is not None:
            os.close(descriptor)


def _lock(descriptor: int, run: Path) -> None:
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError as error:
        msg = f"another etprof is measuring into {run}; wait for it, or choose another folder"
        raise OutputError(msg) from error


def set_aside(run: Path) -> Path | None:
    """Renames an earlier run directory after its time, so that two runs never mix.

    Returns the new path, or None when there was nothing. Raises OutputError when the folder is
    or holds anything else, which is never touched, or a run that is being measured.
    """
    if not run.exists() or (run.is_dir() and not any(run.iterdir())):
        return None
    with reserved(run):
        problem = _not_a_run_reason(run)
        if problem is not None:
            msg = f"{run} {problem}; move it away yourself, or choose another folder with --out"
            raise OutputError(msg)
        return _rename_after_its_time(run, run / MANIFEST)


def put_back(earlier: Path, run: Path) -> bool:
    """Gives a run that was set aside its name again, if nothing was written in its place."""
    if run.exists() and any(run.iterdir()):
        return False
    with suppress(FileNotFoundError):
        run.rmdir()
    earlier.rename(run)
    return True


def _not_a_run_reason(run: Path) -> str | None:
    """Says why a folder is not a run directory of ours and nothing else; None when it is."""
    try:
        manifest = load_manifest(run) if run.is_dir() else None
    except InputFileError:
        return f"has a {MANIFEST} that is damaged, or of something else"
    if manifest is None:
        return "exists and is not a run directory"
    folders = {
        safe_name(experiment.group or experiment.name) for experiment in manifest.experiments
    }
    listed = {name.partition("/")[0] for name in manifest.files} | folders
    for path in sorted(run.iterdir()):
        if path.name in listed or (find_kind(path.name) and not path.is_dir()):
            continue
        # Of an experiment that the manifest names no longer: a resumed run may leave some out.
        if path.is_dir() and any(OF_A_LAUNCH.search(inside.name) for inside in path.iterdir()):
            continue
        return f"holds {path.name}, which is of no measurement"
    return None


def _rename_after_its_time(run: Path, changed: Path) -> Path:
    moment = datetime.fromtimestamp(changed.stat().st_mtime, UTC).strftime("%Y%m%dT%H%M%SZ")
    target = run.with_name(f"{run.name}_{moment}")
    count = 1
    while target.exists():
        count += 1
        target = run.with_name(f"{run.name}_{moment}_{count}")
    run.rename(target)
    return target


def find_set_aside(run: Path, since: datetime, *, limit: int = 100) -> list[Path]:
    """Lists what `set_aside` has renamed from `run` after `since`, the oldest first."""
    pattern = re.compile(rf"{re.escape(run.name)}_(\d{{8}}T\d{{6}}Z)(_\d+)?")
    first = since.astimezone(UTC).strftime("%Y%m%dT%H%M%SZ")
    try:
        names = [path.name for path in run.parent.iterdir() if pattern.fullmatch(path.name)]
    except (OSError, ValueError):
        return []
    later = sorted(name for name in names if name[len(run.name) + 1 :] >= first)
    return [run.with_name(name) for name in later[:limit]]


def find_kind(name: str) -> FileKind | None:
    """Returns which kind of file this is, by its path in the run directory; None: not ours."""
    if ".." in name.split("/"):
        return None
    return next((kind for kind in _KINDS if kind.pattern.fullmatch(name)), None)


def list_files(run: Path) -> dict[str, FileKind]:
    """Lists the files of ours in a run directory, in order of their names.

    Whoever reads, hashes, validates or tidies takes them from here: a file that this does not
    list is none of the run's, wherever it stands.
    """
    paths = _walk(run, 2) if run.is_dir() else ()
    names = sorted(path.relative_to(run).as_posix() for path in paths)
    return {name: kind for name in names if (kind := find_kind(name)) is not None}


def _walk(folder: Path, depth: int) -> Iterator[Path]:
    """Yields what is no folder, of all folders in `folder`; further in, of those of outputs."""
    try:
        inside = [(path, path.is_dir()) for path in folder.iterdir()]
    except OSError as error:
        msg = f"cannot read {folder}: {error.strerror}; make it readable for yourself"
        raise InputFileError(msg) from error
    for path, is_folder in inside:
        if not is_folder:
            yield path
        elif depth > 1 or (depth == 1 and _OF_OUTPUTS.fullmatch(path.name)):
            yield from _walk(path, depth - 1)


def kind_of(name: str) -> str | None:
    """Returns which kind of measured file this is, by its path in the run directory.

    None for all others, which are reports and tables: whoever analyses writes them anew.
    """
    kind = find_kind(name)
    return kind.name if kind is not None and kind.is_measured else None


def find_measured_files(run: Path) -> dict[str, str]:
    """Lists the measured files of a run directory with their kinds, in order of their names."""
    return {name: kind.name for name, kind in list_files(run).items() if kind.is_measured}


def find_etdumps(run: Path) -> list[Path]:
    """Lists the ETDumps of a run directory: in experiment folders, or directly inside."""
    return [run / name for name, kind in list_files(run).items() if kind.name == "etdump"]


def find_splits(run: Path) -> dict[Path, list[tuple[int, Path]]]:
    """Groups the ETDumps by the place of the first operator launch's, each with its number."""
    splits: dict[Path, list[tuple[int, Path]]] = {}
    for path in find_etdumps(run):
        later = _OF_A_SPLIT.fullmatch(path.stem)
        first = path.with_name(later[1] + path.suffix) if later else path
        splits.setdefault(first, []).append((int(later[2]) if later else 0, path))
    return splits


def load_metrics(run: Path) -> Metrics | None:
    """Reads metrics.json; None when it is not there, for an ETDump alone is enough."""
    path = run / METRICS
    if not path.exists():
        return None
    return parse_metrics(read_input(path, most_bytes=MOST_JSON_BYTES, way_out=WAY_OUT), path)


def has_summary(run: Path, manifest: Manifest | None) -> bool:
    """Whether analysis_summary.json is there and of this run, not of an earlier one."""
    path = run / ANALYSIS_SUMMARY
    if not path.is_file():
        return False
    try:
        summary = read_record(Summary, path, way_out="`etprof analyze` writes it anew")
    except InputFileError:
        # Whoever asks writes it anew.
        return False
    return summary.run_id == (manifest.run_id if manifest else None)


def parse_metrics(data: bytes | None, path: Path) -> Metrics | None:
    """Checks what was read from `path`."""
    if data is None:
        return None
    return check_record(Metrics, decode_json(data, path, way_out=WAY_OUT), path, way_out=WAY_OUT)


def refuse_file_of_run(path: Path) -> None:
    """Raises InputFileError for a file of a run, such as its report, that stands for the run itself."""
    if path.suffix != ".etdump" and path.is_file() and (path.parent / MANIFEST).is_file():
        raise InputFileError(f"{path} is a file of a run; give the run directory: {path.parent}")


def suggest_run_directory(folder: Path, manifest: Manifest | None) -> str:
    """Names the run directories below `folder`, such as out_toy_cnn's, or says how to make one."""
    if manifest is not None and (folder / METRICS).is_file():
        return (
            f"{METRICS} has its times (`etprof validate` lists them, `etprof history add` keeps "
            f"them); where the per-operator breakdown failed, {resume_hint(manifest, folder)}"
        )
    run_dirs = [
        path.parent for pattern in ("*/", "*/*/") for path in folder.glob(pattern + MANIFEST)
    ]
    runs = ", ".join(str(path) for path in sorted(run_dirs)[:3])
    return f"give a run directory: {runs}" if runs else "measure with `etprof profile MODEL` first"
