"""A person looks for their own layer: every row of operators leads with it, everywhere."""

from __future__ import annotations

import csv
import re
from dataclasses import replace
from typing import TYPE_CHECKING

import pytest
from perfetto.protos.perfetto.trace.perfetto_trace_pb2 import Trace

from etprof.analysis.assessment import assess_run
from etprof.analysis.split.evidence import locate_operators
from etprof.run.delegation import Origin, SourceLine
from etprof.tables.brief import brief_comparison
from etprof.tables.kernels import KERNELS, USES
from etprof.tables.report import DECLARED, report_tables
from etprof.views.formats.chrome import chrome_trace
from etprof.views.formats.html import render_html
from etprof.views.formats.perfetto import encode_trace
from etprof.views.trace import experiment_slices
from tests.golden.runs import described
from tests.known_runs import analyze, on_off_run
from tests.unit.test_kernel_evidence import evidence_of, split_row
from tests.world.host import etprof

if TYPE_CHECKING:
    from pathlib import Path

    from etprof.analysis.assessment import Assessment

STEM = "features.0.stem (model.py:10)"
LABELS = {"label", "baseline_label", "candidate_label"}


@pytest.fixture
def assessment(tmp_path: Path) -> Assessment:
    """A run whose export knows the modules of four of its seven operators."""
    run = replace(on_off_run(), delegation=described())
    return assess_run(analyze(tmp_path / "r", run))


def test_a_location_is_the_module_and_its_line() -> None:
    line = SourceLine(file="/home/me/net.py", line=14)
    assert (
        Origin(module_path="features.2.conv", source=line).location == "features.2.conv (net.py:14)"
    )
    assert Origin(source=line).location == "net.py:14"
    assert Origin(module_path="head").location == "head"
    assert Origin().location is None


def test_every_table_of_operators_leads_with_the_layer() -> None:
    """Item 5 of the first page: it led with `Convolution (NHWC, PF16) IGEMM #1`."""
    for table in DECLARED.values():
        labels = [column for column in table.columns if column.name in LABELS]
        if not labels or table.name in {"icicle", "icicle_changes"}:
            continue
        texts = [column.name for column in table.columns if column.dtype == "string"]
        texts = [name for name in texts if name not in {"experiment", "comparison"}]
        assert texts[0] == "name", table.name
        assert all(column.repeats == "name" for column in labels), table.name


def test_rows_have_the_layer_or_else_the_label(assessment: Assessment) -> None:
    tables = report_tables(assessment)
    for name in ("operators", "split", "operator_changes", "waterfall"):
        rows = tables[name].records()
        labels = {str(row.get("label", row.get("candidate_label"))): row["name"] for row in rows}
        assert labels["Convolution (NHWC, PF16) IGEMM #1"] == STEM, name
        assert labels["native_call_mean.out"] == "head.pool", name
        # AND nobody says what this one is
        assert labels["Pack LH (X16) #1"] == "Pack LH (X16) #1", name
    which = {row["reason"]: row["labels"] for row in tables["why_not_sme2"].records()}
    assert "features.1.depthwise (model.py:11)" in which.values()


def test_people_do_not_read_a_label_twice(assessment: Assessment, tmp_path: Path) -> None:
    text = etprof(tmp_path, "analyze", "r", "--full", columns=200).stdout
    rows = [line.split("│")[1:3] for line in text.splitlines() if "Pack LH (X16) #1" in line]
    assert rows
    assert all(label.strip() == "" for name, label in rows if name.strip() == "Pack LH (X16) #1")
    stem = [line for line in text.splitlines() if line.startswith(f"│ {STEM}")]
    assert len(stem) >= 4
    # AND where no layer is known at all, there is one column of names
    bare = assess_run(analyze(tmp_path / "bare", on_off_run()))
    shown = report_tables(bare)["split"].visible_in("everywhere").names
    assert "name" in shown
    assert "label" not in shown
    assert "label" in report_tables(bare)["split"].visible_in("data").names


def test_pages_and_files_lead_with_the_layer(assessment: Assessment, tmp_path: Path) -> None:
    page = render_html([assessment])
    heads = re.findall(r'<th scope="row">(?:<span[^>]*></span>)?<a href="#r0-op-\d+">([^<]+)', page)
    assert STEM in heads
    assert "Convolution (NHWC, PF16) IGEMM #1" not in heads
    assert "Pack LH (X16) #1" in heads
    etprof(tmp_path, "report", "r", "--format", "csv", "--out", "tables")
    with (tmp_path / "tables/report_operators.csv").open(encoding="utf-8") as stream:
        names = next(csv.reader(stream))
    assert names.index("name") == names.index("label") - 1


def test_traces_lead_with_the_layer_and_keep_the_label(assessment: Assessment) -> None:
    slices = {event.label: event.name for event in experiment_slices(assessment.run.experiments[1])}
    assert slices["Convolution (NHWC, PF16) IGEMM #1"] == STEM
    assert slices["native_call_mean.out"] == "head.pool"
    assert slices["Pack LH (X16) #1"] == "Pack LH (X16) #1"
    assert slices["DELEGATE_CALL"] == "DELEGATE_CALL"
    events = chrome_trace(assessment)["traceEvents"]
    names = {event["args"]["label"]: event["name"] for event in events if event["ph"] == "X"}
    assert names.items() >= slices.items()
    perfetto = Trace.FromString(encode_trace(assessment))
    assert {
        note.string_value: packet.track_event.name
        for packet in perfetto.packet
        for note in packet.track_event.debug_annotations
        if note.name == "label"
    } == names


def test_findings_and_a_brief_comparison_lead_with_the_layer(assessment: Assessment) -> None:
    evidence = {
        row.label: row.text for found in assessment.findings[1].findings for row in found.evidence
    }
    assert "native_call_mean.out" in evidence["head.pool"]
    comparison = assessment.primary_comparison
    assert comparison is not None
    texts = [point.text for point in brief_comparison(comparison).points]
    assert texts[0].startswith(f"{STEM}: Convolution (NHWC, PF16) IGEMM #1, −300 µs")
    # AND where only the structure is compared
    untimed = replace(comparison, times=None)
    texts = [point.text for point in brief_comparison(untimed).points]
    first, second = "Convolution (NHWC, F16) IGEMM #1", "Convolution (NHWC, PF16) IGEMM #1"
    assert f"{STEM}: {first} → {second}" in texts


def test_counted_kernels_are_those_of_a_layer() -> None:
    name = "Fully Connected (NC, F16) GEMM #1"
    rows = [replace(split_row(name), location=place) for place in ("first", "second")]
    located = locate_operators(evidence_of("sme2", (name, {}), (name, {}), ("Other #1", {})), rows)
    assert [operator.location for operator in located.operators] == ["first", "second", None]
    records = KERNELS.of_each([{"sme2": located}]).records()
    assert [(row["name"], row["label"]) for row in records] == [
        ("first", "Fully Connected GEMM #1"), ("second", "Fully Connected GEMM #1"),
    ]  # fmt: skip
    assert USES.names[:4] == ["mode", "number", "name", "operator"]
