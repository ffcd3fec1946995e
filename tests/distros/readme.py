"""What a newcomer does: the packages and the commands of README, in the page's own order."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

SECTIONS: Final = ("Run it", "Test it")
"""Those that a newcomer follows from top to bottom."""
_SECTION: Final = re.compile(r"^## (.+)\n((?:(?!## ).*\n?)*)", re.MULTILINE)
_PACKAGES_OR_BLOCK: Final = re.compile(
    r"`apt install (?P<packages>[^`]+)`|^```sh\n(?P<block>.*?)^```", re.MULTILINE | re.DOTALL
)
_COMMENT: Final = re.compile(r"\s+#\s.*$")


@dataclass(frozen=True)
class Step:
    """One thing to do: packages to install as root, or a line to type as a user."""

    text: str
    is_packages: bool = False

    def __str__(self) -> str:
        """The command as README shows it."""
        return f"apt install {self.text}" if self.is_packages else self.text


def read_steps(page: str) -> Iterator[Step]:
    """Yields what the page asks for; raises ValueError when a section has no command."""
    sections = dict(_SECTION.findall(page))
    for title in SECTIONS:
        steps = list(_steps_of(sections.get(title, "")))
        if all(step.is_packages for step in steps):
            raise ValueError(
                f"README has no command under {title!r}; change tests/distros/readme.py"
            )
        yield from steps


def _steps_of(section: str) -> Iterator[Step]:
    for match in _PACKAGES_OR_BLOCK.finditer(section):
        if match["packages"]:
            yield Step(match["packages"], is_packages=True)
            continue
        for line in match["block"].replace("\\\n", " ").splitlines():
            if text := _COMMENT.sub("", line).strip():
                yield Step(text)
