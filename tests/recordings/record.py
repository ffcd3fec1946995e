"""Runs small models, and writes down what ExecuTorch's own readers say of their ETDumps.

    python -m tests.recordings.record

makes the files of this folder again.
"""

from __future__ import annotations

import json
import shutil
import tempfile
import warnings
from collections import defaultdict
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from etprof import _etdump
from etprof.base.process import run_command
from etprof.etdump.reader import ETDump, load_etdump
from tests.integration.deserialised import deserialise
from tests.recordings import FOLDER, Key, Times

if TYPE_CHECKING:
    from torch import nn

RUNNER = Path(_etdump.__file__).parent / "bin" / "etprof-runner"
ETDUMP, DEBUG_BUFFER = "model.etdump", "debug.bin"
_ITERATIONS = 3


class Recording(NamedTuple):
    """A real run: its ETDump, and what executorch.devtools makes of it."""

    path: Path
    dump: ETDump
    raw: list[Any]
    inspector: Any


def make_toy() -> tuple[nn.Module, tuple[Any, ...]]:
    """The zoo's smallest model and its inputs, in single precision."""
    import torch

    from etprof.model_registry.registry import load_model

    model = load_model("toy_cnn")
    return model.get_eager_model().eval(), tuple(
        value.float() if isinstance(value, torch.Tensor) else value
        for value in model.get_example_inputs()
    )


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


def export(module: nn.Module, example: tuple[Any, ...], path: Path, *, xnnpack: bool) -> None:
    """Writes the module as a program, in the delegate or without any."""
    with warnings.catch_warnings():  # of the libraries about themselves
        warnings.simplefilter("ignore")
        import torch
        from executorch.backends.xnnpack.partition.xnnpack_partitioner import XnnpackPartitioner
        from executorch.exir import to_edge_transform_and_lower

        partitioner = [XnnpackPartitioner()] if xnnpack else None
        program = torch.export.export(module, example)
        edge = to_edge_transform_and_lower(program, partitioner=partitioner)
        path.write_bytes(edge.to_executorch().buffer)


def record_runs(folder: Path, iterations: int) -> Recording:
    """Runs `model.pte` of the folder with etprof's runner, after two warm-up inferences."""
    words = f"--iterations {iterations} --warmup 2 --model model.pte --result r.json"
    done = run_command([RUNNER, *words.split(), "--etdump", ETDUMP], folder=folder)
    assert done.exit_code == 0, done.stderr
    return _read(folder / ETDUMP)


def record_values(folder: Path, example: tuple[Any, ...]) -> tuple[Recording, list[Any]]:
    """Runs `model.pte` once with ExecuTorch's own runtime, which logs every value; and outputs."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        from executorch.runtime import Runtime

        program = Runtime.get().load_program(
            str(folder / "model.pte"), enable_etdump=True, debug_buffer_size=1 << 12
        )
        outputs = program.load_method("forward").execute(example)
    path, buffer = folder / ETDUMP, folder / DEBUG_BUFFER
    program.write_etdump_result_to_file(str(path), str(buffer))
    return _read(path, buffer), list(outputs)


def _read(path: Path, debug_buffer: Path | None = None) -> Recording:
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


def times_of_inspector(recording: Recording) -> dict[Key, Times]:
    """Start and duration of every event that Inspector has, as `times_of_reader` gives them."""
    times: dict[Key, Times] = defaultdict(list)
    for block in recording.inspector.event_blocks:
        for event in block.events:
            key = (block.name, event.name, event._instruction_id)
            times[key] += zip(event.start_time, event.perf_data.raw, strict=True)
    return times


def values_of_inspector(recording: Recording) -> list[Any]:
    """The values that Inspector found logged, tensor by tensor."""
    return [
        np.asarray(value).tolist()
        for block in recording.inspector.event_blocks
        for event in block.events
        for logged in event.debug_data
        for value in (logged if isinstance(logged, list) else [logged])
    ]


def main() -> None:
    """Writes each recording, and what Inspector says of it, into this folder."""
    import executorch.version

    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        export(*make_toy(), folder / "model.pte", xnnpack=True)
        _keep(record_runs(folder, _ITERATIONS), "toy_cnn", executorch.version.__version__)
        module, example, _ = make_steps()
        export(module, example, folder / "model.pte", xnnpack=False)
        recording, _ = record_values(folder, example)
        _keep(recording, "steps", executorch.version.__version__)
        shutil.copyfile(folder / DEBUG_BUFFER, FOLDER / "steps.bin")


def _keep(recording: Recording, name: str, version: str) -> None:
    said = {
        "executorch": version,
        "blocks": [block.name for block in recording.inspector.event_blocks],
        "times": [[*key, times] for key, times in sorted(times_of_inspector(recording).items())],
        "values": values_of_inspector(recording),
    }
    shutil.copyfile(recording.path, FOLDER / f"{name}.etdump")
    (FOLDER / f"{name}.json").write_text(json.dumps(said) + "\n")


if __name__ == "__main__":
    main()
