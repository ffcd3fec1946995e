"""Set up what runs Arm programs with SME2 on this machine, or show and remove it.

  etprof emulator setup            fetch qemu-aarch64 and ExecuTorch for aarch64, build the runners
  etprof emulator setup --remove   delete everything that setup brought
  etprof emulator status           show each part and check its files

Nothing is installed system-wide and no root is needed; all of it is in the cache (ETPROF_CACHE, or
~/.cache/etprof; setup takes about a minute). `status` ends with 3 while a part is missing. Times under emulation mean nothing and are never shown as performance.
"""

from __future__ import annotations

import argparse
import sys

from etprof.base.errors import BuildError, UsageError
from etprof.cli.flags import FULL, JSON, add_flags
from etprof.cli.output import answer


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declares the command's flags."""
    add_flags(
        parser,
        ("action", ("setup", "status"), "", "what to do"),
        ("--remove", bool, "", "with setup: delete everything"),
        FULL,
        JSON,
    )


def run(arguments: argparse.Namespace) -> int:
    """Does what was asked."""
    if arguments.remove and arguments.action != "setup":
        raise UsageError("--remove deletes what setup brought: `etprof emulator setup --remove`")
    if arguments.action == "status":
        return _show_status(arguments)
    return _remove(arguments) if arguments.remove else _set_up(arguments)


def _set_up(arguments: argparse.Namespace) -> int:
    from etprof.cli.progress import show_progress
    from etprof.tables.brief import listed
    from etprof.targets.emulator.installation import set_up

    with show_progress() as progress:

        def show(text: str, done: int, total: int) -> None:
            progress(text, done, total)
            if not sys.stderr.isatty() and done < total:
                print(f"{done + 1}/{total} {text}", file=sys.stderr)

        lines = set_up(show)
    ready = "Ready: etprof profile MODEL --target emulator"
    answer(arguments, {"parts": lines}, listed(None, lines=lines, ends=[ready]))
    return 0


def _show_status(arguments: argparse.Namespace) -> int:
    from etprof.tables.brief import listed
    from etprof.tables.machine import EMULATOR_PARTS
    from etprof.targets.emulator.installation import find_parts

    components = find_parts()
    table = EMULATOR_PARTS.of(components)
    answer(arguments, {"parts": table.records()}, listed(table))
    return 0 if all(component.path for component in components) else BuildError.exit_code


def _remove(arguments: argparse.Namespace) -> int:
    from etprof.base.units import format_size
    from etprof.tables.brief import listed
    from etprof.targets.emulator.cache import Cache

    cache = Cache.find()
    freed = cache.remove()
    message = (
        f"Removed {cache.folder}: {format_size(freed)}" if freed else f"{cache.folder} is empty"
    )
    document = {"folder": str(cache.folder), "freed_bytes": freed}
    answer(arguments, document, listed(None, lines=[message]))
    return 0
