"""The documentation site: its navigation, its generated pages, and the check of its links (U6)."""

from __future__ import annotations

import argparse
import json
import re
from pathlib import Path

import pytest
from docs.site.build import DOCS, LINK, index, stage
from docs.site.gallery import ENTRIES
from docs.site.links import check_site
from docs.site.reference import SCHEMAS, commands_page, files_page, messages_page

from etprof.base.errors import EtprofError
from etprof.cli import COMMANDS, build_parser, run_command_line


def test_every_page_is_in_the_navigation_once() -> None:
    """U6: pages were a flat heap; one that no list names is found by nobody."""
    listed = re.findall(
        r"^- \[.*?\]\((?:\.\./)?([\w.]+)\)", (DOCS / "README.md").read_text(), re.MULTILINE
    )
    pages = {page.name for page in DOCS.glob("*.md")} - {"README.md"}
    assert sorted(listed) == sorted(pages | {"CHANGELOG.md", "CONTRIBUTING.md"})


def test_the_first_page_names_every_page_of_the_site(tmp_path: Path) -> None:
    gallery = tmp_path / "gallery"
    gallery.mkdir()
    (gallery / ENTRIES[0].page).write_text("a report")
    stage(tmp_path / "source", gallery)
    trees = re.findall(
        r"^```\{toctree\}\n(.*?)^```", index(has_gallery=True), re.MULTILINE | re.DOTALL
    )
    named = {page for tree in trees for page in re.findall(r"<(.+\.md)>$", tree, re.MULTILINE)}
    assert named == {page.name for page in (tmp_path / "source").glob("*.md")} - {"index.md"}
    texts = [page.read_text() for page in (tmp_path / "source").glob("*.md")]
    assert not [link for text in texts for link in LINK.findall(text) if link.startswith("..")]
    shown = (tmp_path / "source" / "gallery.md").read_text()
    assert [entry.page for entry in ENTRIES if entry.page in shown] == [ENTRIES[0].page]
    assert (tmp_path / "extra" / "gallery" / ENTRIES[0].page).is_file()
    for name, schema in SCHEMAS.items():
        assert json.loads((tmp_path / "extra" / f"{name}.schema.json").read_text()) == schema


def options(parser: argparse.ArgumentParser) -> set[str]:
    told = (action for action in parser._actions if action.help != argparse.SUPPRESS)
    found = {flag for action in told for flag in action.option_strings}
    for action in parser._actions:
        if isinstance(action, argparse._SubParsersAction):
            found |= {flag for each in action.choices.values() for flag in options(each)}
    return found


@pytest.mark.parametrize("command", COMMANDS)
def test_each_option_is_in_the_reference(command: str) -> None:
    page = commands_page()
    section = page.partition(f"\n## etprof {command}\n")[2].partition("\n## ")[0]
    rows = " ".join(re.findall(r"^\| `(.*?)` \|", section, re.MULTILINE))
    shown = set(re.findall(r"(?<!\S)--?[a-z][\w-]*", rows))
    assert options(build_parser(command)) - {"-h", "--help", "--version"} <= shown | {"--debug"}


def test_each_field_is_in_the_reference() -> None:
    page = files_page()
    for schema in SCHEMAS.values():
        for each in (schema, *schema["$defs"].values()):
            assert not [name for name in each.get("properties", ()) if f"| `{name}` |" not in page]


@pytest.mark.parametrize(
    ("link", "is_right"),
    [
        ("<a href='b.html#there'>", True),
        ("<a href='#here'>", True),
        ("<a href='https://example.org'>", True),
        ("<a href='b.html#gone'>", False),
        ("<a href='c.html'>", False),
        ("<img src='gone.png'>", False),
        ("<script src='https://example.org/x.js'></script>", False),
        ("<link rel='stylesheet' href='//example.org/x.css'>", False),
    ],
)
def test_a_dead_link_and_a_loaded_address_are_named(
    tmp_path: Path, link: str, is_right: bool
) -> None:
    (tmp_path / "a.html").write_text(f"<p id='here'>{link}</p>")
    (tmp_path / "b.html").write_text("<p id='there'></p>")
    assert (check_site(tmp_path) == []) == is_right


def told(*words: str) -> str:
    """What a command line that cannot be used says."""
    with pytest.raises(EtprofError) as error:
        run_command_line(words)
    return str(error.value)


def test_what_people_see_is_found_among_the_messages(tmp_path: Path) -> None:
    """Someone searches the site for the words on the terminal."""
    items = re.findall(r"^- `` (.*) ``$", messages_page(), re.MULTILINE)
    patterns = [re.escape(item).replace("…", ".*") for item in items]
    seen = [
        told("profile", str(tmp_path / "gone.pte")),
        told("export", "no_such_model"),
        told("analyze", str(tmp_path)),
        told("history", "list", "--store", str(tmp_path / "gone.sqlite")),
        told("report", str(tmp_path / "gone")),
    ]
    assert not [text for text in seen if not any(re.fullmatch(p, text) for p in patterns)]
    assert len(items) > 200


def test_messages_stand_under_the_exit_code_they_end_in() -> None:
    sections = re.split(r"^## Exit code (\d+): ", messages_page(), flags=re.MULTILINE)[1:]
    by_code = dict(zip(map(int, sections[::2]), sections[1::2], strict=True))
    assert set(by_code) == {2, 3, 4, 5, 6, 7, 8}
    assert "etprof export MODEL` makes a program" in by_code[4]


def test_the_gallerys_commands_are_understood() -> None:
    for entry in ENTRIES:
        for command in entry.command.split(" && "):
            build_parser().parse_args(command.split()[1:])
