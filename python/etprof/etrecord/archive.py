"""Opens an ETRecord's archive within bounds and hands out its JSON parts, never its pickles."""

from __future__ import annotations

import io
import stat
import zipfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

from pydantic_core import from_json

from etprof.base.errors import InputFileError
from etprof.base.files import DAMAGED_ZIP, open_regular

IDENTIFIER: Final = "ETRECORD_V0"
HANDLE_MAP: Final = "debug_handle_map"
_TENSOR_PARTS: Final = ("_state_dict", "_constants", "_example_inputs")
"""How the parts end that hold tensors; Python's pickles, which nothing here needs."""
_OTHER_PARTS: Final = frozenset(
    (
        *(IDENTIFIER, HANDLE_MAP, "delegate_map", "instruction_id_to_num_outs_map"),
        *("reference_outputs", "representative_inputs", "export_graph_id"),
    )
)
MAX_MEMBERS: Final = 1024
"""An export writes four parts a method and eight more."""
MAX_DIRECTORY_BYTES: Final = 2**20
MAX_PART_BYTES: Final = 64 * 2**20
"""The graph of one method; ViT-Tiny's has 2 MB."""
MAX_BYTES: Final = 128 * 2**20
"""All graphs together."""
MAX_VALUES: Final = 6_000_000
"""Of JSON, in all graphs, counted by `[`, `{` and `,`: 64 MiB of `[]` take 2 GB. A node has 180."""
MAX_RATIO: Final = 200
"""Of a part's size unpacked to packed; ExecuTorch does not compress, graphs zipped again reach 40."""
WAY_OUT: Final = "export the program again, or measure it without --etrecord"


class _ArchiveFile(io.FileIO):
    """A file that is read in pieces: the length of a ZIP's directory stands in the file itself."""

    def read(self, size: int | None = -1, /) -> bytes:
        """Returns up to `size` bytes; raises BadZipFile for more than a directory may have."""
        requested = -1 if size is None else size
        if requested > MAX_DIRECTORY_BYTES:
            msg = f"its directory has {requested} bytes, more than {MAX_DIRECTORY_BYTES}"
            raise zipfile.BadZipFile(msg)
        chunk = super().read(MAX_DIRECTORY_BYTES if requested < 0 else requested)
        return chunk or b""


class Parts:
    """The JSON parts of an ETRecord that keeps within the bounds."""

    def __init__(self, path: Path, archive: zipfile.ZipFile) -> None:
        self._path, self._archive = path, archive
        self._members = archive.infolist()
        self._read_bytes = self._read_values = 0
        self._check_members()

    def graph_names(self) -> list[str]:
        """Returns the names of the parts that are programs."""
        names = [member.filename for member in self._members]
        return [n for n in names if n not in _OTHER_PARTS and not n.endswith(_TENSOR_PARTS)]

    def read_json(self, name: str) -> Any:  # noqa: ANN401 - checked by whoever asked
        """Returns a part's document; raises InputFileError when it is none, too large or too deep."""
        content = self._read(name)
        self._read_values += sum(content.count(sign) for sign in (b"[", b"{", b","))
        if self._read_values > MAX_VALUES:
            raise refusal(self._path, f"with {name} it has more than {MAX_VALUES} values")
        try:
            # Infinities are wanted: they stand in masks.
            return from_json(content)
        except ValueError as error:
            reason = f"{name} is no JSON ({error})"
            raise refusal(self._path, reason) from error

    def _read(self, name: str) -> bytes:
        try:
            member = self._archive.getinfo(name)
        except KeyError:
            raise refusal(self._path, f"it has no part {name}") from None
        self._read_bytes += member.file_size
        if member.file_size > MAX_PART_BYTES or self._read_bytes > MAX_BYTES:
            raise refusal(
                self._path,
                f"{name} has {member.file_size} bytes; a graph may have {MAX_PART_BYTES}, "
                f"all of them {MAX_BYTES}",
            )
        if member.file_size > MAX_RATIO * max(member.compress_size, 1):
            raise refusal(self._path, f"{name} unpacks to more than {MAX_RATIO} times its size")
        with self._archive.open(member) as stream:
            pieces = iter(lambda: stream.read(2**16), b"")
            return b"".join(pieces)

    def _check_members(self) -> None:
        names = [member.filename for member in self._members]
        if len(names) > MAX_MEMBERS:
            raise refusal(self._path, f"it has {len(names)} parts, more than {MAX_MEMBERS}")
        if IDENTIFIER not in names:
            raise refusal(self._path, f"it is no ETRecord: it has no part {IDENTIFIER}")
        if len({*names}) < len(names):
            raise refusal(self._path, "two of its parts have one name")
        for member in self._members:
            problem = _find_problem(member)
            if problem is not None:
                raise refusal(self._path, f"its part {member.filename[:80]!r} {problem}")


def _find_problem(member: zipfile.ZipInfo) -> str | None:
    """Returns what is wrong with a part's entry in the directory; None when nothing is."""
    name = member.filename
    if not name.isprintable() or "\\" in name or name.startswith("/") or ".." in name.split("/"):
        return "has a name that no part has"
    if member.flag_bits & 0x1:
        return "is encrypted"
    if stat.S_IFMT(member.external_attr >> 16) not in {0, stat.S_IFREG} or member.is_dir():
        return "is not a regular file"
    if member.compress_type not in {zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED}:
        return "is packed in a way that ExecuTorch does not use"
    return None


@contextmanager
def open_parts(path: Path) -> Iterator[Parts]:
    """Opens an ETRecord; raises InputFileError, also from within, when it is not whole."""
    try:
        with (
            open_regular(path) as stream,
            _ArchiveFile(stream.fileno(), closefd=False) as pieces,
            zipfile.ZipFile(pieces) as archive,
        ):
            yield Parts(path, archive)
    except DAMAGED_ZIP as error:
        reason = getattr(error, "strerror", None) or str(error) or type(error).__name__
        raise refusal(path, reason) from error


def refusal(path: Path, reason: str) -> InputFileError:
    """Returns the error for an ETRecord that is not read."""
    return InputFileError(f"cannot read {path}: {reason}; {WAY_OUT}")
