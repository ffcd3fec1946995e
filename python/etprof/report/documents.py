"""Which files a report can be written as, and what stands in each."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from etprof.base.atomic import write_bytes, write_json, write_text
from etprof.report.csv_tables import format_csv
from etprof.report.html import render_html
from etprof.report.markdown import render_markdown
from etprof.report.parquet import encode_parquet, require_pyarrow
from etprof.report.records import report_tables
from etprof.report.summary_json import assessment_document
from etprof.run.directory import safe_name

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence
    from pathlib import Path

    from etprof.analysis.assessment import Assessment

    Files = dict[str, bytes | str | dict[str, Any] | list[Any]]
    """Content by file name: bytes and text as they are, JSON data to be encoded."""


def write_documents(
    assessments: Sequence[Assessment], folder: Path, formats: Sequence[str]
) -> list[Path]:
    """Writes the report in every format of `formats` into `folder`; returns the files.

    Raises UsageError, before anything is written, for a format whose package is not installed.
    """
    check_formats(formats)
    written = []
    for name in formats:
        for path, content in _files(name, assessments, folder):
            if isinstance(content, bytes):
                write_bytes(path, content)
            elif isinstance(content, str):
                write_text(path, content)
            else:
                write_json(path, content)
            written.append(path)
    return written


def check_formats(formats: Sequence[str]) -> None:
    """Raises UsageError for a format whose optional package is not installed."""
    if "parquet" in formats:
        require_pyarrow()


def _files(
    format_name: str, assessments: Sequence[Assessment], folder: Path
) -> Iterator[tuple[Path, bytes | str | dict[str, Any] | list[Any]]]:
    """Yields the files of one format: of all runs together, or of each run apart."""
    if format_name in _TOGETHER:
        name, render = _TOGETHER[format_name]
        yield folder / name, render(assessments)
        return
    for assessment, place in _places(assessments, folder):
        for name, content in _APART[format_name](assessment).items():
            yield place / name, content


def run_name(assessment: Assessment) -> str:
    """Names a run among others: model and platform; safe as a file name."""
    manifest = assessment.run.manifest
    if manifest is None:
        return safe_name(assessment.run.source.stem)
    words = [manifest.model.name, manifest.model.precision, manifest.platform]
    return safe_name("_".join(word for word in words if word))


def _places(assessments: Sequence[Assessment], folder: Path) -> list[tuple[Assessment, Path]]:
    """Gives every run a folder of its own when there are several."""
    if len(assessments) == 1:
        return [(assessments[0], folder)]
    names = [run_name(entry) for entry in assessments]
    return [
        (entry, folder / (name if names.count(name) == 1 else f"{name}_{number}"))
        for number, (entry, name) in enumerate(zip(assessments, names, strict=True), start=1)
    ]


def _json_files(assessment: Assessment) -> Files:
    return {"report.json": assessment_document(assessment)}


def _csv_files(assessment: Assessment) -> Files:
    tables = report_tables(assessment)
    return {f"report_{name}.csv": format_csv(table) for name, table in tables.items()}


def _parquet_files(assessment: Assessment) -> Files:
    tables = report_tables(assessment)
    return {f"report_{name}.parquet": encode_parquet(name, table) for name, table in tables.items()}


def _perfetto_files(assessment: Assessment) -> Files:
    from etprof.report.perfetto import encode_trace

    return {"report.perfetto-trace": encode_trace(assessment)}


def _chrome_files(assessment: Assessment) -> Files:
    from etprof.report.chrome_trace import chrome_trace

    return {"report_chrome_trace.json": chrome_trace(assessment)}


def _node_data_files(assessment: Assessment) -> Files:
    from etprof.report.model_explorer import node_data

    return {
        f"report_model_explorer_{safe_name(name)}.json": document
        for name, document in node_data(assessment).items()
    }


def _hud_files(assessment: Assessment) -> Files:
    from etprof.report.hud_records import hud_records

    return {"report_hud_v3.json": hud_records(assessment.run)}


_TOGETHER: Final[dict[str, tuple[str, Callable[[Sequence[Assessment]], str]]]] = {
    "html": ("report.html", render_html),
    "md": ("report.md", render_markdown),
}
_APART: Final[dict[str, Callable[[Assessment], Files]]] = {
    "json": _json_files,
    "csv": _csv_files,
    "parquet": _parquet_files,
    "perfetto": _perfetto_files,
    "chrome": _chrome_files,
    "model-explorer": _node_data_files,
    "hud": _hud_files,
}
FORMATS: Final = (*_TOGETHER, *_APART)
