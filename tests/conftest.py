"""What all tests share."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from hypothesis import settings

from etprof.targets.device_lock import FOLDER_VARIABLE

if TYPE_CHECKING:
    from collections.abc import Iterator


# A machine that is busy for a moment is no defect of what is tested.
settings.register_profile("etprof", deadline=None)
settings.load_profile("etprof")


@pytest.fixture(scope="session", autouse=True)
def own_locks(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """Tests of two checkouts, or a measurement on this machine, do not wait for each other."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv(FOLDER_VARIABLE, str(tmp_path_factory.mktemp("locks")))
        yield
