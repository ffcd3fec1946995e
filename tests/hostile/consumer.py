"""What becomes of an ETDump's bytes: every table, record and page, made in memory and checked."""

from __future__ import annotations

import io
import json
import os
import re
import zlib
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from rich.console import Console

from etprof import report_files
from etprof.analysis.assessment import assess_run
from etprof.analysis.run_analysis import analyze_run
from etprof.base.errors import EtprofError
from etprof.run.load import Run
from etprof.views.documents import assessment_document
from etprof.views.formats import load_format
from etprof.views.terminal import render_report

if TYPE_CHECKING:
    from collections.abc import Iterator

    from etprof.analysis.assessment import Assessment

FORMATS: Final = ("html", "md", "json", "csv", "perfetto", "chrome", "model-explorer", "hud")
"""All but Parquet, whose writer costs as much as all others together."""
CONTROL: Final = re.compile(
    "[\x00-\x08\x0b-\x1f\x7f-\x9f\u061c\u200e\u200f\u2028\u2029\u202a-\u202e\u2066-\u2069]"
)
"""What moves a cursor, turns text round or starts a line where none is."""
_ROUNDING: Final = 1e-9


def consume(data: bytes) -> bool:
    """Makes everything of an ETDump; False when it was refused. Anything else that goes wrong raises.

    The last step is one format of the report, chosen by the bytes: all of them would take longer
    than everything before.
    """
    with in_memory(data) as path:
        try:
            analysis = analyze_run(Run.load(path))
            assessment = assess_run(analysis)
        except EtprofError as error:
            require(not CONTROL.search(str(error)), f"control character in {str(error)!r}")
            return False
        console = Console(file=io.StringIO(), width=120)
        console.print(render_report(assessment, top=12))
        check_text("terminal", console.file.getvalue())  # type: ignore[attr-defined]
        check_document(assessment_document(assessment))
        _check_report(assessment, FORMATS[zlib.crc32(data) % len(FORMATS)])
    return True


@contextmanager
def in_memory(data: bytes) -> Iterator[Path]:
    """Gives the bytes a path that no disk has."""
    descriptor = os.memfd_create("etdump")
    try:
        os.write(descriptor, data)
        yield Path(f"/proc/self/fd/{descriptor}")
    finally:
        os.close(descriptor)


def _check_report(assessment: Assessment, name: str) -> None:
    for path, content in report_files._files(load_format(name), [assessment], Path("folder")):
        require(path.parent == Path("folder"), f"{path} is outside its folder")
        if isinstance(content, str):
            check_text(name, content)
        elif not isinstance(content, bytes):
            check_document(content)


def check_text(name: str, text: str) -> None:
    """Raises for what no terminal and no editor should show."""
    found = CONTROL.search(text.replace("\r\n", "\n"))
    around = text[max(0, found.start() - 40) :][:80] if found else ""
    require(found is None, f"control character in {name}: {around!r}")


def check_document(document: Any) -> None:  # noqa: ANN401
    """Raises for a document that is no JSON, or has a share outside 0 to 1."""
    json.dumps(document, allow_nan=False)
    for key, value in shares(document):
        require(-_ROUNDING <= value <= 1 + _ROUNDING, f"{key} is {value}")


def shares(node: Any) -> Iterator[tuple[str, float]]:  # noqa: ANN401
    """Yields everything in a document that calls itself a share."""
    if not isinstance(node, dict | list | tuple):
        return
    for key, value in node.items() if isinstance(node, dict) else enumerate(node):
        if isinstance(value, dict | list | tuple):
            yield from shares(value)
        elif isinstance(value, int | float) and str(key).endswith("share"):
            yield str(key), value


def require(holds: bool, text: str) -> None:
    """Raises AssertionError, which a run with -O keeps."""
    if not holds:
        raise AssertionError(text)
