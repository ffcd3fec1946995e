"""Check a run directory: complete, unchanged since it was measured, plausible.

Exit code 0 when it is, 1 when something is missing (and what is lost), 4 when something is damaged.

  etprof validate out_toy_cnn/runs/linux
"""

from __future__ import annotations

import dataclasses
import json
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import argparse

    from etprof.run.validation import Finding

_EXIT_CODES = {"ok": 0, "note": 0, "incomplete": 1, "damaged": 4}


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declares the command's flags."""
    parser.add_argument("run_dir", type=Path, nargs="?", metavar="RUN_DIR")
    parser.add_argument("--results", type=Path, metavar="RUN_DIR", help="the same as a flag")
    parser.add_argument("--json", action="store_true", help="print the findings as JSON")


def run(arguments: argparse.Namespace) -> int:
    """Checks and prints what was found."""
    from etprof.base.errors import UsageError
    from etprof.run.validation import validate_run, worst_level

    folder = arguments.run_dir or arguments.results
    if folder is None:
        msg = "give a run directory, as in `etprof validate out_toy_cnn/runs/linux`"
        raise UsageError(msg)
    findings = validate_run(folder)
    level = worst_level(findings)
    if arguments.json:
        document = {
            "schema_version": 1,
            "verdict": level,
            "findings": [dataclasses.asdict(finding) for finding in findings],
        }
        print(json.dumps(document, indent=2))
    else:
        _print(findings)
    return _EXIT_CODES[level]


def _print(findings: list[Finding]) -> None:
    from rich.console import Console
    from rich.text import Text

    from etprof.base.plain_table import PlainTable

    colours = {"ok": "green", "note": "yellow", "incomplete": "yellow", "damaged": "red"}
    table = PlainTable(show_header=False, box=None)
    for finding in findings:
        table.add_row(Text(finding.level, style=colours[finding.level]), Text(finding.text))
    Console().print(table)
