"""What accepting a run means for the runs around it."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from etprof.history.store import open_store
from tests.noisy_history import NoisyHistory
from tests.unit.test_history_gate import check_each, command

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path


@pytest.fixture
def history(tmp_path: Path) -> Iterator[NoisyHistory]:
    with open_store(tmp_path / "h.sqlite") as store:
        yield NoisyHistory(store, 0.005)


@pytest.mark.parametrize("rerun", [1.10, 1.13, 1.16])
def test_acceptance_answers_the_rerun_that_came_before_it(
    history: NoisyHistory, rerun: float
) -> None:
    """A rerun below the accepted run kept the series red, and hid what became slower after it."""
    assert check_each(history, *[1.0] * 6, 1.15, rerun) == [0] * 6 + [1, 1]
    assert command(history, "accept", "7", "--why", "new system") == 0
    assert check_each(history, 1.09, 1.1, 1.1, 1.11, 1.1) == [0] * 5
    # AND what becomes slower then is found
    assert 1 in check_each(history, 1.3, 1.3)


def test_acceptance_answers_no_run_that_is_worse_than_it(history: NoisyHistory) -> None:
    assert check_each(history, *[1.0] * 6, 1.15, 1.3) == [0] * 6 + [1, 1]
    assert command(history, "accept", "7", "--why", "new system") == 0
    assert check_each(history, 1.3, 1.3) == [1, 1]
