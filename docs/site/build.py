"""Builds the documentation site without network; every warning and every dead link is an error.

usage: python -m docs.site.build [--out build/docs] [--gallery FOLDER]

The pages are docs/*.md as GitHub shows them, docs/README.md's list as navigation, CHANGELOG.md and
CONTRIBUTING.md, and what `docs/site/reference.py` makes of declarations. FOLDER has reports that
`python -m docs.site.gallery` has made. The site is in OUT/site.
"""

from __future__ import annotations

import argparse
import re
import shutil
import sys
from pathlib import Path

from docs.site.gallery import gallery_page
from docs.site.links import check_site
from docs.site.reference import pages, schema_files

ROOT = Path(__file__).parents[2]
DOCS = ROOT / "docs"
SECTION = re.compile(r"^## (.+)$", re.MULTILINE)
LINK = re.compile(r"\]\((?!https?:)([^)\s]+)\)")
LISTED = re.compile(r"^- \[(.+?)\]\((\S+\.md)\)", re.MULTILINE)
GENERATED = {
    "Reference": {
        "columns.md": "Columns of the tables",
        "commands.md": "Commands and their options",
        "files.md": "Fields of configs and matrices",
        "messages.md": "Messages and their exit codes",
    }
}
GALLERY = {"gallery.md": "Real reports to look at"}
"""Pages that exist on the site alone, by the section of the navigation they stand in."""


def stage(source: Path, gallery: Path | None) -> None:
    """Puts all pages of the site into folder `source`."""
    shutil.rmtree(source, ignore_errors=True)
    shutil.copytree(DOCS, source, ignore=shutil.ignore_patterns("*.py", "site", "__pycache__"))
    (source / "README.md").unlink()
    for name in ("CHANGELOG.md", "CONTRIBUTING.md"):
        text = (ROOT / name).read_text().replace("](docs/", "](")
        (source / name).write_text(text)
    for name, text in pages().items():
        (source / name).write_text(text)
    if gallery is not None:
        (source / "gallery.md").write_text(gallery_page(gallery))
    (source / "index.md").write_text(index(has_gallery=gallery is not None))
    extra = source.with_name("extra")
    shutil.rmtree(extra, ignore_errors=True)
    extra.mkdir()
    for name, text in schema_files().items():
        (extra / name).write_text(text)
    if gallery is not None:
        shutil.copytree(gallery, extra / "gallery")


def index(*, has_gallery: bool) -> str:
    """Returns the first page: docs/README.md, whose lists are the navigation too."""
    text = (DOCS / "README.md").read_text().replace("](../", "](")
    head, *rest = SECTION.split(text)
    parts = [head]
    for title, body in zip(rest[::2], rest[1::2], strict=True):
        more = GENERATED.get(title, {}) | (GALLERY if has_gallery and title == "Tutorial" else {})
        made = [f"- [{says}]({page})" for page, says in more.items()]
        shown = "\n".join([body.rstrip(), *made])
        listed = [f"{says} <{page}>" for says, page in LISTED.findall(shown)]
        tree = "\n".join(["```{toctree}", ":hidden:", f":caption: {title}", "", *listed, "```"])
        parts.append(f"## {title}\n{shown}\n\n{tree}\n\n")
    return "".join(parts)


def main() -> None:
    """Builds the site."""
    from sphinx.cmd.build import build_main

    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--out", type=Path, default=ROOT / "build" / "docs")
    parser.add_argument("--gallery", type=Path)
    arguments = parser.parse_args()
    out = arguments.out.resolve()
    stage(out / "source", arguments.gallery)
    extra = f"html_extra_path={out / 'extra'}"
    words = ["-q", "-W", "--keep-going", "-n", "-E", "-c", str(DOCS / "site"), "-D", extra]
    folders = [str(out / "source"), str(out / "site")]
    if code := build_main([*words, *folders]):
        sys.exit(code)
    if wrong := check_site(out / "site"):
        sys.exit("\n".join(wrong))
    print(f"{out / 'site' / 'index.html'}")


if __name__ == "__main__":
    main()
