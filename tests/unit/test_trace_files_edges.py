"""What traces, stacks and Model Explorer are given of runs worked out by hand."""

from __future__ import annotations

import importlib
import json
import sys
from dataclasses import replace
from types import ModuleType, SimpleNamespace
from typing import TYPE_CHECKING, Any

import pytest
from perfetto.protos.perfetto.trace.perfetto_trace_pb2 import Trace, TrackEvent

from etprof.analysis.assessment import Assessment, assess_run
from etprof.backends.registry import BACKENDS, PORTABLE
from etprof.views import trace
from etprof.views.formats import chrome, folded, hud, model_explorer, perfetto
from etprof.views.trace import Counter, Slice, TraceProcess
from tests.golden.runs import described
from tests.known_runs import Experiment, Op, Run, analyze, launch, on_off_run, write_run

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

CONV, SOFTMAX = "Convolution (NHWC, F32) IGEMM #1", "Softmax (NC, F32) #1"
MEAN, GEMM = "native_call_mean.out", "Fully Connected (NC, F32) GEMM #1"
OPS = (Op(CONV, 40), Op(SOFTMAX, 8), Op(MEAN, 30, 1), Op(GEMM, 20, 2))


def known_run(**changes: Any) -> Run:  # noqa: ANN401
    """2 µs before the first call; delegates take 4 µs more than what is in them, others 1 µs."""
    off = Experiment(
        "off", OPS, latency_us=[100, 101], noise=(1.0,), executions=changes.pop("executions", 2),
        delegate_overhead_us=4, execute_overhead_us=2,
    )  # fmt: skip
    on_ops = (Op("Convolution (NHWC, PF32) IGEMM #1", 10), *OPS[1:])
    on = Experiment("on", on_ops, sme="sme2", latency_us=[60], executions=2)
    return Run([off, on], **changes)


@pytest.fixture(scope="module")
def assessment(tmp_path_factory: pytest.TempPathFactory) -> Assessment:
    return assess_run(analyze(tmp_path_factory.mktemp("runs") / "r", known_run()))


def test_events_stand_in_their_calls_and_executions_follow_each_other(
    assessment: Assessment,
) -> None:
    slices = trace.experiment_slices(assessment.run.experiments[0])
    first = [
        ("Method::execute", None, 0, 109_000, False),
        ("DELEGATE_CALL", None, 2_000, 54_000, False),
        (CONV, "Convolution", 2_000, 42_000, True),
        (SOFTMAX, "Other", 42_000, 50_000, True),
        ("OPERATOR_CALL", None, 54_000, 85_000, False),
        (MEAN, "Other", 54_000, 84_000, False),
        ("DELEGATE_CALL", None, 85_000, 109_000, False),
        (GEMM, "GEMM", 85_000, 105_000, True),
    ]
    later = [(n, c, start + 109_000, end + 109_000, made) for n, c, start, end, made in first]
    assert [
        (s.label, s.category, s.start_ns, s.end_ns, s.is_synthetic) for s in slices
    ] == first + later  # fmt: skip


@pytest.mark.parametrize(("executions", "shown"), [(19, 19), (20, 20), (23, 20)])
def test_twenty_executions_are_shown(
    tmp_path_factory: pytest.TempPathFactory, executions: int, shown: int
) -> None:
    run = known_run(executions=executions)
    analysed = analyze(tmp_path_factory.mktemp("many") / "r", run)
    slices = trace.experiment_slices(analysed.experiments[0])
    assert sum(s.label == "Method::execute" for s in slices) == shown


def event(label: str, start: int, duration: int, *, made_up: bool = False) -> trace._TraceEvent:
    """An event of the first delegate where its start is made up, else of no delegate."""
    backend = BACKENDS[0] if made_up else PORTABLE
    return trace._TraceEvent(label, label, backend, start, duration, is_synthetic=made_up)


