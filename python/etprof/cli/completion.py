"""Print what makes a shell complete etprof's commands and flags.

etprof completion bash > ~/.local/share/bash-completion/completions/etprof
etprof completion zsh > ~/.zfunc/_etprof         with ~/.zfunc in fpath, before compinit
etprof completion tcsh > ~/.etprof.tcsh          and `source ~/.etprof.tcsh`
"""

from __future__ import annotations

import argparse
from pathlib import Path

from etprof.cli.flags import add_flags

SHELLS = ("bash", "zsh", "tcsh")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declares the command's flags."""
    add_flags(parser, ("shell", SHELLS, "", "the shell that is to complete"))


def run(arguments: argparse.Namespace) -> int:
    """Prints the script."""
    import shtab

    from etprof.cli import build_parser

    parser = build_parser()
    for action in parser.all_actions():
        if action.type is Path:
            # A flag that takes a path completes the names of files.
            setattr(action, "complete", shtab.FILE)  # noqa: B010 - shtab's own attribute
    print(shtab.complete(parser, shell=arguments.shell), end="")
    return 0
