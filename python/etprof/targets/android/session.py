"""One process at a time in a private folder of the device: started, watched, read, removed.

Its files come here as they were written, all of them, or none; the device's log stays as it is.
"""

from __future__ import annotations

import contextlib
import hashlib
import logging
import os
import re
import secrets
import shlex
import shutil
import socket
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from etprof.backends.registry import LOG_TAGS
from etprof.base.errors import OutputError, TargetError
from etprof.base.files import hash_file
from etprof.base.process import ProgramTimeoutError, stoppable
from etprof.base.text import clean
from etprof.targets.android.adb import DeviceLostError
from etprof.targets.leftovers import mark_of

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence
    from pathlib import Path

    from etprof.targets.android.adb import Adb


TAGS: Final = ("ExecuTorch", *LOG_TAGS)
"""ExecuTorch's own messages, and delegates' selected microkernels in a trace build."""
_MOST_LINES: Final = 20_000
_LONGEST_LINE: Final = 2000
_STOP_TIMEOUT_S: Final = 15.0
_OWN_FAILURE: Final = 125
"""Exit code of the script when its folder cannot be made."""
_LOG: Final = logging.getLogger(__name__)
_SESSION: Final = re.compile(r"etprof-session-\w+-(?P<process>\d{1,9})-((?P<mark>\d+)-)?\w+")
_FILE_LINE = re.compile(
    r"([0-9a-f]{64}) +(\d{1,15}) \./([A-Za-z0-9_][A-Za-z0-9._-]*(?:/[A-Za-z0-9_][A-Za-z0-9._-]*)?)"
)


@dataclass(frozen=True)
class RemoteFile:
    """A file that a launch left on the device."""

    sha256: str
    size_bytes: int


@dataclass(frozen=True)
class FinishedProcess:
    """A process that ended on the device."""

    exit_code: int
    """Negative for a signal."""
    stdout: str
    stderr: str
    process_id: str
    started_at: str
    """By the device's clock, in logcat's form; empty when the device could not keep it."""
    files: dict[str, RemoteFile]
    """What it left in its output folder, by path relative to that."""


class DeviceSession:
    """The folder of one etprof process on one device; it exists while something runs."""

    def __init__(self, adb: Adb, root: str) -> None:
        self._adb = adb
        self._root = root
        identifiers = (_host_mark(), str(os.getpid()), mark_of(os.getpid()), secrets.token_hex(6))
        self._name = "-".join(["etprof-session", *filter(None, identifiers)])
        self.folder = f"{root}/{self._name}"
        self.outputs = f"{self.folder}/out"
        self._may_run = False

    def remove_leftovers(self) -> None:
        """Stops and removes what an etprof of this computer left that no longer runs; says so.

        Its runner may still be running on the device and would disturb every time measured.
        """
        pattern = f"{shlex.quote(self._root)}/etprof-session-{_host_mark()}-*"
        listed = self._adb.shell(f"ls -d {pattern} 2>/dev/null")
        for line in listed.stdout.splitlines():
            match = _SESSION.fullmatch(line.rpartition("/")[2])
            if match and not _is_running(int(match["process"]), match["mark"]):
                ended = self._stop(match[0])
                if ended is not None:
                    message = (
                        f"{ended}, left by etprof (process {match['process']}), which was killed"
                    )
                    _LOG.warning("Ended on device %s: %s", self._adb.serial, message)

    def launch(self, argv: Sequence[str], timeout_s: float) -> FinishedProcess:
        """Runs `argv` in a new output folder and waits for its end.

        Call `stop` afterwards, whatever happened. Raises ProgramTimeoutError when it did not end
        in time, DeviceLostError when the device went away.
        """
        if self._may_run:
            self._stop(self._name)
        mark = secrets.token_hex(8)
        self._may_run = True
        try:
            script = self._script(argv, mark)
            done = self._adb.shell(script, timeout_s=timeout_s, sees_our_end=True)
        except ProgramTimeoutError as error:
            raise ProgramTimeoutError(
                f"the runner did not end within {timeout_s:g} s on device {self._adb.serial} and "
                f"was stopped there"
            ) from error
        head, separator, report = done.stdout.partition(f"\n{mark}\n")
        if not separator or done.exit_code == _OWN_FAILURE:
            reason = (done.stderr.strip().splitlines() or ["no reason given"])[-1]
            raise TargetError(f"device {self._adb.serial} cannot use {self.folder}: {reason}")
        return _read_report(report, head, done.stderr)

    def _script(self, argv: Sequence[str], mark: str) -> str:
        """Returns the script of one launch; it ends with a report after `mark`.

        Its standard input ends with etprof or with the connection. A subshell waits for that,
        without using the CPU, and then kills the whole process group.
        """
        command = shlex.join(argv)
        folder = shlex.quote(self.folder)
        return f"""
rm -rf {folder} && mkdir -p {folder}/out && cd {folder} || exit {_OWN_FAILURE}
echo $$ >leader; date +'%m-%d %H:%M:%S.000' >started
exec 3<&0
{{ trap '' HUP; while read -r line; do :; done; kill -KILL "-$$"; }} <&3 >/dev/null 2>&1 &
watch=$!
sh -c 'echo $$ >pid; exec "$@"' sh {command} </dev/null 3<&-
code=$?
kill -KILL "$watch"
printf '\\n{mark}\\n%s\\n%s\\n%s\\n' "$code" "$(cat pid)" "$(cat started)"
cd out || exit {_OWN_FAILURE}
find . -type f | while IFS= read -r file; do
  printf '%s %s %s\\n' "$(sha256sum <"$file" | cut -c 1-64)" "$(wc -c <"$file")" "$file"
done"""

    def stop(self) -> None:
        """Kills what still runs in the session's folder, and removes it, if the device answers."""
        # Also when another thread ends this one's commands: the runner is what has to end.
        with stoppable(None), contextlib.suppress(DeviceLostError, ProgramTimeoutError):
            self._stop(self._name)
            self._may_run = False

    def _stop(self, name: str) -> str | None:
        """Kills the process group of session `name`, waits for its end, removes its folder.

        Returns what still ran, in words for people; None when nothing did.

        The group's first process may have gone with its connection while the runner goes on; and
        their ids may belong to others by now, so one of them must name the session.
        """
        folder = shlex.quote(f"{self._root}/{name}")
        done = self._adb.shell(
            f"cd {folder} || exit 0\n"
            "leader=$(cat leader); process=$(cat pid)\n"
            f'lives() {{ grep -qsF {name} "/proc/$leader/cmdline" "/proc/$process/cmdline"; }}\n'
            'lives && { echo "$process"; cat "/proc/$process/comm"; kill -KILL "-$leader"; }\n'
            "for tenth in 1 2 3 4 5 6 7 8 9 10; do lives || break; sleep 0.1; done\n"
            f"cd / && rm -rf {folder}",
            timeout_s=_STOP_TIMEOUT_S,
        )
        process, _, program = done.stdout.strip().partition("\n")
        if not process:
            return None
        return f"{clean(program) or 'a launcher'} (process {clean(process)} there)"