def test_no_operator_reaches_beyond_its_call_and_loading_is_left_out() -> None:
    events = [
        event("Program::load_method", 990, 5),
        event(CONV, 0, 30, made_up=True), event(GEMM, 0, 50, made_up=True),
        event("DELEGATE_CALL", 1010, 60), event(MEAN, 1080, 15), event("Method::execute", 1000, 100),
    ]  # fmt: skip
    slices = trace._nest(events, 5000)
    assert [(s.label, s.start_ns, s.end_ns, s.category) for s in slices] == [
        ("Method::execute", 5000, 5100, None),
        ("DELEGATE_CALL", 5010, 5070, None),
        (CONV, 5010, 5040, "Convolution"),
        # 50 ns are measured, and 30 are left in the call.
        (GEMM, 5040, 5070, "GEMM"),
        (MEAN, 5080, 5095, "Other"),
    ]
    # A clock of 32 bits that begins again between the execution's start and the call's.
    late = [event("DELEGATE_CALL", 50, 10), event("Method::execute", 2**32 - 50, 200)]
    assert [(s.start_ns, s.end_ns) for s in trace._nest(late, 0)] == [(0, 200), (100, 110)]


def test_an_event_that_is_no_kernel_has_no_category() -> None:
    assert trace._category(event("PROFILE_something", 0, 1)) is None
    assert trace._category(event(MEAN, 0, 1)) == "Other"
    assert trace._category(event(CONV, 0, 1, made_up=True)) == "Convolution"


def test_without_times_events_are_a_microsecond_apart(
    tmp_path_factory: pytest.TempPathFactory,
) -> None:
    run = known_run(platform="emulator", meaningful=False)
    emulated = assess_run(analyze(tmp_path_factory.mktemp("emulated") / "r", run))
    first, second = trace.trace_processes(emulated)
    assert (first.number, second.number) == (1, 2)
    assert first.name == "off (emulated: in order, without times)"
    assert [(s.label, s.start_ns, s.end_ns) for s in first.slices[:4]] == [
        ("Method::execute", 0, 8000), ("DELEGATE_CALL", 0, 3000), (CONV, 0, 1000),
        (SOFTMAX, 1000, 2000),
    ]  # fmt: skip


def test_counters_are_on_the_clock_of_latencies_laid_end_to_end(
    tmp_path_factory: pytest.TempPathFactory,
) -> None:
    before: dict[str, object] = {"load_average": [1.5, 2.0, 3.0]}
    launches = [launch("off", 0, before, None), launch("off", 1, before, before)]
    launches += [launch("on", 0, None, None)]
    launches[1]["waited_s"] = 2.5
    # A launch that failed says nothing of the block that was measured instead.
    launches.append(launch("off", 0, before, before) | {"error": "lost", "waited_s": 9.0})
    run = analyze(tmp_path_factory.mktemp("counted") / "r", known_run(launches=launches))
    counters = {c.name: c for c in trace._counters(run, run.experiments[0])}
    assert counters["latency without tracer"].points == (
        (0, 100_000.0), (100_000, 100_000.0), (200_000, 100_000.0),
        (300_000, 101_000.0), (401_000, 101_000.0), (502_000, 101_000.0),
    )  # fmt: skip
    assert counters["load average"].points == ((0, 1.5), (300_000, 1.5), (603_000, 1.5))
    assert counters["waited before the launch"].points == ((0, 0.0), (300_000, 2.5))
    units = {name: counter.unit for name, counter in counters.items()}
    assert units == {
        "latency without tracer": "ns", "load average": "processes",
        "waited before the launch": "s",
    }  # fmt: skip
    (second,) = trace._counters(run, run.experiments[1])
    assert [time for time, _ in second.points][:4] == [0, 59_400, 119_400, 180_000]


TOY = TraceProcess(
    3, "toy",
    (
        Slice("Method::execute", "Method::execute", None, 0, 2_500, is_synthetic=False),
        Slice("layer", CONV, "Convolution", 500, 1_750, is_synthetic=True),
    ),
    (
        Counter("latency", "ns", ((0, 7.5), (1_500, 8.0))),
        Counter("load", "processes", ((2_000, 0.25),)),
    ),
)  # fmt: skip


