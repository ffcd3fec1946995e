"""The numbers of any JSON, and whether it is declared what each is."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from etprof.views.json_figures import DOCUMENTS

if TYPE_CHECKING:
    from etprof.views.json_figures import Figure


def numbers_in(value: Any, *path: str) -> Iterator[tuple[tuple[str, ...], float]]:  # noqa: ANN401 - any JSON
    """Yields every number with the names that lead to it; `[]` stands for each of a list."""
    if isinstance(value, dict):
        for name, member in value.items():
            yield from numbers_in(member, *path, name)
    elif isinstance(value, list):
        for item in value:
            yield from numbers_in(item, *path, "[]")
    elif isinstance(value, int | float) and not isinstance(value, bool):
        yield path, value


def undeclared(command: str, document: dict[str, Any]) -> list[tuple[str, ...]]:
    """Returns where numbers stand that have not exactly one declaration."""
    paths = {path for path, _ in numbers_in(document)}
    return [path for path in paths if sum(_is_of(f, path) for f in DOCUMENTS[command]) != 1]


def _is_of(figure: Figure, path: tuple[str, ...]) -> bool:
    """Whether a number that stands there is the declared one."""
    declared = figure.path.replace("[]", ".[]").split(".")
    return len(declared) == len(path) and all(
        name in {"*", part} for name, part in zip(declared, path, strict=True)
    )
