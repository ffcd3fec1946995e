"""Reads JSON that may come from anyone: bounded in bytes, depth and numbers, and all of it text.

Refused besides what is no JSON: nesting of more than 200, NaN and Infinity, numbers that no float64
or 64-bit integer holds, lone surrogates. What is returned can be computed with and written again.
"""

from __future__ import annotations

import json
import math
from typing import TYPE_CHECKING, Any, Final

from pydantic_core import from_json

from etprof.base.files import read_input
from etprof.errors import InputFileError

if TYPE_CHECKING:
    from collections.abc import Collection
    from pathlib import Path

    from etprof.errors import EtprofError

MOST_JSON_BYTES: Final = 256 * 2**20
"""Ten million latencies in metrics.json are as long."""
_LARGEST: Final = 2**64 - 1
"""Seeds are as large."""


def read_json(
    path: Path,
    *,
    way_out: str,
    most_bytes: int = MOST_JSON_BYTES,
    error: type[EtprofError] = InputFileError,
) -> Any:  # noqa: ANN401 - whatever JSON can hold
    """Returns what the JSON file `path` holds; raises `error` with the reason and the way out."""
    data = read_input(path, most_bytes=most_bytes, way_out=way_out, error=error)
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
    """Raises ValueError for a number that no float64 or 64-bit integer holds."""
    waiting: list[Collection[object]] = [[document]]
    while waiting:
        node = waiting.pop()
        # Lists have millions of numbers: what is asked of each element, C code asks.
        kinds = set(map(type, node))
        if float in kinds and (math.inf in node or -math.inf in node):
            msg = "a number is beyond what a float64 holds"
            raise ValueError(msg)
        if int in kinds and not _is_within(node, kinds):
            msg = "a whole number is beyond 64 bits"
            raise ValueError(msg)
        if dict in kinds:
            waiting += [value.values() for value in node if isinstance(value, dict)]
        if list in kinds:
            waiting += [value for value in node if isinstance(value, list)]


def _is_within(node: Collection[Any], kinds: set[type]) -> bool:
    numbers = node if kinds == {int} else [value for value in node if type(value) is int]
    return max(numbers) <= _LARGEST and min(numbers) >= -_LARGEST


def _refuse_duplicates(pairs: list[tuple[str, object]]) -> dict[str, object]:
    found = dict(pairs)
    if len(found) < len(pairs):
        keys = [key for key, _ in pairs]
        doubled = sorted(key for key in found if keys.count(key) > 1)
        msg = f"the field {doubled[0]!r} stands twice in one object"
        raise ValueError(msg)
    return found
