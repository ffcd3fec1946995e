"""The commands in what findings advise, and the rewrites with which they export."""

from __future__ import annotations

import re
import shlex
from typing import TYPE_CHECKING, Final

from etprof.base.text import QUOTED_COMMAND, command_line

if TYPE_CHECKING:
    from collections.abc import Iterable

    from etprof.run.program import ExportManifest

_PLACEHOLDER: Final = re.compile(r"(?<=\s)(?:MODEL|RUN_DIR|FILE|CONFIG)\b")
_BARE: Final = {"etprof export", "etprof profile", "etprof analyze", "etprof report"}
_GUIDE: Final = "etprof docs"
_REWRITE: Final = "--rewrite"


def command_in(text: str) -> str | None:
    """Returns the first command in a text that can be pasted and changes or measures something."""
    commands = QUOTED_COMMAND.findall(text)
    return next((c for c in commands if not (has_placeholder(c) or c.startswith(_GUIDE))), None)


def has_placeholder(command: str) -> bool:
    """Whether a command has a word to be replaced, or none where it needs one."""
    return _PLACEHOLDER.search(command) is not None or command in _BARE


def rewrites_in(command: str) -> tuple[str, ...]:
    """Returns the names of the rewrites with which a command exports; none for other commands."""
    words = shlex.split(command)
    if _REWRITE not in words[:-1]:
        return ()
    return tuple(words[words.index(_REWRITE) + 1].split(","))


def rewritten_export(manifest: ExportManifest, names: Iterable[str]) -> str:
    """Returns the command that makes an export again with further rewrites.

    What the program was made with stays: without it the command would make another one.
    """
    dtype = ["--dtype", manifest.precision] if manifest.precision else []
    before = [rewrite.name for rewrite in manifest.rewrites]
    # In one order, whatever takes most time in a run: one set of rewrites is one program.
    rewrites = ",".join(sorted({*before, *names}))
    words = (*manifest.model_words, *dtype, *manifest.option_words)
    return command_line("export", *words, "--rewrite", rewrites)
