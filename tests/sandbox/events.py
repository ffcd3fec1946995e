"""What one command did: of all its processes by strace, of its Python by an audit hook."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import sysconfig
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import executorch

ROOT: Final = Path(__file__).resolve().parents[2]
HOOK: Final = Path(__file__).with_name("hook")
_CALLS: Final = "execve,execveat,open,openat,openat2,connect,mmap"
_OPENED: Final = re.compile(r"\bopen(?:at2?)?\(.* = \d+<(?P<path>/[^>]*)>$")
_MAPPED: Final = re.compile(r"\bmmap\(.*PROT_EXEC.*, \d+<(?P<path>/[^>]*)>, ")
_STARTED: Final = re.compile(r'\bexecve(?:at)?\((?:[^"]*, )?"(?P<path>[^"]*)".* = 0$')
_CONNECTED: Final = re.compile(r"\bconnect\(\d+[^{]*\{(?P<address>[^}]*)\}")
_LONGEST_S: Final = 900


@dataclass(frozen=True, order=True)
class Event:
    """Something that a command did."""

    kind: str
    """exec, load, connect, open or unpickle."""
    what: str

    def __str__(self) -> str:
        return f"{self.kind} {self.what}"


@dataclass(frozen=True)
class Watched:
    """A command that has ended."""

    exit_code: int
    output: str
    events: tuple[Event, ...]


def why_not() -> str | None:
    """Says in a line why nothing can be watched here; None when it can."""
    if sys.platform != "linux":
        return "strace, which watches native code, is on Linux alone"
    if shutil.which("strace") is None:
        return "strace is missing: apt install strace"
    tried = subprocess.run(["strace", "-qq", "-o", os.devnull, "true"], check=False)
    return None if tried.returncode == 0 else "this system lets nobody trace (ptrace)"


def watch(words: Sequence[str], folder: Path, notes: Path, **environment: str) -> Watched:
    """Runs `words` in `folder`; keeps what was seen in `notes`."""
    notes.mkdir()
    traced = [
        *("strace", "-f", "-ff", "-qq", "-y", "-s", "4096", "--seccomp-bpf", "-e", "signal=none"),
        *("-e", f"trace={_CALLS}", "-o", str(notes / "trace"), *words),
    ]
    seen = {"ETPROF_SANDBOX_EVENTS": str(notes / "python"), "PYTHONPATH": str(HOOK)}
    done = subprocess.run(
        traced,
        cwd=folder,
        env={**os.environ, **seen, **environment},
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        errors="replace",
        timeout=_LONGEST_S,
        check=False,
    )
    traces = [path.read_text(errors="replace") for path in notes.glob("trace.*")]
    events = {event for trace in traces for event in read_trace(trace)}
    return Watched(done.returncode, done.stdout, tuple(sorted(events | set(read_python(notes)))))


def read_trace(text: str) -> Iterator[Event]:
    """Reads what strace wrote of one process."""
    for line in text.splitlines():
        if match := _STARTED.search(line):
            yield Event("exec", match["path"])
        elif match := _MAPPED.search(line):
            yield Event("load", match["path"])
        elif match := _OPENED.search(line):
            yield Event("open", match["path"])
        elif match := _CONNECTED.search(line):
            yield Event("connect", match["address"])


def read_python(notes: Path) -> Iterator[Event]:
    """Reads what the audit hook wrote."""
    path = notes / "python"
    for line in path.read_text().splitlines() if path.exists() else ():
        kind, _, what = line.partition("\t")
        # By another name strace sees each of these, with what became of it.
        if kind == "unpickle" or (kind == "load" and what.startswith("/")):
            yield Event(kind, what)


@dataclass(frozen=True)
class Rules:
    """What a command may do."""

    named: tuple[Path, ...]
    """Files and folders of its command line, and those that they name."""
    before: frozenset[Path]
    """What was in its folder before it began."""
    scratch: tuple[Path, ...]
    """Folders that it may use as it likes."""
    folder: Path
    adb_port: int | None = None
    programs: tuple[str, ...] = ()
    """Of the system, which the command line asks for."""

    def breaches(self, events: Sequence[Event]) -> list[Event]:
        """Lists the events that nothing names."""
        return [event for event in events if not self._allows(event)]

    def _allows(self, event: Event) -> bool:
        if event.kind in {"connect", "unpickle"}:
            is_lookup = event.what.startswith("sa_family=AF_UNIX") and "/nscd/" in event.what
            is_adb = self.adb_port is not None and f"htons({self.adb_port})" in event.what
            return is_lookup or is_adb
        path = Path(os.path.normpath(self.folder / event.what.removesuffix(" (deleted)")))
        if event.kind == "exec":
            # The lane's own shell, around a command that leaves a daemon.
            programs = {
                *PROGRAMS,
                *self.programs,
                *(["sh", "adb"] if self.adb_port is not None else []),
            }
            is_system = path.name in programs and _is_below(path, SYSTEM)
            return is_system or _is_below(path, INSTALLED)
        if event.kind == "load":
            return _is_below(path, (*INSTALLED, *SYSTEM))
        if _is_below(path, (*INSTALLED, *SYSTEM, *OURS, *self.scratch, *self.named)):
            return True
        # What it makes is its own, and folders on the way to what is named are looked through.
        is_new = self.folder in path.parents and path not in self.before
        ends = (*INSTALLED, *self.named)
        return is_new or path == self.folder or any(path in end.parents for end in ends)


def _is_below(path: Path, folders: Sequence[Path]) -> bool:
    return any(folder == path or folder in path.parents for folder in folders)


def _installed() -> tuple[Path, ...]:
    names = ("purelib", "platlib", "stdlib", "platstdlib", "scripts")
    folders = [Path(sysconfig.get_path(name)) for name in names]
    folders += [Path(sys.prefix), Path(sys.base_prefix), Path(executorch.__path__[0]).parent]
    folders += [Path(name) for name in sys.path if name.endswith("site-packages")]
    folders += [ROOT / name for name in ("python", "models", "configs", "build", "pyproject.toml")]
    return tuple({found for folder in folders for found in (folder, folder.resolve())})


def _history_of_the_checkout() -> Path:
    """Returns the folder where git keeps what a checkout's models were committed as."""
    words = ["git", "rev-parse", "--path-format=absolute", "--git-common-dir"]
    done = subprocess.run(words, cwd=ROOT, capture_output=True, text=True, check=False)
    return Path(done.stdout.strip() or ROOT / ".git")


INSTALLED: Final = _installed()
OURS: Final = (HOOK, ROOT / ".git", _history_of_the_checkout())
"""Of the lane itself, and of a checkout, whose models are measured with their commit."""
SYSTEM: Final = tuple(
    Path(name)
    for name in ("/usr", "/lib", "/lib64", "/bin", "/etc", "/proc", "/sys", "/dev", "/run/nscd")
)
PROGRAMS: Final[Mapping[str, str]] = {
    "git": "commit and branch of the tree that a measurement is made in",
}
"""Programs of the system that commands start unasked, and what for."""
