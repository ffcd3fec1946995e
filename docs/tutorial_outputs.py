"""Runs the tutorial's commands in order, and writes what they print into it.

usage: python -m docs.tutorial_outputs [--write]

Before each output on the page a comment says which lines are quoted, by words that they begin and
end with: `A .. B` for those from A to B, and `;` between pieces, which `…` parts on the page.
Outputs of the language `text` have times: they are of the machine that wrote them.
"""

from __future__ import annotations

import argparse
import os
import re
import sys
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from etprof.base.process import run_command

PAGE: Final = Path(__file__).with_name("tutorial.md")
COLUMNS: Final = 100
MOST_S: Final = 600
_SHOWN: Final = "<!-- by `python -m docs.tutorial_outputs`: "
_RIGHT_EDGE: Final = re.compile(r"\s*[│┃]?\s*$")
"""Of tables, which are as wide as their longest cell."""
_BLOCK: Final = re.compile(
    rf"(?:^{re.escape(_SHOWN)}(?P<shown>.*?) -->\n)?^```(?P<language>\w*)\n(?P<text>.*?)^```",
    re.MULTILINE | re.DOTALL,
)


@dataclass(frozen=True)
class Block:
    """A fenced block of the page: a file, commands, or what they print."""

    language: str
    text: str
    shown: str
    """Which lines of the output it quotes; empty where it is no output."""
    start: int
    """Where its text begins on the page."""

    @property
    def is_timed(self) -> bool:
        """Whether another machine prints other figures."""
        return self.language == "text"


@dataclass(frozen=True)
class Quotation:
    """An output on the page, and what its commands print now."""

    block: Block
    printed: str

    @property
    def text(self) -> str:
        """What the page is to have."""
        return quoted_lines(self.printed, self.block.shown)


def blocks_of(page: str) -> list[Block]:
    """Returns the page's blocks in order."""
    return [
        Block(match["language"], match["text"], match["shown"] or "", match.start("text"))
        for match in _BLOCK.finditer(page)
    ]


def quoted_lines(printed: str, shown: str) -> str:
    """Returns the lines that a comment asks for.

    Args:
        printed: All that the commands printed.
        shown: Pieces, such as `delegate calls .. SME2 kernel; mean.dim`.

    Raises:
        ValueError: A piece does not stand there.
    """
    lines = [_RIGHT_EDGE.sub("", line) for line in printed.splitlines()]
    pieces = ["\n".join(_piece(lines, words)) for words in shown.split("; ")]
    return "\n…\n".join(pieces) + "\n"


def _piece(lines: list[str], words: str) -> list[str]:
    first, _, last = words.partition(" .. ")
    start = _find(lines, first, 0)
    end = _find(lines, last, start) if last else start
    return lines[start : end + 1]


def _find(lines: list[str], words: str, start: int) -> int:
    for number, line in enumerate(lines[start:], start):
        if words in line:
            return number
    raise ValueError(f"{words!r} is not printed any more:\n" + "\n".join(lines))


def quotations(page: str, folder: Path) -> Iterator[Quotation]:
    """Runs the page's commands in order in a folder, and yields each output that it quotes.

    Raises:
        ValueError: A command failed.
    """
    environment = {**os.environ, "COLUMNS": str(COLUMNS), "ETPROF_LOCKS": str(folder)}
    printed = ""
    for block in blocks_of(page):
        if block.language == "python":
            name = block.text.splitlines()[0].removeprefix("# ")
            (folder / name).write_text(block.text, encoding="utf-8")
        elif block.language == "sh":
            done = run_command(
                ["bash", "-e", "-c", block.text],
                folder=folder, environment=environment, timeout_s=MOST_S,
            )  # fmt: skip
            printed = done.stdout + done.stderr
            if done.exit_code:
                raise ValueError(f"{block.text}{printed}")
            printed += _reports(folder, block.text)
        elif block.shown:
            yield Quotation(block, printed)


def _reports(folder: Path, commands: str) -> str:
    """The report that the commands wrote, which the page quotes too."""
    match = re.search(r"^etprof report (\S+) --reference", commands, re.MULTILINE)
    return "" if match is None else (folder / match[1] / "report.md").read_text("utf-8")


def main() -> int:
    """Prints the outputs, or writes them into the page."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--write", action="store_true", help="write them into docs/tutorial.md")
    arguments = parser.parse_args()
    page = PAGE.read_text("utf-8")
    with tempfile.TemporaryDirectory() as folder:
        made = list(quotations(page, Path(folder)))
    for quotation in made:
        print(quotation.text)
    if arguments.write:
        for quotation in reversed(made):
            start = quotation.block.start
            page = page[:start] + quotation.text + page[start + len(quotation.block.text) :]
        PAGE.write_text(page, encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
