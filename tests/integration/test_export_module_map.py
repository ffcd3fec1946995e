"""Which module an operator of a real ETDump belongs to, against models where that is known."""

from __future__ import annotations

import json
import textwrap
from collections import defaultdict
from typing import TYPE_CHECKING

import pytest

from etprof.analysis.attribution import attribute_operators
from etprof.analysis.delegation_report import DelegationReport
from etprof.analysis.executions import split_executions
from etprof.analysis.operators import split_operators
from etprof.etdump import load_etdump
from etprof.export.request import ExportRequest
from etprof.process import run_command
from etprof.targets.runner import find_host_runner

if TYPE_CHECKING:
    from pathlib import Path

    from etprof.export.request import ExportedFiles
    from tests.integration.conftest import Exports

SHARE = 0.95
UNKNOWN = "?"


def time_per_module(
    files: ExportedFiles, folder: Path, method: str = "forward"
) -> dict[str, float]:
    """Returns the delegated time of each module in ns per inference; UNKNOWN for the rest."""
    manifest = json.loads(files.manifest.read_text(encoding="utf-8"))
    entries = manifest["methods"][method]["inputs"]
    inputs = ",".join(str(files.manifest.parent / each["path"]) for each in entries)
    etdump = folder / "a.etdump"
    words = [
        *(find_host_runner(), "--model", files.pte, "--method", method, "--inputs", inputs),
        *("--threads", 1, "--iterations", 20, "--etdump", etdump),
        *("--result", folder / "result.json"),
    ]
    completed = run_command([str(word) for word in words], timeout_s=120)
    assert completed.exit_code == 0, completed.stderr
    dump = load_etdump(etdump)
    rows = split_operators(split_executions(dump), dump.names).rows
    report = DelegationReport.model_validate_json(files.report.read_text(encoding="utf-8"))
    times: dict[str, float] = defaultdict(float)
    for row, found in zip(rows, attribute_operators(rows, report.methods[method]), strict=True):
        if row.is_delegated:
            origin = None if found is None else found.origin
            times[UNKNOWN if origin is None else origin.module_path] += row.mean_ns
    return dict(times)


MODELS = [
    ("toy_cnn", "fp32", "forward"),
    ("toy_cnn", "int8", "forward"),
    ("mobilenet_v2", "fp32", "forward"),
    ("vit_tiny", "fp32", "forward"),
    ("decoder", "fp32", "prefill"),
    ("decoder", "fp32", "decode"),
]


@pytest.mark.parametrize(("model", "precision", "method"), MODELS)
def test_almost_all_delegated_time_has_a_module(
    exports: Exports, tmp_path: Path, model: str, precision: str, method: str
) -> None:
    times = time_per_module(exports.get(ExportRequest(model, precision)), tmp_path, method)
    known = sum(time for module, time in times.items() if module != UNKNOWN)
    assert known >= SHARE * sum(times.values()), times


# Layers of one kind, told apart by nothing but their work; each does 16 times that of `small`'s.
KNOWN_TIMES = """
    import torch
    from torch import nn

    class Network(nn.Module):
        def __init__(self, order):
            super().__init__()
            self.order = order
            self.small = nn.Linear(256, 256)
            self.large = nn.Sequential(nn.Linear(256, 4096), nn.ReLU(), nn.Linear(4096, 256))
            self.tiny = nn.Linear(256, 256)

        def forward(self, x):
            for name in self.order:
                x = torch.tanh(getattr(self, name)(x))
            return x

    class LargeFirst:
        order = ("large", "small", "tiny")

        def get_eager_model(self):
            return Network(self.order)

        def get_example_inputs(self):
            return (torch.randn(256, 256),)

    class LargeLast(LargeFirst):
        order = ("small", "tiny", "large")
"""


@pytest.mark.parametrize("order", ["LargeFirst", "LargeLast"])
def test_time_goes_to_the_module_that_takes_it(
    exports: Exports, tmp_path: Path, order: str
) -> None:
    # GIVEN two linear layers with 1/16 of the work of each of two others, in either order
    file = tmp_path / "network.py"
    file.write_text(textwrap.dedent(KNOWN_TIMES), encoding="utf-8")
    files = exports.get(ExportRequest(f"{file}:{order}", "fp32"))
    # WHEN
    times = time_per_module(files, tmp_path)
    # THEN the large ones have nearly all the time
    large = times["large.0"] + times["large.2"]
    assert large > 8 * (times["small"] + times["tiny"]), times
    assert UNKNOWN not in times
