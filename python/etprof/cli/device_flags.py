"""What every command that measures has in common: one user of a device at a time."""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import argparse
    from collections.abc import Iterator

    from etprof.targets.device_lock import MeasuredDevice


def add_no_wait_argument(parser: argparse.ArgumentParser) -> None:
    """Declares whether to wait for a device."""
    parser.add_argument(
        "--no-wait",
        action="store_true",
        help="fail at once (exit code 5) if another etprof has the device, instead of waiting",
    )


@contextmanager
def hold_device(device: MeasuredDevice | None, arguments: argparse.Namespace) -> Iterator[None]:
    """Keeps the device from all other commands that measure; says so when it must be waited for.

    None, which is an emulator, is held by nobody.
    """
    from etprof.cli.progress import say
    from etprof.targets.device_lock import device_lock, patience

    if device is None:
        yield
        return
    with device_lock(device, patience(say, wait=not arguments.no_wait)):
        yield
