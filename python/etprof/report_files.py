"""Writes reports: where the files of each format go, and those that stand beside every run."""

from __future__ import annotations

from typing import TYPE_CHECKING

from etprof.base.atomic import replacing, write_bytes, write_json, write_text
from etprof.base.errors import BuildError
from etprof.run.directory import ANALYSIS_SUMMARY, safe_name
from etprof.tables.operators import OPERATORS
from etprof.views.documents import assessment_document
from etprof.views.events import timeline_csv
from etprof.views.files import encode_csv
from etprof.views.formats import load_format

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from pathlib import Path

    from etprof.analysis.assessment import Assessment
    from etprof.views.formats import Content, Format


def write_report_files(assessment: Assessment, folder: Path) -> None:
    """Writes analysis_summary.json, report.md, report.html, and per experiment the tables.

    Tables of a run directory stand beside their ETDump, others directly in `folder`.
    """
    run = assessment.run
    for experiment in run.experiments:
        table_folder = experiment.etdump.parent if folder == run.source else folder
        stem = safe_name(experiment.etdump.stem)
        with replacing(table_folder / f"{stem}_timeline.csv") as stream:
            for text in timeline_csv(experiment.executions):
                stream.write(text.encode("utf-8", "surrogateescape"))
        table = OPERATORS.of_each([assessment.insight.of(experiment.name)])
        write_text(table_folder / f"{stem}_ops_stats.csv", encode_csv(table))
    write_json(folder / ANALYSIS_SUMMARY, assessment_document(assessment))
    write_documents([assessment], folder, ("html", "md"))


def write_documents(
    assessments: Sequence[Assessment], folder: Path, formats: Sequence[str]
) -> list[Path]:
    """Writes the report in every format of `formats` into `folder`; returns the files.

    Raises BuildError, before anything is written, for a format whose package is not installed.
    """
    for name in formats:
        load_format(name).check()
    written = []
    for name in formats:
        for path, content in _files(load_format(name), assessments, folder):
            write_content(path, content)
            written.append(path)
    return written


def write_content(path: Path, content: Content) -> None:
    """Writes what a view made: bytes and text as they are, data as JSON."""
    if isinstance(content, bytes):
        write_bytes(path, content)
    elif isinstance(content, str):
        write_text(path, content)
    else:
        write_json(path, content)


def split_formats(formats: Sequence[str]) -> tuple[list[str], list[str]]:
    """Returns the formats that can be written, and why each other one cannot.

    Raises BuildError where none can: the optional package of each is not installed.
    """
    usable, problems = [], []
    for name in formats:
        try:
            load_format(name).check()
        except BuildError as error:
            problems.append(f"{name} is left out: {error}")
        else:
            usable.append(name)
    if not usable:
        raise BuildError("; ".join(problems))
    return usable, problems


def _files(
    report_format: Format, assessments: Sequence[Assessment], folder: Path
) -> Iterator[tuple[Path, Content]]:
    """Yields the files of one format: of all runs together, or of each run apart."""
    if report_format.of_all is not None:
        for name, content in report_format.of_all(assessments).items():
            yield folder / name, content
    if report_format.of_run is not None:
        for assessment, run_folder in _places(assessments, folder):
            for name, content in report_format.of_run(assessment).items():
                yield run_folder / name, content


def run_name(assessment: Assessment) -> str:
    """Names a run among others: model and platform; safe as a file name."""
    manifest = assessment.run.manifest
    if manifest is None:
        return safe_name(assessment.run.source.stem)
    components = [manifest.model.name, manifest.model.precision, manifest.platform]
    return safe_name("_".join(component for component in components if component))


def _places(assessments: Sequence[Assessment], folder: Path) -> list[tuple[Assessment, Path]]:
    """Gives every run a folder of its own when there are several."""
    if len(assessments) == 1:
        return [(assessments[0], folder)]
    names = [run_name(assessment) for assessment in assessments]
    return [
        (assessment, folder / (name if names.count(name) == 1 else f"{name}_{number}"))
        for number, (assessment, name) in enumerate(zip(assessments, names, strict=True), start=1)
    ]
