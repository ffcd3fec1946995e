"""Print a page of the documentation, such as how to bring your own model.

  etprof docs                 names every page
  etprof docs own_model       a torch.nn.Module of yours, with inputs
  etprof docs export | less   what an export writes, and every flag of it
  etprof docs F5              what finding F5 means, and what to do
  etprof docs thresholds      a section of the page on findings

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

_TITLE: Final = re.compile(r"^(#{2,3}) (.*)$", re.MULTILINE)
_LINK: Final = re.compile(r"\]\(#([\w-]+)\)")
_RULE: Final = re.compile(r"F\d+[a-z]?", re.IGNORECASE)
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
        findings = _findings(pages.get(_FINDINGS)) if _RULE.fullmatch(name) else ()
        if findings:
            raise UsageError(f"no finding is called {name}; there are {', '.join(findings)}")
        raise UsageError(
            f"no page is called {arguments.page!r}"
            f"{suggest(name, pages) or '; `etprof docs` names every page, and `etprof docs findings` has all findings'}"
        )
    print(pages[name].read_text(encoding="utf-8"), end="")
    return 0


def _section(page: Path | None, heading: str) -> str | None:
    """Returns the section of a page that has a heading, whatever its case; None where none has."""
    if page is None:
        return None
    sections = _sections(page.read_text(encoding="utf-8"))
    section = sections.get(_anchor(heading))
    if section is None:
        return None
    # What a link of the section leads to is not on the terminal.
    linked = dict.fromkeys(anchor for anchor in _LINK.findall(section) if anchor in sections)
    further = "".join(
        f"`etprof docs {anchor}` prints the section linked above.\n" for anchor in linked
    )
    return f"{section.rstrip()}\n\n{further}".rstrip() + "\n"


def _sections(text: str) -> dict[str, str]:
    """Returns the sections of a page by the anchors of their titles, each with its subsections."""
    starts = [*_TITLE.finditer(text)]
    sections = {}
    for number, start in enumerate(starts):
        level = len(start[1])
        later = (title.start() for title in starts[number + 1 :] if len(title[1]) <= level)
        sections[_anchor(start[2])] = text[start.start() : next(later, len(text))]
    return sections


def _findings(page: Path | None) -> tuple[str, ...]:
    """Returns the findings that the page has a section for, such as F5, by their numbers."""
    titles = _TITLE.findall(page.read_text(encoding="utf-8")) if page else []
    rules = [title for _, title in titles if _RULE.fullmatch(title)]
    # F2b stands behind F2, and F10 behind F9.
    return tuple(sorted(rules, key=lambda rule: (int(re.sub(r"\D", "", rule)), rule)))


def _anchor(title: str) -> str:
    """Returns what a link to a title says, such as `why-not-sme2`, as GitHub makes it."""
    return re.sub(r"[^\w\- ]", "", title.strip().lower()).replace(" ", "-")


def find_pages() -> dict[str, Path]:
    """Returns every page by its name, sorted; raises BuildError where none was installed."""
    for folder in _FOLDERS:
        pages = {path.stem: path for path in sorted(folder.glob("*.md")) if path.stem != "README"}
        if pages:
            return pages
    raise BuildError("the documentation was not installed; install etprof again")
