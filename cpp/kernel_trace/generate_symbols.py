"""Lists the functions of an ExecuTorch SDK that etprof interposes, as a C++ include file.

A new SDK brings new microkernels; this finds them in the libraries themselves. A microkernel that
is not called through the procedure linkage table would be missed silently, so it is an error.
With `--table` the microkernels are written as JSON too: what reports know of the library.
"""

from __future__ import annotations

import argparse
import json
import re
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

PACKAGE_SOURCES = Path(__file__).resolve().parents[2] / "python"
sys.path.insert(0, str(PACKAGE_SOURCES))

from etprof.backends.kernel_names import PREFIX, size_arguments

PARALLEL_PREFIX = "pthreadpool_parallelize_"
_WORD = re.compile(r"\b(?:kai_run|xnn)_\w+")
_NO_API = {"bench", "benchmark", "examples", "test"}
_VERSION = re.compile(r"^(__version__|git_version)\b.*= ['\"](.*)['\"]$", re.MULTILINE)
_SYMBOL = re.compile(r"^\s*\d+:\s+[0-9a-f]+\s+\S+\s+FUNC\s+\S+\s+\S+\s+(\S+)\s+([^\s@]+)")
_RELOCATION = re.compile(r"^[0-9a-f]+\s+[0-9a-f]+\s+R_\S+\s+[0-9a-f]+\s+([^\s@]+)")


@dataclass(frozen=True)
class Library:
    """What a shared library defines, and what it looks up by name when it is loaded."""

    name: str
    defined: frozenset[str]
    looked_up: frozenset[str]


def read_library(readelf: str, path: Path) -> Library:
    """Reads the dynamic symbols and relocations of `path`."""
    command = [readelf, "--wide", "--dyn-syms", "--relocs", str(path)]
    text = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    symbols = [match for line in text.splitlines() if (match := _SYMBOL.match(line))]
    relocations = [match for line in text.splitlines() if (match := _RELOCATION.match(line))]
    return Library(
        name=path.name,
        defined=frozenset(match[2] for match in symbols if match[1] != "UND"),
        looked_up=frozenset(match[1] for match in relocations),
    )


def find_kernels(libraries: list[Library]) -> list[str]:
    """Returns every microkernel; exits with its name when one cannot be interposed."""
    kernels = []
    for library in libraries:
        for name in sorted(library.defined):
            if not name.startswith(PREFIX):
                continue
            if name not in library.looked_up:
                sys.exit(
                    f"{library.name}: {name} is not called through the procedure linkage table, "
                    f"so its calls cannot be counted; build with ETPROF_KERNEL_TRACE=OFF, or use "
                    f"an SDK whose microkernels can be interposed"
                )
            kernels.append(name)
    return kernels


def find_parallel_functions(libraries: list[Library]) -> list[str]:
    """Returns the thread pool's functions that any library calls through the linkage table."""
    defined = {name for library in libraries for name in library.defined}
    looked_up = {name for library in libraries for name in library.looked_up}
    return sorted(n for n in defined & looked_up if n.startswith(PARALLEL_PREFIX))


def kernel_line(index: int, name: str) -> str:
    """Returns the macro call that describes one microkernel."""
    return f"ETPROF_KERNEL({index}, {name}, {len(size_arguments(name))})"


def write_symbols(arguments: argparse.Namespace, kernels: list[str], parallel: list[str]) -> None:
    """Writes the include file, and what holds the stand-ins against the headers that there are."""
    lines = [kernel_line(i, name) for i, name in enumerate(kernels)]
    lines += [f"ETPROF_PARALLEL({i}, {name})" for i, name in enumerate(parallel)]
    arguments.output.write_text("\n".join(lines) + "\n")
    headers = dict[Path, set[str]]()
    for folder in filter(None, arguments.headers.split(";")):
        for header in sorted(Path(folder).rglob("*.h")):
            if _NO_API & set(header.relative_to(folder).parts):
                continue
            words = set(_WORD.findall(header.read_text(errors="replace")))
            # The thread pool's own header overloads its functions for C++, so none has one type.
            if found := words & {*kernels}:
                headers[header] = found
    declared = sorted(set().union(*headers.values()))
    lines = [
        "// What no header declares, nobody checks.",
        '#include "kernel_trace/stand_in_check.h"',
    ]
    lines += [f'#include "{header}"' for header in headers]
    lines += [f"ETPROF_CHECK({name}, {len(size_arguments(name))})" for name in declared]
    arguments.check.write_text("\n".join(lines) + "\n")
    print(f"{len(declared)} of {len(kernels)} microkernels have a header here, which is checked")


def describe_library(library: Path, architecture: str, kernels: list[str]) -> str:
    """Returns the table of microkernels as JSON, with the SDK's revision where it says it."""
    version = library.resolve().parents[1] / "version.py"
    said = dict(_VERSION.findall(version.read_text()) if version.is_file() else [])
    table = {
        "schema_version": 1,
        "executorch": said.get("__version__"),
        "revision": said.get("git_version"),
        "library": library.name,
        "architecture": architecture,
        "kernels": kernels,
    }
    return json.dumps(table, indent=1) + "\n"


def make_parser(description: str | None) -> argparse.ArgumentParser:
    """Returns what both ways of listing functions are told."""
    parser = argparse.ArgumentParser(description=description)
    parser.add_argument("--output", type=Path, required=True)
    parser.add_argument("--check", type=Path, required=True, help="where the check goes")
    parser.add_argument("--headers", default="", help="folders with headers, between semicolons")
    parser.add_argument("libraries", type=Path, nargs="+")
    return parser


def main() -> None:
    """Writes the include file."""
    parser = make_parser(__doc__)
    parser.add_argument("--readelf", required=True)
    parser.add_argument("--table", type=Path, help="where the table of microkernels goes")
    parser.add_argument("--architecture", default="", help="of the libraries")
    arguments = parser.parse_args()
    libraries = [read_library(arguments.readelf, path) for path in arguments.libraries]
    parallel = find_parallel_functions(libraries)
    if not parallel:
        sys.exit(
            "no pthreadpool_parallelize_* function is called through the procedure linkage "
            "table; build with ETPROF_KERNEL_TRACE=OFF"
        )
    kernels = find_kernels(libraries)
    write_symbols(arguments, kernels, parallel)
    if arguments.table:
        table = describe_library(arguments.libraries[0], arguments.architecture, kernels)
        arguments.table.write_text(table)


if __name__ == "__main__":
    main()
