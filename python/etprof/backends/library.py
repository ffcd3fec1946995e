"""Which names that stand in a library etprof can read: its tables are of one version of ExecuTorch.

A library is read and never loaded. Three kinds of names are looked for in its bytes: what XNNPACK
calls its operators in an ETDump, kernels outside delegates, and microkernels of KleidiAI and
XNNPACK. A stripped library has the names of the microkernels that it exports alone.
"""

from __future__ import annotations

import io
import re
import zipfile
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, Literal

from etprof.backends.kernel_names import (
    LEVELS,
    PREFIX,
    SME_LEVELS,
    XNNPACK_PREFIX,
    is_product,
    parse_kernel_name,
    size_arguments,
    tile_of,
)
from etprof.backends.portable import parse_kernel_name as parse_portable_name
from etprof.backends.xnnpack.labels import parse_label
from etprof.base.errors import InputFileError
from etprof.base.files import DAMAGED_ZIP, read_input

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator
    from pathlib import Path

Kind = Literal["label", "kernel", "microkernel"]
KINDS: Final[dict[Kind, bytes]] = {
    "label": rb"(?<=\0)[A-Z][A-Za-z0-9 /\-]{2,60} \([A-Z0-9, ]{2,40}\)(?=\0)",
    "kernel": rb"native_call_[A-Za-z0-9_:.]{1,100}",
    "microkernel": rb"\b(?:kai_run_\w{1,200}|xnn_\w{1,100}_ukernel_\w{1,100})\b",
}
MOST_BYTES: Final = 2**30
"""Of a library or package, and of the libraries in one; ExecuTorch's wheels have up to 0.1 GiB."""
VECTOR_BITS: Final = 512
"""Any that a device has: whether a tile can be read does not depend on it."""
_ARCHIVE: Final = b"PK\3\4"
_LIBRARIES: Final = (".so", ".dylib", ".a")


@dataclass(frozen=True)
class LibraryName:
    """A name in a library, and what of it has no place in etprof's tables."""

    kind: Kind
    name: str
    level: str | None
    """The instruction set of a microkernel, such as `sme2`; None where its name says none."""
    problem: str | None
    """None where all of it can be read."""


@dataclass(frozen=True)
class ProductKernels:
    """A kind of product, and which instruction sets a library has microkernels of KleidiAI's for."""

    operation: str
    """In KleidiAI's words, such as `matmul_clamp`."""
    rows: str
    """`one`: of a product whose left side has one row, as in a language model's decode; or `any`."""
    left_type: str
    right_type: str
    output_type: str
    """Data types, in KleidiAI's words too."""
    names: dict[str, tuple[str, ...]]
    """Microkernels by instruction set, such as `sme2`."""

    def count(self, level: str) -> int | None:
        """Returns how many there are for an instruction set; None where there is none."""
        return len(self.names.get(level, ())) or None


def find_products(names: Iterable[str]) -> tuple[ProductKernels, ...]:
    """Returns each kind of product that microkernels compute, in the order of their types."""
    levels: dict[tuple[str, ...], dict[str, list[str]]] = {}
    for name in sorted({name for name in names if name.startswith(PREFIX) and is_product(name)}):
        parsed = parse_kernel_name(name)
        output_type, level = parsed.destination, parsed.level
        if not (output_type and parsed.inputs and level in LEVELS):
            continue
        rows = "one" if (parsed.tile or "").startswith("1x") else "any"
        kind = (parsed.operation, parsed.inputs[0], parsed.inputs[-1], output_type, rows)
        levels.setdefault(kind, {}).setdefault(level, []).append(name)
    return tuple(
        ProductKernels(
            operation=operation,
            rows=rows,
            left_type=left_type,
            right_type=right_type,
            output_type=output_type,
            names={level: tuple(kernels) for level, kernels in by_level.items()},
        )
        for (operation, left_type, right_type, output_type, rows), by_level in sorted(
            levels.items()
        )
    )


def names_of_library(path: Path) -> tuple[LibraryName, ...]:
    """Returns each name in a library once, by kind and name.

    A wheel, an Android archive or another zip file is read library by library. Raises
    InputFileError for a file that cannot be read, and where no name stands in it: its form may have
    changed, and that nothing is unknown would then prove nothing.
    """
    names = {
        (kind, name)
        for content in _libraries(path)
        for kind, names in find_names(content).items()
        for name in names
    }
    if not names:
        raise InputFileError(
            f"{path}: no operator and no microkernel is named in it; give libexecutorch…, a runner "
            "that is linked with XNNPACK, or ExecuTorch's wheel, and one that is not stripped"
        )
    return tuple(examine_name(kind, name) for kind, name in sorted(names))


def find_names(content: bytes) -> dict[Kind, set[str]]:
    """Returns the names that stand in the bytes of a library, by kind."""
    return {
        kind: {name.decode("ascii") for name in re.findall(pattern, content)}
        for kind, pattern in KINDS.items()
    }


def examine_name(kind: Kind, name: str) -> LibraryName:
    """Says what of a name etprof cannot read."""
    if kind == "label":
        problem = None if parse_label(f"{name} #1").is_known else "no known operator of XNNPACK"
        return LibraryName(kind, name, None, problem)
    if kind == "kernel":
        problem = None if parse_portable_name(name).is_known else "no known kernel"
        return LibraryName(kind, name, None, problem)
    return LibraryName(kind, name, parse_kernel_name(name).level, _find_problem(name))


def _find_problem(name: str) -> str | None:
    """Returns what a microkernel's name does not say, though etprof counts by it."""
    parsed = parse_kernel_name(name)
    if not (parsed.destination and parsed.inputs):
        return "its data types cannot be read"
    if name.startswith(XNNPACK_PREFIX) or "dwconv" in name:
        return None
    if not size_arguments(name):
        return "its sizes have no place in the table"
    return _find_problem_of_product(name, parsed.level) if is_product(name) else None


def _find_problem_of_product(name: str, level: str | None) -> str | None:
    if level not in LEVELS:
        return "no known instruction set"
    if level in SME_LEVELS and tile_of(name, VECTOR_BITS) is None:
        return "its tile cannot be read"
    return None


def _libraries(path: Path) -> Iterator[bytes]:
    """Yields a library, or each one in a zip file."""
    content = read_input(path, most_bytes=MOST_BYTES, way_out="name a library or a wheel")
    if not content.startswith(_ARCHIVE):
        yield content
        return
    try:
        with zipfile.ZipFile(io.BytesIO(content)) as archive:
            yield from _members(path, archive)
    except (*DAMAGED_ZIP, ValueError) as error:
        # ValueError where the directory puts a member before the file's beginning.
        raise InputFileError(f"{path} is a damaged zip file ({error}); get it again") from error


def _members(path: Path, archive: zipfile.ZipFile) -> Iterator[bytes]:
    members = [member for member in archive.infolist() if _is_library(member.filename)]
    if (size := sum(member.file_size for member in members)) > MOST_BYTES:
        raise InputFileError(
            f"{path}: its libraries unpack to {size} bytes, more than {MOST_BYTES}; unpack it, and "
            "name one library"
        )
    for member in members:
        with archive.open(member) as stream:
            # What the directory of the file says of a size need not be so.
            yield stream.read(member.file_size)


def _is_library(name: str) -> bool:
    return name.endswith(_LIBRARIES) or ".so." in name


def unknown_names(names: Iterable[LibraryName]) -> tuple[LibraryName, ...]:
    """Returns those that have a problem."""
    return tuple(name for name in names if name.problem is not None)
