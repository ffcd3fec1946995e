"""Every command's words, in the order of its help; their layout is that of one Python's argparse."""

from __future__ import annotations

import argparse
from collections.abc import Iterator
from typing import Final

from etprof.cli import COMMANDS, build_parser

COMMANDS_FILE: Final = "commands.txt"


def describe_commands() -> str:
    """A line for each word of every command: names, metavar, number, default, choices, text."""
    lines: list[str] = []
    for command in COMMANDS:
        (actions,) = _subparsers(build_parser(command))
        lines += _describe(command, actions.choices[command])
    return "\n".join(lines) + "\n"


def _subparsers(parser: argparse.ArgumentParser) -> Iterator[argparse._SubParsersAction]:  # type: ignore[type-arg]
    return (each for each in parser._actions if isinstance(each, argparse._SubParsersAction))


def _describe(name: str, parser: argparse.ArgumentParser) -> Iterator[str]:
    yield f"# {name}"
    for action in parser._actions:
        if isinstance(action, argparse._HelpAction):
            continue
        names = " ".join(action.option_strings) or action.dest
        facts = {
            "metavar": action.metavar, "nargs": action.nargs, "default": action.default,
            "const": action.const, "choices": action.choices and list(action.choices),
            "required": action.required or None,
        }  # fmt: skip
        texts = (f"{key}={value!r}" for key, value in facts.items() if value is not None)
        lines = (names, *texts, action.help or "")
        yield " | ".join(lines)
    for subparsers in _subparsers(parser):
        for subcommand, subparser in subparsers.choices.items():
            yield from _describe(f"{name} {subcommand}", subparser)
