"""Show what this machine can do, and how to get the rest.

Exit code 0 when models can be profiled here, 3 when a needed part is missing; what is marked
"note" is for some uses only, such as phones or the emulator.

  etprof doctor
  etprof doctor --json
"""

from __future__ import annotations

import argparse
import dataclasses

from etprof.base.errors import BuildError
from etprof.cli.flags import JSON, add_flags
from etprof.cli.output import show, show_json


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declares the command's flags."""
    add_flags(parser, JSON)


def run(arguments: argparse.Namespace) -> int:
    """Examines the machine and prints what was found."""
    from etprof.doctor import examine
    from etprof.tables.machine import PARTS

    findings = examine()
    table = PARTS.of(dataclasses.asdict(finding) for finding in findings)
    if arguments.json:
        show_json({"schema_version": 1, "findings": table.records()})
    else:
        show(table)
    return BuildError.exit_code if any(f.status == "missing" for f in findings) else 0
