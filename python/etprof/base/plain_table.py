"""The table that terminals show: its cells are text, whatever stands in them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from rich.table import Table
from rich.text import Text

if TYPE_CHECKING:
    from rich.console import RenderableType


class PlainTable(Table):
    """A table in whose texts `[red]` and `:smile:` mean nothing: names come from files."""

    def __init__(self, *headers: str, title: str | None = None, **options: Any) -> None:  # noqa: ANN401
        super().__init__(title=None if title is None else Text(title), **options)
        for header in headers:
            self.add_column(header)

    def add_column(self, header: RenderableType = "", *args: Any, **kwargs: Any) -> None:  # noqa: ANN401
        """Adds a column; its header is text."""
        super().add_column(_as_text(header), *args, **kwargs)

    def add_row(self, *cells: RenderableType | None, **options: Any) -> None:  # noqa: ANN401
        """Adds a row; cells that are no renderable yet are text."""
        super().add_row(*map(_as_text, cells), **options)


def _as_text(cell: Any) -> Any:  # noqa: ANN401 - a renderable, or None
    return Text(cell) if isinstance(cell, str) else cell
