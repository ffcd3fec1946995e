"""Files with the bytes, the kind or the place of another: what no parser expects."""

from __future__ import annotations

import contextlib
import os
import resource
import shutil
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path
    from random import Random

    Damage = Callable[[Path, Random], None]

SPARSE_BYTES: Final = 2**29
"""More than a case may take of memory. A larger one would only take longer to be hashed, which is
what some commands are for."""


@contextlib.contextmanager
def file_sizes(most_bytes: int) -> Iterator[None]:
    """Bounds what this process writes into one file."""
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (most_bytes, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))


def damage_bytes(data: bytes, random: Random) -> tuple[bytes, str]:
    """Returns the bytes with a part changed, lost or added, and what was done."""
    if not data:
        return random.randbytes(20), "random bytes"
    name = random.choice(list(_BYTES))
    return _BYTES[name](data, random), name


def _flip(data: bytes, random: Random) -> bytes:
    changed = bytearray(data)
    for _ in range(random.choice((1, 1, 2, 8, 64))):
        changed[random.randrange(len(changed))] ^= 1 << random.randrange(8)
    return bytes(changed)


def _fill(data: bytes, random: Random) -> bytes:
    begin = random.randrange(len(data))
    end = min(len(data), begin + random.choice((1, 2, 4, 8, 64, 4096)))
    return data[:begin] + random.choice((b"\0", b"\xff", b"\x7f")) * (end - begin) + data[end:]


def _copy_part(data: bytes, random: Random) -> bytes:
    begin, end = sorted(random.randrange(len(data) + 1) for _ in range(2))
    at = random.randrange(len(data))
    return data[:at] + data[begin:end] + data[at:]


_BYTES: Final[dict[str, Callable[[bytes, Random], bytes]]] = {
    "truncated": lambda data, random: data[: random.randrange(len(data))],
    "bits flipped": _flip,
    "bits flipped again": _flip,
    "part overwritten": _fill,
    "part copied": _copy_part,
    "rubbish at the end": lambda data, random: data + random.randbytes(random.choice((1, 300))),
    "twice": lambda data, _: data + data,
    "byte order mark": lambda data, _: b"\xef\xbb\xbf" + data,
    "UTF-16": lambda data, _: data.decode("latin-1").encode("utf-16"),
    "no UTF-8": lambda data, random: _put(data, random, b"\xff\xfe\xc3("),
    "NUL": lambda data, random: _put(data, random, b"\0"),
    "blanks": lambda data, _: b" \n" * 100_000 + data,
    "braces": lambda data, _: b"[" * 100_000 + data,
}


def _put(data: bytes, random: Random, what: bytes) -> bytes:
    at = random.randrange(len(data))
    return data[:at] + what + data[at:]


def damage_place(path: Path, random: Random) -> str:
    """Puts something else in the file's place, and returns what."""
    name = random.choice(list(_PLACES))
    if path.is_dir():
        shutil.rmtree(path)
    else:
        path.unlink(missing_ok=True)
    _PLACES[name](path, random)
    return name


def _sparse(path: Path, random: Random) -> None:
    """Begins like JSON half of the time, so that a reader has a reason to go on."""
    path.write_bytes(random.choice((b"", b'{"schema_version": 1, "a": "')))
    with path.open("r+b") as stream:
        stream.truncate(SPARSE_BYTES)


def _folder_with_a_file(path: Path, _random: Random) -> None:
    path.mkdir()
    (path / "file").write_text("{}")


def _loop(path: Path, _random: Random) -> None:
    path.symlink_to(path.name)


def _unreadable(path: Path, _random: Random) -> None:
    path.write_text("{}")
    path.chmod(0)


_PLACES: Final[dict[str, Damage]] = {
    "empty file": lambda path, _: path.touch(),
    "nothing": lambda _path, _random: None,
    "pipe": lambda path, _: os.mkfifo(path),
    "link to /dev/zero": lambda path, _: path.symlink_to("/dev/zero"),
    "link to /dev/full": lambda path, _: path.symlink_to("/dev/full"),
    "link to a pipe": lambda path, _: path.symlink_to("pipe"),
    "dangling link": lambda path, _: path.symlink_to("nowhere"),
    "link to itself": _loop,
    "link to its folder": lambda path, _: path.symlink_to("."),
    "folder": lambda path, _: path.mkdir(),
    "folder with a file": _folder_with_a_file,
    "unreadable": _unreadable,
    "512 MiB of nothing": _sparse,
}
