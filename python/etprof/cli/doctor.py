"""Show what this machine can do, and how to get the rest.

Exit code 0 when models can be profiled here, 3 when a needed part is missing; what is marked
"note" is for some uses only, such as phones or the emulator.

  etprof doctor
  etprof doctor --json
"""

from __future__ import annotations

import argparse
import dataclasses
import json

from etprof.base.errors import BuildError


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declares the command's flags."""
    parser.add_argument("--json", action="store_true", help="print the same as JSON")


def run(arguments: argparse.Namespace) -> int:
    """Examines the machine and prints what was found."""
    from rich.console import Console

    from etprof.doctor import examine
    from etprof.tables.export import PARTS
    from etprof.views.terminal import terminal_table

    findings = examine()
    if arguments.json:
        document = {"schema_version": 1, "findings": [dataclasses.asdict(f) for f in findings]}
        print(json.dumps(document, indent=2))
    else:
        table = PARTS.of(dataclasses.asdict(finding) for finding in findings)
        Console().print(terminal_table(table))
    return BuildError.exit_code if any(f.status == "missing" for f in findings) else 0
