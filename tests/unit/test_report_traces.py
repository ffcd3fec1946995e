"""Traces: Perfetto's parses with Perfetto's own definitions, Chrome's says the same."""

from __future__ import annotations

import json
import shutil
from collections import defaultdict
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from perfetto.protos.perfetto.trace.perfetto_trace_pb2 import Trace, TrackEvent

from etprof.analysis.assessment import Assessment, assess_run
from etprof.report_files import write_documents
from etprof.views.formats.chrome import chrome_trace
from etprof.views.formats.model_explorer import node_data
from etprof.views.formats.perfetto import encode_trace, integer, varint
from etprof.views.trace import Slice, experiment_slices, trace_processes
from tests.known_etdumps import US, timed
from tests.known_runs import OFF_OPS, ON_OPS, Experiment, Op, Run, analyze, launch, on_off_run

TRACE_PROCESSOR = shutil.which("trace_processor_shell")


@pytest.fixture(scope="module")
def assessment(tmp_path_factory: pytest.TempPathFactory) -> Assessment:
    return assess_run(analyze(tmp_path_factory.mktemp("runs") / "r", on_off_run()))


def totals_by_name(trace: Any, sequence: int) -> dict[str, int]:  # noqa: ANN401 - protobuf's
    """Adds up slice durations as a trace processor does: a stack, ordered by time."""
    events = [
        p for p in trace.packet
        if p.HasField("track_event") and p.trusted_packet_sequence_id == sequence
    ]  # fmt: skip
    stack: list[tuple[str, int]] = []
    totals: dict[str, int] = defaultdict(int)
    for packet in sorted(events, key=lambda packet: packet.timestamp):
        if packet.track_event.type == TrackEvent.TYPE_SLICE_BEGIN:
            stack.append((packet.track_event.name, packet.timestamp))
        elif packet.track_event.type == TrackEvent.TYPE_SLICE_END:
            name, begin = stack.pop()
            totals[name] += packet.timestamp - begin
    assert stack == []
    return totals


def test_every_event_is_on_a_track_that_is_described(assessment: Assessment) -> None:
    """A track of another number would be a nameless one beside the process's own."""
    trace = Trace.FromString(encode_trace(assessment))
    described = {
        packet.track_descriptor.uuid: packet.track_descriptor.parent_uuid
        for packet in trace.packet
        if packet.HasField("track_descriptor")
    }
    used = {
        packet.track_event.track_uuid for packet in trace.packet if packet.HasField("track_event")
    }
    assert used
    assert used <= described.keys()
    assert {described[uuid] for uuid in used} == {100, 200}


def test_trace_has_one_aligned_process_per_experiment(assessment: Assessment) -> None:
    trace = Trace.FromString(encode_trace(assessment))
    names = [
        p.track_descriptor.process.process_name
        for p in trace.packet
        if p.track_descriptor.HasField("process")
    ]
    assert names == ["android_off", "android_sme2"]
    first = [
        min(p.timestamp for p in trace.packet if p.trusted_packet_sequence_id == sequence
            and p.HasField("track_event"))
        for sequence in (1, 2)
    ]  # fmt: skip
    assert first == [0, 0]


@pytest.mark.parametrize(("sequence", "ops"), [(1, OFF_OPS), (2, ON_OPS)])
def test_totals_from_the_trace_are_the_description(
    assessment: Assessment, sequence: int, ops: tuple[Op, ...]
) -> None:
    totals = totals_by_name(Trace.FromString(encode_trace(assessment)), sequence)
    executions = assessment.run.experiments[sequence - 1].split.executions
    assert {op.label: totals[op.label] for op in ops} == {
        op.label: op.us * US * executions for op in ops
    }
    split = assessment.run.experiments[sequence - 1].split
    assert totals["Method::execute"] == timed(split).execute.total_ns


