"""An answer of at most a screen: sentence, bar, what matters most, where the rest is."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from rich.cells import cell_len
from rich.text import Text

from etprof.base.text import as_ascii, clean_lines
from etprof.base.units import format_share
from etprof.tables.brief import AnswerLine, FullOutputLine, UnbrokenLine
from etprof.views.fitting import fit, fold, folded
from etprof.views.terminal import cells_of, folded_text, terminal_table

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from rich.console import Console, ConsoleOptions, RenderableType, RenderResult

    from etprof.tables.brief import AnswerPoint, BarPart, Brief
    from etprof.tables.table import Table
    from etprof.views.cells import ShownColumn

MOST_LINES: Final = 15
_LEAST_POINTS: Final = 2
"""Findings that come before the picture of where the time goes."""
_LONGEST_BAR: Final = 60
_SIGNS: Final = "█▓▒░"
_STYLES: Final = ("blue", "cyan", "magenta", "bright_black")
_GAP: Final = 2
_INDENT: Final = "   "
_COMMAND: Final = "etprof "


@dataclass(frozen=True)
class BriefAnswer:
    """The answer as rich shows it: 15 lines of whole sentences, findings and rows, whatever the width."""

    brief: Brief

    def __rich_console__(self, _: Console, options: ConsoleOptions) -> RenderResult:
        """Nothing is cut; what has no room is left out whole, and the last line counts it."""
        page = _TerminalPage(options.max_width, in_ascii=options.ascii_only)
        hidden, lines = -1, list[Text]()
        counted = self.brief.further_findings
        # The count may take a line itself, which leaves room for less.
        while counted > hidden:
            hidden = counted
            lines, counted = self._lines(page, hidden)
        yield from lines

    def _lines(self, page: _TerminalPage, hidden: int) -> tuple[list[Text], int]:
        """Returns the answer that counts `hidden` findings as left out, and how many it leaves out."""
        brief = self.brief
        texts = [
            text.counting(hidden) if isinstance(text, FullOutputLine) else text
            for text in brief.ends
        ]
        ends = [line for text in texts for line in page.styled(text)]
        bar = page.bar(brief.bar_title, brief.bar)
        headlines = [line for headline in brief.headlines for line in page.styled(*headline)]
        room = MOST_LINES - len(headlines) - len(ends)
        beside_bar = page.count_points(brief, room - len(bar) - 1)
        is_first_hidden = not page.has_room_for_first(brief, room - len(bar) - 1)
        is_first_hidden &= page.has_room_for_first(brief, room)
        if is_first_hidden or beside_bar < min(_LEAST_POINTS, page.count_points(brief, room)):
            # The picture gives way to findings; what it shows is in the report.
            bar = []
        room -= len(bar)
        listed, left_out = page.listed(brief, room)
        is_mentioned = any("--full" in end for end in brief.ends)
        if (left_out or brief.details) and not is_mentioned:
            room -= 1
            listed, left_out = page.listed(brief, room)
            counted = f"{left_out} more" if left_out else "more"
            listed.append(Text(f"{counted}: --full"))
        left_points = page.left_points(brief, room)
        left_findings = sum(point.findings for point in left_points)
        return [*headlines, *bar, *listed, *ends], brief.further_findings + left_findings


@dataclass(frozen=True)
class _TerminalPage:
    """A terminal's width, and what it can show."""

    width: int
    in_ascii: bool

    def styled(self, text: str, style: str = "") -> list[Text]:
        """Returns a text in lines of whole words."""
        return [_line(line, style) for line in self._folded(text)]

    def _folded(self, text: str, indent: int = 0) -> list[str]:
        """Returns lines in which no name does harm: paths and messages come as they are."""
        printable = clean_lines(text)
        printable = as_ascii(printable) if self.in_ascii else printable
        return (
            [printable] if isinstance(text, UnbrokenLine) else fold(printable, self.width - indent)
        )

    def bar(self, title: str, segments: Sequence[BarPart]) -> list[Text]:
        """Returns the bar and what its signs mean; nothing of no parts."""
        if not segments:
            return []
        room = min(self.width, _LONGEST_BAR)
        signs = as_ascii(_SIGNS) if self.in_ascii else _SIGNS
        drawn = list(zip(segments, signs, _STYLES, strict=False))
        bar, start = _line("", ""), 0.0
        for segment, sign, style in drawn:
            cells = round((start + segment.share) * room) - round(start * room)
            bar.append(sign * cells, style)
            start += segment.share
        legend = [
            f"{sign} {segment.label} {_percent(segment)}".rstrip() for segment, sign, _ in drawn
        ]
        return [*self.styled(f"{title}:"), bar, *_packed(legend, self.width)]

    def listed(self, brief: Brief, room: int) -> tuple[list[Text], int]:
        """Returns points, rows and lines that fit the room, and how many do not."""
        points, left_points = self._points(brief.points, room)
        rows, left_rows = self._rows(brief.table, room - len(points))
        left_rows += len(left_points)
        lines: list[Text] = []
        for number, line in enumerate(brief.lines):
            text, style = (line, "") if isinstance(line, str) else line
            folded_lines = self.styled(text, style)
            if len(points) + len(rows) + len(lines) + len(folded_lines) > room:
                return [*points, *rows, *lines], left_rows + len(brief.lines) - number
            lines += folded_lines
        return [*points, *rows, *lines], left_rows

    def left_points(self, brief: Brief, room: int) -> list[AnswerPoint]:
        """Returns the points that the room is not enough for."""
        return self._points(brief.points, room)[1]

    def lines_of(self, point: AnswerPoint) -> list[Text]:
        """Returns what was found, and below it what to do."""
        action = self._folded(_INDENT + point.action) if point.action else []
        if point.action and not point.action.startswith(_COMMAND):
            action = [_INDENT + line for line in self._folded(point.action, len(_INDENT))]
        return [*self.styled(point.text, point.style), *(_line(line, "") for line in action)]

    def has_room_for_first(self, brief: Brief, room: int) -> bool:
        """Whether the worst finding fits with what to do about it."""
        return not brief.points or len(self.lines_of(brief.points[0])) <= room

    def count_points(self, brief: Brief, room: int) -> int:
        """Returns how many of the points fit that room."""
        return len(brief.points) - len(self.left_points(brief, room))

    def _points(
        self, points: Sequence[AnswerPoint], room: int
    ) -> tuple[list[Text], list[AnswerPoint]]:
        """Returns the points that the room is enough for, and those that it is not for.

        The worst one is named even where what to do about it takes too many lines.
        """
        lines: list[Text] = []
        left_out: list[AnswerPoint] = []
        for point in points:
            shown = self.lines_of(point)
            if point is points[0] and len(shown) > room:
                shown = self.lines_of(point._replace(action=""))
            if len(lines) + len(shown) > room:
                left_out.append(point)
            else:
                lines += shown
        return lines, left_out

    def _rows(self, table: Table | None, room: int) -> tuple[list[Text], int]:
        """Returns title, head and as many rows as fit, columns dropped where they do not."""
        if table is None or not table.rows:
            return [], 0
        columns, cells = cells_of(table.sorted(), in_ascii=self.in_ascii)
        texts = [[cell.text for cell in row] for row in cells]
        widths = fit(columns, texts, self.width, gap=_GAP, may_drop=True) or {}
        lines = self.styled(table.title, "bold") if table.title else []
        lines += _row(
            [(folded(columns[index].heading, width), "bold") for index, width in widths.items()],
            columns, widths,
        )  # fmt: skip
        for number, row in enumerate(cells):
            row_lines = _row(
                [(folded(row[index].text, width), row[index].style) for index, width in widths.items()],
                columns, widths,
            )  # fmt: skip
            if len(lines) + len(row_lines) > room:
                # A head with no row below it says nothing.
                return lines if number else [], len(cells) - number
            lines += row_lines
        return lines, 0


