"""What a command found, on standard output: as tables and lines for people, or as JSON."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

from etprof.base.text import clean_lines

if TYPE_CHECKING:
    from rich.console import RenderableType

    from etprof.tables.table import Table


def show_json(document: object) -> None:
    """Prints a document for programs."""
    print(json.dumps(document, indent=2))


def show(*parts: Table | RenderableType) -> None:
    """Prints tables, lines and what rich draws; of a table without rows nothing."""
    from rich.console import Console

    from etprof.tables.table import Table
    from etprof.views.terminal import terminal_table

    for part in parts:
        if isinstance(part, str):
            print(clean_lines(part))
        elif not isinstance(part, Table):
            Console().print(part)
        elif part.rows:
            Console().print(terminal_table(part), crop=False)
