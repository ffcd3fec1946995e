"""JSON as lines that can be read in a diff: one for each record, without what the last one said."""

from __future__ import annotations

import json
import re
from collections.abc import Collection, Iterable, Iterator
from itertools import groupby
from typing import Any, Final

_NUMBER: Final = re.compile(r"\[\d+\]")
_RECORD: Final = re.compile(r"^.*\[\d+\]")


def describe_json(document: Any, left_out: Collection[str] = ()) -> Iterator[str]:  # noqa: ANN401
    """Yields a line for each record of a list, and for each value that is in none.

    Args:
        document: any JSON.
        left_out: words; a value is left out where one of them is in its field's name.
    """
    values = (
        (field, value)
        for field, value in _values(document, "")
        if not any(word in field for word in left_out)
    )
    for record, fields in groupby(_unrepeated(values), key=lambda value: _record_of(value[0])):
        words = (f"{field[len(record) :].lstrip('.')} {value}".strip() for field, value in fields)
        yield f"{record}: {'; '.join(words)}" if record else "\n".join(words)


def _record_of(field: str) -> str:
    match = _RECORD.match(field)
    return match[0] if match else ""


def _values(document: Any, field: str) -> Iterator[tuple[str, str]]:  # noqa: ANN401 - any JSON
    """Yields the innermost values, lists of plain values among them."""
    if isinstance(document, dict) and document:
        for key, value in document.items():
            yield from _values(value, f"{field}.{key}".lstrip("."))
    elif isinstance(document, list) and any(isinstance(value, dict | list) for value in document):
        for number, value in enumerate(document):
            yield from _values(value, f"{field}[{number}]")
    else:
        yield field, json.dumps(document, ensure_ascii=False)


def _unrepeated(values: Iterable[tuple[str, str]]) -> Iterator[tuple[str, str]]:
    """Leaves out what a record of a list says as the one before it does."""
    before: dict[str, str] = {}
    for field, value in values:
        kind = _NUMBER.sub("", field)
        if kind == field or before.get(kind) != value:
            yield field, value
        before[kind] = value