def render_brief(brief: Brief) -> BriefAnswer:
    """Returns the answer for a terminal of any width, in at most 15 lines."""
    return BriefAnswer(brief)


def render_full(brief: Brief) -> Iterator[RenderableType]:
    """Yields everything that the answer has: what `--full` prints."""
    for block in (*brief.headlines, brief.table, *brief.lines, *brief.details, *brief.ends):
        if isinstance(block, AnswerLine):
            yield folded_text(clean_lines(block.text), style=block.style)
        elif isinstance(block, str):
            text = clean_lines(block)
            yield folded_text(UnbrokenLine(text) if isinstance(block, UnbrokenLine) else text)
        elif block is not None and block.rows:
            yield terminal_table(block)


def _line(text: str, style: str) -> Text:
    return Text(text, style=style, no_wrap=True, overflow="ignore", end="\n")


def _row(
    cells: list[tuple[list[str], str]], columns: Sequence[ShownColumn], widths: dict[int, int]
) -> list[Text]:
    """Returns the lines of a row; cells with fewer lines end at its first."""
    row_lines = []
    for number in range(max(len(lines) for lines, _ in cells)):
        line = _line("", "")
        for (lines, style), (index, width) in zip(cells, widths.items(), strict=True):
            text = lines[number] if number < len(lines) else ""
            blanks = " " * (width - cell_len(text))
            padded = blanks + text if columns[index].column.is_number else text + blanks
            line.append(padded, style).append(" " * _GAP)
        line.rstrip()
        row_lines.append(line)
    return row_lines


def _percent(segment: BarPart) -> str:
    return format_share(segment.share) if not segment.label[:1].isdigit() else ""


def _packed(labels: Iterable[str], width: int) -> list[Text]:
    """Puts as many entries on a line as fit."""
    lines: list[str] = []
    for label in labels:
        if lines and cell_len(lines[-1]) + _GAP + cell_len(label) <= width:
            lines[-1] += " " * _GAP + label
        else:
            lines.append(label)
    return [_line(line, "") for line in lines]
