"""What pip needs inside a root to work as it does outside: its settings, indexes, certificates."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final

CERTIFICATES: Final = (
    Path("/etc/ssl/certs"),
    # Where the links in it lead.
    Path("/usr/share/ca-certificates"),
    Path("/usr/local/share/ca-certificates"),
)
_VARIABLES: Final = re.compile(
    r"PIP_\w+|(?i:https?|no|all)_(?i:proxy)|SSL_CERT_(FILE|DIR)|(REQUESTS|CURL)_CA_BUNDLE"
)
_OF_THIS_MACHINE: Final = {"PIP_CACHE_DIR", "PIP_LOG", "PIP_CONFIG_FILE"}
_KIND: Final = re.compile(r"^(\w+):$")
_FILE: Final = re.compile(r"^  (/.*), exists: True$")
_VALUE: Final = re.compile(r"^    \S+: (.*)$")


@dataclass(frozen=True)
class PipSettings:
    """pip's configuration outside of a root."""

    environment: Mapping[str, str]
    files: tuple[Path, ...]
    """Of the whole machine: at the same path inside."""
    user_files: tuple[Path, ...]
    paths: tuple[Path, ...]
    """Files and folders that settings name, and certificates: at the same path inside."""


def find_pip_settings() -> PipSettings:
    """Asks this Python's pip for its files and values."""
    words = [sys.executable, "-m", "pip", "config", "debug"]
    shown = subprocess.run(words, capture_output=True, text=True, check=True).stdout
    return read_pip_settings(shown, os.environ)


def read_pip_settings(shown: str, variables: Mapping[str, str]) -> PipSettings:
    """Reads what `pip config debug` has shown, with these variables."""
    files: dict[str, list[Path]] = {}
    kind, values = "", []
    for line in shown.splitlines():
        if match := _KIND.match(line):
            kind = match[1]
        elif match := _FILE.match(line):
            files.setdefault(kind, []).append(Path(match[1]))
        elif match := _VALUE.match(line):
            values.append(match[1])
    passed = {
        name: value
        for name, value in variables.items()
        if _VARIABLES.fullmatch(name) and name not in _OF_THIS_MACHINE
    }
    paths = {*CERTIFICATES, *_paths_in(" ".join([*values, *passed.values()]))}
    return PipSettings(
        environment=passed,
        files=tuple(files.get("global", ())),
        user_files=tuple(files.get("user", ())),
        paths=tuple(_outermost({path for path in paths if path.exists()})),
    )


def _paths_in(text: str) -> Iterator[Path]:
    """Yields absolute paths; of an index, which is a file URL, the folder that it lies in.

    The pages of a local index link to files elsewhere, mostly in a folder beside it.
    """
    for word in text.split():
        path = Path(word.removeprefix("file://"))
        if not path.is_absolute() or path == Path("/"):
            continue
        is_index = word.startswith("file://") and path.is_dir()
        yield path.parent if is_index and path.parent.parent != Path("/") else path


def _outermost(paths: Collection[Path]) -> Iterator[Path]:
    """Yields the paths that lie in no other."""
    yield from (path for path in sorted(paths) if not set(path.parents) & set(paths))
