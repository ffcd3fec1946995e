"""Show what this machine can do, and how to get the rest.

Exit code 0 when models can be profiled here, 3 when a needed part is missing; what is marked
"note" is for some uses only, such as phones or the emulator.

  etprof doctor
  etprof doctor --target android           from nothing to a phone that can be measured, step by step
  etprof doctor --target android --runner etprof-runner --connect 192.168.1.7
  etprof doctor --library libetprof.so    which of a library's operators and microkernels are known

With --library the exit code is 1 when etprof cannot read a name; the library is not loaded.
"""

from __future__ import annotations

import argparse
import dataclasses
from collections import Counter
from pathlib import Path

from etprof.base.errors import BuildError, UsageError
from etprof.base.text import join_names
from etprof.base.units import count_of
from etprof.cli.flags import FULL, JSON, RUNNER, SERIAL, add_flags
from etprof.cli.output import answer

_ORDER = ("missing", "note", "ok")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declares the command's flags."""
    from etprof.targets.registry import TARGETS

    add_flags(
        parser,
        ("--target", tuple(kind.name for kind in TARGETS if kind.checklist), "",
         "walk through what a first measurement there needs"),
        SERIAL,
        ("--connect", str, "HOST:PORT", "Android: a device on the network"),
        RUNNER,
        ("--library", Path, "FILE", "look only at the names in a library, a runner or a wheel"),
        FULL,
        JSON,
    )  # fmt: skip


def run(arguments: argparse.Namespace) -> int:
    """Examines the machine and prints what was found."""
    from etprof.doctor import examine, examine_target
    from etprof.tables.brief import AnswerLine, Brief
    from etprof.tables.machine import PARTS

    target_options = {
        "serial": arguments.serial,
        "connect": arguments.connect,
        "runner": arguments.runner,
    }
    if arguments.library is not None:
        given = [name for name, value in target_options.items() if value]
        if unused := [*(["target"] if arguments.target else []), *given]:
            flags = join_names(f"--{name}" for name in unused)
            raise UsageError(f"--library looks at one file alone; leave out {flags}")
        return _examine_library(arguments)
    if arguments.target:
        findings = examine_target(arguments.target, target_options)
    elif any(target_options.values()):
        raise UsageError("--serial, --connect and --runner are of a target: give --target android")
    else:
        findings = examine()
    table = PARTS.of(dataclasses.asdict(finding) for finding in findings)
    urgent = sorted(findings, key=lambda finding: _ORDER.index(finding.status))
    missing = sum(finding.status == "missing" for finding in findings)
    headline = AnswerLine(f"{count_of(missing, 'needed part')} missing", "bold red")
    if not missing:
        location = "on this device" if arguments.target else "here"
        headline = AnswerLine(f"Models can be profiled {location}", "green")
    brief = Brief((headline,), table=PARTS.of(dataclasses.asdict(finding) for finding in urgent))
    answer(arguments, {"findings": table.records()}, brief)
    return BuildError.exit_code if missing else 0


def _examine_library(arguments: argparse.Namespace) -> int:
    """Prints which names of a library have no place in etprof's tables."""
    from etprof.backends.kernel_names import LEVELS
    from etprof.backends.library import KINDS, find_products, names_of_library, unknown_names
    from etprof.tables.brief import AnswerLine, Brief
    from etprof.tables.machine import LIBRARY_NAMES, LIBRARY_PRODUCTS

    names = names_of_library(arguments.library)
    unknown = unknown_names(names)
    kinds, levels = (Counter(getattr(name, part) for name in names) for part in ("kind", "level"))
    headline = AnswerLine(f"etprof cannot read {count_of(len(unknown), 'name')}", "bold red")
    if not unknown:
        headline = AnswerLine(f"etprof knows {count_of(len(names), 'name')}", "green")
    counted = ", ".join(count_of(kinds[kind], kind) for kind in KINDS)
    by_level = ", ".join(f"{level} {levels[level]}" for level in LEVELS if levels[level])
    table = LIBRARY_NAMES.of(names)
    products = LIBRARY_PRODUCTS.of(
        find_products(name.name for name in names if name.kind == "microkernel")
    )
    lines = [f"microkernels by instruction set: {by_level}"] if by_level else []
    brief = Brief(
        (headline, AnswerLine(f"{arguments.library.name}: {counted}")),
        lines=(*lines, *(f"{name.name}: {name.problem}" for name in unknown)),
        details=(products, table) if len(products.rows) else (table,),
    )
    answer(arguments, {"names": table.records(), "products": products.records()}, brief)
    return int(bool(unknown))