def _read_report(report: str, stdout: str, stderr: str) -> FinishedProcess:
    """Reads what the script said at its end; names that no runner of ours writes are left out."""
    code, process_id, started_at, *file_lines = [*report.splitlines(), "", "", ""]
    files = {
        match[3]: RemoteFile(match[1], int(match[2]))
        for match in (_FILE_LINE.fullmatch(line) for line in file_lines)
        if match
    }
    number = int(code)
    exit_code = 128 - number if number > 128 else number
    started = started_at if re.fullmatch(r"[\d:. -]{18}", started_at) else ""
    return FinishedProcess(exit_code, stdout, stderr, process_id, started, files)


def read_log(adb: Adb, process_id: str, started_at: str) -> list[str]:
    """Returns the lines of one process since it started; empty when the device shows none."""
    if not process_id.isdecimal():
        return []
    since = f" -T {shlex.quote(started_at)}" if started_at else ""
    tags = " ".join(f"{tag}:V" for tag in TAGS)
    script = f"logcat -d --pid={process_id}{since} {tags} '*:S' 2>/dev/null | head -n {_MOST_LINES}"
    try:
        completed = adb.shell(script)
    except (DeviceLostError, ProgramTimeoutError):
        return []
    lines = (clean(line, _LONGEST_LINE) for line in completed.stdout.splitlines())
    return [line for line in lines if line and not line.startswith("--------- ")]


def _host_mark() -> str:
    """Identifies the sessions of this computer without naming it."""
    return hashlib.sha256(socket.gethostname().encode()).hexdigest()[:8]


def _is_running(process_id: int, mark: str | None) -> bool:
    """Whether the etprof of a session lives, and not another with its number."""
    now = mark_of(process_id)
    return now is not None and mark in {None, now}


def bring_results(
    adb: Adb, folder: str, files: Mapping[str, RemoteFile], results: Iterable[tuple[str, Path]]
) -> None:
    """Copies `results`, pairs of a name below `folder` and a path here, in that order.

    A name of a folder brings the files in it, into a new one that takes the place of the old. Each
    appears under its own name only once all of it has the SHA-256 that the device said when the
    launch ended. Raises TargetError when the launch left no such file, OutputError when it cannot
    be written here.
    """
    for name, local in results:
        remote_paths = [path for path in files if path == name or path.startswith(f"{name}/")]
        if not remote_paths:
            msg = f"device {adb.serial}: the runner ended well but left no {name}; run it again"
            raise TargetError(msg)
        new = local.parent / f".{local.name[-100:]}.{secrets.token_hex(6)}"
        try:
            for path in remote_paths:
                _bring_file(adb, f"{folder}/{path}", files[path], new / path[len(name) + 1 :])
            if new.is_dir() and local.exists():
                shutil.rmtree(local)
            new.replace(local)
        except OSError as error:
            raise OutputError(
                f"cannot write {local}: {error.strerror}; free space or choose another folder"
            ) from error
        finally:
            if new.is_file():
                new.unlink()
            shutil.rmtree(new, ignore_errors=True)


def _bring_file(adb: Adb, remote: str, expected: RemoteFile, local: Path) -> None:
    """Copies one file and checks it."""
    local.parent.mkdir(parents=True, exist_ok=True)
    adb.pull(remote, local, size_bytes=expected.size_bytes)
    if hash_file(local) != expected.sha256:
        raise TargetError(f"{remote} of device {adb.serial} arrived changed; run it again")
    local.chmod(0o644)
