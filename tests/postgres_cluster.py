"""A private PostgreSQL of the tests: in a folder of its own, on a Unix socket, gone afterwards."""

from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from etprof.base.process import run_command

DEBIAN = Path("/usr/lib/postgresql")
OPTIONS = "-c listen_addresses='' -c unix_socket_directories='{folder}' -c fsync=off"


def find_programs() -> Path | None:
    """Returns the folder of initdb and pg_ctl; Debian keeps it off the PATH."""
    found = shutil.which("initdb")
    folders = [Path(found).resolve().parent] if found else []
    folders += sorted(DEBIAN.glob("*/bin"), reverse=True)
    return next((f for f in folders if (f / "initdb").exists() and (f / "pg_ctl").exists()), None)


@contextmanager
def running_cluster(programs: Path) -> Iterator[str]:
    """Starts a cluster and yields the URL of its server; root lends it to another user."""
    folder = Path(tempfile.mkdtemp(prefix="etprof-pg-"))
    user = _user_for_root() if os.geteuid() == 0 else None
    if user is not None:
        shutil.chown(folder, user)
    try:
        _run(user, folder, programs / "initdb", "-U", "etprof", "-A", "trust", "-N", "-D", "data")
        options = OPTIONS.format(folder=folder)
        control = (programs / "pg_ctl", "-D", "data", "-w")
        _run(user, folder, *control, "-l", "log", "-o", options, "start")
        try:
            yield f"postgresql://etprof@/postgres?host={folder}"
        finally:
            _run(user, folder, *control, "-m", "immediate", "stop")
    finally:
        shutil.rmtree(folder)


def _user_for_root() -> str:
    """The server refuses to run as root: Debian's own user for it, or nobody."""
    return "postgres" if "\npostgres:" in Path("/etc/passwd").read_text() else "nobody"


def _run(user: str | None, folder: Path, *words: str | Path) -> None:
    # `su` leaves root the PATH of a user, who may have no programs of administrators there.
    runuser = shutil.which("runuser") or "/usr/sbin/runuser"
    command = [runuser, "-u", user, "--", *words] if user else list(words)
    completed = run_command(command, folder=folder, timeout_s=120)
    assert completed.exit_code == 0, completed.stdout + completed.stderr
