"""Writes the report's files beside the measurements."""

from __future__ import annotations

from typing import TYPE_CHECKING

from etprof.analysis.assessment import assess_run
from etprof.base.atomic import write_json
from etprof.report.csv_tables import write_operator_csv, write_timeline_csv
from etprof.report.documents import write_documents
from etprof.report.summary_json import assessment_document
from etprof.run.directory import ANALYSIS_SUMMARY, safe_name

if TYPE_CHECKING:
    from pathlib import Path

    from etprof.analysis.run_analysis import RunAnalysis


def write_report_files(analysis: RunAnalysis, folder: Path) -> None:
    """Writes analysis_summary.json, report.md, report.html, and per experiment the tables.

    Tables of a run directory stand beside their ETDump, others directly in `folder`.
    """
    inside = folder == analysis.source
    for experiment in analysis.experiments:
        place = experiment.etdump.parent if inside else folder
        stem = safe_name(experiment.etdump.stem)
        write_timeline_csv(
            place / f"{stem}_timeline.csv", experiment.dump, experiment.events, experiment.delegates
        )
        write_operator_csv(place / f"{stem}_ops_stats.csv", experiment.split)
    assessment = assess_run(analysis)
    write_json(folder / ANALYSIS_SUMMARY, assessment_document(assessment))
    write_documents([assessment], folder, ("html", "md"))
