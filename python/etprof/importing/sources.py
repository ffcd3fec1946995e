"""What a file of another program is, told by its content, and what a timing file says."""

from __future__ import annotations

import re
import statistics
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Final

from pydantic import Field

from etprof.base.errors import InputFileError
from etprof.base.files import open_regular, read_input
from etprof.base.json_input import decode_json
from etprof.base.limits import MOST_INFERENCES
from etprof.base.records import Name, Record, check_record
from etprof.base.text import clean

ETDUMP: Final = "ETDump"
ETRECORD: Final = "ETRecord"
PROGRAM: Final = "program"
RUNNER_LOG: Final = "log of executor_runner"
MINIBENCH: Final = "result of minibench"
XCTEST: Final = "log of the iOS benchmark app"
TIMINGS: Final = (RUNNER_LOG, MINIBENCH, XCTEST)
"""Kinds that hold timed inferences."""

_MOST_TEXT_BYTES: Final = 64 * 2**20
_WAY_OUT: Final = (
    "give an ETDump, an ETRecord, a program, executor_runner's log, minibench's "
    "benchmark_results.json, or the log of the iOS benchmark app"
)
_NS_PER_MS: Final = 1e6
_NS_PER_S: Final = 1e9
_BYTES_PER_KB: Final = 1024
"""XCTest's kB, which ExecuTorch's own script divides by 1024 to have MB."""
# Bounded, as all that follows: a hostile log is searched in time that grows with its length alone.
_NUMBER: Final = r"(\d{1,20}(?:\.\d{1,20})?)"
_MOST_NS: Final = 2**62

_ITERATION: Final = re.compile(rf"Iteration (\d{{1,18}}) of \d{{1,18}}: {_NUMBER} ms")
_EXECUTED: Final = re.compile(
    rf"Model executed successfully (\d{{1,18}}) time\(s\) in {_NUMBER} ms"
)
_LOADED: Final = re.compile(rf"Model loaded in {_NUMBER} ms")
_THREADS: Final = re.compile(r"Resetting threadpool with num threads = (\d{1,18})")
_METHOD: Final = re.compile(r"Using method (\S{1,300})")
_MODEL: Final = re.compile(r"Model file (.{1,4096}?) is loaded\.")
_PLANNED: Final = re.compile(r"Setting up (?:CPU )?planned buffer \d{1,18}, size (\d{1,18})")
_TRACED: Final = re.compile(r"ETDump written to file")
_MEASURED: Final = re.compile(
    r"Test Case\s+'-\[\S{1,300} (?P<test>[\w+]{1,300})\]'\s+measured\s+\[(?P<metric>[^\]\n]{1,300})\]\s+average:"
    r"[^\[\n]{0,300}?values: \[(?P<values>[^\]\n]*)\]"
)
"""Of XCTest, whose averages have three digits and whose values have six."""
_TEST: Final = re.compile(
    r"test_(?P<what>forward|load)_(?P<model>[\w+]+?)_pte"
    r"(?:.*?_iOS_(?P<system>\w+?)_iPhone(?P<phone>\w+))?"
)
_PARTS: Final = re.compile(r"(?P<name>\w+)_(?P<backend>[\w+]+)_(?P<quantization>\w+)")
"""How the benchmark apps take a model's name apart."""


@dataclass(frozen=True)
class Source:
    """A file, and what it is."""

    path: Path
    kind: str
    content: bytes = b""
    """Of timing files, which are short."""


@dataclass(frozen=True)
class ImportedTiming:
    """What one launch of another program says that it took; times in ns."""

    kind: str
    latency_ns: tuple[int, ...]
    """Of steady inferences; one mean, where the program keeps no more."""
    first_ns: int | None = None
    load_ns: int | None = None
    threads: int | None = None
    planned_bytes: tuple[int, ...] = ()
    peak_bytes: int | None = None
    executed_ns: int | None = None
    """Of all inferences together, the first one too; None where they were not counted."""
    model: str | None = None
    precision: str | None = None
    backend: str | None = None
    method: str | None = None
    platform: str | None = None
    device: Mapping[str, str] = field(default_factory=dict)
    is_traced: bool = False
    """Whether an ETDump was recorded meanwhile."""
    notes: tuple[str, ...] = ()


class _Model(Record):
    name: Name
    backend: Name = ""
    quantization: Name = ""


class _MinibenchMetric(Record):
    """A record of minibench's results."""

    benchmarkModel: _Model  # noqa: N815 - the file's own name
    metric: Name
    actualValue: Annotated[float, Field(ge=-1e15, le=1e15)]  # noqa: N815
    deviceInfo: dict[str, object] = Field(default_factory=dict)  # noqa: N815


