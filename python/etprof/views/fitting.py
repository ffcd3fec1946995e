"""How texts and columns fit a width: columns are folded or dropped, no word is broken.

A path that is longer than its column is broken behind a slash, and another word, such as a
module's or a microkernel's name, behind a dot or an underscore.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Final

from rich.cells import cell_len

from etprof.base.text import QUOTED_COMMAND

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from etprof.views.cells import ShownColumn

_COMMAND: Final = re.compile(r"(\s+|\w[\w ,]*: )etprof ")
"""A line that people copy; in a sentence a command stands in backticks."""
_SHELL_WORD: Final = re.compile(r"""(?:[^\s'"]|'[^']*'|"[^"]*"|['"])+""")
_AROUND: Final = " ();,."
"""What a command on its own line needs no longer of the sentence around it."""
HELD: Final = "\0"
"""Stands for a blank at which no line may end; `clean` leaves none of it in any text."""
GOES_ON: Final = " \\"
_PATH_PIECE: Final = re.compile(r"[^/]*/|[^/]+")
_NAME_PIECE: Final = re.compile(r"[^._]*[._]+|[^._]+")
_PLACE: Final = re.compile(r"/|\.py:")
"""Where something is: a path, or a line of a source."""
_LONGEST_NAME: Final = 24
"""Names up to this stand whole, such as `native_call_mean.out`; columns go before that."""
_LEAST_TEXT: Final = 16
"""Columns of text are folded to this, not further: shorter pieces are no words."""


def fold(text: str, width: int) -> list[str]:
    """Returns the text in lines of whole words; a longer word has a line of its own.

    A command stays one command: where a line has no room for it, it stands on lines of its own, which
    a shell takes together. None of them ends in a quoted word, such as a path with spaces.
    """
    lines: list[str] = []
    for paragraph in text.split("\n"):
        for segment, is_command in _apart(paragraph, width):
            if is_command and cell_len(segment) > width:
                *first, last = _pack(_shell_words(segment), width - len(GOES_ON))
                lines += [*(f"{line}{GOES_ON}" for line in first), last]
            else:
                lines += _pack(_sentence_words(segment), width)
    return lines


def _apart(paragraph: str, width: int) -> Iterator[tuple[str, bool]]:
    """Yields a paragraph's parts, and whether each is a command: those that no line has room for."""
    if _COMMAND.match(paragraph):
        yield paragraph, True
        return
    start = 0
    for command in QUOTED_COMMAND.finditer(paragraph):
        if cell_len(command[0]) <= width:
            continue
        before = paragraph[start : command.start()].rstrip(_AROUND)
        if before.strip():
            yield (before if start == 0 else before.lstrip(_AROUND)), False
        yield command[1], True
        start = command.end()
    tail = paragraph[start:]
    if start == 0 or tail.strip(_AROUND):
        yield (tail if start == 0 else tail.lstrip(_AROUND)), False


def _sentence_words(sentence: str) -> list[str]:
    """Splits a sentence at its blanks, but for those of a command."""
    protected = QUOTED_COMMAND.sub(lambda command: command[0].replace(" ", HELD), sentence)
    return [word.replace(HELD, " ") for word in protected.split(" ")]


def _shell_words(command: str) -> list[str]:
    """Splits a command at the blanks that a shell splits it at; what is indented stays so."""
    blanks = len(command) - len(command.lstrip())
    return [*([""] * blanks), *_SHELL_WORD.findall(command)]


def _pack(words: Iterable[str], width: int) -> list[str]:
    lines: list[str] = []
    line: str | None = None
    for word in words:
        if line is not None and cell_len(line) + 1 + cell_len(word) <= width:
            line = f"{line} {word}"
            continue
        if line is not None:
            lines.append(line)
        line = word
    return [*lines, line or ""]


def folded(text: str, width: int) -> list[str]:
    """Returns a cell's lines, none of them longer than the column."""
    lines = []
    for line in text.split("\n"):
        for segment in fold(line, width):
            pieces = _PATH_PIECE if _PLACE.search(segment) else _NAME_PIECE
            lines += _break(segment, pieces, width)
    return lines


def _break(text: str, pieces: re.Pattern[str], width: int) -> list[str]:
    """Breaks a text that is too long between its pieces, and a piece that is, where the column ends."""
    lines: list[str] = [""]
    for piece in [text] if cell_len(text) <= width else pieces.findall(text):
        if cell_len(lines[-1]) + cell_len(piece) > width and lines[-1]:
            lines.append("")
        for sign in piece:
            if cell_len(lines[-1]) + cell_len(sign) > width:
                lines.append("")
            lines[-1] += sign
    return lines


def fit(
    columns: Sequence[ShownColumn],
    rows: Sequence[Sequence[str]],
    room: int,
    *,
    gap: int,
    may_drop: bool,
) -> dict[int, int] | None:
    """Returns the widths of the columns by index, `gap` apart; None where they do not fit.

    With `may_drop` columns go until the rest fits: those that are declared so first, then the last.
    """
    longest = [
        max((cell_len(line) for row in rows for line in row[index].split("\n")), default=0)
        for index in range(len(columns))
    ]
    heads = [max(map(cell_len, column.heading.split()), default=0) for column in columns]
    names = [_longest_name(row[index] for row in rows) for index in range(len(columns))]
    minimum_widths = [
        max(
            head,
            length
            if _is_unbroken(column, may_drop=may_drop)
            else min(length, max(_LEAST_TEXT, name)),
        )
        for column, length, head, name in zip(columns, longest, heads, names, strict=True)
    ]
    visible = list(range(len(columns)))
    while sum(minimum_widths[index] for index in visible) + gap * (len(visible) - 1) > room:
        if not may_drop:
            return None
        if len(visible) == 1:
            return {visible[0]: room}
        visible.remove(max(visible, key=lambda index: (columns[index].dropped_first, index)))
    spare = room - sum(minimum_widths[index] for index in visible) - gap * (len(visible) - 1)
    return _widened(
        {index: minimum_widths[index] for index in visible},
        {
            index: max(longest[index], 0 if columns[index].column.is_number else heads[index])
            for index in visible
        },
        spare,
    )


def _longest_name(texts: Iterable[str]) -> int:
    """Returns the cells of the longest word, up to those that a column has for one at least."""
    words = (word for text in texts for word in text.split() if not _PLACE.search(word))
    return min(max(map(cell_len, words), default=0), _LONGEST_NAME)


def _is_unbroken(shown_column: ShownColumn, *, may_drop: bool) -> bool:
    """Whether the column's cells stay on one line; paths too, but where columns are dropped."""
    return shown_column.column.is_number or (shown_column.column.is_whole and not may_drop)


def _widened(
    minimum_widths: dict[int, int], desired_widths: dict[int, int], spare: int
) -> dict[int, int]:
    """Widens columns towards their desired widths, those that need least first."""
    widths = dict(minimum_widths)
    waiting = sorted(
        minimum_widths, key=lambda index: desired_widths[index] - minimum_widths[index]
    )
    for rank, index in enumerate(waiting):
        extra = min(
            max(desired_widths[index] - minimum_widths[index], 0), spare // (len(waiting) - rank)
        )
        widths[index] += extra
        spare -= extra
    return widths
