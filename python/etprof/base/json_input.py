"""Reads JSON that may come from anyone: bounded in bytes, depth and numbers, and all of it text.

Refused besides what is no JSON: nesting of more than 200, NaN and Infinity, numbers that no float64
or 64-bit integer holds, lone surrogates. What is returned can be computed with and written again.
"""

from __future__ import annotations

import json
import math
from typing import TYPE_CHECKING, Any, Final, NoReturn, TypeAlias

from pydantic_core import from_json

from etprof.base.errors import InputFileError
from etprof.base.files import read_input

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable
    from pathlib import Path

    from etprof.base.errors import EtprofError

_Node: TypeAlias = "dict[str, object] | list[object]"
MOST_JSON_BYTES: Final = 256 * 2**20
"""Ten million latencies in metrics.json are as long."""
_LARGEST: Final = 2**64 - 1
"""Seeds are as large."""
_LONGEST_PLACE: Final = 200
"""Letters of a field's name in a message."""


def read_json(
    path: Path,
    *,
    way_out: str,
    most_bytes: int = MOST_JSON_BYTES,
    error: type[EtprofError] = InputFileError,
) -> Any:  # noqa: ANN401 - whatever JSON can hold
    """Returns what the JSON file `path` holds; raises `error` with the reason and the way out."""
    data = read_input(path, most_bytes=most_bytes, way_out=way_out, error=error)
    return decode_json(data, path, way_out=way_out, error=error)


def decode_json(
    data: bytes, path: Path, *, way_out: str, error: type[EtprofError] = InputFileError
) -> Any:  # noqa: ANN401 - whatever JSON can hold
    """Returns what `data`, read from `path`, holds; raises `error` as `read_json` does."""
    try:
        return parse_json(data)
    except ValueError as problem:
        msg = f"{path} is damaged: document: Invalid JSON: {problem}; {way_out}"
        raise error(msg) from None


def parse_json(text: bytes | str, *, unique_keys: bool = False) -> Any:  # noqa: ANN401
    """Returns what the JSON text holds; raises ValueError with the reason.

    With `unique_keys`, a field that stands twice in one object is refused: for files that people
    write. Otherwise the last one counts.
    """
    try:
        data = text.encode() if isinstance(text, str) else text
    except UnicodeEncodeError as error:
        msg = f"not valid text (character {error.start})"
        raise ValueError(msg) from None
    document = from_json(data, allow_inf_nan=False)
    check_numbers(document)
    if unique_keys:
        json.loads(data, object_pairs_hook=_refuse_duplicates)
    return document


def check_numbers(document: object) -> None:
    """Raises ValueError, with the field, for a number that no float64 or 64-bit integer holds."""
    waiting: list[tuple[str | None, _Node]] = [(None, [document])]
    while waiting:
        location, node = waiting.pop()
        values = node.values() if isinstance(node, dict) else node
        # Lists have millions of numbers: what is asked of each element, C code asks.
        kinds = set(map(type, values))
        if float in kinds and (math.inf in values or -math.inf in values):
            _refuse(location, node, lambda value: value in (math.inf, -math.inf))
        if int in kinds and not _is_within(values, kinds):
            _refuse(location, node, lambda value: type(value) is int and abs(value) > _LARGEST)
        if dict in kinds or list in kinds:
            waiting += [
                (_inside(location, key), value)
                for key, value in _items(node)
                if isinstance(value, dict | list)
            ]


def _is_within(values: Collection[Any], kinds: set[type]) -> bool:
    numbers = values if kinds == {int} else [value for value in values if type(value) is int]
    return max(numbers) <= _LARGEST and min(numbers) >= -_LARGEST


def _items(node: _Node) -> Iterable[tuple[object, object]]:
    return node.items() if isinstance(node, dict) else enumerate(node)


def _inside(location: str | None, key: object) -> str:
    """Names an element of the node at `location`; None is where the document is the only element."""
    if location is None:
        return ""
    return f"{location}.{key}"[-_LONGEST_PLACE:].lstrip(".")


def _refuse(location: str | None, node: _Node, is_wrong: Callable[[Any], bool]) -> NoReturn:
    key = next(key for key, value in _items(node) if is_wrong(value))
    msg = f"{_inside(location, key) or 'document'}: the number is too large"
    raise ValueError(msg)


def _refuse_duplicates(pairs: list[tuple[str, object]]) -> dict[str, object]:
    fields = dict(pairs)
    if len(fields) < len(pairs):
        keys = [key for key, _ in pairs]
        doubled = sorted(key for key in fields if keys.count(key) > 1)
        msg = f"the field {doubled[0]!r} stands twice in one object"
        raise ValueError(msg)
    return fields
