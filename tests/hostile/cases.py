"""One case from beginning to end: copy, damage, run, judge."""

from __future__ import annotations

import contextlib
import os
import platform
import re
import shutil
import sys
import tempfile
import time
import traceback
import zlib
from dataclasses import dataclass
from pathlib import Path
from random import Random
from typing import TYPE_CHECKING, Final

from etprof.base.errors import EtprofError
from etprof.cli import main
from tests.hostile.damage import file_sizes
from tests.hostile.guard import Guard
from tests.hostile.judging import Output, check_files, judge, known_files
from tests.hostile.kinds import KINDS, damage, secret
from tests.hostile.seeds import make_seeds
from tests.hostile.stand_ins import Escaped, install

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from tests.hostile.commands import Command

_LARGEST_FILE_BYTES: Final = 256 * 2**20
"""What a command may write into one file; the case's own files may be larger."""
_HANDLED: Final = (EtprofError, KeyboardInterrupt, BrokenPipeError, OSError)
"""What `main` makes a line of."""


@dataclass(frozen=True)
class Result:
    """How a case went."""

    kind: str
    number: int
    command: str
    what: str
    """What was damaged, and how."""
    words: str
    codes: tuple[int, ...]
    seconds: float
    breaches: tuple[tuple[str, str], ...] = ()
    """Each with the key that is the same for all cases of one defect."""


class Workshop:
    """A worker's scratch folder, seeds and guard; cases run in it one after the other."""

    def __init__(self, scratch: Path, seed: int, *, with_torch: bool = False) -> None:
        self._seed, self._with_torch = seed, with_torch
        self._seeds, self.folder = scratch / "seeds", scratch / "case"
        self._seeds.mkdir()
        self.folder.mkdir()
        secret_file = secret(self.folder)
        secret_file.parent.mkdir()
        secret_file.write_text("{}")
        install()
        _keep_within(self.folder)
        (self.folder / "tmp").mkdir()
        make_seeds(self._seeds, with_torch=with_torch)
        # Python asks `uname` for it once, whenever it is first wanted.
        platform.processor()
        self._guard = Guard(self._seeds)

    def run(self, kind_name: str, number: int) -> Result:
        """Runs one case."""
        kind = KINDS[kind_name]
        random = Random(zlib.crc32(f"{self._seed}/{kind_name}/{number}".encode()))
        shutil.rmtree(self.folder, ignore_errors=True)
        shutil.copytree(self._seeds / kind.tree, self.folder)
        for name in ("home", "tmp"):
            (self.folder / name).mkdir()
        os.mkfifo(self.folder / "pipe")
        what = damage(kind, self.folder, random)
        # Commands in turn, so that each has its share of a short run.
        command = kind.commands[number % len(kind.commands)]
        lines = [list(line) for line in command.lines(random)]
        before = known_files(self.folder)
        started = time.monotonic()
        with contextlib.chdir(self.folder), file_sizes(_LARGEST_FILE_BYTES):
            self._guard.watch(self.folder, reads=not kind.names_files)
            try:
                codes, breaches = self._run_lines(command, lines)
            finally:
                self._guard.watch(None)
        seconds = time.monotonic() - started
        words = " && ".join(" ".join(("etprof", *(w[:200] for w in line))) for line in lines)
        pages = check_files(self.folder, before) if command.writes_pages else ()
        breaches += [(f"{command.name}: {text}", text) for text in pages]
        shown = words or command.name
        keyed = tuple((key, text) for key, text in breaches)
        return Result(kind_name, number, command.name, what, shown, codes, seconds, keyed)

    def _run_lines(
        self, command: Command, lines: Sequence[Sequence[str]]
    ) -> tuple[tuple[int, ...], list[tuple[str, str]]]:
        codes: list[int] = []
        breaches: list[tuple[str, str]] = []
        if command.call is not None:
            codes.append(_call(command, self.folder, breaches))
        for line in lines:
            output = _run_line(line, breaches)
            codes.append(output.code)
            if not breaches:
                breaches += judge(command, line, output)
        for text in dict.fromkeys(self._guard.breaches):
            breaches.append((f"{command.name}: {_without_names(text)}", text))
        if "torch" in sys.modules and not self._with_torch:
            breaches.append((f"{command.name}: torch", "torch was imported"))
        return tuple(codes), breaches


