"""Real programs with SME off and SME2 under emulation: splits are whole, operators align."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from etprof.analysis.assessment import assess_run
from etprof.analysis.run_analysis import analyze_run
from etprof.backends.xnnpack.sme import plain_types
from etprof.base.errors import EtprofError
from etprof.export.request import ExportRequest
from etprof.measuring.pipeline import measure
from etprof.measuring.plan import Experiment, Settings, plan
from etprof.run.load import Run
from etprof.run.program import describe_program
from etprof.targets.emulator.installation import locate
from etprof.targets.emulator.target import EmulatorTarget
from etprof.views.formats.html import render_html
from tests.integration.report_truth import check_alignment, check_untimed_split

if TYPE_CHECKING:
    from etprof.analysis.assessment import Assessment
    from tests.integration.conftest import Exports

try:
    locate()
except EtprofError as error:
    pytestmark = pytest.mark.skip(reason=str(error))

MODELS = [
    ("toy_cnn", "fp16"),
    ("mobilenet_v2", "fp32"),
    ("transformer_encoder", "fp32"),
    ("decoder", "fp32"),
]


@pytest.fixture(scope="module", params=MODELS, ids="_".join)
def assessment(
    request: pytest.FixtureRequest, exports: Exports, tmp_path_factory: pytest.TempPathFactory
) -> Assessment:
    model, precision = request.param
    files = exports.get(ExportRequest(model=model, precision=precision))
    run = tmp_path_factory.mktemp(model) / "run"
    measure(
        program=describe_program(files.pte),
        target=EmulatorTarget(),
        run=run,
        planned=plan(
            [Experiment(name=mode, sme=mode, warmup=0) for mode in ("off", "sme2")],
            Settings(blocks=0, operator_iterations=1, kernels=False),
            EmulatorTarget(),
        ),
        progress=lambda *_: None,
    )
    return assess_run(analyze_run(Run.load(run)))


def test_splits_are_whole_and_the_comparison_is_aligned(assessment: Assessment) -> None:
    for experiment in assessment.run.experiments:
        check_untimed_split(experiment)
    comparison = assessment.primary_comparison
    assert comparison is not None
    assert comparison.name == "off → sme2"
    assert comparison.times is None
    check_alignment(comparison)


def test_only_packing_stands_alone(assessment: Assessment) -> None:
    comparison = assessment.primary_comparison
    assert comparison is not None
    pairs = [entry.aligned for entry in comparison.operators]
    alone = [pair for pair in pairs if pair.baseline is None or pair.candidate is None]
    assert {pair.row.operator_class.finer for pair in alone} <= {"packing", "quantise and convert"}
    # AND operators whose types became packed are still the same operators
    renamed = [p for p in pairs if p.baseline and p.candidate
               and p.baseline.data_types != p.candidate.data_types]  # fmt: skip
    assert renamed, "SME2 changes names"
    for pair in renamed:
        assert pair.baseline is not None
        assert pair.candidate is not None
        assert plain_types(pair.candidate.data_types) == plain_types(pair.baseline.data_types)


def test_operators_have_modules_and_outputs_agree(assessment: Assessment) -> None:
    products = [d for d in assessment.primary.details if d.evidence.could_use_sme2]
    assert all(d.attribution and d.attribution.macs for d in products)
    comparison = assessment.primary_comparison
    assert comparison is not None
    assert comparison.outputs
    assert comparison.outputs_agree


def test_report_shows_no_time(assessment: Assessment) -> None:
    page = render_html([assessment])
    assert "Not representative." in page
    assert "Where an inference" not in page