def test_chrome_has_microseconds_and_one_thread_a_process() -> None:
    meta = {"ph": "M", "pid": 3, "tid": 3}
    counter = {"ph": "C", "pid": 3}
    assert list(chrome._process_events(TOY)) == [
        meta | {"name": "process_name", "args": {"name": "toy"}},
        meta | {"name": "process_sort_index", "args": {"sort_index": 3}},
        meta | {"name": "thread_name", "args": {"name": "steady executions"}},
        {
            "ph": "X", "pid": 3, "tid": 3, "name": "Method::execute", "cat": "container",
            "ts": 0.0, "dur": 2.5, "args": {"label": "Method::execute", "start": "measured"},
        },
        {
            "ph": "X", "pid": 3, "tid": 3, "name": "layer", "cat": "Convolution",
            "ts": 0.5, "dur": 1.25, "args": {"label": CONV, "start": "synthetic"},
        },
        counter | {"name": "latency (ns)", "ts": 0.0, "args": {"ns": 7.5}},
        counter | {"name": "latency (ns)", "ts": 1.5, "args": {"ns": 8.0}},
        counter | {"name": "load (processes)", "ts": 2.0, "args": {"processes": 0.25}},
    ]  # fmt: skip


def test_chromes_document_says_what_times_are_shown_in(assessment: Assessment) -> None:
    document = chrome.chrome_trace(assessment)
    assert document.keys() == {"displayTimeUnit", "traceEvents"}
    assert document["displayTimeUnit"] == "ns"
    assert {entry["pid"] for entry in document["traceEvents"]} == {1, 2}


@pytest.fixture(scope="module")
def packets() -> list[Any]:
    """The packets of `TOY`, read by Perfetto's own definitions."""
    encoded = [perfetto.message(1, packet) for packet in perfetto._process_packets(TOY)]
    return list(Trace.FromString(b"".join(encoded)).packet)


def test_perfetto_has_a_track_of_events_and_one_for_each_counter(packets: list[Any]) -> None:
    tracks = [packet.track_descriptor for packet in packets if packet.HasField("track_descriptor")]
    assert [(t.uuid, t.parent_uuid, t.name, t.counter.unit_name) for t in tracks] == [
        (300, 0, "toy", ""), (301, 300, "steady executions", ""), (302, 300, "latency", "ns"),
        (303, 300, "load", "processes"),
    ]  # fmt: skip
    process, thread, *counters = tracks
    assert (process.process.pid, process.process.process_name) == (3, "toy")
    assert not process.HasField("thread")
    assert not thread.HasField("process")
    assert (thread.thread.pid, thread.thread.tid) == (3, 300)
    assert thread.thread.thread_name == "steady executions"
    assert not any(t.HasField("thread") or t.HasField("process") for t in counters)
    assert not thread.HasField("counter")
    first = packets[0]
    assert (first.sequence_flags, first.trusted_packet_sequence_id) == (1, 3)


def test_perfetto_has_the_begin_and_end_of_every_slice(packets: list[Any]) -> None:
    events = [packet for packet in packets if packet.HasField("track_event")]
    assert {packet.trusted_packet_sequence_id for packet in events} == {3}
    begin, end, count = (
        TrackEvent.TYPE_SLICE_BEGIN, TrackEvent.TYPE_SLICE_END, TrackEvent.TYPE_COUNTER,
    )  # fmt: skip
    assert [(p.timestamp, p.track_event.type, p.track_event.track_uuid) for p in events] == [
        (0, begin, 301), (2_500, end, 301), (500, begin, 301), (1_750, end, 301),
        (0, count, 302), (1_500, count, 302), (2_000, count, 303),
    ]  # fmt: skip
    execute, _, layer, *_ = (packet.track_event for packet in events)
    assert (execute.name, list(execute.categories)) == ("Method::execute", ["container"])
    assert (layer.name, list(layer.categories)) == ("layer", ["Convolution"])
    assert [(note.name, note.string_value) for note in execute.debug_annotations] == [
        ("start", "measured"), ("label", "Method::execute"),
    ]  # fmt: skip
    assert [(note.name, note.string_value) for note in layer.debug_annotations] == [
        ("start", "synthetic"), ("label", CONV), ("category", "Convolution"),
    ]  # fmt: skip
    values = [p.track_event.double_counter_value for p in events[4:]]
    assert values == [7.5, 8.0, 0.25]


