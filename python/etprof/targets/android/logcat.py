"""What one process wrote to the device's log; the log itself stays as it is."""

from __future__ import annotations

import shlex
from typing import TYPE_CHECKING, Final

from etprof.backends.registry import LOG_TAGS
from etprof.base.process import ProgramTimeoutError
from etprof.base.text import clean
from etprof.targets.android.adb import DeviceLostError

if TYPE_CHECKING:
    from etprof.targets.android.adb import Adb

TAGS: Final = ("ExecuTorch", *LOG_TAGS)
"""ExecuTorch's own messages, and delegates' selected microkernels in a trace build."""
_MOST_LINES: Final = 20_000
_LONGEST_LINE: Final = 2000


def read_log(adb: Adb, process_id: str, started_at: str) -> list[str]:
    """Returns the lines of one process since it started; empty when the device shows none."""
    if not process_id.isdecimal():
        return []
    since = f" -T {shlex.quote(started_at)}" if started_at else ""
    tags = " ".join(f"{tag}:V" for tag in TAGS)
    script = f"logcat -d --pid={process_id}{since} {tags} '*:S' 2>/dev/null | head -n {_MOST_LINES}"
    try:
        shown = adb.shell(script)
    except (DeviceLostError, ProgramTimeoutError):
        return []
    lines = (clean(line, _LONGEST_LINE) for line in shown.stdout.splitlines())
    return [line for line in lines if line and not line.startswith("--------- ")]