def _without_names(text: str) -> str:
    """Takes what differs from case to case out of a message."""
    return re.sub(r"\d+|/[^ :]*", "…", text)[:120]


def _keep_within(folder: Path) -> None:
    """Sends everything that etprof keeps for itself into the case's folder."""
    os.environ |= {
        "ETPROF_LOCKS": str(folder / "locks"),
        "ETPROF_CACHE": str(folder / "cache"),
        "HOME": str(folder / "home"),
        "XDG_CACHE_HOME": str(folder / "home"),
        "XDG_STATE_HOME": str(folder / "home"),
        "TMPDIR": str(folder / "tmp"),
        "COLUMNS": "120",
    }
    os.environ.pop("ETPROF_HISTORY", None)
    tempfile.tempdir = str(folder / "tmp")


def _call(command: Command, folder: Path, breaches: list[tuple[str, str]]) -> int:
    assert command.call is not None
    try:
        command.call(folder)
    except EtprofError as error:
        if error.exit_code not in command.codes:
            breaches.append((f"{command.name}: code {error.exit_code}", str(error)[:300]))
        return error.exit_code
    except BaseException as error:  # noqa: BLE001 - whatever it is, it is a breach
        breaches.append((frame_of(error), describe(error)))
        return 70
    return 0


def _run_line(words: Sequence[str], breaches: list[tuple[str, str]]) -> Output:
    """Runs `main` with real descriptors as its streams, as a shell would."""
    with _streams() as (out, err):
        Escaped.error = None
        try:
            code = main(words)
        except SystemExit as error:
            code = int(error.code or 0)
        except BaseException as error:  # noqa: BLE001 - whatever it is, it is a breach
            breaches.append((frame_of(error), describe(error)))
            code = 70
        else:
            escaped = Escaped.error
            if escaped is not None and not isinstance(escaped, (*_HANDLED, SystemExit)):
                breaches.append((frame_of(escaped), describe(escaped)))
    return Output(
        code, out.read_text("utf-8", "surrogateescape"), err.read_text("utf-8", "replace")
    )


class _Stream:
    """A file in memory that looks like a redirected standard stream."""

    def __init__(self) -> None:
        self._kept = os.memfd_create("stream")
        descriptor = os.dup(self._kept)
        self.stream = open(descriptor, "w", encoding="utf-8", buffering=1)  # noqa: PTH123, SIM115

    def end(self) -> None:
        """Closes what the command wrote to; what it left unwritten may be unwritable."""
        with contextlib.suppress(OSError, ValueError):
            self.stream.close()

    def read_text(self, encoding: str, errors: str) -> str:
        """Returns everything that was written, and lets go of it."""
        size = os.fstat(self._kept).st_size
        data = os.pread(self._kept, size, 0)
        os.close(self._kept)
        return data.decode(encoding, errors)


@contextlib.contextmanager
def _streams() -> Iterator[tuple[_Stream, _Stream]]:
    out, err = _Stream(), _Stream()
    before = sys.stdout, sys.stderr
    sys.stdout, sys.stderr = out.stream, err.stream
    try:
        yield out, err
    finally:
        sys.stdout, sys.stderr = before
        out.end()
        err.end()


def frame_of(error: BaseException) -> str:
    """Returns the exception's type and the innermost place of etprof that it passed through."""
    name = type(error).__name__
    for frame in reversed(traceback.extract_tb(error.__traceback__)):
        _, found, below = frame.filename.partition("/etprof/")
        if found and "/tests/" not in frame.filename:
            return f"{name} in {below}:{frame.name}"
    return f"{name} outside etprof"


def describe(error: BaseException) -> str:
    """Returns the exception and its last frames, on one line."""
    frames = traceback.extract_tb(error.__traceback__)[-4:]
    where = " < ".join(f"{Path(f.filename).name}:{f.lineno} {f.name}" for f in reversed(frames))
    text = str(error).replace("\n", " ")[:160]
    return f"{type(error).__name__}: {text!r} at {where}"
