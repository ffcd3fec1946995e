"""No headline and no finding says more of SME than the operators' routes do."""

from __future__ import annotations

import re
from collections import Counter
from typing import TYPE_CHECKING

import pytest

from etprof.analysis.assessment import Assessment, assess_run
from etprof.base.units import MISSING
from etprof.tables.verdicts import head_of, tiles_of
from tests.known_runs import Experiment, Op, Run, analyze
from tests.unit.test_kernel_evidence import make_trace

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

NAMED = "Fully Connected (NC, PF32) GEMM #1"
PLAIN = "Convolution (NHWC, F32) IGEMM #1"
BLOCKS = "Fully Connected (NC, QP8, F32, QB4W) GEMM #1"
NOBODY_KNOWS = "Fully Connected (NC, QP8, F32, QC2W) GEMM #1"
OTHER = "Softmax (NC, F32) #1"
LABELS = (
    [NAMED], [PLAIN], [NOBODY_KNOWS], [OTHER], [NAMED, PLAIN], [NAMED, NOBODY_KNOWS, BLOCKS, OTHER],
)  # fmt: skip
KERNELS = {
    "sme2": "kai_run_matmul_clamp_f16_f16p2vlx2_f16p2vlx2_2vlx2vl_sme2_mopa",
    "sme1": "kai_run_lhs_imatmul_pack_x16p2vlx2_x16p_sme",
}


def assess(
    folder: Path, labels: Sequence[str], mode: str, *, counted: bool, timed: bool = False
) -> Assessment:
    """Off against a mode; where calls were counted, `NAMED` called a microkernel of SME."""
    ops = [Op(label, 100) for label in labels]
    calls = [(label, {KERNELS["sme2"]: 4} if label == NAMED else {}) for label in labels]
    trace = make_trace(mode, calls).model_dump(mode="json") if counted else None
    off = Experiment("off", ops, sme="off")
    experiments = [off, Experiment("e", ops, sme=mode, kernels=trace)]
    return assess_run(analyze(folder / "r", Run(experiments, meaningful=timed)))


@pytest.mark.parametrize("counted", [False, True])
@pytest.mark.parametrize("mode", ["sme2", "sme1"])
@pytest.mark.parametrize(
    "labels", LABELS, ids=lambda labels: "+".join(x.split(" #")[0] for x in labels)
)
def test_the_headline_counts_the_routes(
    tmp_path: Path, labels: Sequence[str], mode: str, counted: bool
) -> None:
    """B-D3: "0 of 53 ran on SME2" of a run in which nobody counted, and of every SME1 run."""
    assessment = assess(tmp_path, labels, mode, counted=counted)
    evidence = [d.evidence for d in assessment.insight.of("e").details]
    routes = Counter[str](each.route.answer for each in evidence if each.could_use_sme2)
    head = head_of(assessment)
    if not routes:
        assert head.figure == MISSING
    elif counted:
        assert head.figure == f"{routes['proven']} of {routes.total()}"
    else:
        told = {
            name: int(number) for number, name in re.findall(r"(\d+) ([a-z]+)(?=[, ])", head.figure)
        }
        assert {name: told.get(name, 0) for name in ("named", "unknown")} == {
            name: routes[name] for name in ("named", "unknown")
        }
        assert not head.figure.startswith("0 ")
        assert "ran on" not in head.plain
        calls = next(tile for tile in tiles_of(assessment) if tile.label.startswith("KleidiAI"))
        assert calls.value == MISSING
    assert head.figure == tiles_of(assessment)[0].value
    if mode == "sme1":
        assert "SME2" not in head.plain


CLAIMS = re.compile(r"ran on SME|SME2? ran|calls were counted|were used|is working")
DENIAL = re.compile(r"None of \d+ convolutions and matrix products ran on SME2?\.")


@pytest.mark.parametrize("counted", [False, True])
@pytest.mark.parametrize("mode", ["sme2", "sme1"])
@pytest.mark.parametrize("labels", LABELS, ids="+".join)
def test_no_finding_claims_more_than_the_route(
    tmp_path: Path, labels: Sequence[str], mode: str, counted: bool
) -> None:
    """B-D7: "N operators ran on SME2", "missing kernels: they were used" of names alone."""
    assessment = assess(tmp_path, labels, mode, counted=counted, timed=True)
    evidence = [d.evidence for d in assessment.insight.of("e").details]
    routes = Counter[str](each.route.answer for each in evidence if each.could_use_sme2)
    findings = {each.rule: each for each in assessment.findings_of("e").findings}
    told = " ".join(
        " ".join((each.title, each.summary, *each.ruled_out)) for each in findings.values()
    )
    said, denied = DENIAL.sub("", told), bool(DENIAL.search(told))
    assert bool(CLAIMS.search(said)) == bool(routes["proven"])
    assert denied == bool(routes["excluded"] and not routes - Counter(excluded=99))
    if mode == "sme1":
        assert "SME2" not in told
    if routes["named"] or routes["proven"]:
        all_counted = routes["proven"] == routes.total()
        assert bool(findings["F10"].ruled_out) == all_counted


def test_an_unknown_mode_is_no_sme(tmp_path: Path) -> None:
    """B-D6: a run whose mode is not known was compared and judged as one with SME2."""
    assessment = assess(tmp_path, [NAMED, PLAIN], "auto", counted=False, timed=True)
    assert not {"F8", "F9", "F10", "F11"} & set(assessment.findings_of("e").checked)
