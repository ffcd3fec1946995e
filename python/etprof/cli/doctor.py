"""Show what this machine can do, and how to get the rest.

Exit code 0 when models can be profiled here, 3 when a needed part is missing; what is marked
"note" is for some uses only, such as phones or the emulator.

  etprof doctor
  etprof doctor --json
"""

from __future__ import annotations

import dataclasses
import json
from typing import TYPE_CHECKING

from etprof.base.errors import BuildError

if TYPE_CHECKING:
    import argparse

    from etprof.doctor import Finding


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declares the command's flags."""
    parser.add_argument("--json", action="store_true", help="print the same as JSON")


def run(arguments: argparse.Namespace) -> int:
    """Examines the machine and prints what was found."""
    from etprof.doctor import examine

    findings = examine()
    if arguments.json:
        document = {"schema_version": 1, "findings": [dataclasses.asdict(f) for f in findings]}
        print(json.dumps(document, indent=2))
    else:
        _print_table(findings)
    return BuildError.exit_code if any(f.status == "missing" for f in findings) else 0


def _print_table(findings: list[Finding]) -> None:
    from rich.console import Console
    from rich.text import Text

    from etprof.base.plain_table import PlainTable

    colours = {"ok": "green", "missing": "red", "note": "yellow"}
    table = PlainTable()
    for title in ("part", "", "found", "way out"):
        table.add_column(title, overflow="fold")
    for finding in findings:
        mark = Text(finding.status, colours[finding.status])
        table.add_row(finding.part, mark, finding.detail, finding.way_out or "")
    Console().print(table)
