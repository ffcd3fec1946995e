"""The HTML report in a run's own directory, if both are still there: this one file and no other."""

from __future__ import annotations

import os
import re
import stat
from typing import TYPE_CHECKING, Final

from etprof.dashboard.addresses import Page
from etprof.dashboard.visit import NoSuchPageError, find_run
from etprof.history.whereabouts import find_run_directory

if TYPE_CHECKING:
    from pathlib import Path

    from etprof.dashboard.visit import Visit
    from etprof.history.schema import Run

NAME: Final = "report.html"
_LARGEST_BYTES: Final = 64 * 2**20
_HEAD_BYTES: Final = 16_000
_HEAD: Final = re.compile(
    rb'<!doctype html>\s*<html lang="en">\s*<head>\s*<meta charset="utf-8">\s*'
    rb'(<meta name="viewport"[^>]*>\s*)?'
    rb'<meta http-equiv="Content-Security-Policy" '
    rb"content=\"default-src 'none'; style-src 'unsafe-inline'; "
    rb"script-src 'sha256-[A-Za-z0-9+/=]+'; img-src data:; base-uri 'none'; form-action 'none'\">"
    rb'(?:\s*<meta name="etprof-runs" content="(?P<runs>[0-9a-f ]*)">)?'
)
"""How a report by etprof begins: before anything else it forbids itself to load or send; then it
says by their manifests which runs it is of."""

_OF_ANOTHER: Final = (
    "the report in its run directory is of another run, or does not say of which; "
    "`etprof report RUN_DIR --format html` writes its own"
)


def show(visit: Visit) -> bytes:
    """Returns the report of the visit's run; raises NoSuchPageError where there is none."""
    content, reason = read_report(find_run(visit, visit.address["id"]))
    if content is None:
        msg = f"no report of this run: {reason}"
        raise NoSuchPageError(msg)
    return content


def read_report(run: Run) -> tuple[bytes | None, str]:
    """Returns the report's content, or None and why: gone, another run's, or none that etprof wrote.

    The store says where the run's directory was, and what its manifest was. In whatever directory
    has that manifest, only a regular file called report.html is opened, no symbolic link, and given
    out only if it begins as etprof's do and names that manifest.
    """
    directory = find_run_directory(run)
    if directory.folder is None:
        return None, directory.reason
    content = _read(directory.folder / NAME)
    head = _HEAD.match(content[:_HEAD_BYTES]) if content else None
    if head is None:
        return None, "there is no report of etprof's in its run directory"
    if directory.manifest_sha256 not in (head["runs"] or b"").decode().split():
        return None, _OF_ANOTHER
    return content, ""


def _read(path: Path) -> bytes | None:
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK)
    except (OSError, ValueError):
        return None
    state = os.fstat(descriptor)
    if not stat.S_ISREG(state.st_mode) or state.st_size > _LARGEST_BYTES:
        os.close(descriptor)
        return None
    with os.fdopen(descriptor, "rb") as stream:
        return stream.read()


PAGE = Page(show=show, subject=("id",))