class _Results(Record):
    metrics: Annotated[tuple[_MinibenchMetric, ...], Field(min_length=1, max_length=1000)]


def recognise(path: Path) -> Source:
    """Says what a file is by its content; raises InputFileError for one that is nothing of these."""
    try:
        with open_regular(path) as stream:
            head = stream.read(12)
    except OSError as error:
        msg = f"cannot read {path}: {error.strerror or error}; {_WAY_OUT}"
        raise InputFileError(msg) from error
    if head[4:8] == b"ED00" or head[8:12] == b"ED00":
        return Source(path, ETDUMP)
    if head[:4] == b"PK\3\4":
        return Source(path, ETRECORD)
    if head[4:6] == b"ET":
        return Source(path, PROGRAM)
    content = read_input(path, most_bytes=_MOST_TEXT_BYTES, way_out=_WAY_OUT)
    if content.lstrip()[:1] in {b"[", b"{"}:
        return Source(path, MINIBENCH, content)
    text = content.decode("utf-8", "replace")
    if _ITERATION.search(text) or _EXECUTED.search(text):
        return Source(path, RUNNER_LOG, content)
    if _MEASURED.search(text):
        return Source(path, XCTEST, content)
    msg = f"{path} is nothing that etprof can import; {_WAY_OUT}"
    raise InputFileError(msg)


def read_timing(source: Source) -> ImportedTiming:
    """Reads a timing file; raises InputFileError that says what is wrong with it."""
    if source.kind == MINIBENCH:
        return _read_minibench(source)
    text = source.content.decode("utf-8", "replace")
    reader = _read_runner_log if source.kind == RUNNER_LOG else _read_xctest
    return reader(source.path, text)


def _read_runner_log(path: Path, text: str) -> ImportedTiming:
    """The first iteration is the first inference; a log of before 1.1 has their sum alone."""
    iterations = [
        (int(number), _ns(ms, _NS_PER_MS, path)) for number, ms in _ITERATION.findall(text)
    ]
    times = [took for _, took in iterations]
    executed = _EXECUTED.search(text)
    count = _count(executed[1], path) if executed else len(times)
    if [number for number, _ in iterations] not in ([], [*range(1, count + 1)]):
        msg = f"{path}: its iterations are not 1 to {count}: give the log of one launch, whole"
        raise InputFileError(msg)
    total = _ns(executed[2], _NS_PER_MS, path) if executed else sum(times)
    if executed is None:
        msg = f"{path}: executor_runner did not finish: there is no `Model executed successfully`"
        raise InputFileError(msg + "; run it again")
    notes = []
    is_traced = _TRACED.search(text) is not None
    if is_traced:
        notes.append("its inferences were timed with the event tracer on")
    if times:
        latency, first = tuple(times[1:]), times[0]
    else:
        latency, first = (round(total / count),) if count > 1 else (), None
        notes.append(f"its log has the sum of {count} inferences alone, the first one in it")
    if not latency:
        notes.append("it ran one inference, the first of its process: no steady latency is known")
    loaded, threads, method = _LOADED.search(text), _THREADS.search(text), _METHOD.search(text)
    model = _MODEL.search(text)
    return ImportedTiming(
        kind=RUNNER_LOG,
        latency_ns=latency,
        first_ns=first,
        load_ns=_ns(loaded[1], _NS_PER_MS, path) if loaded else None,
        threads=_count(threads[1], path) or None if threads else None,
        planned_bytes=tuple(_count(size, path) for size in _PLANNED.findall(text)),
        executed_ns=total,
        model=clean(Path(model[1]).stem) if model else None,
        method=clean(method[1]) if method else None,
        is_traced=is_traced,
        notes=tuple(notes),
    )


