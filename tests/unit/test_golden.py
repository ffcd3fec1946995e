"""Reports of known runs are what somebody has read and approved, to the last digit and pixel.

After a change that is meant: `python -m tests.golden`, and read the diff.
"""

from __future__ import annotations

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


def test_statistics_of_known_series_are_those_that_were_approved() -> None:
    approved = (APPROVED / NUMBERS_FILE).read_text("utf-8")
    assert describe_numbers().splitlines() == approved.splitlines(), "read `python -m tests.golden`"
