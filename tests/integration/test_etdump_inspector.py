"""The reader says what executorch.devtools says, event by event, where that is right."""

from __future__ import annotations

import warnings
from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import pytest
from numpy.typing import NDArray

from etprof import _etdump
from etprof.etdump.reader import DebugValue, ETDump, TensorEntry, read_tensor
from tests.recordings import times_of_reader
from tests.recordings.record import (
    DEBUG_BUFFER,
    Recording,
    export,
    make_steps,
    make_toy,
    record_runs,
    record_values,
    times_of_inspector,
)

if TYPE_CHECKING:
    from torch import nn

RUNNER = Path(_etdump.__file__).parent / "bin" / "etprof-runner"
ITERATIONS = 5


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


@pytest.fixture(scope="session", params=["toy_xnnpack", "toy_portable", "mobilenet_xnnpack"])
def recording(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Recording:
    folder = tmp_path_factory.mktemp(request.param)
    name, backend = request.param.split("_")
    module, example = make_toy() if name == "toy" else make_mobilenet()
    export(module, example, folder / "model.pte", xnnpack=backend == "xnnpack")
    return record_runs(folder, ITERATIONS)


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
    recording, outputs = record_values(folder, example)
    buffer = (folder / DEBUG_BUFFER).read_bytes()
    return DebugRecording(recording, buffer, steps, outputs)


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
