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
from etprof.base.units import count_of
from etprof.cli.flags import FULL, JSON, add_flags
from etprof.cli.output import answer

_ORDER = ("missing", "note", "ok")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declares the command's flags."""
    add_flags(parser, FULL, JSON)


def run(arguments: argparse.Namespace) -> int:
    """Examines the machine and prints what was found."""
    from etprof.doctor import examine
    from etprof.tables.brief import Brief, Told
    from etprof.tables.machine import PARTS

    findings = examine()
    table = PARTS.of(dataclasses.asdict(finding) for finding in findings)
    urgent = sorted(findings, key=lambda finding: _ORDER.index(finding.status))
    missing = sum(finding.status == "missing" for finding in findings)
    told = Told(f"{count_of(missing, 'needed part')} missing", "bold red")
    if not missing:
        told = Told("Models can be profiled here", "green")
    brief = Brief((told,), table=PARTS.of(dataclasses.asdict(finding) for finding in urgent))
    answer(arguments, {"findings": table.records()}, brief)
    return BuildError.exit_code if missing else 0
