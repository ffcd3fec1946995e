"""JSON with one thing wrong: every node may become anything that JSON, or almost JSON, can say."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from random import Random

    Edit = Callable[[Any, str | int, Random], str]

CANARY: Final = "hostile_canary"
"""Stands in every text that is code; whoever compiles it, or starts a program with it, is caught."""
OUTSIDE: Final = "../outside/report.html"
"""A file beside the case's folder, which nothing in the folder has a right to read."""
_MARK: Final = "@@hostile@@"
_DEPTH: Final = 10_000
_LONG: Final = 100_000

TEXTS: Final[dict[str, str]] = {
    "empty text": "",
    "long text": "x" * _LONG,
    "escapes": "\x1b[2J\x1b]0;own\x07\x9b31m",
    "bidirectional": "a\u202egpj.exe\u2066b\u2069\u200f",
    "line ends": "a\r\nb\u2028c\u2029d\x85e\x0bf",
    "NUL": "a\x00b",
    "markup": "[/]<img src=x onerror=alert(1)>[bold]x[/bold][/nothing]@everyone https://e.vil|`x`",
    "spreadsheet": '=cmd|"/c calc"!A1',
    "code": f"__import__('os').system('echo {CANARY}')",
    "template": f"{{{{ '{CANARY}'.__class__ }}}}{{0.__class__}}%s%n$(echo {CANARY})",
    "device path": "/dev/zero",
    "path outside": OUTSIDE,
    "pipe path": "pipe",
    "absolute path": "/etc/shadow",
    "long path": "d/" * 5000,
    "SQL": "'; DROP TABLE runs; --",
    "earliest moment": "0001-01-01T00:00:00+14:00",
    "latest moment": "9999-12-31T23:59:59-14:00",
    "number as text": "1",
    "astral": "\U0001f4a9\U000e0001\ufeff",
}
VALUES: Final[dict[str, str]] = {
    **{name: json.dumps(text) for name, text in TEXTS.items()},
    "null": "null",
    "true": "true",
    "false": "false",
    "minus one": "-1",
    "zero": "0",
    "half": "0.5",
    "large": "1e308",
    "tiny": "5e-324",
    "10^400": "1" + "0" * 400,
    "10^5000": "1" + "0" * 5000,
    "1e400": "1e400",
    "2^31": str(2**31),
    "2^53+1": str(2**53 + 1),
    "2^63": str(2**63),
    "2^64-1": str(2**64 - 1),
    "NaN": "NaN",
    "Infinity": "Infinity",
    "-Infinity": "-Infinity",
    "lone surrogate": '"\\ud800"',
    "surrogate pair the wrong way": '"a\\udc80\\ud800b"',
    "empty list": "[]",
    "empty object": "{}",
    "list of null": "[null]",
    "list of lists": "[[], [[]]]",
    "object of null": '{"a": null}',
    "deep list": "[" * _DEPTH + "]" * _DEPTH,
    "deep object": '{"a":' * _DEPTH + "1" + "}" * _DEPTH,
    "many": "[" + "0," * 50_000 + "0]",
}
"""What takes a node's place, as JSON text: Python can hold most of it, but not write it."""


def mutate_json(text: str, random: Random) -> tuple[str, str]:
    """Returns the document with one or, sometimes, a few nodes changed, and what was done."""
    document = json.loads(text)
    told = []
    replaced: list[str] = []
    for _ in range(random.choices((1, 2, 4), (8, 2, 1))[0]):
        places = list(_places(document, ""))
        if not places:
            break
        path, parent, key = random.choice(places)
        name, edit = random.choice(_EDITS)
        value = edit(parent, key, random)
        if value:
            parent[key] = f"{_MARK}{len(replaced)}"
            replaced.append(VALUES[value])
        told.append(f"{path}: {value or name}")
    return _insert(json.dumps(document), replaced), "; ".join(told)


def _insert(text: str, values: list[str]) -> str:
    for number, value in enumerate(values):
        text = text.replace(f'"{_MARK}{number}"', value)
    return text


def _places(node: Any, path: str) -> Iterator[tuple[str, Any, str | int]]:  # noqa: ANN401
    """Yields every value of a document: where it is, what holds it, and its key there."""
    entries = node.items() if isinstance(node, dict) else enumerate(node)
    for key, value in list(entries):
        inside = f"{path}.{key}" if path else str(key)
        yield inside, node, key
        if isinstance(value, dict | list):
            yield from _places(value, inside)


def _replace(_parent: Any, _key: str | int, random: Random) -> str:  # noqa: ANN401
    return random.choice(list(VALUES))


def _delete(parent: Any, key: str | int, _random: Random) -> str:  # noqa: ANN401
    del parent[key]
    return ""


def _rename(parent: Any, key: str | int, random: Random) -> str:  # noqa: ANN401
    name = random.choice(list(TEXTS.values()))
    if isinstance(parent, dict):
        parent[name] = parent.pop(key)
    else:
        parent.insert(0, name)
    return ""


def _repeat(parent: Any, key: str | int, random: Random) -> str:  # noqa: ANN401
    """Doubles an entry of a list; an object gets its value under a second name."""
    if isinstance(parent, list):
        parent[int(key) : int(key)] = [parent[int(key)]] * random.choice((1, 3, 300))
    else:
        parent[f"{key}_"] = parent[str(key)]
    return ""


def _shift(parent: Any, key: str | int, random: Random) -> str:  # noqa: ANN401
    """Changes a value within its type: what only a check of its meaning can see."""
    value = parent[key]
    if isinstance(value, bool):
        parent[key] = not value
    elif isinstance(value, int | float):
        parent[key] = random.choice((value + 1, -value, value * 1000, value * 10**15, -1, 0))
    elif isinstance(value, str):
        parent[key] = random.choice((value[:-1], value + "x", value.swapcase(), value[::-1]))
    elif isinstance(value, list):
        parent[key] = random.choice((value[::-1], value[:1], value * 2, []))
    elif isinstance(value, dict):
        parent[key] = dict(reversed(value.items()))
    else:
        parent[key] = 0
    return ""


def _exchange(parent: Any, key: str | int, random: Random) -> str:  # noqa: ANN401
    other = random.choice(list(parent) if isinstance(parent, dict) else range(len(parent)))
    parent[key], parent[other] = parent[other], parent[key]
    return ""


_EDITS: Final[list[tuple[str, Edit]]] = [
    *[("replaced", _replace)] * 8,
    *[("changed within its type", _shift)] * 3,
    ("deleted", _delete),
    ("renamed", _rename),
    ("repeated", _repeat),
    ("exchanged", _exchange),
]


def double_a_key(text: str, random: Random) -> str:
    """Returns an object whose first key stands in it twice, the second time with another value."""
    document = json.loads(text)
    name = next(iter(document)) if isinstance(document, dict) and document else "a"
    value = VALUES[random.choice(list(VALUES))]
    return text.rstrip().removesuffix("}") + f", {json.dumps(name)}: {value}}}"
