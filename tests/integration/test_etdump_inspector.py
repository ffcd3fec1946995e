"""The reader says what executorch.devtools says, event by event, where that is right."""

from __future__ import annotations

import warnings
from collections import Counter, defaultdict
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import pytest
from numpy.typing import NDArray

from etprof import _etdump
from etprof.base.process import run_command
from etprof.etdump.reader import DebugValue, ETDump, TensorEntry, load_etdump, read_tensor
from tests.integration.deserialised import deserialise

if TYPE_CHECKING:
    from torch import nn

RUNNER = Path(_etdump.__file__).parent / "bin" / "etprof-runner"
ITERATIONS = 5


class Recording(NamedTuple):
    """A real run: its ETDump, and what executorch.devtools makes of it."""

    path: Path
    dump: ETDump
    raw: list[Any]
    inspector: Any


def make_toy() -> tuple[nn.Module, tuple[Any, ...]]:
    import torch

    from etprof.registry import load_model

    model = load_model("toy_cnn")
    return model.get_eager_model().eval(), tuple(
        value.float() if isinstance(value, torch.Tensor) else value
        for value in model.get_example_inputs()
    )


def make_mobilenet() -> tuple[nn.Module, tuple[Any, ...]]:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        import torch
        from transformers import MobileNetV2Config, MobileNetV2Model

    class Pooled(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.backbone = MobileNetV2Model(MobileNetV2Config())

        def forward(self, image: torch.Tensor) -> torch.Tensor:
            pooled: torch.Tensor = self.backbone(image).pooler_output
            return pooled

    torch.manual_seed(0)
    return Pooled().eval(), (torch.rand(1, 3, 224, 224),)


def export(module: nn.Module, example: tuple[Any, ...], path: Path, *, xnnpack: bool) -> None:
    with warnings.catch_warnings():  # of the libraries about themselves
        warnings.simplefilter("ignore")
        import torch
        from executorch.backends.xnnpack.partition.xnnpack_partitioner import XnnpackPartitioner
        from executorch.exir import to_edge_transform_and_lower

        partitioner = [XnnpackPartitioner()] if xnnpack else None
        program = torch.export.export(module, example)
        edge = to_edge_transform_and_lower(program, partitioner=partitioner)
        path.write_bytes(edge.to_executorch().buffer)


@pytest.fixture(scope="session", params=["toy_xnnpack", "toy_portable", "mobilenet_xnnpack"])
def recording(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Recording:
    folder = tmp_path_factory.mktemp(request.param)
    name, backend = request.param.split("_")
    module, example = make_toy() if name == "toy" else make_mobilenet()
    export(module, example, folder / "model.pte", xnnpack=backend == "xnnpack")
    path = folder / "model.etdump"
    words = f"--iterations {ITERATIONS} --warmup 2 --model model.pte --result r.json"
    done = run_command([RUNNER, *words.split(), "--etdump", path.name], folder=folder)
    assert done.exit_code == 0, done.stderr
    return record(path)


def record(path: Path, debug_buffer: Path | None = None) -> Recording:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        from executorch.devtools import Inspector
        from executorch.devtools.inspector import TimeScale

        inspector = Inspector(
            etdump_path=str(path),
            source_time_scale=TimeScale.NS,
            target_time_scale=TimeScale.NS,
            debug_buffer_path=None if debug_buffer is None else str(debug_buffer),
        )
    return Recording(path, load_etdump(path), deserialise(path.read_bytes()), inspector)


def name_of(dump: ETDump, name_id: int) -> str | None:
    return None if name_id == -1 else dump.names[name_id]


def test_every_profile_event_equals_the_deserialised_file(recording: Recording) -> None:
    dump, columns = recording.dump, recording.dump.profile
    expected = [
        (block, position, event.profile_event)
        for block, run in enumerate(recording.raw)
        for position, event in enumerate(run.events)
    ]
    assert len(expected) == len(columns.name_id) > 50
    for row, (block, position, event) in enumerate(expected):
        assert columns.block_index[row] == block
        assert columns.event_index[row] == dump.blocks.event_begin[block] + position
        assert name_of(dump, columns.name_id[row]) == event.name
        label = name_of(dump, columns.delegate_debug_id_str_id[row])
        assert label == event.delegate_debug_id_str
        assert columns.delegate_debug_id_int[row] == event.delegate_debug_id_int
        assert columns.instruction_id[row] == event.instruction_id
        assert columns.chain_index[row] == event.chain_index
        assert columns.start_time[row] == event.start_time
        assert columns.end_time[row] == event.end_time
        assert dump.profile_metadata(row) == bytes(event.delegate_debug_metadata or ())


def test_blocks_equal_the_deserialised_file(recording: Recording) -> None:
    blocks = recording.dump.blocks
    assert [name_of(recording.dump, name_id) for name_id in blocks.name_id] == [
        run.name for run in recording.raw
    ]
    assert blocks.bundled_input_index.tolist() == [run.bundled_input_index for run in recording.raw]
    lengths = (blocks.event_end - blocks.event_begin).tolist()
    assert lengths == [len(run.events) for run in recording.raw]


def test_runs_stand_in_blocks_that_tell_their_phase(recording: Recording) -> None:
    names = Counter(recording.dump.names[name_id] for name_id in recording.dump.blocks.name_id)
    assert names == {"Default": 1, "First": 1, "Warmup": 2, "Execute": ITERATIONS}


Key = tuple[str, str, int]
Times = list[tuple[int, float]]


def times_of_reader(dump: ETDump) -> dict[Key, Times]:
    """Start and duration of every event, by block name, event name or label, and instruction."""
    times: dict[Key, Times] = defaultdict(list)
    columns = dump.profile
    for row, block in enumerate(columns.block_index):
        label_id = columns.delegate_debug_id_str_id[row]
        name_id = columns.name_id[row] if label_id == -1 else label_id
        block_name = dump.names[dump.blocks.name_id[block]]
        start, end = int(columns.start_time[row]), int(columns.end_time[row])
        key = (block_name, dump.names[name_id], int(columns.instruction_id[row]))
        times[key].append((start, float(end - start)))
    return times


def times_of_inspector(recording: Recording) -> dict[Key, Times]:
    times: dict[Key, Times] = defaultdict(list)
    for block in recording.inspector.event_blocks:
        for event in block.events:
            key = (block.name, event.name, event._instruction_id)
            times[key] += zip(event.start_time, event.perf_data.raw, strict=True)
    return times


def test_times_equal_inspectors(recording: Recording) -> None:
    found = times_of_reader(recording.dump)
    expected = times_of_inspector(recording)
    assert set(found) == set(expected)
    runs = Counter(recording.dump.names[name_id] for name_id in recording.dump.blocks.name_id)
    once_per_run = [key for key in found if len(found[key]) == runs[key[0]]]
    assert len(once_per_run) > 0.9 * len(found)
    for key in once_per_run:
        assert found[key] == expected[key], key


def test_repeated_events_are_kept_where_inspector_loses_them(recording: Recording) -> None:
    found = times_of_reader(recording.dump)
    expected = times_of_inspector(recording)
    for key, times in found.items():
        assert set(expected[key]) <= set(times), key


def make_steps() -> tuple[nn.Module, tuple[Any, ...], list[Any]]:
    """A module of portable kernels, its inputs, and what it computes step by step."""
    import torch

    class Module(torch.nn.Module):
        def forward(self, x: torch.Tensor, y: torch.Tensor) -> tuple[torch.Tensor, ...]:
            total = x + y
            parts = torch.split(total, 2)
            return parts[0] * parts[1], total > x, total.to(torch.int64)

    x = torch.arange(12, dtype=torch.float32).reshape(4, 3)
    y = torch.linspace(-3, 3, 12).reshape(4, 3)
    total = x + y
    parts = [total[:2], total[2:]]
    steps = [total, parts, parts[0] * parts[1], total > x, total.to(torch.int64)]
    return Module().eval(), (x, y), steps


Logged = NDArray[np.generic] | list[NDArray[np.generic]]


class DebugRecording(NamedTuple):
    recording: Recording
    buffer: bytes
    steps: list[Any]
    outputs: list[Any]


@pytest.fixture(scope="session")
def debugged(tmp_path_factory: pytest.TempPathFactory) -> DebugRecording:
    """An ETDump with the intermediate outputs of portable kernels, written by ExecuTorch."""
    folder = tmp_path_factory.mktemp("debugged")
    module, example, steps = make_steps()
    export(module, example, folder / "model.pte", xnnpack=False)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        from executorch.runtime import Runtime

        program = Runtime.get().load_program(
            str(folder / "model.pte"), enable_etdump=True, debug_buffer_size=1 << 16
        )
        outputs = program.load_method("forward").execute(example)
    path, buffer = folder / "model.etdump", folder / "debug.bin"
    program.write_etdump_result_to_file(str(path), str(buffer))
    recording = record(path, buffer)
    return DebugRecording(recording, buffer.read_bytes(), steps, list(outputs))


def logged_values(debugged: DebugRecording, *, outputs: bool) -> list[Logged]:
    dump = debugged.recording.dump
    rows = np.flatnonzero((dump.debug.is_output == 1) == outputs)
    return [read_value(dump.debug_value(int(row)), debugged.buffer) for row in rows]


def read_value(value: DebugValue, buffer: bytes) -> Logged:
    if isinstance(value, TensorEntry):
        return read_tensor(value, buffer)
    assert isinstance(value, tuple)
    return [read_tensor(tensor, buffer) for tensor in value]


def assert_same(found: list[Logged], expected: list[Any]) -> None:
    assert len(found) == len(expected)
    for one, other in zip(found, expected, strict=True):
        if isinstance(one, list):
            assert_same([*one], other)
        else:
            assert one.dtype == other.numpy().dtype
            np.testing.assert_array_equal(one, other.numpy())


def test_logged_outputs_read_back_equal(debugged: DebugRecording) -> None:
    assert_same(logged_values(debugged, outputs=True), debugged.outputs)


def test_logged_intermediate_outputs_read_back_equal(debugged: DebugRecording) -> None:
    assert_same(logged_values(debugged, outputs=False), debugged.steps)


def test_debug_events_equal_the_deserialised_file(debugged: DebugRecording) -> None:
    dump = debugged.recording.dump
    expected = [
        event.debug_event
        for run in debugged.recording.raw
        for event in run.events
        if event.debug_event is not None
    ]
    assert len(expected) == len(dump.debug.name_id) >= 8
    for row, event in enumerate(expected):
        assert dump.debug.instruction_id[row] == event.instruction_id
        assert dump.debug.chain_index[row] == event.chain_index
        entry = event.debug_entry
        assert (dump.debug.is_output[row] == 1) == (entry.output is not None)
        tensors = [entry.tensor] if entry.tensor else entry.tensor_list.tensors
        for found, tensor in zip(dump.debug_tensors(row), tensors, strict=True):
            assert found.scalar_type == tensor.scalar_type.value
            assert list(found.sizes) == tensor.sizes
            assert list(found.strides) == tensor.strides
            assert found.offset == tensor.offset


def test_debug_data_equals_inspectors(debugged: DebugRecording) -> None:
    expected = [
        data
        for block in debugged.recording.inspector.event_blocks
        for event in block.events
        for data in event.debug_data
    ]
    assert len(expected) > 0
    found = [tuple(map(str, np.ravel(v))) for v in logged_values(debugged, outputs=False)]
    for data in expected:
        values = [np.ravel(d) for d in data] if isinstance(data, list) else np.ravel(data)
        assert tuple(map(str, np.ravel(values))) in found
