"""The numbers of any JSON, and whether it is declared what each is."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import TYPE_CHECKING, Any

from etprof.views.json_figures import DOCUMENTS

if TYPE_CHECKING:
    from pydantic import BaseModel

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


def numbers_of(record: type[BaseModel]) -> set[tuple[str, ...]]:
    """Returns where the JSON of a record may have numbers; `*` stands for any name."""
    schema = record.model_json_schema(mode="serialization")
    return set(_numbers_of(schema, schema.get("$defs", {})))


def _numbers_of(
    node: Mapping[str, Any], definitions: Mapping[str, Any], *path: str
) -> Iterator[tuple[str, ...]]:
    if "$ref" in node:
        node = definitions[node["$ref"].rpartition("/")[2]]
    if node.get("type") in {"integer", "number"}:
        yield path
    for choice in (*node.get("anyOf", ()), *node.get("oneOf", ()), *node.get("allOf", ())):
        yield from _numbers_of(choice, definitions, *path)
    for name, member in node.get("properties", {}).items():
        yield from _numbers_of(member, definitions, *path, name)
    items = [node["items"]] if isinstance(node.get("items"), dict) else []
    for item in (*items, *node.get("prefixItems", ())):
        yield from _numbers_of(item, definitions, *path, "[]")
    for member in (node.get("additionalProperties"), *node.get("patternProperties", {}).values()):
        if isinstance(member, dict):
            yield from _numbers_of(member, definitions, *path, "*")


def undeclared(command: str, document: dict[str, Any]) -> list[tuple[str, ...]]:
    """Returns where numbers stand that have not exactly one declaration."""
    return without_figure(command, {path for path, _ in numbers_in(document)})


def without_figure(command: str, paths: Iterable[tuple[str, ...]]) -> list[tuple[str, ...]]:
    """Returns the paths that have not exactly one declaration."""
    return [path for path in paths if sum(_is_of(f, path) for f in DOCUMENTS[command]) != 1]


def _is_of(figure: Figure, path: tuple[str, ...]) -> bool:
    """Whether a number that stands there is the declared one."""
    declared = figure.path.replace("[]", ".[]").split(".")
    return len(declared) == len(path) and all(
        name in {"*", part} for name, part in zip(declared, path, strict=True)
    )
