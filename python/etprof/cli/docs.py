"""Print a page of the documentation, such as how to bring your own model.

etprof docs                 names every page
etprof docs own_model       a torch.nn.Module of yours, with inputs
etprof docs export | less   what an export writes, and every flag of it
etprof docs F5              what finding F5 means, and what to do

The pages are Markdown, and come with the installed package.
"""

from __future__ import annotations

import re
import textwrap
from pathlib import Path
from typing import TYPE_CHECKING, Final

from etprof.base.errors import BuildError, UsageError
from etprof.base.text import suggest
from etprof.cli.flags import add_flags

if TYPE_CHECKING:
    import argparse

_PACKAGE: Final = Path(__file__).resolve().parents[1]
_FOLDERS: Final = (_PACKAGE / "docs", _PACKAGE.parents[1] / "docs")
"""Where pages are: in an installed package, or in the repository that it runs from."""

_FINDINGS: Final = "findings"
"""The page with a section for each finding."""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declares the command's flags."""
    add_flags(parser, ("page", str, "PAGE", "such as export or own_model", {"nargs": "?"}))


def run(arguments: argparse.Namespace) -> int:
    """Prints the page, or the names of all."""
    pages = find_pages()
    if arguments.page is None:
        print(textwrap.fill(", ".join(pages), 80))
        print("One of them: etprof docs own_model")
        return 0
    name = arguments.page.removeprefix("docs/").removesuffix(".md")
    if name not in pages:
        section = _section(pages.get(_FINDINGS), name)
        if section is not None:
            print(section, end="")
            return 0
        raise UsageError(
            f"no page is called {arguments.page!r}"
            f"{suggest(name, pages) or '; `etprof docs` names every page'}"
        )
    print(pages[name].read_text(encoding="utf-8"), end="")
    return 0


def _section(page: Path | None, heading: str) -> str | None:
    """Returns the section of a page that has a heading, whatever its case; None where none has."""
    if page is None:
        return None
    sections = re.split(r"^(?=#{2,3} )", page.read_text(encoding="utf-8"), flags=re.MULTILINE)
    title = f"### {heading}".lower()
    return next((text for text in sections if text.partition("\n")[0].lower() == title), None)


def find_pages() -> dict[str, Path]:
    """Returns every page by its name, sorted; raises BuildError where none was installed."""
    for folder in _FOLDERS:
        pages = {path.stem: path for path in sorted(folder.glob("*.md")) if path.stem != "README"}
        if pages:
            return pages
    raise BuildError("the documentation was not installed; install etprof again")