@pytest.mark.parametrize(
    ("value", "encoded"),
    [
        (1, b"\x01"), (128, b"\x80\x01"), (16_383, b"\xff\x7f"), (16_384, b"\x80\x80\x01"),
        (2**63, b"\x80" * 9 + b"\x01"), (2**64 - 1, b"\xff" * 9 + b"\x01"), (-2, b"\xfe" + b"\xff" * 8 + b"\x01"),
    ],
)  # fmt: skip
def test_an_integer_has_seven_bits_a_byte(value: int, encoded: bytes) -> None:
    assert perfetto.varint(value) == encoded


def test_fields_have_their_wire_types_and_odd_names_are_written() -> None:
    assert perfetto.integer(16, 3) == b"\x80\x01\x03"
    assert perfetto.double(1, 1.0) == b"\x09\x00\x00\x00\x00\x00\x00\xf0\x3f"
    assert perfetto.message(2, b"ab") == b"\x12\x02ab"
    assert perfetto.text(2, "é\udcff") == b"\x12\x03\xc3\xa9?"


def test_stacks_are_modules_and_operators_in_whole_nanoseconds() -> None:
    def detail(label: str, mean_ns: float | None, *modules: str) -> SimpleNamespace:
        times = None if mean_ns is None else SimpleNamespace(mean_ns=mean_ns)
        attribution = SimpleNamespace(modules=modules) if modules else None
        return SimpleNamespace(
            row=SimpleNamespace(label=label, times=times), attribution=attribution
        )

    overhead = SimpleNamespace(label="Delegate overhead", times=SimpleNamespace(mean_ns=2.6))
    insight: Any = SimpleNamespace(
        details=[
            detail("conv;1 a", 10.4, "net..0.stem", "other"), detail("alone\n x", 7.0),
            detail("untimed", None, "net"),
        ],
        experiment=SimpleNamespace(split=SimpleNamespace(overheads=[overhead])),
    )  # fmt: skip
    assert list(folded._lines(insight)) == [
        "net;0;stem;conv,1 a 10\n", "alone x 7\n", "Delegate overhead 3\n",
    ]  # fmt: skip


def test_stacks_of_each_experiment_are_a_file(assessment: Assessment) -> None:
    files = folded.folded_stacks(assessment)
    assert list(files) == ["report_stacks_off.folded", "report_stacks_on.folded"]
    lines = dict(line.rsplit(" ", 1) for line in files["report_stacks_off.folded"].splitlines())
    assert (lines[CONV], lines[MEAN], lines[GEMM]) == ("40000", "30000", "20000")
    # All of it is the execution of 109 µs.
    assert sum(int(time) for time in lines.values()) == 109_000


def test_nodes_have_microseconds_and_the_slower_side_is_red(
    tmp_path_factory: pytest.TempPathFactory,
) -> None:
    run = replace(known_run(), delegation=described())
    assessed = assess_run(analyze(tmp_path_factory.mktemp("nodes") / "r", run))
    data = model_explorer.node_data(assessed)
    values = {
        name: {node: entry["value"] for node, entry in document["results"].items()}
        for name, document in data.items()
    }
    assert values["off us"]["mean"] == 30.0
    assert values["difference us"] == {
        node: values["on us"][node] - values["off us"][node] for node in values["on us"]
    }
    assert values["speedup"]["mean"] == 1.0
    ends = {name: [stop["bgColor"] for stop in d["gradient"]] for name, d in data.items()}
    green, red = "#1a9850", "#d73027"
    assert (ends["difference us"], ends["speedup"]) == ([green, red], [red, green])
    assert ends["on us"] == ends["off us"] == ["#fff7ec", "#d7301f"]
    groups = model_explorer.group_data(assessed)["partitions"]
    assert groups["name"] == "partitions"
    assert groups["results"]["mean"] == {"value": "outside delegates", "bgColor": "#bdbdbd"}