def _read_minibench(source: Source) -> ImportedTiming:
    """A mean latency and a load time, as records of ExecuTorch's Android benchmark app."""
    path, hint = source.path, "pull the app's benchmark_results.json again"
    document = decode_json(source.content, path, way_out=hint)
    metrics = check_record(_Results, {"metrics": document}, path, way_out=hint).metrics
    values = {metric.metric: metric.actualValue for metric in metrics}
    if values.get("load_status", 0) != 0:
        status = values["load_status"]
        msg = f"{path}: the app could not load the model (load_status {status:g}); run it again"
        raise InputFileError(msg)
    mean = values.get("avg_inference_latency(ms)")
    if mean is None or mean <= 0:
        metric_names = ", ".join(sorted(values))
        msg = f"{path} has no avg_inference_latency(ms), but {metric_names}; give a result that has it"
        raise InputFileError(msg)
    load, first = values.get("model_load_time(ms)"), metrics[0]
    device_facts = {key: clean(str(value)) for key, value in first.deviceInfo.items() if value}
    unused_metrics = sorted(values.keys() - {"avg_inference_latency(ms)", "model_load_time(ms)"})
    notes = ["it keeps the mean of its inferences alone: how they spread is not known"]
    if unused_metrics := [name for name in unused_metrics if name != "load_status"]:
        notes.append(f"not taken over from it: {', '.join(unused_metrics)}")
    return ImportedTiming(
        kind=MINIBENCH,
        latency_ns=(_ns(mean, _NS_PER_MS, path),),
        load_ns=None if load is None else _ns(load, _NS_PER_MS, path),
        model=first.benchmarkModel.name,
        backend=first.benchmarkModel.backend or None,
        precision=first.benchmarkModel.quantization or None,
        platform="android",
        device={
            name: device_facts[key]
            for name, key in (("manufacturer", "device"), ("model", "arch"), ("system", "os"))
            if key in device_facts
        },
        notes=tuple(notes),
    )


def _read_xctest(path: Path, text: str) -> ImportedTiming:
    """Every value of `forward` and `load` that XCTest printed."""
    values_of: dict[tuple[str, str], list[float]] = {}
    names = list[re.Match[str]]()
    for measurement in _MEASURED.finditer(text):
        test = _TEST.fullmatch(measurement["test"]) or _TEST.match(measurement["test"])
        if test is None:
            continue
        names.append(test)
        values = [
            _plain(number, path) for number in measurement["values"].split(",") if number.strip()
        ]
        values_of.setdefault((test["what"], measurement["metric"]), []).extend(values)
    times = values_of.get(("forward", "Clock Monotonic Time, s"), [])
    if not times or min(times) <= 0:
        msg = f"{path} has no `test_forward_MODEL_pte` with Clock Monotonic Time; give its log"
        raise InputFileError(msg)
    models = {test["model"] for test in names}
    if len(models) > 1:
        msg = f"{path} is of several models ({', '.join(sorted(models))}); give the log of one"
        raise InputFileError(msg)
    loads = values_of.get(("load", "Clock Monotonic Time, s"), [])
    peaks = values_of.get(("forward", "Memory Peak Physical, kB"), [])
    name_match = _PARTS.fullmatch(names[0]["model"])
    phone, system = names[0]["phone"], names[0]["system"]
    return ImportedTiming(
        kind=XCTEST,
        latency_ns=tuple(_ns(seconds, _NS_PER_S, path) for seconds in times),
        load_ns=_ns(statistics.median(loads), _NS_PER_S, path) if loads else None,
        peak_bytes=round(max(peaks) * _BYTES_PER_KB) if peaks else None,
        model=clean(name_match["name"] if name_match else names[0]["model"]),
        backend=clean(name_match["backend"]) if name_match else None,
        precision=clean(name_match["quantization"]) if name_match else None,
        method="forward",
        platform="ios",
        device={
            name: clean(value.replace("_", separator))
            for name, value, separator in (
                ("model", phone and f"iPhone{phone}", ","),
                ("system", system and f"iOS {system}", "."),
            )
            if value
        },
        notes=("its load time is the median of loads in one process, the program already read",)
        if loads
        else (),
    )


def _ns(value: str | float, unit_ns: float, path: Path) -> int:
    nanoseconds = round(_plain(value, path) * unit_ns)
    if not 0 <= nanoseconds < _MOST_NS:
        msg = f"{path}: a time of {value} cannot be; {_WAY_OUT}"
        raise InputFileError(msg)
    return nanoseconds


def _plain(value: str | float, path: Path) -> float:
    try:
        number = float(value)
    except ValueError:
        number = -1.0
    if not 0 <= number < _MOST_NS:
        msg = f"{path}: {clean(str(value))!r} cannot be a measured number"
        raise InputFileError(f"{msg}; {_WAY_OUT}")
    return number


def _count(text: str, path: Path) -> int:
    if len(text) > len(str(_MOST_NS)) or int(text) > max(MOST_INFERENCES, 2**40):
        msg = f"{path}: {text[:30]} is more than could have been; {_WAY_OUT}"
        raise InputFileError(msg)
    return int(text)


def of_kind(sources: Iterable[Source], *kinds: str) -> list[Source]:
    """Returns the files of some kinds, in their order."""
    return [source for source in sources if source.kind in kinds]
