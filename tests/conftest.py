"""What all tests share."""

from __future__ import annotations

import signal
from collections.abc import Iterator

import pytest
from hypothesis import settings

from etprof.targets.device_lock import FOLDER_VARIABLE

# A machine that is busy for a moment is no defect of what is tested.
settings.register_profile("etprof", deadline=None)
settings.load_profile("etprof")


@pytest.fixture(scope="session", autouse=True)
def heeded_signals() -> Iterator[None]:
    """Under nohup, or as a shell's background job, the tests and all they start ignore some."""
    ending = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
    ignored = [each for each in ending if signal.getsignal(each) is signal.SIG_IGN]
    for each in ignored:
        # Python's own way with Ctrl-C is no default of the system's.
        is_interrupt = each is signal.SIGINT
        signal.signal(each, signal.default_int_handler if is_interrupt else signal.SIG_DFL)
    yield
    for each in ignored:
        signal.signal(each, signal.SIG_IGN)


@pytest.fixture(scope="session", autouse=True)
def own_locks(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """Tests of two checkouts, or a measurement on this machine, do not wait for each other."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv(FOLDER_VARIABLE, str(tmp_path_factory.mktemp("locks")))
        yield
