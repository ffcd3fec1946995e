"""Commands that come next keep the flags which change the result."""

from __future__ import annotations

import re
import shlex
from typing import TYPE_CHECKING, Final

from etprof.base.text import QUOTED_COMMAND, kept_flags

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

PROFILE_FLAGS: Final = {
    **dict.fromkeys(
        ("--target", "--threads", "--serial", "--runner", "--trace-runner", "--debugger",
         "--sme-vector-bits",
         "--inputs", "--data", "--method", "--blocks", "--operator-launches", "--iterations",
         "--min-seconds", "--warmup", "--warmup-seconds", "--seed", "--generate", "--prompt-tokens",
         "--prompt-length", "--prompt", "--tokenizer", "--prefill-method", "--decode-method"),
        1,
    ),
    **dict.fromkeys(("--warmup-steady", "--cold-inputs", "--instructions", "--allow-inaccurate"), 0),
}  # fmt: skip
"""Flags of `etprof profile` that change what is measured, with how many values each has."""
_EVERY: Final = {
    **PROFILE_FLAGS,
    **dict.fromkeys(("--dtype", "--precision", "--budget", "--backend"), 1),
}
_HARMLESS: Final = {
    flag: count
    for flag, count in PROFILE_FLAGS.items()
    if flag not in {"--runner", "--trace-runner", "--debugger"}
}
_OF_A_MODEL: Final = frozenset({"export", "numerics", "optimize", "profile"})


def flags_of_last_profile(program: Path) -> tuple[str, ...]:
    """Returns how the newest run of a program's folder was measured: threads, target and the like.

    Without runners and debuggers: a run directory may be a stranger's, and names what the command
    would start.
    Nothing where no run is beside it, or none that `etprof profile` made.
    """
    from etprof.base.errors import EtprofError
    from etprof.run.manifest import MANIFEST, load_manifest

    runs = (program.parent.parent / "runs").glob(f"*/{MANIFEST}")
    for path in sorted(runs, key=lambda manifest_path: manifest_path.stat().st_mtime, reverse=True):
        try:
            manifest = load_manifest(path.parent)
        except EtprofError:
            continue
        if manifest is not None and manifest.command[1:2] == ("profile",):
            return kept_flags(manifest.command, _HARMLESS)
    return ()


def with_flags_of(message: str, argv: Sequence[str]) -> str:
    """Gives the commands in a message the flags of the command that failed, where they lack them.

    Those of the same subcommand alone: others may not take them.
    """
    subcommand = next((argument for argument in argv if argument in _OF_A_MODEL), None)
    if subcommand is None:
        return message

    def extended(match: re.Match[str]) -> str:
        command_words = shlex.split(match[1])
        if (
            command_words[1:2] != [subcommand]
            or len(command_words) < 3
            or not re.search(r"[.:]", command_words[2])
        ):
            return match[0]
        missing = {flag: count for flag, count in _EVERY.items() if flag not in command_words}
        return f"`{shlex.join([*command_words, *kept_flags(argv, missing)])}`"

    return QUOTED_COMMAND.sub(extended, message)
