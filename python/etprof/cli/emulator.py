"""Set up what runs Arm programs with SME2 on this machine, or show and remove it.

  etprof emulator setup            fetch qemu-aarch64 and ExecuTorch for aarch64, build the runners
  etprof emulator setup --remove   delete everything that setup brought
  etprof emulator status           show each part and check its files

Nothing is installed and no root is needed; all of it is in the cache (ETPROF_CACHE, or
~/.cache/etprof; setup takes about a minute). `status` ends with 3 while a part is missing. Times under emulation mean nothing and are never shown as performance.
"""

from __future__ import annotations

import argparse
import sys

from etprof.base.errors import BuildError, UsageError
from etprof.cli.flags import add_flags
from etprof.cli.output import show, show_json


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declares the command's flags."""
    add_flags(
        parser,
        ("action", ("setup", "status"), "", "what to do"),
        ("--remove", bool, "", "with setup: delete everything"),
        ("--json", bool, "", "with status: print the same data as JSON"),
    )


def run(arguments: argparse.Namespace) -> int:
    """Does what was asked."""
    if arguments.remove and arguments.action != "setup":
        raise UsageError("--remove deletes what setup brought: `etprof emulator setup --remove`")
    if arguments.action == "status":
        return _show_status(as_json=arguments.json)
    if arguments.json:
        raise UsageError("--json prints what is there: `etprof emulator status --json`")
    return _remove() if arguments.remove else _set_up()


def _set_up() -> int:
    from etprof.cli.progress import show_progress
    from etprof.targets.emulator.installation import set_up

    with show_progress() as progress:

        def show(text: str, done: int, total: int) -> None:
            progress(text, done, total)
            if not sys.stderr.isatty() and done < total:
                print(f"{done + 1}/{total} {text}", file=sys.stderr)

        lines = set_up(show)
    print("\n".join(lines))
    print("Ready: etprof profile MODEL --target emulator")
    return 0


def _show_status(*, as_json: bool) -> int:
    from etprof.tables.machine import EMULATOR_PARTS
    from etprof.targets.emulator.installation import find_parts

    parts = find_parts()
    table = EMULATOR_PARTS.of(parts)
    if as_json:
        show_json({"schema_version": 1, "parts": table.records()})
    else:
        show(table)
    return 0 if all(part.path for part in parts) else BuildError.exit_code


def _remove() -> int:
    from etprof.base.units import format_size
    from etprof.targets.emulator.cache import Cache

    cache = Cache.find()
    freed = cache.remove()
    print(f"Removed {cache.folder}: {format_size(freed)}" if freed else f"{cache.folder} is empty")
    return 0
