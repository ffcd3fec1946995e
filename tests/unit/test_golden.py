"""Reports of known runs are what somebody has read and approved, to the last digit and pixel.

After a change that is meant: `python -m tests.golden`, and read the diff.
"""

from __future__ import annotations

import functools
import math
import operator
from typing import TYPE_CHECKING

import pytest

from tests.golden.columns import COLUMNS_FILE, describe_columns
from tests.golden.files import FIELDS_FILE, describe_files
from tests.golden.findings import FINDINGS_FILE, describe_findings
from tests.golden.flags import COMMANDS_FILE, describe_commands
from tests.golden.histories import describe_history
from tests.golden.limits import LIMITS_FILE, describe_limits
from tests.golden.numbers import NUMBERS_FILE, describe_numbers
from tests.golden.runs import APPROVED, RUNS, write_reports
from tests.golden.transcripts import TRANSCRIPTS, transcribe, transcript_file

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable
    from pathlib import Path


@pytest.mark.parametrize("name", RUNS)
def test_reports_are_those_that_were_approved(name: str, tmp_path: Path) -> None:
    found = write_reports(tmp_path, name)
    assert {path.name for path in APPROVED.glob(f"{name}_*")} - {transcript_file(name)} == set(
        found
    )
    for file, text in found.items():
        approved = (APPROVED / file).read_text("utf-8")
        assert text.splitlines() == approved.splitlines(), f"{file}: read `python -m tests.golden`"


def test_commands_have_the_words_that_were_approved() -> None:
    approved = (APPROVED / COMMANDS_FILE).read_text("utf-8")
    assert describe_commands().splitlines() == approved.splitlines(), (
        "read `python -m tests.golden`"
    )


def test_tables_have_the_columns_that_were_approved() -> None:
    approved = (APPROVED / COLUMNS_FILE).read_text("utf-8")
    assert describe_columns().splitlines() == approved.splitlines(), "read `python -m tests.golden`"


def test_findings_say_what_was_approved(tmp_path: Path) -> None:
    approved = (APPROVED / FINDINGS_FILE).read_text("utf-8")
    found = describe_findings(tmp_path)
    assert found.splitlines() == approved.splitlines(), "read `python -m tests.golden`"


def test_a_history_shows_what_was_approved(tmp_path: Path) -> None:
    for file, text in describe_history(tmp_path).items():
        approved = (APPROVED / file).read_text("utf-8")
        assert text.splitlines() == approved.splitlines(), f"{file}: read `python -m tests.golden`"


def test_files_have_the_fields_that_were_approved() -> None:
    approved = (APPROVED / FIELDS_FILE).read_text("utf-8")
    assert describe_files().splitlines() == approved.splitlines(), "read `python -m tests.golden`"


def test_thresholds_and_defaults_are_those_that_were_approved() -> None:
    """Of the changes that lived among 300, a third were numbers at the head of a module."""
    approved = (APPROVED / LIMITS_FILE).read_text("utf-8")
    assert describe_limits().splitlines() == approved.splitlines(), "read `python -m tests.golden`"


@pytest.mark.parametrize("name", TRANSCRIPTS)
def test_commands_print_what_was_approved(name: str, tmp_path: Path) -> None:
    approved = (APPROVED / transcript_file(name)).read_text("utf-8")
    found = transcribe(tmp_path, TRANSCRIPTS[name])
    assert found.splitlines() == approved.splitlines(), "read `python -m tests.golden`"
    # Python 3.13 warns of a history that is left open; SQLite removes this file with the last user.
    assert not list(tmp_path.rglob("*.sqlite-wal"))


def add_in_turn(numbers: Iterable[float], /, start: float = 0) -> float:
    """As Python's `sum` before 3.12."""
    return functools.reduce(operator.add, numbers, start)


def add_exactly(numbers: Iterable[float], /, start: float = 0) -> float:
    """As Python's `sum` since 3.12, for floats: with what each addition rounds off."""
    values = list(numbers)
    if any(isinstance(value, float) for value in values):
        return math.fsum([start, *values])
    return add_in_turn(values, start)


@pytest.mark.parametrize("add", [add_in_turn, add_exactly])
def test_every_python_prints_the_same_figures(
    add: Callable[..., float], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A speedup was 2.33 with Python 3.11 and 2.32 with 3.13, for the same run."""
    approved = {
        name: (APPROVED / name).read_text("utf-8").splitlines()
        for name in (FINDINGS_FILE, transcript_file("programs"))
    }
    with monkeypatch.context() as patch:
        patch.setattr("builtins.sum", add)
        findings = describe_findings(tmp_path)
        commands = transcribe(tmp_path, TRANSCRIPTS["programs"])
    assert [findings.splitlines(), commands.splitlines()] == list(approved.values())


def test_statistics_of_known_series_are_those_that_were_approved() -> None:
    approved = (APPROVED / NUMBERS_FILE).read_text("utf-8")
    assert describe_numbers().splitlines() == approved.splitlines(), "read `python -m tests.golden`"
