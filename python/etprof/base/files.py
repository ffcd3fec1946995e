"""Opens files that may come from anyone: regular files only, never longer than a bound.

A named pipe, a device or a socket in the place of a file would block, or never end. Whatever stands
in the way is an OSError, so that a caller has one error to put into its own words.
"""

from __future__ import annotations

import errno
import hashlib
import os
import pwd
import stat
import zipfile
import zlib
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Final, NoReturn

from etprof.base.errors import InputFileError, OutputError

if TYPE_CHECKING:
    from io import BufferedReader

    from etprof.base.errors import EtprofError

# O_NONBLOCK: a pipe without a writer is opened at once, to be refused. O_NOCTTY: a terminal that
# is opened by mistake does not become this process's own.
_FLAGS: Final = os.O_RDONLY | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC
_KINDS: Final = (
    (stat.S_ISDIR, "it is a directory"),
    (stat.S_ISFIFO, "it is a named pipe, not a file"),
    (stat.S_ISCHR, "it is a device, not a file"),
    (stat.S_ISBLK, "it is a device, not a file"),
    (stat.S_ISSOCK, "it is a socket, not a file"),
)
_MIB: Final = 2**20

DAMAGED_ZIP: Final = (
    zipfile.BadZipFile, zlib.error, EOFError, NotImplementedError, RuntimeError, OSError,
)  # fmt: skip
"""What Python's reader raises for zip files that are cut, changed, encrypted or not of its methods."""
MOST_PROGRAM_BYTES: Final = 2**36
"""Of a program with its weights, which is read as a whole to be described: 64 GiB."""


def open_regular(path: Path) -> BufferedReader:
    """Opens `path` for reading, without waiting; raises OSError for anything but a regular file."""
    try:
        descriptor = os.open(path, _FLAGS)
    except ValueError as error:  # a NUL in the name
        raise OSError(errno.EINVAL, str(error), repr(str(path))) from error
    except OSError as error:
        if error.errno == errno.ENXIO:  # how a socket answers
            _refuse(path, "it is a socket or a device, not a file")
        raise
    problem = _why_not_regular(os.fstat(descriptor).st_mode)
    if problem is not None:
        os.close(descriptor)
        _refuse(path, problem)
    return os.fdopen(descriptor, "rb")


def check_regular(path: Path) -> None:
    """Raises OSError when there is something at `path` that is not a regular file.

    For files that a library opens by their name.
    """
    try:
        problem = _why_not_regular(path.stat().st_mode)
    except FileNotFoundError:
        return
    if problem is not None:
        _refuse(path, problem)


def _why_not_regular(mode: int) -> str | None:
    if stat.S_ISREG(mode):
        return None
    return next((text for is_kind, text in _KINDS if is_kind(mode)), "it is not a file")


def _refuse(path: Path, reason: str, number: int = errno.EINVAL) -> NoReturn:
    raise OSError(number, reason, str(path))


def read_bounded(path: Path, most_bytes: int) -> bytes:
    """Returns the content of a regular file.

    Raises OSError when it is longer than `most_bytes`, or than memory can hold.
    """
    with open_regular(path) as stream:
        size = os.fstat(stream.fileno()).st_size
        if size <= most_bytes:
            try:
                content = _read(stream, size, most_bytes)
            except MemoryError:
                problem = f"it has {size / _MIB:.0f} MiB, more than there is memory for"
                _refuse(path, problem, errno.ENOMEM)
            if len(content) <= most_bytes:
                return content
    bound = f"{most_bytes / _MIB:.0f} MiB" if most_bytes >= _MIB else f"{most_bytes} bytes"
    _refuse(path, f"it is longer than {bound}, the most that etprof reads of it", errno.EFBIG)


def _read(stream: BufferedReader, size: int, most_bytes: int) -> bytes:
    """Returns what a file of `size` bytes holds, or more than `most_bytes` of it."""
    # As much as there is, not as there may be: that much memory is taken at once.
    content = stream.read(size + 1)
    # Not by its size alone: it may grow, and files of the kernel have none.
    while size < len(content) <= most_bytes:
        size = len(content)
        content += stream.read(min(most_bytes + 1 - size, _MIB))
    return content


def read_input(
    path: Path,
    *,
    most_bytes: int,
    way_out: str,
    error: type[EtprofError] = InputFileError,
) -> bytes:
    """Returns the content of a file as `read_bounded` does; raises `error` with the way out."""
    try:
        return read_bounded(path, most_bytes)
    except OSError as problem:
        msg = f"cannot read {path}: {problem.strerror or problem}; {way_out}"
        raise error(msg) from problem


def hash_file(path: Path) -> str:
    """Returns a regular file's SHA-256 in hexadecimal; raises OSError."""
    with open_regular(path) as stream:
        return hashlib.file_digest(stream, "sha256").hexdigest()


def user_folder(variable: str, below_home: str) -> Path:
    """Returns etprof's folder in one of XDG's base directories; it need not exist.

    `variable` names the directory; a relative path in it does not count, as XDG says. Without it,
    it is `below_home`, and where nobody says where home is, as in a container that runs as a bare
    number, a folder of this user alone in the one for temporary files. Raises OutputError where
    there is no such folder, or somebody else has made it.
    """
    for base, subfolder in ((os.environ.get(variable), ""), (_home(), below_home)):
        if base and Path(base).is_absolute():
            return Path(base, subfolder, "etprof")
    return _private_folder(variable) / Path(below_home).name / "etprof"


def provide_home() -> None:
    """Sets HOME for this process and what it starts where nobody says it: adb ends without."""
    if _home() is None:
        # Without such a folder adb says what it lacks; all else has its answer.
        with suppress(OutputError):
            os.environ["HOME"] = str(_private_folder("HOME"))


def _private_folder(variable: str) -> Path:
    import tempfile

    way_out = f"set HOME or {variable} to a folder that may be written"
    try:
        folder = Path(tempfile.gettempdir(), f"etprof-user-{os.getuid()}")
        # Made at once: a name that all know would be somebody else's by the time it is used.
        with suppress(FileExistsError):
            folder.mkdir(mode=0o700)
        state = folder.lstat()
    except OSError as error:
        raise OutputError(
            f"no folder for etprof's own files ({error.strerror}); {way_out}"
        ) from None
    is_ours = stat.S_ISDIR(state.st_mode) and state.st_uid == os.getuid()
    if not is_ours or state.st_mode & 0o022:
        raise OutputError(f"{folder} is not this user's alone; {way_out}")
    return folder


def expand_home(text: str) -> Path:
    """Returns the path, `~` in it as this user's folder where there is one."""
    with suppress(RuntimeError):
        return Path(text).expanduser()
    return Path(text)


def _home() -> str | None:
    """Returns this user's folder; None where neither HOME nor the system's list of users has it."""
    with suppress(KeyError):
        return os.environ.get("HOME") or pwd.getpwuid(os.getuid()).pw_dir
    return None
