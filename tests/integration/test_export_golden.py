"""What an export says of a net is what somebody has read; after a change: `python -m tests.golden`."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from tests.golden.exports import EXPORTS, describe_export, export_file
from tests.golden.runs import APPROVED

if TYPE_CHECKING:
    from pathlib import Path


@pytest.mark.parametrize("name", EXPORTS)
def test_exports_say_what_was_approved(name: str, tmp_path: Path) -> None:
    approved = (APPROVED / export_file(name)).read_text("utf-8")
    found = describe_export(tmp_path, name)
    assert found.splitlines() == approved.splitlines(), "read `python -m tests.golden`"
