"""The exported dashboard: the same pages as served, up to the form of links; safe file names."""

from __future__ import annotations

import json
import re
from typing import TYPE_CHECKING

import pytest

from etprof.base.errors import OutputError
from etprof.cli import main
from etprof.dashboard.addresses import (
    ExportedLinks,
    ServedLinks,
    file_word,
    make_address,
)
from etprof.dashboard.export import MARKER, export_site
from etprof.dashboard.render import answer
from etprof.dashboard.visit import Catalogue, Visit
from etprof.history.store import Store, open_store
from tests.known_history import HOSTILE, HOSTILE_DEVICE, KnownHistory, fill, pin

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from etprof.dashboard.addresses import Address

KNOWN = KnownHistory(
    commits=3, models=("toy_cnn", "toy_transformer"), devices=("Phone A",), precisions=("fp32",),
    hostile=True, emulated=True,
)  # fmt: skip


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Store]:
    opened = open_store(tmp_path_factory.mktemp("history") / "known.sqlite")
    fill(opened, KNOWN)
    pin(opened, "release </td>", 1)
    yield opened
    opened.engine.dispose()


@pytest.fixture(scope="module")
def site(store: Store, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("export") / "site"
    export_site(store, folder)
    return folder


def without_links(page: str) -> str:
    """Takes out what may differ: where links lead, and the form that needs a server."""
    page = re.sub(r'<body data-site="\w+">', "<body>", page)
    # Any two runs can be compared where there is a server.
    page = re.sub(r'<li><a href="compare".*?</li>\n', "", page)
    page = re.sub(r' <a href="[^"]*">Swap sides</a>', "", page)
    page = re.sub(r'<form [^>]*aria-label="Two runs">.*?</form>\n', "", page, flags=re.DOTALL)
    page = re.sub(r' (href|action)="[^"]*"', "", page)
    page = re.sub(r'<a class="small">|<a>', '<span class="unlinked">', page)
    return page.replace("</a>", "</span>")


@pytest.mark.slow
def test_exported_pages_are_the_served_ones_up_to_links(store: Store, site: Path) -> None:
    views = set()
    with store.session() as session:
        catalogue = Catalogue(session)
        links = ExportedLinks(lambda _: True, catalogue.link_of)
        first = make_address("overview", {})
        links.href(first)
        for name, address in iterate(links):
            views.add(address.view)
            served = answer(Visit(address, ServedLinks(), catalogue))[0].decode()
            exported = (site / name).read_text()
            assert without_links(exported) == without_links(served), address
            answer(Visit(address, links, catalogue))[0].decode()  # finds further pages
    assert views == {"overview", "trend", "sides", "models", "run", "compare", "failures"}


def iterate(links: ExportedLinks) -> Iterator[tuple[str, Address]]:
    """Yields files and pages while rendering them finds further ones; the form for two runs is no page."""
    done: set[str] = set()
    while new := [name for name in links.pages if name not in done]:
        done |= set(new)
        for name in new:
            address = links.pages[name]
            if address.view != "compare" or address["baseline"]:
                yield name, address


@pytest.mark.slow
def test_every_link_leads_to_a_file_of_the_site(site: Path) -> None:
    files = {path.name for path in site.iterdir()}
    assert {"index.html", "dashboard.css", "dashboard.js", MARKER} <= files
    links = 0
    for page in site.glob("*.html"):
        for target in re.findall(r' (?:href|src)="([^"]*)"', page.read_text()):
            if target in ("#main", "data:,"):
                continue
            links += 1
            assert target.partition("?")[0] in files, (page.name, target)
    assert links > 100


@pytest.mark.slow
def test_every_choice_of_a_form_leads_to_a_file(site: Path) -> None:
    files = {path.name for path in site.iterdir()}
    for page in site.glob("*.html"):
        text = page.read_text()
        for form in re.findall(r'<form class="filters card" .*?</form>', text, re.DOTALL):
            pattern = re.search(r'action="([^"]*)"', form)
            assert pattern is not None
            words: dict[str, list[str]] = {
                name: [word]
                for name, word in re.findall(
                    r'<input type="hidden" name="(\w+)"[^>]*data-word="([^"]*)"', form
                )
            }
            for name, options in re.findall(
                r'<select [^>]*name="(\w+)" data-subject>(.*?)</select>', form, re.DOTALL
            ):
                words[name] = re.findall(r'data-word="([^"]*)"', options)
            names = [pattern[1]]
            for name, choices in words.items():
                names = [n.replace(f"{{{name}}}", word) for n in names for word in choices]
            assert set(names) <= files


@pytest.mark.slow
def test_an_export_takes_the_place_of_an_earlier_one_only(store: Store, tmp_path: Path) -> None:
    folder = tmp_path / "site"
    first = export_site(store, folder)
    (folder / "left_over.html").write_text("an old page")
    # WHEN exported again with fewer runs, THEN nothing of the earlier site is left
    second = export_site(store, folder, newest_runs=0)
    assert not (folder / "left_over.html").exists()
    assert second.runs < first.runs == first.total_runs
    assert second.pages == len(list(folder.glob("*.html"))) - 1
    facts = json.loads((folder / MARKER).read_text())
    assert (facts["pages"], facts["runs"]) == (second.pages, second.total_runs)
    assert [path.name for path in tmp_path.iterdir()] == ["site"]
    # WHEN the folder is anyone else's, THEN it is left alone
    other = tmp_path / "mine"
    other.mkdir()
    (other / "index.html").write_text("mine")
    with pytest.raises(OutputError) as caught:
        export_site(store, other)
    assert str(caught.value) == (
        f"{other} exists and is not an exported dashboard; choose another folder"
    )
    assert (other / "index.html").read_text() == "mine"


@pytest.mark.slow
def test_an_export_that_fails_leaves_the_earlier_one(store: Store, tmp_path: Path) -> None:
    folder = tmp_path / "site"
    export_site(store, folder, newest_runs=0)
    before = sorted(path.name for path in folder.iterdir())

    def stop(_: int) -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        export_site(store, folder, progress=stop)
    assert sorted(path.name for path in folder.iterdir()) == before
    assert [path.name for path in tmp_path.iterdir()] == ["site"]


@pytest.mark.slow
def test_the_command_says_what_it_wrote(
    store: Store, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = tmp_path / "site"
    assert main(["dashboard", "--store", store.name, "--export", str(folder), "--runs", "2"]) == 0
    pages = len(list(folder.glob("*.html"))) - 1
    kept = json.loads((folder / MARKER).read_text())["runs_with_page"]
    said = capsys.readouterr().out
    assert " ".join(said.split()) == (
        f"{folder}/index.html: {pages} pages, {kept} of 30 runs with a page of its own"
    )


@pytest.mark.parametrize(
    "name", ["all", "", "../../x", "a/b", "CON", "Main", "main ", "ä", HOSTILE, "x" * 300, "\ud800"]
)
def test_file_words_are_safe_and_tell_names_apart(name: str) -> None:
    word = file_word(name)
    assert re.fullmatch(r"[A-Za-z0-9_]{1,48}(\.[0-9a-f]{10})?", word)
    others = ("all", "", "main", "con", "a_b", "x")
    assert [other for other in others if file_word(other) == word] == ([name] * (name in others))


def test_hostile_names_are_text_on_every_page(site: Path) -> None:
    seen = False
    for page in site.glob("*.html"):
        text = page.read_text()
        assert HOSTILE not in text
        assert HOSTILE_DEVICE not in text
        assert not re.search(r'(href|src|action)="\s*(javascript|data:(?!,")|https?:|//)', text)
        seen = seen or "&lt;img src=x onerror=alert(1)&gt;" in text
    assert seen
