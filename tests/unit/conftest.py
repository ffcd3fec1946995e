"""An empty history, made once: to bring a store to its newest schema takes most of a second."""

from __future__ import annotations

import shutil
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from etprof.history.store import Store


@pytest.fixture(scope="session")
def empty(tmp_path_factory: pytest.TempPathFactory) -> Path:
    from etprof.history.store import open_store

    path = tmp_path_factory.mktemp("empty") / "history.sqlite"
    open_store(path).close()
    return path


@pytest.fixture
def store(tmp_path: Path, empty: Path) -> Iterator[Store]:
    from etprof.history.store import open_store

    with open_store(shutil.copy(empty, tmp_path / "history.sqlite")) as opened:
        yield opened
