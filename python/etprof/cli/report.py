"""Write the report of one or several run directories: HTML, Markdown, tables, traces.

Several runs become one comparison: the latency, accuracy against the float32 model and size of each,
which runs no other run beats, and where the time of each goes; then each run by itself.

The files of one run go into its directory, those of several into ./etprof_report, unless --out names
another folder. report.html is self-contained: it works offline and loads nothing.
"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from etprof.cli.flags import FULL, JSON, add_flags
from etprof.cli.output import answer, exit_code_of
from etprof.views.formats import format_names

if TYPE_CHECKING:
    import argparse

    from etprof.analysis.findings.finding import Thresholds

EXAMPLES = """\
examples:
  etprof report out_toy_cnn/runs/linux
  etprof report out_m/runs/android out_m/runs/mac --out both
  etprof report out_m/runs/android --reference out_mobilenet_v2/runs/android
  etprof report out_m/runs/android --format html,csv,perfetto
"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declares the command's flags."""
    parser.epilog = EXAMPLES
    add_flags(
        parser,
        ("sources", Path, "RUN_DIR", "run directories or ETDumps", {"nargs": "+"}),
        ("--format", str, "LIST",
         f"what to write, of {', '.join(format_names())} (default %(default)s)",
         {"default": "html,md"}),
        ("--out", Path, "DIR", "folder for the files"),
        ("--reference", Path, "RUN_DIR",
         "run to compare with (default: MobileNet's on the same device at the same precision)"),
        ("--peaks", Path, "FILE.json",
         "the device's peak performance (default: what `calibrate --peaks` stored for it)"),
        ("--thresholds", Path, "FILE.json", "thresholds of findings that replace the defaults"),
        FULL, JSON,
    )  # fmt: skip


def run(arguments: argparse.Namespace) -> int:
    """Writes the files and names them."""
    from etprof.analysis.assessment import assess_runs
    from etprof.base.errors import BuildError
    from etprof.cli.progress import say
    from etprof.importing.bare_etdump import load_source
    from etprof.report_files import split_formats, write_documents
    from etprof.tables.alternatives import side_by_side
    from etprof.tables.brief import AnswerLine, UnbrokenLine, listed
    from etprof.tables.verdicts import head_of
    from etprof.targets.peaks import with_peaks
    from etprof.views.documents import runs_document

    formats, problems = split_formats(_formats(arguments.format))
    assessments = assess_runs(
        [
            with_peaks(
                load_source(source, with_reference=arguments.reference is None), arguments.peaks
            )
            for source in arguments.sources
        ],
        reference=load_source(arguments.reference) if arguments.reference else None,
        thresholds=load_thresholds(arguments.thresholds),
    )
    written = write_documents(assessments, _folder(arguments), formats)
    files, together = [UnbrokenLine(path) for path in written], side_by_side(assessments)
    document = {"files": files, "runs": runs_document(assessments)}
    if together is None:
        brief, lead = listed(None, lines=files), head_of(assessments[0]).sentence
    else:
        brief, lead = listed(together.runs, lines=files[1:], ends=files[:1]), together.lead
    answer(arguments, document, replace(brief, headlines=(AnswerLine(lead),)))
    for problem in problems:
        say(f"etprof: {problem}")
    return exit_code_of(assessments) or (BuildError.exit_code if problems else 0)


def _formats(text: str) -> list[str]:
    from etprof.base.errors import UsageError

    names = [name.strip() for name in text.split(",") if name.strip()]
    unknown = [name for name in names if name not in format_names()]
    if unknown or not names:
        raise UsageError(
            f"--format {text}: give one or more of {', '.join(format_names())}, joined by commas"
        )
    return names


def _folder(arguments: argparse.Namespace) -> Path:
    """Returns where the files go; beside a single ETDump, never into it."""
    if arguments.out is not None:
        return Path(arguments.out)
    if len(arguments.sources) > 1:
        return Path("etprof_report")
    source = Path(arguments.sources[0])
    return source if source.is_dir() else source.parent


def load_thresholds(path: Path | None) -> Thresholds:
    """Reads thresholds that differ from the defaults; raises UsageError for unknown ones."""
    from pydantic import ValidationError

    from etprof.analysis.findings.finding import Thresholds
    from etprof.base.errors import UsageError
    from etprof.base.json_input import read_json

    if path is None:
        return Thresholds()
    way_out = "give a JSON file with thresholds"
    document = read_json(path, way_out=way_out, error=UsageError)
    try:
        return Thresholds.model_validate(document)
    except ValidationError as error:
        problems = "; ".join(
            f"{'.'.join(map(str, problem['loc'])) or 'document'}: {problem['msg']}"
            for problem in error.errors()
        )
        names = ", ".join(Thresholds.model_fields)
        raise UsageError(f"{path} cannot be used: {problems}; the thresholds are {names}") from None