def test_times_of_a_node_add_up_at_the_first_of_what_was_fused() -> None:
    def detail(mean_ns: float | None, *operators: str) -> SimpleNamespace:
        times = None if mean_ns is None else SimpleNamespace(mean_ns=mean_ns)
        attribution = SimpleNamespace(graph_operators=operators) if operators else None
        return SimpleNamespace(row=SimpleNamespace(times=times), attribution=attribution)

    insight: Any = SimpleNamespace(
        details=[detail(1500, "conv", "relu"), detail(250, "conv"), detail(9), detail(None, "view")]
    )
    assert model_explorer._node_times(insight) == {"conv": 1.75, "view": 0.0}
    described_nodes = model_explorer.describe_nodes({"a": 1.0000000014, "b": 2.5}, [])
    assert described_nodes["results"] == {"a": {"value": 1.000000001}, "b": {"value": 2.5}}


def test_the_dashboard_is_told_model_device_and_pins(assessment: Assessment) -> None:
    records: list[Any] = hud.hud_records(assessment.run)
    first, last = records[0], records[-1]
    assert first["benchmark"]["dtype"] == "fp16"
    assert first["benchmark"]["extra_info"] == {"experiment": "off", "sme": "off", "threads": "1"}
    assert last["benchmark"]["extra_info"]["experiment"] == "on"
    assert first["model"] == {
        "name": "known", "type": "OSS model", "backend": "xnnpack", "origins": ["pytorch"],
        "extra_info": {"sha256": "b" * 64},
    }  # fmt: skip
    assert first["runners"] == [{
        "name": "android", "type": "android", "cpu_info": "Cortex-X925", "cpu_count": 8,
        "extra_info": {},
    }]  # fmt: skip
    assert first["dependencies"] == {"executorch": {"version": "1.5.1", "extra_info": {}}}


NAME = "etprof.model_explorer.main"
CLASSES = {
    "": (
        "AdapterMetadata", "GetConfigEditorsResult", "NodeDataProviderMetadata",
        "NodeDataProviderResult",
    ),
    "config_editor": ("TextInputConfigEditor",),
    "graph_builder": (
        "Graph", "GraphCollection", "GraphNode", "GraphNodeStyle", "GroupNodeConfig",
        "IncomingEdge", "KeyValue", "MetadataItem",
    ),
    "node_data_builder": ("GradientItem", "GraphNodeData", "NodeDataResult"),
}  # fmt: skip
STEM, WHOLE = "#a6cee3", "#bdbdbd"


@pytest.fixture(scope="module")
def main() -> Iterator[Any]:
    """The extension beside records in the place of Model Explorer's own, which loads torch."""
    package = ModuleType("model_explorer")
    for name, classes in CLASSES.items():
        module = ModuleType(f"model_explorer.{name}") if name else package
        for record in classes:
            setattr(module, record, type(record, (SimpleNamespace,), {}))
        if name:
            setattr(package, name, module)
    for base in ("Adapter", "NodeDataProvider"):
        setattr(package, base, type(base, (), {}))
    with pytest.MonkeyPatch.context() as patch:
        patch.setitem(sys.modules, "model_explorer", package)
        patch.delitem(sys.modules, NAME, raising=False)
        extension = importlib.import_module(NAME.rpartition(".")[0])
        patch.delattr(extension, "main", raising=False)
        yield importlib.import_module(NAME)
        del sys.modules[NAME]
        vars(extension).pop("main")


@pytest.fixture(scope="module")
def described_run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("runs") / "run"
    return write_run(folder, replace(on_off_run(), delegation=described()))


