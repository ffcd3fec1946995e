"""What `etprof import` makes of ExecuTorch's own recordings equals what its Inspector says of them."""

from __future__ import annotations

import json
import warnings
from collections import defaultdict
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import pytest

import etprof as api
from etprof.export.request import ExportRequest
from tests.world.host import etprof

if TYPE_CHECKING:
    from tests.integration.conftest import Exports

INFERENCES = 8
Durations = dict[tuple[str, str, int | None], list[float]]
"""By block, event and instruction."""


class Recorded(NamedTuple):
    """A program, its ETRecord and an ETDump of ExecuTorch's own runtime, without etprof's runner."""

    pte: Path
    etrecord: Path
    etdump: Path


@pytest.fixture(scope="module")
def recorded(exports: Exports, tmp_path_factory: pytest.TempPathFactory) -> Recorded:
    files = exports.get(ExportRequest("toy_cnn", "fp32"))
    etdump = tmp_path_factory.mktemp("upstream") / "model.etdump"
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        import torch
        from executorch.runtime import Runtime

        program = Runtime.get().load_program(str(files.pte), enable_etdump=True)
        method = program.load_method("forward")
        assert method is not None
        shape = tuple(method.metadata.input_tensor_meta(0).sizes())
        for _ in range(INFERENCES):
            method.execute((torch.zeros(shape),))
        program.write_etdump_result_to_file(str(etdump), str(etdump.with_suffix(".bin")))
    return Recorded(files.pte, files.etrecord, etdump)


def of_inspector(etdump: Path, scale: str) -> Durations:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        from executorch.devtools import Inspector
        from executorch.devtools.inspector import TimeScale

        same = TimeScale(scale)
        inspector = Inspector(
            etdump_path=str(etdump), source_time_scale=same, target_time_scale=same
        )
    found: Durations = defaultdict(list)
    for block in inspector.event_blocks:
        for event in block.events:
            instruction = event._instruction_id
            key = (block.name, event.name, None if instruction in (None, -1) else instruction)
            found[key] += event.perf_data.raw
    return found


@pytest.mark.parametrize(("scale", "hz"), [("ns", None), ("cycles", "4e8")])
def test_every_event_of_the_run_takes_what_inspector_says(
    recorded: Recorded, tmp_path: Path, scale: str, hz: str | None
) -> None:
    words = ["--clock-hz", hz] if hz else []
    done = etprof(
        tmp_path, "import", recorded.etdump, recorded.pte, recorded.etrecord,
        "--time-scale", scale, *words, "--out", "run", "--json",
    )  # fmt: skip
    assert done.exit_code == 0, done.stderr
    ns_per_tick = json.loads(done.stdout)["ns_per_tick"]
    assert ns_per_tick == (2.5 if hz else 1.0)
    run, expected = api.load_run(tmp_path / "run"), of_inspector(recorded.etdump, scale)
    compared = set()
    for block in run.event_blocks():
        for event in block.events:
            key = (block.name, event.name, event.instruction_id)
            ticks = [raw * ns_per_tick for raw in expected[key]]
            # Each stamp is rounded to a ns.
            assert event.raw_ns.tolist() == pytest.approx(ticks, abs=1 if hz else 0), key
            compared.add(key)
    assert compared == set(expected)
    assert len(compared) >= 8
    # A mean of the operator table is of the same events, the first inference apart.
    for row in run.table("operators").to_dict("records"):
        labels = [key for key in compared if key[1] == row["label"]]
        if (
            len(labels) == 1
            and run.assessment.run.experiments[0].split.executions == INFERENCES - 1
        ):
            steady = expected[labels[0]][1:]
            assert row["mean_ns"] == pytest.approx(ns_per_tick * sum(steady) / len(steady), abs=1)
    modules = run.table("operators")["module_path"].dropna()
    assert len(modules) > 0, "program and ETRecord name them"
