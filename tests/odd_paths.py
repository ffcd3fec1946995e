"""A folder as people have them, and what becomes of a printed command when it is pasted there."""

from __future__ import annotations

import re

from etprof.base.process import run_command
from etprof.cli import COMMANDS

ODD_NAME = "a longer path, with 'quotes', $HOME, `ls`, 100 % & ünïcödé 漢字 " + "long " * 20 + "#1"
"""Of a folder: whatever a shell, a URL, a format string or CMake could take for its own."""
_NAMED = rf"etprof (?:{'|'.join(COMMANDS)})\b"
_LINE = re.compile(rf"(?:^\s*|: )({_NAMED}(?:[^\\\n]|\\\n)*)", re.MULTILINE)
_BETWEEN = re.compile(rf"`({_NAMED}(?:[^`'\"]|'[^']*'|\"[^\"]*\")*)`")
_ECHO = """etprof() { printf '%s\\0' "$@"; }"""


def printed_commands(text: str) -> list[str]:
    """The commands in what etprof printed, as people would copy them, on several lines or one."""
    return [*_LINE.findall(text), *_BETWEEN.findall(text)]


def pasted(command: str) -> list[str]:
    """What etprof gets for arguments when a line is pasted into a shell."""
    done = run_command(["bash", "-c", f"{_ECHO}\n{command}"], environment={"HOME": "/elsewhere"})
    assert (done.exit_code, done.stderr) == (0, ""), command
    return done.stdout.removesuffix("\0").split("\0")
