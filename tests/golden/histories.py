"""What a known history shows: its commands on a terminal, and the pages of its dashboard."""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Final

from etprof._version import __version__
from etprof.dashboard.addresses import ServedLinks, make_address
from etprof.dashboard.render import answer
from etprof.dashboard.visit import Catalogue, Visit
from etprof.history.store import open_store
from tests.golden.runs import drawings, page_text, rounded
from tests.known_history import KnownHistory, fill, pages, pin
from tests.world.host import etprof

COMMANDS_OUTPUT, PAGES = "history_commands.txt", "history_pages.txt"
_KNOWN: Final = KnownHistory(commits=9, devices=("Phone A",), precisions=("int8",))
_WORDS: Final = (
    "list --limit 4",
    "list --failed",
    "show 7 --full",
    "check --full",
    "check --baseline branch:main --metric all --format markdown",
    "check --baseline window:3 --threshold 30 --model mobilenet_v2 --format json",
    "changes",
    "changes --metric load_ns --json",
    "noise",
    "pin",
    "check --baseline release --model toy_transformer",
)
_LIKE_OTHERS: Final = {
    "overview, second part", "overview, one model", "models, one device", "failures, one model",
}  # fmt: skip
_ADDED: Final = re.compile(r"(added.{0,30}?)\d{4}-\d\d-\d\d.\d\d:\d\d(:\d\d)?", re.IGNORECASE)
"""When the store got a run is another moment each time."""


def describe_history(folder: Path) -> Mapping[str, str]:
    """The texts by file."""
    store = open_store(folder / "h.sqlite")
    fill(store, _KNOWN)
    pin(store, "release", 45)
    told = []
    for words in _WORDS:
        action, *more = words.split()
        done = etprof(folder, "history", action, "--store", "h.sqlite", *more, columns=160)
        told.append(f"$ history {words} → {done.exit_code}\n{done.stdout}{done.stderr}")
    shown = []
    for name, values in pages(store).items():
        if name in _LIKE_OTHERS:
            continue
        view = name.partition(",")[0]
        with store.session() as session:
            visit = Visit(make_address(view, values), ServedLinks(), Catalogue(session))
            page = answer(visit)[0].decode()
        shown.append(f"# {name}\n{page_text(page)}\n{drawings(page)}")
    store.close()
    texts = {COMMANDS_OUTPUT: "\n".join(told), PAGES: "\n".join(shown)}
    return {
        file: _ADDED.sub(r"\1MOMENT", rounded(text)).replace(f"etprof {__version__}", "etprof")
        for file, text in texts.items()
    }