@pytest.mark.skipif(TRACE_PROCESSOR is None, reason="no trace_processor_shell on the PATH")
@pytest.mark.parametrize("name", ["perfetto", "chrome"])
def test_perfettos_own_processor_adds_up_the_same(
    assessment: Assessment, tmp_path: Path, name: str
) -> None:
    from perfetto.trace_processor import TraceProcessor, TraceProcessorConfig

    (path,) = write_documents([assessment], tmp_path, [name])
    config = TraceProcessorConfig(bin_path=TRACE_PROCESSOR)
    processor = TraceProcessor(trace=str(path), config=config)
    try:
        rows = processor.query("select name, sum(dur) as total from slice group by name")
        totals = {row.name: row.total for row in rows}
    finally:
        processor.close()
    executes = [
        timed(experiment.split).execute.total_ns for experiment in assessment.run.experiments
    ]
    assert totals["Method::execute"] == sum(executes)
    executions = assessment.run.experiments[0].split.executions
    assert totals[OFF_OPS[1].label] == OFF_OPS[1].us * US * executions


def test_synthetic_starts_are_marked(assessment: Assessment) -> None:
    trace = Trace.FromString(encode_trace(assessment))
    marks = {
        (p.track_event.name.split(" ")[0], note.string_value)
        for p in trace.packet
        for note in p.track_event.debug_annotations
        if note.name == "start"
    }
    assert ("Convolution", "synthetic") in marks
    assert ("Convolution", "measured") not in marks
    assert {("native_call_mean.out", "measured"), ("Method::execute", "measured")} <= marks


def test_latencies_are_a_counter(assessment: Assessment) -> None:
    trace = Trace.FromString(encode_trace(assessment))
    values = [
        p.track_event.double_counter_value
        for p in trace.packet
        if p.track_event.type == TrackEvent.TYPE_COUNTER and p.trusted_packet_sequence_id == 1
    ]
    metrics = assessment.run.experiments[0].metrics
    assert metrics is not None
    assert values == [sample for block in metrics.blocks for sample in block.latency_ns]


def test_conditions_are_counters_on_the_latencies_clock(tmp_path: Path) -> None:
    # GIVEN a run whose launches of one experiment recorded frequencies and temperatures
    states: list[dict[str, object]] = [
        {"frequency_khz": [900_000, None, khz], "temperatures_c": {"skin": 30.0, "cpu": celsius}}
        for khz, celsius in ((2_000_000, 40.0), (1_800_000, 45.5), (1_500_000, 50.0))
    ]
    launches = [
        launch("android_off", 0, states[0], states[1]),
        launch("android_off", 1, states[1], states[2]) | {"waited_s": 2.5},
        launch("android_off", 2, None, {"load_average": [0.5, 1.0, 1.0]}),
    ]
    trace = Trace.FromString(
        encode_trace(assess_run(analyze(tmp_path / "r", replace(on_off_run(), launches=launches))))
    )
    names = {p.track_descriptor.uuid: p.track_descriptor for p in trace.packet}
    found: dict[str, list[tuple[int, float]]] = defaultdict(list)
    for packet in trace.packet:
        if packet.track_event.type == TrackEvent.TYPE_COUNTER:
            track = names[packet.track_event.track_uuid]
            key = f"{packet.trusted_packet_sequence_id} {track.name} {track.counter.unit_name}"
            found[key].append((packet.timestamp, packet.track_event.double_counter_value))
    block_ns = [sum([891_000, 900_000, 909_000] * 3), sum([891_990, 901_000, 910_010] * 3)]
    ends = [0, block_ns[0], block_ns[0] + block_ns[1]]
    assert found["1 waited before the launch s"] == [(ends[0], 0), (ends[1], 2.5), (ends[2], 0)]
    assert found["1 fastest core kHz"] == [
        (ends[0], 2e6), (ends[1], 1.8e6), (ends[1], 1.8e6), (ends[2], 1.5e6),
    ]  # fmt: skip
    assert [value for _, value in found["1 hottest sensor °C"]] == [40.0, 45.5, 45.5, 50.0]
    assert [value for _, value in found["1 load average processes"]] == [0.5]
    assert {key[2:] for key in found if key.startswith("2")} == {"latency without tracer ns"}


