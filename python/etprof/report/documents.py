"""Which files a report can be written as, and how each is written."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from etprof.atomic import write_bytes, write_json, write_text
from etprof.report.csv_tables import write_table_csv
from etprof.report.html import render_html
from etprof.report.markdown import render_markdown
from etprof.report.records import report_tables
from etprof.report.summary_json import assessment_document
from etprof.run_directory import safe_name

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from pathlib import Path

    from etprof.analysis.assessment import Assessment


def write_documents(
    assessments: Sequence[Assessment], folder: Path, formats: Sequence[str]
) -> list[Path]:
    """Writes the report in every format of `formats` into `folder`; returns the files."""
    return [path for name in formats for path in WRITERS[name](assessments, folder)]


def run_name(assessment: Assessment) -> str:
    """Names a run among others: model and platform; safe as a file name."""
    manifest = assessment.run.manifest
    if manifest is None:
        return safe_name(assessment.run.source.stem)
    words = [manifest.model.name, manifest.model.precision, manifest.platform]
    return safe_name("_".join(word for word in words if word))


def _each(assessments: Sequence[Assessment], folder: Path) -> list[tuple[Assessment, Path]]:
    """Gives every run a folder of its own when there are several."""
    if len(assessments) == 1:
        return [(assessments[0], folder)]
    names = [run_name(entry) for entry in assessments]
    return [
        (entry, folder / (name if names.count(name) == 1 else f"{name}_{number}"))
        for number, (entry, name) in enumerate(zip(assessments, names, strict=True), start=1)
    ]


def _write_html(assessments: Sequence[Assessment], folder: Path) -> list[Path]:
    path = folder / "report.html"
    write_text(path, render_html(assessments))
    return [path]


def _write_markdown(assessments: Sequence[Assessment], folder: Path) -> list[Path]:
    path = folder / "report.md"
    write_text(path, render_markdown(assessments))
    return [path]


def _write_json(assessments: Sequence[Assessment], folder: Path) -> list[Path]:
    paths = []
    for assessment, place in _each(assessments, folder):
        write_json(place / "report.json", assessment_document(assessment))
        paths.append(place / "report.json")
    return paths


def _write_csv(assessments: Sequence[Assessment], folder: Path) -> list[Path]:
    paths = []
    for assessment, place in _each(assessments, folder):
        for name, table in report_tables(assessment).items():
            path = place / f"report_{name}.csv"
            write_table_csv(path, table)
            paths.append(path)
    return paths


def _write_parquet(assessments: Sequence[Assessment], folder: Path) -> list[Path]:
    from etprof.report.parquet import write_table_parquet  # pyarrow is optional

    paths = []
    for assessment, place in _each(assessments, folder):
        for name, table in report_tables(assessment).items():
            path = place / f"report_{name}.parquet"
            write_table_parquet(path, name, table)
            paths.append(path)
    return paths


def _write_trace(assessments: Sequence[Assessment], folder: Path) -> list[Path]:
    from etprof.report.perfetto import encode_trace

    paths = []
    for assessment, place in _each(assessments, folder):
        path = place / "report.perfetto-trace"
        write_bytes(path, encode_trace(assessment))
        paths.append(path)
    return paths


def _write_node_data(assessments: Sequence[Assessment], folder: Path) -> list[Path]:
    from etprof.report.model_explorer import node_data

    paths = []
    for assessment, place in _each(assessments, folder):
        for name, document in node_data(assessment).items():
            path = place / f"report_model_explorer_{safe_name(name)}.json"
            write_json(path, document)
            paths.append(path)
    return paths


def _write_hud(assessments: Sequence[Assessment], folder: Path) -> list[Path]:
    from etprof.report.hud_records import hud_records

    paths = []
    for assessment, place in _each(assessments, folder):
        write_json(place / "report_hud_v3.json", hud_records(assessment.run))
        paths.append(place / "report_hud_v3.json")
    return paths


WRITERS: Final[dict[str, Callable[[Sequence[Assessment], Path], list[Path]]]] = {
    "html": _write_html,
    "md": _write_markdown,
    "json": _write_json,
    "csv": _write_csv,
    "parquet": _write_parquet,
    "perfetto": _write_trace,
    "model-explorer": _write_node_data,
    "hud": _write_hud,
}
FORMATS: Final = tuple(WRITERS)