@pytest.fixture(scope="module")
def program(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two operators: the second is outside and reads the first, a weight, and a shared bias."""
    operators: list[dict[str, Any]] = [
        {
            "name": "stem", "operator": "aten.convolution.default", "inputs": ["x", "bias"],
            "delegate": 0, "shape": [1, 8], "origin": {"module_path": "net.stem"},
        },
        {
            "name": "mean", "operator": "aten.mean.dim", "inputs": ["stem", "w", "bias"],
            "reason": "too small",
        },
    ]  # fmt: skip
    delegate = {"name": "d", "backend": "B", "instruction": 0, "nodes": []}
    report = {"operators": operators, "delegates": [delegate]}
    folder = tmp_path_factory.mktemp("programs")
    document = {"schema_version": 1, "model": "m", "methods": {"forward": report}}
    (folder / "m.pte.delegation.json").write_text(json.dumps(document))
    return folder / "m.pte"


def test_a_program_is_drawn_by_modules_and_by_delegates(main: Any, program: Path) -> None:  # noqa: ANN401
    (collection,) = main.ProgramAdapter().convert(str(program), {})["graphCollections"]
    assert collection.label == "forward"
    modules, delegates = collection.graphs
    assert (modules.id, delegates.id) == ("by module", "by delegate")
    assert [(node.id, node.namespace) for node in modules.nodes] == [
        # What no operator made stands where it is first read.
        ("x", "net/stem"), ("bias", "net/stem"), ("w", ""), ("stem", "net/stem"), ("mean", ""),
    ]  # fmt: skip
    assert [(node.id, node.namespace) for node in delegates.nodes] == [
        # What is read outside delegates stands in no box.
        ("x", "delegate 0 (B)"), ("bias", "delegate 0 (B)"), ("w", ""),
        ("stem", "delegate 0 (B)"), ("mean", "outside delegates"),
    ]  # fmt: skip
    assert delegates.groupNodeAttributes is None
    boxes = [(box.namespaceRegex, box.backgroundColor) for box in delegates.groupNodeConfigs]
    assert boxes == [(r"^delegate\ 0\ \(B\)$", STEM), (r"^outside\ delegates$", WHOLE)]


def test_a_node_has_its_facts_colour_inputs_and_shape(main: Any, program: Path) -> None:  # noqa: ANN401
    (collection,) = main.ProgramAdapter().convert(str(program), {})["graphCollections"]
    value, *_, stem, mean = collection.graphs[0].nodes
    assert (value.id, value.label) == ("x", "x")
    assert (stem.label, stem.style.backgroundColor) == ("aten", STEM)
    assert (mean.label, mean.style.backgroundColor) == ("aten", WHOLE)
    assert [(fact.key, fact.value) for fact in stem.attrs] == [
        ("delegate", "delegate 0 (B)"), ("module", "net.stem"),
    ]  # fmt: skip
    assert [(fact.key, fact.value) for fact in mean.attrs] == [
        ("delegate", "outside delegates"), ("why not delegated", "too small"),
    ]  # fmt: skip
    edges = [(edge.sourceNodeId, edge.targetNodeInputId) for edge in mean.incomingEdges]
    assert edges == [("stem", "0"), ("w", "1"), ("bias", "2")]
    (output,) = stem.outputsMetadata
    assert (output.id, [(fact.key, fact.value) for fact in output.attrs]) == (
        "0", [("tensor_shape", "1×8")],
    )  # fmt: skip
    assert mean.outputsMetadata == []


def test_a_run_adds_times_of_each_side_to_nodes_and_boxes(main: Any, described_run: Path) -> None:  # noqa: ANN401
    etdump = next((described_run / "android_off").glob("*.etdump"))
    (collection,) = main.ProgramAdapter().convert(str(etdump), {})["graphCollections"]
    assert collection.label == "forward"
    modules, delegates = collection.graphs
    facts = {node.id: {fact.key: fact.value for fact in node.attrs} for node in modules.nodes}
    assert facts["mean"]["android_off: native_call_mean.out"].startswith("30.0 µs (")
    sme2 = facts["stem"]["android_sme2: Convolution (NHWC, PF16) IGEMM #1"]
    assert sme2 == "100 µs (34.4 %), SME named, PF16 IGEMM"
    assert facts["stem"]["module"] == "features.0.stem"
    assert delegates.groupNodeAttributes["delegate 0 (XnnpackBackend)"] == {
        "android_off: operators": "760 µs", "android_sme2: operators": "225 µs",
    }  # fmt: skip


QUANTIZE, BACK = "quantized_decomposed.quantize_per_tensor", "quantized_decomposed.dequantize"


def test_what_quantisation_joins_has_a_graph_of_its_own(main: Any, tmp_path: Path) -> None:  # noqa: ANN401
    chain = [
        ("back", BACK, ["x"]), ("relu", "aten.relu", ["back"]), ("q", QUANTIZE, ["relu"]),
        ("loose", "aten.sum", ["q"]),
    ]  # fmt: skip
    operators = [
        {"name": name, "operator": kind, "inputs": inputs, "is_quantization": "quantize" in kind}
        for name, kind, inputs in chain
    ]
    document = {"schema_version": 1, "model": "m", "methods": {"f": {"operators": operators}}}
    document["methods"]["f"]["delegates"] = []  # type: ignore[index]
    (tmp_path / "q.pte.delegation.json").write_text(json.dumps(document))
    (collection,) = main.ProgramAdapter().convert(str(tmp_path / "q.pte"), {})["graphCollections"]
    clusters = collection.graphs[2]
    assert clusters.id == "by quantised cluster"
    spaces = {node.id: node.namespace for node in clusters.nodes}
    joined = "cluster 0: aten"
    assert spaces == {"x": joined, "back": joined, "relu": joined, "q": joined, "loose": ""}
    assert {node.id: node.style is None for node in clusters.nodes if node.id != "x"} == {
        "back": False, "relu": False, "q": False, "loose": True,
    }  # fmt: skip
    (box,) = clusters.groupNodeConfigs
    assert (box.namespaceRegex, box.backgroundColor) == (r"^cluster\ 0:\ aten$", STEM)


def values_of(result: list[Any]) -> dict[str, dict[str, tuple[Any, str | None]]]:
    """Value and colour by node and name."""
    return {
        data.name: {key: (node.value, node.bgColor) for key, node in data.results.items()}
        for data in result
    }


def test_a_provider_has_times_routes_and_groups_of_a_run(main: Any, described_run: Path) -> None:  # noqa: ANN401
    provider = main.RunProvider()
    answer = provider.run("etprof_run", "elsewhere.pte", "g", {"run": f"  {described_run} "})
    values = values_of(answer.result)
    assert list(values) == [
        "android_sme2 us", "android_off us", "difference us", "speedup", "android_off on SME",
        "android_sme2 on SME", "partitions",
    ]  # fmt: skip
    assert values["android_sme2 us"]["stem"] == (100.0, None)
    assert values["difference us"]["stem"] == (-300.0, None)
    assert values["speedup"]["stem"] == (4.0, None)
    assert values["android_sme2 on SME"]["stem"] == ("named", "#a6d96a")
    assert values["android_sme2 on SME"]["depthwise"] == ("excluded", "#d73027")
    assert values["partitions"]["mean"] == ("outside delegates", WHOLE)
    gradients = {d.name: d.gradient for d in answer.result if hasattr(d, "gradient")}
    stops = [(stop.stop, stop.bgColor) for stop in gradients["speedup"]]
    assert stops == [(0, "#d73027"), (1, "#1a9850")]
    summed = [d.name for d in answer.result if getattr(d, "showExpandedSummaryOnGroupNode", False)]
    assert summed == ["android_off on SME", "android_sme2 on SME"]
    # An ETDump of the run needs no more.
    etdump = next((described_run / "android_off").glob("*.etdump"))
    again = provider.run("etprof_run", str(etdump), "g", {"run": None})
    assert values_of(again.result) == values


def test_a_provider_has_groups_of_a_program_alone_and_says_what_is_wrong(
    main: Any,  # noqa: ANN401
    program: Path,
    tmp_path: Path,
) -> None:
    provider = main.RunProvider()
    answer = provider.run("etprof_run", str(program), "g", {})
    assert values_of(answer.result) == {
        "partitions": {"stem": ("delegate 0 (B)", STEM), "mean": ("outside delegates", WHOLE)}
    }
    wrong = provider.run("etprof_run", str(tmp_path / "x.etdump"), "g", {"run": ""})
    assert "stands in no run directory" in wrong.error
    named = provider.run("etprof_run", str(program), "g", {"run": str(tmp_path)})
    assert "stands in no run directory" in named.error


def test_a_provider_asks_for_the_run(main: Any) -> None:  # noqa: ANN401
    (editor,) = main.RunProvider().get_config_editors("etprof_run").configEditors
    assert (editor.id, editor.label) == ("run", "Run directory")
    assert "out_toy_cnn" in editor.description
    adapter, provider = main.ProgramAdapter.metadata, main.RunProvider.metadata
    assert (adapter.id, adapter.fileExts) == ("etprof", ["pte", "etdump"])
    assert (provider.id, provider.icon) == ("etprof_run", "speed")