def test_chromes_trace_is_the_same(assessment: Assessment) -> None:
    document = json.loads(json.dumps(chrome_trace(assessment)))
    trace = Trace.FromString(encode_trace(assessment))
    for pid in (1, 2):
        totals: dict[str, float] = defaultdict(float)
        for event in document["traceEvents"]:
            if (event["ph"], event["pid"]) == ("X", pid):
                totals[event["name"]] += event["dur"] * 1000
        assert totals == totals_by_name(trace, pid)
    names = [e["args"]["name"] for e in document["traceEvents"] if e["name"] == "process_name"]
    assert names == ["android_off", "android_sme2"]
    starts = {e["args"]["start"] for e in document["traceEvents"]
              if e["ph"] == "X" and e["name"].startswith("Convolution")}  # fmt: skip
    assert starts == {"synthetic"}
    counted = [e["args"]["ns"] for e in document["traceEvents"] if e["ph"] == "C"]
    assert len(counted) == sum(
        len(block.latency_ns)
        for experiment in assessment.run.experiments
        if experiment.metrics
        for block in experiment.metrics.blocks
    )


def test_emulated_processes_say_so_and_count_nothing(tmp_path: Path) -> None:
    emulated = replace(on_off_run(), platform="emulator", meaningful=False)
    processes = trace_processes(assess_run(analyze(tmp_path / "r", emulated)))
    assert [entry.name for entry in processes] == [
        "android_off (emulated: in order, without times)",
        "android_sme2 (emulated: in order, without times)",
    ]
    assert [entry.counters for entry in processes] == [(), ()]


def test_children_stay_inside_their_parents(assessment: Assessment) -> None:
    for experiment in assessment.run.experiments:
        stack: list[Slice] = []
        for entry in experiment_slices(experiment):
            while stack and entry.start_ns >= stack[-1].end_ns:
                stack.pop()
            assert not stack or entry.end_ns <= stack[-1].end_ns
            stack.append(entry)


@pytest.mark.parametrize(
    ("value", "encoded"),
    [(0, b"\0"), (127, b"\x7f"), (300, b"\xac\x02"), (-1, b"\xff" * 9 + b"\1")],
)
def test_varints(value: int, encoded: bytes) -> None:
    assert varint(value) == encoded
    assert integer(1, value) == b"\x08" + encoded


def test_node_data(tmp_path: Path) -> None:
    # GIVEN a delegate whose two nodes come from three operators of the graph
    nodes = [
        {"kind": "Conv2d", "operators": ["conv", "relu"], "attribution": "fused", "macs": 10},
        {"kind": "FullyConnected", "operators": ["linear"], "attribution": "exact", "macs": 10},
    ]
    delegate = {"name": "d", "backend": "XnnpackBackend", "instruction": 0, "nodes": nodes}
    operators = [{"name": name, "operator": name} for name in ("conv", "relu", "linear")]
    method = {"operators": operators, "delegates": [delegate]}
    report = {"schema_version": 1, "model": "known", "methods": {"forward": method}}
    off = [Op("Convolution (NHWC, F16) IGEMM #1", 40), Op("Fully Connected (NC, F16) GEMM #1", 20)]
    on = [Op("Convolution (NHWC, PF16) IGEMM #1", 10), Op("Fully Connected (NC, PF16) GEMM #1", 10)]
    run = Run([Experiment("off", off), Experiment("on", on, sme="sme2")], delegation=report)
    data = node_data(assess_run(analyze(tmp_path / "r", run)))
    values = {
        title: {node: entry["value"] for node, entry in part["results"].items()}
        for title, part in data.items()
    }
    # THEN operators inside the delegate have their times, and what is fused counts once
    assert values == {
        "on us": {"conv": 10, "linear": 10},
        "off us": {"conv": 40, "linear": 20},
        "difference us": {"conv": -30, "linear": -10},
        "speedup": {"conv": 4, "linear": 2},
    }

    # AND each is a document of Model Explorer's GraphNodeData
    for title, part in data.items():
        assert part.keys() == {"name", "results", "gradient"}
        assert part["name"] == title
        assert [stop["stop"] for stop in part["gradient"]] == [0, 1]


def test_emulated_runs_give_no_node_data(tmp_path: Path) -> None:
    emulated = replace(on_off_run(), platform="emulator", meaningful=False)
    assert node_data(assess_run(analyze(tmp_path / "r", emulated))) == {}
