"""What a command may answer: codes, lines, documents and pages, each compared with the rules."""

from __future__ import annotations

import json
import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from tests.hostile.consumer import CONTROL, shares

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from pathlib import Path

    from tests.hostile.commands import Command

_SHOWN: Final = (".html", ".md", ".csv", ".tsv")
_LARGEST_PAGE_BYTES: Final = 2**23
_LONGEST_MESSAGE: Final = 20_000
_NO_NUMBER: Final = re.compile(r"(?<![\w/.\"'])(nan|-?inf)(?![\w/.])")


@dataclass(frozen=True)
class Output:
    """What a command line printed."""

    code: int
    out: str
    err: str


def judge(command: Command, line: Sequence[str], output: Output) -> Iterator[tuple[str, str]]:
    """Yields what is wrong with a command's exit code and with what it printed."""
    name = command.name
    if output.code not in command.codes:
        yield f"{name}: code {output.code}", f"code {output.code}: {output.err[-300:]!r}"
    for where, text in (("stdout", output.out), ("stderr", output.err)):
        if "Traceback (most recent call last)" in text:
            yield f"{name}: traceback", f"a traceback on {where}"
        if found := CONTROL.search(text):
            around = text[max(0, found.start() - 60) : found.end() + 20]
            yield f"{name}: control character on {where}", f"{found[0]!r} in {around!r}"
    if len(output.err) > _LONGEST_MESSAGE:
        yield f"{name}: long message", f"{len(output.err)} characters: {output.err[:200]!r}"
    if output.code not in (0, 1) and "etprof: " not in output.err and not output.out:
        yield f"{name}: no message", f"code {output.code} and nothing said: {output.err[-200:]!r}"
    if "--json" in line and output.out:
        yield from _judge_json(name, output)
    elif line[0] in ("analyze", "compare") and (found := _NO_NUMBER.search(output.out)):
        around = output.out[max(0, found.start() - 60) : found.end() + 20]
        yield f"{name}: no number", f"{found[0]} in {around!r}"


def _judge_json(name: str, output: Output) -> Iterator[tuple[str, str]]:
    try:
        document = json.loads(output.out, parse_constant=_refuse)
    except (ValueError, RecursionError) as error:
        yield f"{name}: not JSON", f"{type(error).__name__}: {error}: {output.out[:100]!r}"
        return
    for key, value in shares(document):
        if not -1e-9 <= value <= 1 + 1e-9:
            yield f"{name}: share", f"{key} is {value}"
            return
    verdict = document.get("verdict") if isinstance(document, dict) else None
    if name == "validate" and (verdict == "incomplete") != (output.code == 1):
        yield f"{name}: verdict", f"{verdict} with code {output.code}"


def _refuse(text: str) -> None:
    msg = f"{text} is not JSON"
    raise ValueError(msg)


def known_files(folder: Path) -> dict[Path, int]:
    """Returns the files for people that are in the folder now, and when each was written."""
    return {
        path: path.stat().st_mtime_ns
        for suffix in _SHOWN
        for path in folder.rglob(f"*{suffix}")
        if not path.is_symlink() and path.is_file()
    }


def check_files(folder: Path, before: dict[Path, int]) -> Iterator[str]:
    """Yields new files for people that hold what no terminal and no editor should show."""
    for path, written_ns in known_files(folder).items():
        if before.get(path) == written_ns:
            continue
        with path.open("rb") as stream:
            text = stream.read(_LARGEST_PAGE_BYTES).decode("utf-8", "replace")
        if CONTROL.search(text.replace("\r\n", "\n")):
            yield f"control character in a {path.suffix} file"
