"""Says what is wrong with a config: every problem, its field, and what may have been meant."""

from __future__ import annotations

import difflib
import re
from functools import cache
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from pydantic import BaseModel, ValidationError
    from pydantic_core import ErrorDetails

_PLACEHOLDER = re.compile(r"REPLACE_WITH\w*|<[A-Za-z_][\w -]*>|\bTODO\b|path/to/")

_MOST_PROBLEMS = 40
"""That are listed: nobody reads more at once."""
_LONGEST_TEXT = 160


def suggest(word: str, known: Iterable[str]) -> str:
    """Returns `; did you mean '…'?` when something known is close, else nothing."""
    close = difflib.get_close_matches(word, list(known), n=1)
    return f"; did you mean {close[0]!r}?" if close else ""


def describe_problems(error: ValidationError, model: type[BaseModel]) -> list[str]:
    """Returns one line per problem."""
    problems = error.errors()
    deeper = {p["loc"][:depth] for p in problems for depth in range(1, len(p["loc"]))}
    lines: list[str] = []
    for problem in problems:
        # A list whose items are all wrong is also called too short; the items say it better.
        if problem["type"] != "too_short" or problem["loc"] not in deeper:
            lines += _describe(problem, model)
    return lines


def list_problems(problems: Sequence[str]) -> str:
    """Returns one indented line per problem, and how many more there are than anybody reads."""
    lines = list(problems[:_MOST_PROBLEMS])
    if len(problems) > _MOST_PROBLEMS:
        lines.append(f"and {len(problems) - _MOST_PROBLEMS} more")
    return "\n".join(f"  {line}" for line in lines)


def _describe(problem: ErrorDetails, model: type[BaseModel]) -> list[str]:
    """Words one problem as users need it."""
    where = ".".join(str(part) for part in problem["loc"])
    if problem["type"] == "extra_forbidden":
        known = _fields_at(model, problem["loc"][:-1])
        return [f"{where}: unknown field{suggest(str(problem['loc'][-1]), known)}"]
    if problem["type"] == "missing":
        return [f"{where}: required but not given"]
    text = problem["msg"].removeprefix("Value error, ")
    if not where:
        return (
            ["must be a JSON object: {…}"]
            if problem["type"].endswith("_type")
            else text.splitlines()
        )
    got = repr(problem["input"])
    # Not the whole of it: what is wrong may be that it is too long.
    shown = got if len(got) <= _LONGEST_TEXT else f"{got[:_LONGEST_TEXT]}…"
    return [f"{where}: {text} (got {shown})"]


def _fields_at(model: type[BaseModel], location: tuple[int | str, ...]) -> list[str]:
    """Names the fields of the part of the model at `location`, in every accepted spelling."""
    schema = _schema_of(model)
    node: dict[str, Any] = schema
    for part in location:
        node = _resolve(node, schema)
        properties = node.get("properties", {})
        node = node.get("items", {}) if isinstance(part, int) else properties.get(part, {})
    return list(_resolve(node, schema).get("properties", {}))


@cache
def _schema_of(model: type[BaseModel]) -> dict[str, Any]:
    """Made once: each takes milliseconds, and a config may have thousands of unknown fields."""
    return model.model_json_schema(by_alias=False)


def _resolve(node: dict[str, Any], schema: dict[str, Any]) -> dict[str, Any]:
    """Follows a reference to a definition."""
    reference = node.get("$ref")
    if not isinstance(reference, str):
        return node
    found: dict[str, Any] = schema["$defs"][reference.rpartition("/")[2]]
    return found


def find_placeholders(document: object) -> list[str]:
    """Lists texts that a template left to be filled in."""
    return [
        f"{where}: {text[:_LONGEST_TEXT]!r} is a placeholder; fill it in"
        for where, text in _walk_texts(document, "")
        if _PLACEHOLDER.search(text)
    ]


def _walk_texts(node: object, where: str) -> Iterator[tuple[str, str]]:
    """Yields every text with its place."""
    if isinstance(node, str):
        yield where, node
    elif isinstance(node, dict):
        for key, value in node.items():
            yield from _walk_texts(value, f"{where}.{key}".lstrip("."))
    elif isinstance(node, list):
        for index, value in enumerate(node):
            yield from _walk_texts(value, f"{where}.{index}".lstrip("."))
