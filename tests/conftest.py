"""What all tests share."""

from __future__ import annotations

import os
import signal
import tomllib
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import settings

from etprof.targets.device_lock import FOLDER_VARIABLE

# Of PyTorch here and in all that the tests start. A worker has one core, and more threads than cores
# spin while they wait for each other: exports took a fifth more CPU.
os.environ.setdefault("OMP_NUM_THREADS", "1")

# A machine that is busy for a moment is no defect of what is tested.
settings.register_profile("etprof", deadline=None)
settings.load_profile("etprof")


ROOT = Path(__file__).parents[1]


def modules_of_lanes() -> set[Path]:
    """The test modules that `.ci/lanes.toml` gives to a slow lane."""
    lanes = tomllib.loads((ROOT / ".ci" / "lanes.toml").read_text(encoding="utf-8"))["lane"]
    folder = ROOT / "tests" / "integration"
    return {folder / name for lane in lanes.values() for name in lane.get("tests", ())}


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Marks the tests of slow lanes, so that `-m "not full"` leaves them out."""
    modules = modules_of_lanes()
    for item in items:
        if item.path in modules:
            item.add_marker(pytest.mark.full)


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
