"""The parser of command lines, and how its help pages are laid out."""

from __future__ import annotations

import argparse
import re
import shlex
import textwrap
from collections.abc import Iterable, Iterator
from typing import Any, Final, NoReturn

from etprof.base.errors import UsageError
from etprof.base.text import suggest
from etprof.cli.crash_report import DEBUG_FLAG, DEBUG_VARIABLE

_INVALID_CHOICE = re.compile(r"invalid choice: '(.*)' \(choose from (.*)\)")
_WIDEST: Final = 100
"""Columns of a help page: longer lines are hard to read, however wide the terminal is."""
_MOST_IN_USAGE: Final = 6
"""Flags that the usage line names one by one; of more it would be a paragraph."""
_HANGING = re.compile(r"\s+\S+(?: \S+)*\s{2,}")
"""The term of a list's line, with the blanks before what it means."""
_QUOTED = re.compile("`[^`]+`")
_BLANK: Final = "\0"
"""Stands for a blank at which no line ends."""
_LEAST_MEANING: Final = 24
"""Columns that the meaning of a term keeps beside it."""


class HelpPage(argparse.HelpFormatter):
    """Fills paragraphs to the terminal, keeps lists and commands, and has a short usage line."""

    def __init__(self, prog: str, *args: Any, **kwargs: Any) -> None:  # noqa: ANN401 - argparse's own
        super().__init__(prog, *args, **kwargs)
        self._width = min(self._width, _WIDEST)

    def _fill_text(self, text: str, width: int, indent: str) -> str:
        return textwrap.indent("\n".join(_page_lines(text, width - len(indent))), indent)

    def _format_usage(
        self,
        usage: str | None,
        actions: Iterable[argparse.Action],
        groups: Iterable[argparse._MutuallyExclusiveGroup],
        prefix: str | None,
    ) -> str:
        actions = list(actions)
        arguments = [action for action in actions if not action.option_strings]
        if len(actions) - len(arguments) <= _MOST_IN_USAGE:
            return super()._format_usage(usage, actions, groups, prefix)
        text = super()._format_usage(usage, arguments, (), prefix)
        return text.replace(self._prog, f"{self._prog} [FLAGS]", 1)


def _page_lines(text: str, width: int) -> Iterator[str]:
    """Yields the lines of a page: paragraphs are filled, lines that begin with blanks stay lines."""
    for number, block in enumerate(re.split(r"\n\s*\n", text.strip("\n"))):
        if number:
            yield ""
        paragraph: list[str] = []
        for line in _whole_lines(block):
            if line.startswith(" "):
                yield from _wrap(" ".join(paragraph), width)
                paragraph = []
                yield from _list_lines(line, width)
            else:
                paragraph.append(line)
        yield from _wrap(" ".join(paragraph), width)


def _wrap(text: str, width: int, further_indent: str = "") -> list[str]:
    """Wraps text between words; what stands between backticks is one word, and no word is broken."""
    text = _QUOTED.sub(lambda match: match[0].replace(" ", _BLANK), text)
    lines = textwrap.wrap(
        text,
        width,
        subsequent_indent=further_indent,
        break_long_words=False,
        break_on_hyphens=False,
    )
    return [line.replace(_BLANK, " ") for line in lines]


def _whole_lines(block: str) -> Iterator[str]:
    """Yields the lines of a block, those of a list with what goes on under their meaning."""
    whole = ""
    for line in block.splitlines():
        term = _HANGING.match(whole)
        indent = len(line) - len(line.lstrip())
        if term and indent and indent == term.end():
            whole += f" {line.strip()}"
            continue
        if whole:
            yield whole
        whole = line.rstrip()
    if whole:
        yield whole


def _list_lines(line: str, width: int) -> list[str]:
    """Breaks a line of a list under its meaning, a command so that it can still be pasted."""
    term = _HANGING.match(line)
    indent = " " * (len(line) - len(line.lstrip()))
    if len(line) <= width:
        return [line]
    if term is None and line.lstrip().startswith("etprof "):
        words = shlex.split(line, posix=False)
        return _broken_command(words, indent, width)
    if term is None or width - term.end() < _LEAST_MEANING:
        return _wrap(line, width, f"{indent}  ")
    meaning = _wrap(line[term.end() :], width - term.end())
    further = [f"{' ' * term.end()}{part}" for part in meaning[1:]]
    return [f"{term[0]}{meaning[0]}", *further]


def _broken_command(words: Iterable[str], indent: str, width: int) -> list[str]:
    """Breaks a command between words, each line but the last with the shell's sign for more."""
    lines = [indent.removesuffix(" ")]
    for word in words:
        # The sign and the blank before it.
        if len(lines[-1]) + len(word) + 3 > width:
            lines[-1] += " \\"
            lines.append(f"{indent}   ")
        lines[-1] += f" {word}"
    return lines


class CommandParser(argparse.ArgumentParser):
    """A parser whose errors are one line with the way out, as all of etprof's are.

    `--debug` is known before and after every subcommand; it and `--help` end a help page.
    """

    def __init__(self, *args: Any, **kwargs: Any) -> None:  # noqa: ANN401 - argparse's own
        settings = {"formatter_class": HelpPage, "allow_abbrev": False, **kwargs, "add_help": False}
        super().__init__(*args, **settings)
        self._closing = self.add_argument_group("help")
        self._closing.add_argument("-h", "--help", action="help", help="show this page")
        self._closing.add_argument(
            DEBUG_FLAG,
            action="store_true",
            # A subcommand's default would overwrite what stands before it.
            default=argparse.SUPPRESS,
            help=f"show the traceback of an error (or set {DEBUG_VARIABLE})",
        )

    def format_help(self) -> str:
        """Returns the page, with the flags that all commands have at its end."""
        groups = self._action_groups
        groups.append(groups.pop(groups.index(self._closing)))
        return super().format_help()

    def all_flags(self) -> list[str]:
        """Returns the flags of this command and of those below it."""
        return [flag for action in self.all_actions() for flag in action.option_strings]

    def all_actions(self) -> Iterator[argparse.Action]:
        """Yields the arguments of this command and of those below it."""
        for action in self._actions:  # argparse has no other way to them
            if isinstance(action, argparse._SubParsersAction):
                for parser in action.choices.values():
                    yield from parser.all_actions()
            else:
                yield action

    def error(self, message: str) -> NoReturn:
        """Raises UsageError instead of printing all flags and leaving."""
        match = _INVALID_CHOICE.search(message)
        choices = [choice.strip(" '") for choice in match[2].split(",")] if match else []
        suggestion = suggest(match[1], choices) if match else ""
        if match:
            # Python 3.11 puts them in quotes, 3.13 does not: one text in all versions.
            message = message.replace(match[2], ", ".join(choices))
        raise UsageError(f"{message}{suggestion or ';'} see `{self.prog} --help`")
