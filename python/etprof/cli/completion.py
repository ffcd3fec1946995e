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
    _complete_files(parser)
    print(shtab.complete(parser, shell=arguments.shell), end="")
    return 0


def _complete_files(parser: argparse.ArgumentParser) -> None:
    """Makes every flag that takes a path complete the names of files."""
    import shtab

    for action in parser._actions:  # argparse has no other way to its flags
        if isinstance(action, argparse._SubParsersAction):
            for choice in action.choices.values():
                _complete_files(choice)
        elif action.type is Path:
            setattr(action, "complete", shtab.FILE)  # noqa: B010 - shtab's own attribute
