"""Splits, comparisons and reports of real programs close, and agree with the raw ETDump."""

from __future__ import annotations

import json
import textwrap
import time
from typing import TYPE_CHECKING

import pytest

from etprof.analysis.assessment import assess_run
from etprof.analysis.compare.comparison import compare_sides
from etprof.analysis.compare.pairs import sides_of
from etprof.analysis.run_analysis import analyze_run
from etprof.analysis.split.transposes import find_inverse_pairs
from etprof.base.atomic import write_json
from etprof.base.process import run_command
from etprof.export.request import ExportRequest
from etprof.run.delegation import MethodReport
from etprof.run.load import Run
from etprof.run.program import describe_program
from etprof.targets.runner import find_host_runner
from etprof.views.formats.html import render_html
from tests.integration.report_truth import check_comparison, check_split

if TYPE_CHECKING:
    from pathlib import Path

    from etprof.analysis.assessment import Assessment
    from tests.integration.conftest import Exports

MODELS = [("toy_cnn", "fp32"), ("mobilenet_v2", "fp32"), ("vit_tiny", "fp32"), ("decoder", "fp32")]


@pytest.fixture(scope="module", params=MODELS, ids="_".join)
def assessment(
    request: pytest.FixtureRequest, exports: Exports, tmp_path_factory: pytest.TempPathFactory
) -> Assessment:
    """A program run with one and with two threads."""
    model, precision = request.param
    files = exports.get(ExportRequest(model=model, precision=precision))
    program = describe_program(files.pte)
    run = tmp_path_factory.mktemp(model)
    for threads in (1, 2):
        folder = run / f"t{threads}"
        folder.mkdir()
        words = [
            *(find_host_runner(), f"--model={files.pte}", "--iterations=6", f"--threads={threads}"),
            *(f"--method={program.method}", *(f"--input={path}" for path in program.inputs)),
            *(f"--etdump={folder / 'a.etdump'}", f"--result={folder / 'r.json'}"),
        ]
        completed = run_command([str(word) for word in words], timeout_s=120)
        assert completed.exit_code == 0, completed.stderr
    model_facts = {"name": model, "method": program.method}
    write_json(
        run / "manifest.json", {"schema_version": 1, "platform": "linux", "model": model_facts}
    )
    (run / "delegation.json").write_bytes(
        files.pte.with_name(f"{files.pte.name}.delegation.json").read_bytes()
    )
    return assess_run(analyze_run(Run.load(run)))


def test_shares_close_and_sums_are_those_of_the_raw_file(assessment: Assessment) -> None:
    for experiment in assessment.run.experiments:
        check_split(experiment)


def test_both_sides_align_completely_and_the_waterfall_closes(assessment: Assessment) -> None:
    comparison = compare_sides(*sides_of(assessment.run))
    check_comparison(comparison)
    assert {entry.aligned.match for entry in comparison.operators} == {"same"}


def test_delegated_operators_have_their_module(assessment: Assessment) -> None:
    details = [d for d in assessment.primary.details if d.row.is_delegated]
    found = [d for d in details if d.attribution is not None]
    assert len(found) >= 0.95 * len(details)
    products = [d for d in found if d.row.operator_class.category in {"Convolution", "GEMM"}]
    assert all(d.attribution and d.attribution.macs for d in products)


TRANSPOSING = """
    import torch
    from torch import nn

    class Network(nn.Module):
        def __init__(self):
            super().__init__()
            self.wide, self.back = nn.Linear(32, 64), nn.Linear(64, 32)

        def forward(self, x):
            x = self.wide(x).transpose(1, 2)
            x = self.back((nn.functional.gelu(x).sigmoid() * 2.0).permute(0, 2, 1))
            return x.permute(0, 2, 1).softmax(-1).permute(0, 2, 1)

    class Transposing:
        def get_eager_model(self):
            return Network()

        def get_example_inputs(self):
            return (torch.randn(1, 64, 32),)
"""


def test_inverse_transposes_of_a_real_program_are_found(exports: Exports, tmp_path: Path) -> None:
    # GIVEN a pair around elementwise operators, and one around a softmax that needs its layout
    file = tmp_path / "network.py"
    file.write_text(textwrap.dedent(TRANSPOSING), encoding="utf-8")
    files = exports.get(ExportRequest(f"{file}:Transposing", "fp32"))
    document = json.loads(files.report.read_text(encoding="utf-8"))
    report = MethodReport.model_validate(document["methods"]["forward"])
    # THEN the first is proven, the second is not
    (pair,) = find_inverse_pairs(report)
    kinds = [node.kind for node in report.delegates[0].nodes]
    assert pair.permutation == (0, 2, 1)
    assert (pair.between, pair.is_shared) == (3, False)
    assert [kinds[place or 0] for _, place in (pair.first, pair.second)] == ["StaticTranspose"] * 2


def test_report_is_small_and_quickly_written(assessment: Assessment) -> None:
    start = time.process_time()
    page = render_html([assessment])
    assert time.process_time() - start < 5
    assert len(page.encode()) < 2 * 2**20
