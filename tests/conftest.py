"""What all tests share."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from etprof.targets.device_lock import FOLDER_VARIABLE

if TYPE_CHECKING:
    from collections.abc import Iterator


@pytest.fixture(scope="session", autouse=True)
def own_locks(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """Tests of two checkouts, or a measurement on this machine, do not wait for each other."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv(FOLDER_VARIABLE, str(tmp_path_factory.mktemp("locks")))
        yield
