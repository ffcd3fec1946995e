"""What is owed is listed exactly: whoever pays a debt strikes it out."""

from __future__ import annotations

from collections import Counter

from tests import house_debts
from tests.unit.test_codebase import (
    MODULES,
    PACKAGE,
    importers,
    line_count,
    name_of,
    unread_fields,
)


def test_modules_that_are_to_be_folded_are_still_there() -> None:
    alone = {
        name_of(module)
        for module, users in importers().items()
        if len(users) == 1
        and {user.parent for user in users} == {module.parent}
        and line_count(module) <= 150
    }
    listed = {*house_debts.IMPORTED_ONCE, *house_debts.IMPORTED_ONCE_YET}
    assert listed <= alone, "strike these out of tests/house_debts.py"


def test_folders_that_are_too_wide_are_as_wide_as_listed() -> None:
    widths = Counter(
        module.parent.relative_to(PACKAGE).as_posix()
        for module in MODULES
        if module.name != "__init__.py"
    )
    assert {name: widths[name] for name in house_debts.WIDE_FOLDERS} == house_debts.WIDE_FOLDERS


def test_fields_that_nobody_reads_are_still_there() -> None:
    assert set(house_debts.UNREAD_FIELDS) <= unread_fields(), (
        "strike these out of tests/house_debts.py"
    )


def test_paths_are_still_where_they_are_said_to_be() -> None:
    holders = {name_of(module) for module in MODULES if "import Path" in module.read_text()}
    assert holders >= house_debts.HOLD_PATHS, "strike these out of tests/house_debts.py"
