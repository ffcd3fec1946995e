"""The dashboard says the same of a history, whichever database keeps it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from etprof.dashboard.addresses import ExportedLinks, ServedLinks, make_address
from etprof.dashboard.render import answer
from etprof.dashboard.visit import Catalogue, Visit
from etprof.history.store import Store, open_store
from tests.dashboard_server import serving
from tests.known_history import HOSTILE, KnownHistory, fill, pin

if TYPE_CHECKING:
    from pathlib import Path

    from etprof.dashboard.addresses import Address

KNOWN = KnownHistory(commits=4, devices=("Phone A",), precisions=("fp32",), hostile=True)


def all_pages(store: Store) -> dict[str, str]:
    """Every page that can be reached, and some with filters."""
    links = ExportedLinks(lambda address: address.view != "compare" or bool(address["candidate"]))
    shown: dict[str, str] = {}
    with store.session() as session:
        catalogue = Catalogue(session)

        def show(address: Address, name: str) -> None:
            shown[name] = answer(Visit(address, ServedLinks(), catalogue))[0].decode()

        links.href(make_address("overview", {}))
        while len(shown) < len(links.pages):
            for name, address in list(links.pages.items())[len(shown) :]:
                answer(Visit(address, links, catalogue))[0].decode()
                show(address, name)
        for view in ("overview", "failures"):
            for filters in ({"branch": "main"}, {"model": HOSTILE}, {"model": "'; --"}):
                show(make_address(view, filters), f"{view} {filters}")
    return shown


def test_pages_are_the_same_from_every_database(store: Store, tmp_path: Path) -> None:
    # GIVEN one history here and in a file beside it
    with open_store(tmp_path / "beside.sqlite") as beside:
        for each in (store, beside):
            fill(each, KNOWN)
            pin(each, "release", 2)
        expected = all_pages(beside)
    assert len(expected) > 50
    assert all_pages(store) == expected


def test_odd_questions_are_answered(store: Store) -> None:
    fill(store, KNOWN)
    questions = {
        "/overview?model=%00": 200,
        "/overview?branch=%27%3B%20DROP%20TABLE%20runs%3B%20--": 200,
        "/overview?page=999999": 200,
        "/failures?model=%F0%9F%92%A9&page=-3": 200,
        "/run?id=999999999999999": 404,
        "/run?id=9999999999999999999999": 404,
        "/trend?config=%FF%FE": 404,
        "/sides?model=%00": 404,
    }
    with serving(store) as server:
        answers = {path: server.ask(path).status for path in questions}
    assert answers == questions
